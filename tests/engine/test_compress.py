"""Uploads in few bytes: rounding by hand and by fractions, what is lost and sent later, the same bits everywhere."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers.federations import make_federation
from helpers.ranked import Named

from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.core.round import Plan, open_run, round_info
from fedchord.core.rules import Algorithm, ClientRule
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.checkpoint import Checkpoints
from fedchord.engine.compress import BLOCK, LOST, Compress, divided, from_bytes, to_bytes, to_half
from fedchord.engine.guards import Defence
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import simulate
from fedchord.engine.work import Work
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute, run
from fedchord.mixing.static import BySize
from fedchord.models import TwoNN
from fedchord.privacy.terms import Privacy
from fedchord.servers.step import Step
from fedchord.testing.contract import assert_same

FEDERATION = make_federation([8, 6, 9, 5, 7])
TRAINING = Training(batch=4, lr=0.1)
SENT = ("fedavg", "scaffold", "superfed-mm", "fedper", "aaggff-d")


def block(*numbers: float) -> torch.Tensor:
    return torch.tensor([*numbers, *[0.0] * (BLOCK - len(numbers))])


@pytest.mark.parametrize(
    ("numbers", "exponent", "whole"),
    [
        ((127.0, -64.0, 0.4, 0.5, 1.5, -126.6), 0, (127, -64, 0, 0, 2, -127)),
        ((128.0, 1.0, 3.0), 1, (64, 0, 2)),
        ((127.25, -0.75), 1, (64, 0)),
        ((0.5, 0.25, -0.001), -7, (64, 32, 0)),
        ((0.0,), -126, (0,)),
        ((2.0**-130, 2.0**-126), -126, (0, 1)),
        ((1.0, math.inf), 127, (0, 0)),
    ],
)
def test_a_block_by_hand(numbers, exponent, whole):
    found, exponents = to_bytes(block(*numbers))
    assert exponents.tolist() == [exponent]
    assert found[: len(whole)].tolist() == list(whole) or exponent == 127
    arrived = from_bytes(found, exponents)
    if exponent == 127:
        assert arrived.isnan().all()
    else:
        assert arrived[: len(whole)].tolist() == [q * 2.0**exponent for q in whole]


def test_bytes_are_the_nearest_whole_numbers_by_exact_arithmetic():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1000, generator=draw) * 2.0 ** torch.randint(-60, 60, (1000,), generator=draw)
    numbers, exponents = to_bytes(x)
    assert len(numbers) == 1000 and len(exponents) == 16 and numbers.dtype == exponents.dtype == torch.int8
    for at in range(16):
        exact = [Fraction(value) for value in x[at * BLOCK : (at + 1) * BLOCK].tolist()]
        e = -126
        while max(map(abs, exact)) > 127 * Fraction(2) ** e:
            e += 1
        assert exponents[at] == e
        assert numbers[at * BLOCK : (at + 1) * BLOCK].tolist() == [round(value / Fraction(2) ** e) for value in exact]


def test_half_is_that_of_numpy_and_never_infinite():
    x = torch.randn(500, generator=torch.Generator().manual_seed(1)) * torch.logspace(-9, 4, 500)
    assert np.array_equal(to_half(x).numpy(), x.numpy().astype(np.float16))
    assert to_half(torch.tensor([1e6, -1e38, math.inf])).tolist() == [65504.0, -65504.0, math.inf]
    assert to_half(torch.tensor([math.nan])).isnan().all()


@pytest.mark.parametrize("form", ["half", "bytes"])
def test_what_was_rounded_can_be_packed_again_without_a_loss(form):
    how, x = Compress(form), torch.randn(3, 50, generator=torch.Generator().manual_seed(2)) * 1e-3
    once = how.rounded(x)
    assert not torch.equal(once, x) and torch.equal(how.rounded(once), once)
    came = how.unpacked(how.packed({"mix/theta": once, "loss": x[0]}))
    assert torch.equal(came["mix/theta"], once) and torch.equal(came["loss"], x[0]) and len(came) == 2
    worst = (once - x).abs().max()
    assert worst <= x.abs().max() * (2**-11 if form == "half" else 1 / 127)


def visits(name: str, how: Compress | None, rounds: int = 5):
    """What one client sends and keeps in rounds whose broadcasts are the same with and without packing."""
    parts = (Task(lambda: TwoNN(6, 5, 3)), FEDERATION, TRAINING, 1, "cpu", (), False, None)
    plan, work = Plan(rounds, 5, 1), Work.of(catalog.build(name), *parts, how)
    state, kept = open_run(work.algorithm, work.task, 5, plan), None
    for round in range(rounds):
        shared = {entry: tensor + 0.1 * round for entry, tensor in state.broadcast.items()}
        upload, kept, _ = work.run(2, shared, kept, round_info(plan, work.training, 5, round, 5))
        yield {f"mix.{n}": t for n, t in upload.mix.items()} | {f"mean.{n}": t for n, t in upload.mean.items()}, kept


@pytest.mark.parametrize("form", ["half", "bytes"])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "superfed-mm"])
def test_all_that_was_sent_is_all_updates_less_what_was_lost_last(name, form):
    plain, packed = list(visits(name, None)), list(visits(name, Compress(form)))
    careless = list(visits(name, Compress(form, feedback=False)))
    for entry in plain[0][0]:
        updates = sum(sent[entry].double() for sent, _ in plain)
        sent = sum(sent[entry].double() for sent, _ in packed)
        lost = packed[-1][1][LOST + entry].double()
        assert torch.allclose(sent + lost, updates, rtol=0, atol=2e-7)
        assert (sent - updates).abs().max() > 2e-6  # something was lost, and it is in `lost`
        largest = max(float(s[entry].abs().max()) for s, _ in packed)
        assert lost.abs().max() <= largest / (127 if form == "bytes" else 2**11)
        once = sum(sent[entry].double() for sent, _ in careless)
        assert (once - updates).abs().mean() > 1.2 * lost.abs().mean()
        assert not any(key.startswith(LOST) for _, kept in careless for key in kept)
    rules = [divided(kept)[0] for _, kept in packed]
    assert all(kept.keys() == mine.keys() for (_, kept), mine in zip(plain, rules, strict=True))
    assert all(torch.equal(plain[-1][1][key], rules[-1][key]) for key in rules[-1])


def method(name: str, **settings):
    return Named(name).run(**settings)


@pytest.mark.parametrize("name", SENT)
def test_the_same_bits_in_processes_and_after_an_interruption(name, tmp_path):
    whole = method(name, compress="bytes")
    assert_same(whole, method(name, compress="bytes", executor="processes", workers=2))
    named, checkpoints = Named(name), Checkpoints(tmp_path, every=1, fingerprint="x")
    settings = {"rounds": 4, "cohort": named.cohort(), "seed": 1, "training": whole.work.training, "compress": "bytes"}
    with closing(simulate(named.algorithm(), named.task(), whole.work.federation, **settings)) as running:
        for result in (next(running), next(running)):
            checkpoints.save(result.state, result.memory)
    memory = ClientMemory()
    found = checkpoints.load(memory)
    assert any(key.startswith(LOST) for key in memory.get(memory.clients()[0]))
    assert_same(whole, method(name, compress="bytes", state=found.state, memory=memory))
    assert not torch.equal(whole.state.broadcast["theta"], method(name).state.broadcast["theta"])


@pytest.mark.parametrize("form", ["half", "bytes"])
def test_vectorised_agrees_but_for_numbers_rounded_the_other_way(form):
    """Where a sum ends a hair off, a number may be rounded up instead of down: by one step, at few places."""
    for name in ("fedavg", "superfed-mm"):
        a, b = method(name, compress=form), method(name, compress=form, executor="vectorised")
        gap = (a.state.broadcast["theta"] - b.state.broadcast["theta"]).abs()
        assert gap.max() < 2e-3 and gap.median() < 1e-5


def test_bytes_up_are_counted():
    weights = 6 * 5 + 5 + 5 * 5 + 5 + 5 * 3 + 3
    each = {None: 4 * weights, "half": 2 * weights, "bytes": weights + math.ceil(weights / 64)}
    for form, count in each.items():
        (one,) = simulate(catalog.build("fedavg"), small(), FEDERATION, rounds=1, cohort=3, compress=form)
        assert (one.bytes_up, one.bytes_down) == (3 * count, 3 * 4 * weights)
        (two,) = simulate(catalog.build("scaffold"), small(), FEDERATION, rounds=1, cohort=3, compress=form)
        assert two.bytes_up == 2 * 3 * count
        (told,) = simulate(catalog.build("term"), small(), FEDERATION, rounds=1, cohort=3, compress=form)
        assert told.bytes_up == 3 * (count + 4)


def small() -> Task:
    return Task(lambda: TwoNN(6, 5, 3))


@pytest.mark.parametrize("name", sorted(catalog.METHODS))
def test_a_method_that_sends_no_update_is_refused_in_one_line(name):
    algorithm = catalog.build(name)
    if "theta" in algorithm.client.sends:
        Compress("bytes").check(algorithm)
        return
    with pytest.raises(FedchordError, match=f"is for updates of models, and {name} sends") as told:
        Compress("bytes").check(algorithm)
    assert "\n" not in str(told.value)


def test_what_does_not_go_together_is_refused_in_one_line():
    private = {"privacy": Privacy("clients", noise=1.0), "compress": "half"}
    with pytest.raises(FedchordError, match="privacy: noise hides updates that are clipped"):
        next(simulate(catalog.build("uniform"), small(), FEDERATION, **private))
    with pytest.raises(
        FedchordError, match="run: compress=half is for updates that are summed, and combine=median is no sum"
    ):
        next(
            simulate(catalog.build("uniform"), small(), FEDERATION, defence=Defence(combine="median"), compress="half")
        )
    with pytest.raises(FedchordError, match="run: compress must be one of half, bytes, got 'third'"):
        run(catalog.build("fedavg"), small(), FEDERATION, compress="third")
    for given, told in {
        ("compress=third",): "compress must be one of half, bytes",
        ("compress=half", "method=fedevg"): "fedevg sends num and den",
        ("compress=half", "method=local"): "local sends nothing",
        ("compress=half", "central=true"): "central has the rows of all",
        (
            "compress=half",
            "combine=median",
        ): "run: compress=half is for updates that are summed, and combine=median is no sum",
        ("compress=bytes", "combine=trimmed", "compress.feedback=false"): "combine=trimmed is no sum",
        ("compress.feedback=false",): "compress.feedback is given, but compress is not",
        ("compress=half", "method=uniform", "privacy=clients", "privacy.noise=1"): "leave one of the two out",
    }.items():
        with pytest.raises(FedchordError, match=told):
            RunConfig.from_pairs(given)

    with pytest.raises(FedchordError, match="is for updates of what was broadcast, and control was not"):
        Compress("half").first(catalog.build("scaffold"), {"theta": torch.zeros(3)})


@dataclass(frozen=True)
class Breaks(ClientRule):
    """FedAvg, whose client 2 breaks down in its second round."""

    value: float = math.inf

    def finish(self, trained, visit):
        upload, own = super().finish(trained, visit)
        if (int(visit.client), visit.info.round) == (2, 1):
            theta = upload.mix["theta"].clone()
            theta[3] = self.value
            upload = replace(upload, mix={"theta": theta})
        return upload, own


@pytest.mark.parametrize("form", ["half", "bytes"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_an_update_that_is_not_finite_is_still_noticed_and_leaves_no_trace(form, value):
    done = list(simulate(Algorithm(Breaks(value), BySize(), Step()), small(), FEDERATION, rounds=3, compress=form))
    assert done[1].missing == {2: "not finite: theta"} and not done[2].missing
    kept = done[2].memory.get(2)
    assert all(tensor.isfinite().all() for tensor in kept.values())


def test_private_models_are_deployed_as_they_are():
    for name in ("superfed-mm", "fedavg-ft", "pfedme", "fedper"):
        fitted = Fitted.of(method(name, compress="half"))
        for client in range(3):
            assert fitted.deployed(client)["theta"].isfinite().all()
            assert not any(key.startswith(LOST) for key in fitted.memory_of(client) or {})


def test_a_run_of_the_command_and_one_of_objects(tmp_path):
    pairs = ["compress=bytes", "clients=6", "rounds=3", "cohort=2", "model=logreg", "executor=serial"]
    config = RunConfig.from_pairs([*pairs, f"out={tmp_path / 'a'}"])
    assert config.values()["compress"] == "bytes" and "compress.feedback" not in config.values()
    assert RunConfig.from_pairs([*pairs, "compress.feedback=true"]).fingerprint() == config.fingerprint()
    assert RunConfig.from_pairs([*pairs, "compress.feedback=false"]).fingerprint() != config.fingerprint()
    assert execute(config)["rounds"] == 3
    lines = [line for line in (tmp_path / "a" / "rounds.jsonl").read_text().splitlines() if line]
    assert all('"bytes_up": 1322' in line for line in lines)  # two of 650 numbers and 11 exponents
    own = {"rounds": 2, "cohort": 2, "training": TRAINING, "executor": "serial"}
    a, b = (
        run(catalog.build("fedavg"), small(), FEDERATION, compress=how, **own) for how in ("half", Compress("half"))
    )
    assert a.parts.config.fingerprint() == b.parts.config.fingerprint()
    plain = run(catalog.build("fedavg"), small(), FEDERATION, **own)
    assert plain.parts.config.fingerprint() != a.parts.config.fingerprint()
    a.finish()
