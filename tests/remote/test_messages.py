"""Nothing that comes is trusted: what a node refuses, what a server does not count, what the owner holds back."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace

import pytest
import torch
from helpers.remote import FEDERATION, OPEN, QUICK, SECRET, direct, plan_of, simulated

import fedchord
from fedchord.check import FedchordError
from fedchord.core.round import open_run
from fedchord.data.alone import alone
from fedchord.data.ragged import Ragged
from fedchord.remote.checking import signed, welcomed
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.limits import Limits
from fedchord.remote.node import Node
from fedchord.remote.parcel import Parcel
from fedchord.remote.serve import serve
from fedchord.remote.transport import Answers

# -- what a node refuses ------------------------------------------------------------------------------------------

PLAN = plan_of("scaffold")
SHARED = open_run(PLAN.algorithm, PLAN.work().task, PLAN.clients, PLAN.course).broadcast


def node_of(folder, plan=PLAN, client=0, limits=OPEN, **more):
    return Node(plan, client, alone(FEDERATION, client), folder / "m", limits=limits, audit=folder / "a.jsonl", **more)


def question(plan=PLAN, shared=None, **facts):
    usual = {"round": 0, "counted": -1, "cohort": 2}
    return Parcel(SHARED if shared is None else shared, signed(plan, **(usual | facts)))


BAD = {
    "another plan": (lambda: question(plan_of("scaffold", seed=4)), r"message: is for another plan \(\w{8}, this one"),
    "another version": (lambda: question(version="0.0.1"), r"message: speaks for fedchord 0.0.1, this is \d"),
    "no plan": (lambda: Parcel(SHARED, {"version": fedchord.__version__}), "is for another plan"),
    "a round that is not": (lambda: question(round=3), "round must be a whole number from 0 to 2, got 3"),
    "a round in words": (lambda: question(round="1"), "round must be a whole number from 0 to 2, got '1'"),
    "a version ahead": (lambda: question(round=1, counted=1), "counted must be a whole number from -1 to 0, got 1"),
    "a cohort too large": (lambda: question(cohort=9), "cohort must be a whole number from 1 to 4, got 9"),
    "other names": (lambda: question(shared=SHARED | {"more": torch.zeros(0)}), "holds more, which nobody asked for"),
    "too few names": (lambda: question(shared={"theta": SHARED["theta"]}), "message: lacks buffers, control"),
    "other shapes": (
        lambda: question(shared=SHARED | {"theta": SHARED["theta"][:-1]}),
        r"theta is float32 \(\d+,\), float32 \(\d+,\) was expected",
    ),
    "other types": (lambda: question(shared=SHARED | {"theta": SHARED["theta"].half()}), r"theta is float16"),
    "no numbers": (
        lambda: question(shared=SHARED | {"theta": SHARED["theta"].index_fill(0, torch.tensor([3]), torch.nan)}),
        "theta holds numbers that are not finite",
    ),
    "too large": (
        lambda: question(shared=SHARED | {"theta": SHARED["theta"].repeat(3)}),
        r"message: is too large: \d+ bytes, at most \d+ were expected",
    ),
    "facts too large": (lambda: question(more="x" * 100_000), "bytes of facts, at most 65536"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_node_refuses(what, tmp_path):
    make, words = BAD[what]
    node = node_of(tmp_path)
    with pytest.raises(FedchordError, match=words) as error:
        node.answer("train", make())
    assert "\n" not in str(error.value)
    assert node.versions.rounds() == [] and node.versions.taken() == {}  # nothing was done
    line = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[-1])
    assert line["way"] == "refused" and line["why"] == str(error.value)


def test_a_question_that_nobody_knows(tmp_path):
    with pytest.raises(FedchordError, match=r"message: nobody knows the question 'rows'"):
        node_of(tmp_path).answer("rows", question())


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_an_old_round_that_is_replayed_is_refused_and_a_recent_one_gives_the_same(name, tmp_path):
    plan = plan_of(name, rounds=8)
    shared = open_run(plan.algorithm, plan.work().task, plan.clients, plan.course).broadcast
    node = node_of(tmp_path, plan)
    messages = [question(plan, shared, round=round, counted=round - 1) for round in range(6)]
    answers = [node.answer("train", message) for message in messages]
    again = node.answer("train", messages[5])
    assert all(torch.equal(again.tensors[n], t) for n, t in answers[5].tensors.items())
    for old in (0, 1, 2):
        with pytest.raises(FedchordError, match=r"memory: the client's memory .* is gone \(kept: after rounds 4, 5, 6"):
            node.answer("train", messages[old])


def test_a_hello_is_checked():
    good = Parcel(facts=signed(PLAN, client=2, name="party 2"))
    assert welcomed(PLAN, good) == 2
    with pytest.raises(FedchordError, match="node: is for another plan"):
        welcomed(plan_of("fedavg"), good)
    with pytest.raises(FedchordError, match="node: client must be a whole number from 0 to 3, got 4"):
        welcomed(PLAN, Parcel(facts=signed(PLAN, client=4)))


def test_rows_that_are_not_what_the_plan_says_are_refused(tmp_path):
    rows = alone(FEDERATION, 0)
    cases = {
        "holds rows of client 1 besides those of party 0": FEDERATION,
        "3 clients, the plan has 4": FEDERATION.only([0, 1, 2]),
        "2 classes, the plan says 3": replace(rows, classes=2),
        r"party 0 have x of float32 \(1, 8, 8\), the plan says uint8": replace(
            rows, columns=rows.columns | {"x": rows.columns["x"].float()}
        ),
    }
    for words, wrong in cases.items():
        with pytest.raises(FedchordError, match=words):
            Node(PLAN, 0, wrong, tmp_path / "m")
    short = Ragged(rows.train.rows[:-1], rows.train.offsets - (rows.train.offsets > 0).long())
    with pytest.raises(FedchordError, match="party 0 has 12 train rows, the plan says 13"):
        Node(PLAN, 0, replace(rows, train=short), tmp_path / "m")
    assert not (tmp_path / "m").exists()


# -- what the owner says ------------------------------------------------------------------------------------------


def test_methods_that_the_owner_does_not_allow(tmp_path):
    with pytest.raises(FedchordError, match=r"^limits: this node takes part in fedavg, aaggff-s, not in scaffold$"):
        node_of(tmp_path, limits=Limits(allow=("fedavg", "aaggff-s")))


def test_no_more_rounds_than_the_owner_allows(tmp_path):
    node = node_of(tmp_path, limits=Limits(rounds=1))
    first = node.answer("train", question())
    again = node.answer("train", question())  # the same round once more is no other round
    assert torch.equal(first.tensors["mix/theta"], again.tensors["mix/theta"])
    with pytest.raises(FedchordError, match="limits: this node takes part in at most 1 rounds"):
        node.answer("train", question(round=1, counted=0))
    other = {"theta": SHARED["theta"] + 1}
    with pytest.raises(FedchordError, match="at most 1 rounds"):  # and neither does another model in that round pass
        node.answer("train", question(shared=SHARED | other))


def test_no_more_measurements_than_the_owner_allows(tmp_path):
    plan = plan_of("superfed-mm")
    shared = open_run(plan.algorithm, plan.work().task, plan.clients, plan.course).broadcast

    def asked(**facts):
        return Parcel(shared, signed(plan, **({"round": 1, "counted": -1, "split": "test", "everyone": True} | facts)))

    node = node_of(tmp_path, plan, limits=replace(OPEN, evaluations=2))
    first = node.answer("evaluate", asked())
    again = node_of(tmp_path, plan, limits=replace(OPEN, evaluations=2)).answer("evaluate", asked())  # after a restart
    assert torch.equal(first.tensors["metric/loss"], again.tensors["metric/loss"])
    node.answer("sweep", asked())
    for kind, facts in (("evaluate", {"split": "validation"}), ("evaluate", {"round": 2}), ("sweep", {"round": 2})):
        with pytest.raises(FedchordError, match=r"^limits: this node tells numbers of evaluation at most 2 times$"):
            node.answer(kind, asked(**facts))
    node.answer("evaluate", asked())  # what was told may be told again
    node.answer("train", question(plan, shared))  # and rounds go on
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert sum(line["way"] == "refused" and "at most 2 times" in line["why"] for line in lines) == 3


def test_a_server_says_and_counts_who_does_not_measure_any_more(tmp_path):
    plan, lines = plan_of("fedavg", cohort="all", eval_every=1), []
    nodes = nodes_of(plan, FEDERATION, tmp_path / "nodes")
    nodes[1] = node_of(tmp_path / "one", plan, client=1, limits=Limits(evaluations=2))
    run = serve(plan, Direct(nodes), service=QUICK, report=lines.append)
    measured = [done.evaluation for done in run]
    assert [evaluation.clients for evaluation in measured] == [(0, 1, 2, 3), (0, 1, 2, 3), (0, 2, 3)]
    assert measured[-1].protocol["silent"] == 1 and measured[-1].protocol["absent"] == 0
    told = "party 1 did not measure (refused: limits: this node tells numbers of evaluation at most 2 times)"
    assert lines.count(told) == 2  # test rows in round 3, and validation rows at the end
    lost = simulated(plan)
    assert torch.equal(run.fitted.state.broadcast["theta"], lost.state.broadcast["theta"])


def test_updates_leave_within_the_norm_that_the_owner_sets(tmp_path):
    free = node_of(tmp_path / "a").answer("train", question()).tensors
    names = ("mix/theta", "mean/control")
    whole = torch.cat([free[name].double() for name in names])
    bound = 0.5 * float(whole.norm())
    held = node_of(tmp_path / "b", limits=replace(OPEN, clip=bound)).answer("train", question()).tensors
    assert abs(float(torch.cat([held[name].double() for name in names]).norm()) - bound) < 1e-6 * bound
    for name in names:
        assert torch.allclose(held[name], free[name] / 2, rtol=1e-5, atol=0)
    assert torch.equal(held["carry/buffers"], free["carry/buffers"])
    wide = node_of(tmp_path / "c", limits=replace(OPEN, clip=4 * bound)).answer("train", question()).tensors
    assert all(torch.equal(wide[name], free[name]) for name in free)


def test_a_bounded_update_is_not_weighed_up(tmp_path):
    """In two phases the server sends the weight; it must not be a way around the bound."""
    held = node_of(tmp_path / "a", limits=replace(OPEN, clip=0.1))
    for coefficient, share, words in (
        (2.0, 0.5, "coefficient must be a number from -1 to 1, got 2.0"),
        (0.5, 1.5, "share must be a number from 0 to 1, got 1.5"),
        (float("nan"), 0.5, "coefficient must be a number from -1 to 1, got nan"),
        (True, 0.5, "coefficient must be a number"),
    ):
        with pytest.raises(FedchordError, match=words):
            held.answer("train", question(coefficient=coefficient, share=share))
    free = node_of(tmp_path / "b")
    once, twice = (free.answer("train", question(coefficient=c, share=0.5)).tensors["mix/theta"] for c in (1.0, 2.0))
    assert torch.equal(twice, 2 * once)


def test_questions_for_losses_are_rounds_too(tmp_path):
    plan = plan_of("aaggff-d", rounds=3)
    shared = open_run(plan.algorithm, plan.work().task, plan.clients, plan.course).broadcast
    node = node_of(tmp_path, plan, limits=Limits(rounds=1))
    node.answer("loss", question(plan, shared))
    node.answer("train", question(plan, shared))  # the second phase of the same round
    with pytest.raises(FedchordError, match="at most 1 rounds"):
        node.answer("loss", question(plan, {name: part + 1 for name, part in shared.items()}))


def test_logs_and_metrics_leave_only_where_the_owner_lets_them(tmp_path):
    plan = plan_of("superfed-mm", method__start_round=0)
    shared = open_run(plan.algorithm, plan.work().task, plan.clients, plan.course).broadcast
    closed = Node(plan, 0, alone(FEDERATION, 0), tmp_path / "m", limits=Limits(metrics=("loss",)))
    told = closed.answer("train", question(plan, shared))
    assert set(told.tensors) == {"mix/theta", "carry/buffers"}
    opened = node_of(tmp_path, plan, client=1).answer("train", question(plan, shared))
    assert any(name.startswith("log.means/") for name in opened.tensors)
    asked = Parcel(shared, signed(plan, round=1, counted=0, split="test", everyone=True))
    assert set(closed.answer("evaluate", asked).tensors) == {"metric/loss", "counts"}
    assert closed.answer("sweep", Parcel(shared, signed(plan, round=1, counted=0))).tensors == {}


def test_what_a_dry_run_lists_is_what_leaves(tmp_path):
    for name in ("superfed-mm", "aaggff-p", "fedevg"):
        plan = plan_of(name, **({"judge__steps": 2} if name == "fedevg" else {}))
        nodes = nodes_of(plan, FEDERATION, tmp_path / name, SECRET)
        listed = {client: node.leaving() for client, node in nodes.items()}
        serve(plan, Direct(nodes), service=QUICK).finish()
        for client, node in nodes.items():
            lines = [json.loads(line) for line in node.audit.path.read_text().splitlines()]
            for line in lines:
                if line["way"] == "out":
                    known = {n: [str(t.dtype)[6:], *t.shape] for n, t in listed[client][line["kind"]].items()}
                    assert line["names"] == known, (name, line["kind"])


def test_numbers_that_nobody_tells_are_counted_and_not_made_up(tmp_path):
    plan, out = plan_of("fedavg", cohort="all"), tmp_path / "out"
    nodes = nodes_of(plan, FEDERATION, tmp_path / "nodes")
    nodes[1] = node_of(tmp_path / "one", plan, client=1, limits=Limits(metrics=()))
    nodes[2] = node_of(tmp_path / "two", plan, client=2, limits=Limits(metrics=("top1",)))
    summary = serve(plan, Direct(nodes), out, service=QUICK).finish()
    assert summary["protocol"]["evaluated"] == 3 and summary["protocol"]["silent"] == 1
    assert summary["per_client"]["client"] == ["party 0", "party 2", "party 3"]
    assert summary["per_client"]["loss"][1] is None and summary["per_client"]["top1"][1] is not None
    assert summary["metrics"]["loss"]["undefined"] == 1 and summary["metrics"]["loss"]["mean"] is not None
    closed = {client: node_of(tmp_path / f"n{client}", plan, client, Limits(metrics=())) for client in range(4)}
    summary = serve(plan, Direct(closed), service=QUICK).finish()
    assert summary["metrics"]["top1"]["mean"] is None and summary["per_client"]["client"] == []


# -- what is on the owner's disk ----------------------------------------------------------------------------------


def test_memory_is_private_and_the_audit_tells_of_every_message(tmp_path):
    node = node_of(tmp_path)
    reply = node.answer("train", question())
    assert stat.S_IMODE(os.stat(tmp_path / "m").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(node.versions.folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(tmp_path / "a.jsonl").st_mode) == 0o600
    came, left = (json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines())
    assert (came["way"], came["kind"], came["round"]) == ("in", "train", 0)
    assert (left["way"], left["kind"], left["round"]) == ("out", "train", 0)
    assert set(left["names"]) == set(reply.tensors) and left["names"]["mix/theta"][0] == "float32"
    size = sum(t.numel() * t.element_size() for t in reply.tensors.values())
    assert size < left["bytes"] < size + 300
    node.answer("train", question())
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert json.loads(lines[3])["hash"] == left["hash"] and len(left["hash"]) == 64


def test_a_full_disk_is_a_refusal_and_leaves_nothing_half(tmp_path, monkeypatch):
    node = node_of(tmp_path)
    node.answer("train", question())

    def full(*told, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(FedchordError, match=r"after-000001.safetensors cannot be written \(No space left on device\)"):
        node.answer("train", question(round=1, counted=0))
    monkeypatch.undo()
    assert node.versions.rounds() == [0] and sorted(node.versions.taken()) == [0]
    node.answer("train", question(round=1, counted=0))
    assert node.versions.rounds() == [0, 1]


def test_a_node_uses_its_own_model_where_it_is(tmp_path):
    plan = plan_of("superfed-mm", cohort="all")
    transport = direct(plan, tmp_path)
    serve(plan, transport, service=QUICK).finish()
    last = simulated(plan)
    rows = FEDERATION.columns["x"][:5]
    for client, node in transport.nodes.items():
        mine = node.fitted().predict(rows, client=client).values
        known = fedchord.Fitted.of(last).predict(rows, client=client).values
        assert torch.equal(mine, known)


# -- what a server does not count ---------------------------------------------------------------------------------


def spoilt(parcel: Parcel, how: str) -> Parcel:
    theta = parcel.tensors["mix/theta"]
    wrong = {
        "shape": {"mix/theta": theta[:-1]},
        "type": {"mix/theta": theta.double()},
        "nan": {"mix/theta": theta.index_fill(0, torch.tensor([0]), torch.nan)},
        "inf": {"mix/theta": theta.index_fill(0, torch.tensor([0]), torch.inf)},
        "large": {"mix/theta": theta.repeat(100)},
        "more": {"mix/rows": theta},
    }
    if how in wrong:
        return Parcel(parcel.tensors | wrong[how], parcel.facts)
    if how == "less":
        return Parcel({}, parcel.facts)
    facts = {"round": {"round": 1}, "plan": {"plan": "x"}, "nothing": {"round": None}}[how]
    return Parcel(parcel.tensors, parcel.facts | facts)


CAUSES = {
    "shape": "garbage: answer: mix/theta is float32",
    "type": "garbage: answer: is too large",
    "nan": "garbage: answer: mix/theta holds numbers that are not finite",
    "inf": "garbage: answer: mix/theta holds numbers that are not finite",
    "large": "garbage: answer: is too large",
    "more": "garbage: answer: is too large",
    "less": "garbage: answer: lacks carry/buffers, mix/theta",
    "round": "another round: 2",
    "plan": "garbage: answer: is for another plan",
    "nothing": "garbage: answer: round must be a whole number",
}


@pytest.mark.parametrize("how", CAUSES)
def test_an_answer_that_is_garbage_is_left_out_and_counted(how, tmp_path):
    plan = plan_of("fedavg", cohort="all", rounds=1)
    nodes = nodes_of(plan, FEDERATION, tmp_path, limits=OPEN)

    class Spoiling(Direct):
        def ask(self, kind, parcels, seconds):
            found = super().ask(kind, parcels, seconds)
            if kind == "train":
                return Answers(found.parcels | {1: spoilt(found.parcels[1], how)}, found.missing)
            return found

    lines = []
    run = serve(plan, Spoiling(nodes), service=QUICK, report=lines.append)
    (done,) = run
    assert lines[0].startswith(f"round 1: the answer of party 1 is not taken ({CAUSES[how]}")
    heard = [json.loads(line) for line in (tmp_path / "client-1.jsonl").read_text().splitlines()]
    assert [line["way"] for line in heard if line["kind"] == "notice"] == ["in", "out"]  # the node is told as well
    assert done.cohort == (0, 2, 3) and done.missing[1].startswith(CAUSES[how])
    assert run.summary["missing"] == {CAUSES[how].partition(":")[0]: 1}
    assert torch.isfinite(done.state.broadcast["theta"]).all()
    lost = simulated(plan, weather=fedchord.Weather(lost="1:1"))
    assert torch.equal(done.state.broadcast["theta"], lost.state.broadcast["theta"])
