"""LG-FedAvg, FedPer and FedRep against plain torch, and the cut of a model into two parts."""

from __future__ import annotations

import copy
from collections import OrderedDict

import pytest
import torch
from helpers import oracle
from helpers.oracle import CLIENTS, COHORT, COHORTS, DENSE, FEDERATION, SEED, SETTINGS, TRAINING, close, vector
from torch import nn

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.clients.split import Split
from fedchord.core.local import local_round
from fedchord.core.rules import RoundInfo
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.engine.work import Work
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted

METHODS = ["lg-fedavg", "fedper", "fedrep"]
INFO = RoundInfo(round=0, rounds=4, num_clients=7, cohort=3, lr=0.1, epochs=2, key=0)

CASES = {
    "lg-fedavg": ("lg-fedavg", {}, "dense"),
    "lg-fedavg, autograd": ("lg-fedavg", {}, "autograd"),
    "lg-fedavg, batchnorm": ("lg-fedavg", {}, "batchnorm"),
    "fedper": ("fedper", {}, "dense"),
    "fedper, batchnorm": ("fedper", {}, "batchnorm"),
    "fedper, two modules": ("fedper", {"head": "hidden2,head"}, "dense"),
    "fedper, two ends": ("fedper", {"head": "hidden1, head"}, "dense"),
    "fedper, the middle": ("fedper", {"head": "hidden2"}, "autograd"),
    "lg-fedavg, two ends": ("lg-fedavg", {"head": "head,hidden1"}, "dense"),
    "lg-fedavg, the front": ("lg-fedavg", {"head": "hidden1"}, "dense"),
    "fedrep": ("fedrep", {}, "dense"),
    "fedrep, epochs": ("fedrep", {"head_epochs": 3, "body_epochs": 2}, "autograd"),
    "fedrep, batchnorm": ("fedrep", {}, "batchnorm"),
    "fedrep, two ends": ("fedrep", {"head": "hidden1,head", "head_epochs": 1}, "dense"),
    "private body, in turns": ("lg-fedavg", {"alternate": True}, "dense"),
}


@pytest.mark.parametrize("case", CASES)
def test_against_plain_torch(case):
    name, parameters, kind = CASES[case]
    setting = SETTINGS[kind]
    algorithm = oracle.build(name, **parameters)
    g = setting.first()
    names = [n for n, _ in g.named_parameters()]
    heads = [part.strip() for part in parameters.get("head", "head").split(",")]
    head = [n for n in names if n.split(".")[0] in heads]
    body = [n for n in names if n not in head]
    assert head and body
    own, shared = (body, head) if name == "lg-fedavg" else (head, body)
    # BatchNorm statistics belong to the body
    private_body = name == "lg-fedavg"
    sent = shared + ([] if private_body else [n for n, _ in g.named_buffers()])
    in_turns = name == "fedrep" or parameters.get("alternate", False)
    models = {i: setting.private(i) for i in CLIENTS}

    def train(i: int, t: int) -> nn.Module:
        local = copy.deepcopy(models[i])
        oracle.copy_named(local, g, sent)
        if not in_turns:
            return oracle.descend(setting, local, i, t)
        local = oracle.descend(setting, local, i, t, epochs=parameters.get("head_epochs", 2), names=head)
        return oracle.descend(setting, local, i, t, phase=1, epochs=parameters.get("body_epochs", 1), names=body)

    for t, result in enumerate(oracle.running(algorithm, setting)):
        assert result.cohort == COHORTS[t]
        for i in result.cohort:
            models[i] = train(i, t)
        oracle.copy_named(g, oracle.average([models[i] for i in result.cohort], oracle.by_size(result.cohort)), sent)
        assert close(result.state.broadcast["theta"], vector(g, shared)), t
        if private_body:
            assert "buffers" not in result.state.broadcast
        else:
            assert close(result.state.broadcast["buffers"], oracle.buffers(g)), t
        assert result.memory.clients() == sorted({i for cohort in COHORTS[: t + 1] for i in cohort})
        for i in result.memory.clients():
            assert result.memory.get(i).keys() == ({"own", "buffers"} if private_body else {"own"})
            if private_body:
                assert close(result.memory.get(i)["buffers"], oracle.buffers(models[i])), (t, i)
            assert close(result.memory.get(i)["own"], vector(models[i], own)), (t, i)
    whole = {i: copy.deepcopy(models[i]) for i in CLIENTS}
    for i, module in whole.items():
        oracle.copy_named(module, g, sent)
        if i in oracle.NEVER:  # its own part alone is trained, and what is shared is deployed as it was received
            whole[i] = oracle.descend(setting, module, i, oracle.ROUNDS, names=own, lr=oracle.rate(oracle.ROUNDS - 1))
            oracle.copy_named(whole[i], g, sent)
    oracle.check_deployed(result, whole)


@pytest.mark.parametrize("name", METHODS)
def test_only_clients_that_were_never_sampled_train_before_use(name, monkeypatch):
    """The others deploy what they keep, bit for bit; the random start differs by client, and with the seed."""
    algorithm, task = oracle.build(name), DENSE.task()
    result = oracle.last(algorithm)
    work = Work(algorithm, task, FEDERATION, TRAINING, SEED)
    other = Work(algorithm, task, FEDERATION, TRAINING, SEED + 1)
    for i in CLIENTS:
        kept = result.memory.get(i)
        tuned = work.tune(i, kept, result.state)
        if i not in oracle.NEVER:
            assert tuned is kept
            continue
        assert kept is None and torch.equal(tuned["theta"], result.state.broadcast["theta"])
        assert not torch.allclose(tuned["own"], work.own(i, None, result.state.broadcast)["own"])
        assert not torch.allclose(tuned["own"], other.tune(i, None, result.state)["own"])
    first, second = (work.tune(i, None, result.state)["own"] for i in oracle.NEVER)
    assert not torch.allclose(first, second)
    places = [result.evaluation.clients.index(i) for i in oracle.NEVER]
    monkeypatch.setattr(Split, "tuning", lambda self, visit: ())
    untrained = evaluate(Fitted.of(result))
    changed = result.evaluation.per_client["loss"] != untrained.per_client["loss"]
    assert changed.nonzero().flatten().tolist() == places
    assert result.evaluation.protocol["never_sampled"] == len(oracle.NEVER)
    assert "never sampled first trains its own part" in result.evaluation.protocol["deploys"]["words"]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["dense", "batchnorm"])
def test_serial_and_processes_deploy_the_same(name, kind):
    algorithm, setting = oracle.build(name), SETTINGS[kind]
    serial, processes = (oracle.last(algorithm, setting, executor=e, workers=2) for e in ("serial", "processes"))
    for metric, values in serial.evaluation.per_client.items():
        assert torch.equal(values, processes.evaluation.per_client[metric]), metric


SIZES = {"hidden1": 35, "hidden2": 30, "head": 18}


@pytest.mark.parametrize(
    ("name", "head", "sent"),
    [
        ("fedper", "", 65),
        ("fedrep", "", 65),
        ("lg-fedavg", "", 18),
        ("fedper", "hidden2,head", 35),
        ("lg-fedavg", "hidden1,head", 53),
        ("fedper", "hidden1,head", 30),
        ("fedper", "head.bias", 80),
    ],
)
def test_only_the_shared_part_is_broadcast_and_paid_for(name, head, sent):
    result = oracle.last(oracle.build(name, head=head), rounds=1)
    assert result.state.broadcast["theta"].shape == (sent,)
    assert result.bytes_up == result.bytes_down == 4 * sent * COHORT
    whole = oracle.last("fedavg", rounds=1)
    assert whole.bytes_up == 4 * sum(SIZES.values()) * COHORT > result.bytes_up
    for client in result.memory.clients():
        assert len(result.memory.get(client)["own"]) == sum(SIZES.values()) - sent


class Nested(nn.Module):
    """A head between two parts of the body, with modules inside modules and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))
        self.head = nn.Sequential(OrderedDict(a=nn.Linear(6, 4), b=nn.Linear(4, 4)))
        self.heading = nn.Linear(4, 3)

    def forward(self, x):
        return self.heading(self.head(x * self.scale).relu())


@pytest.mark.parametrize(
    ("head", "size"), [("head", 48), ("head.a", 28), ("heading", 15), ("", 15), ("scale", 6), ("scale,head.b", 26)]
)
@pytest.mark.parametrize("keeps", ["head", "body"])
def test_cuts_by_name_take_a_model_apart_and_put_it_together(head, size, keeps):
    task = Task(Nested)
    rule = Split(keeps=keeps, head=head)
    model = task.init(1)
    shared = rule.opening(task, 1)
    own = rule.init(task, shared, 1)  # the same key: the two parts of one model
    assert len(own["own"]) == (size if keeps == "head" else task.layout.size - size)
    assert len(own["own"]) + len(shared["theta"]) == task.layout.size
    assert torch.equal(rule.deploy(task, shared, own)["theta"], model["theta"])
    names = task.layout.views(model["theta"])
    taken = [n for n in names if any(n == h or n.startswith(h + ".") for h in (head or "heading").split(","))]
    kept = torch.cat([names[n].reshape(-1) for n in names if (n in taken) == (keeps == "head")])
    assert torch.equal(own["own"], kept)


def test_private_parts_start_apart():
    task, rule = DENSE.task(), Split()
    shared = rule.opening(task, rng.key(SEED, "model"))
    parts = [rule.init(task, shared, rng.key(SEED, "own", i))["own"] for i in CLIENTS]
    heads = [*parts, task.init(rng.key(SEED, "model"))["theta"][65:]]
    assert all(not torch.equal(a, b) for i, a in enumerate(heads) for b in heads[:i])


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("head", ["", "hidden,head"])
@pytest.mark.parametrize("keeps", ["head", "body"])
def test_the_frozen_part_does_not_move_at_all(kind, head, keeps):
    """With momentum and weight decay: one phase of no epochs leaves its part where it was, bit for bit."""
    setting = SETTINGS[kind]
    task = setting.task()
    head = head.replace("hidden", "hidden1") if kind != "batchnorm" else head
    for head_epochs, body_epochs in [(2, 0), (0, 2)]:
        rule = Split(keeps=keeps, head=head, alternate=True, head_epochs=head_epochs, body_epochs=body_epochs)
        shared, own = rule.opening(task, 1), rule.init(task, {}, 2)
        stream = ClientStream(FEDERATION, 3, 4, 7, least=task.least_batch)
        upload, kept, _ = local_round(rule, task, TRAINING, shared, own, stream, INFO, 3, 5)
        stays = (keeps == "head") == (head_epochs == 0)
        assert torch.equal(kept["own"], own["own"]) == stays
        assert (not upload.mix["theta"].any()) == (not stays)


def test_momentum_of_the_first_phase_does_not_reach_the_second():
    """The body phase after the head phase equals the body phase alone from where the head phase ended."""
    task = DENSE.task()
    both = Split(alternate=True, head_epochs=2, body_epochs=1)
    shared, own = both.opening(task, 1), both.init(task, {}, 2)

    def run(rule, own):
        stream = ClientStream(FEDERATION, 3, 4, 7)
        upload, kept, _ = local_round(rule, task, TRAINING, shared, own, stream, INFO, 3, 5)
        return upload.mix["theta"], kept

    _, middle = run(Split(alternate=True, head_epochs=2, body_epochs=0), own)
    whole, end = run(both, own)
    # the head phase has no epochs here, so the body phase is phase 1 as above
    alone, _ = run(Split(alternate=True, head_epochs=0, body_epochs=1), middle)
    assert torch.equal(whole, alone) and torch.equal(end["own"], middle["own"])


@pytest.mark.parametrize("name", METHODS)
def test_batchnorm_runs(name):
    result = oracle.last(name, SETTINGS["batchnorm"])
    assert torch.isfinite(result.state.broadcast["theta"]).all()
    assert result.evaluation.metrics["loss"]["mean"] < 3


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            lambda: oracle.last(oracle.build("fedper", head="haed")),
            "unknown module 'haed'; did you mean 'head'? (known: head, hidden1, hidden2)",
        ),
        (lambda: oracle.last(oracle.build("fedper", head="head,")), "unknown module ''"),
        (
            lambda: oracle.last(oracle.build("fedrep", head="hidden1,hidden2,head")),
            "Split: hidden1, hidden2, head is the whole model: nothing is left for the body",
        ),
        (
            lambda: oracle.last(oracle.build("lg-fedavg", head="hidden1,hidden2,head")),
            "Split: hidden1, hidden2, head is the whole model: nothing is left for the body",
        ),
        (
            lambda: oracle.last("fedper", oracle.Setting(lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), False)),
            "is the whole model",
        ),
        (lambda: Split(keeps="heads"), "Split: keeps must be one of head, body, got 'heads'"),
        (lambda: Split(body_epochs=-1), "Split: body_epochs must be a whole number of at least 0, got -1"),
        (lambda: Split(head_epochs=1.5), "Split: head_epochs must be a whole number of at least 0, got 1.5"),
    ],
)
def test_mistakes_are_told_in_one_line(call, line):
    with pytest.raises(FedchordError) as error:
        call()
    assert line in str(error.value) and "\n" not in str(error.value)
