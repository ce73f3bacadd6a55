"""What every entry of the catalogue must do. A new method is tested by being listed."""

from __future__ import annotations

import ast
import dataclasses
import functools
from pathlib import Path

import pytest
import torch
from helpers.federations import make_federation

import fedchord
from fedchord import catalog, rng
from fedchord.core.local import local_round
from fedchord.core.round import Plan, Results, close_round, open_round, open_run
from fedchord.core.rules import LINE, Algorithm, Line, Log
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data import Iid, Inputs, federate, load
from fedchord.engine.checkpoint import Checkpoints
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import RoundResult, simulate
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.models import GENERATIVE, TwoNN

METHODS = sorted(catalog.METHODS)
TRAINING = Training(epochs=2, batch=4, lr=0.1, momentum=0.5)
FEDERATION = make_federation([13, 20, 7, 31, 10, 5])
FEDERATION.columns["x"] = FEDERATION.columns["x"].reshape(-1, 1, 2, 3)  # pictures, for the methods that draw them


def task_of(algorithm: Algorithm) -> Task:
    """The model a method is tested with; a rule that makes examples is told what one is."""
    usual = catalog.METHODS[algorithm.name].model if algorithm.name in catalog.METHODS else ""
    network = GENERATIVE.get(usual)
    make = (lambda: TwoNN(6, 5, 3)) if network is None else lambda: network((1, 2, 3), 3, width=4, latent=3)
    return Task(make, inputs=Inputs((1, 2, 3), 3, -3.0, 3.0))


def run(name: str | Algorithm, rounds: int = 4, **settings) -> RoundResult:
    algorithm = catalog.build(name) if isinstance(name, str) else name
    settings = {"seed": 1, "cohort": 3, "training": TRAINING, "executor": "serial"} | settings
    if algorithm.mixing.full:
        settings["cohort"] = FEDERATION.num_clients
    *_, last = simulate(algorithm, task_of(algorithm), FEDERATION, rounds=rounds, **settings)
    return last


@functools.cache
def usual(name: str) -> RoundResult:
    """The run that others are compared with, made once."""
    return run(name)


def states(result: RoundResult) -> dict[str, torch.Tensor]:
    """Everything a run ends with, by name."""
    state = result.state
    flat = {f"broadcast {n}": t for n, t in state.broadcast.items()}
    flat |= {f"mixing {n}": t for n, t in state.mixing.items()} | {f"server {n}": t for n, t in state.server.items()}
    for client in result.memory.clients():
        flat |= {f"client {client} {n}": t for n, t in result.memory.get(client).items()}
    return flat | {"visits": state.visits}


def assert_same(a: RoundResult, b: RoundResult, tolerance: float = 0.0) -> None:
    left, right = states(a), states(b)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        if tolerance:
            assert torch.allclose(tensor, right[name], atol=tolerance, rtol=tolerance), name
        else:
            assert torch.equal(tensor, right[name]), name


@pytest.mark.parametrize("name", METHODS)
def test_serial_and_processes_agree_bit_for_bit(name):
    assert_same(usual(name), run(name, executor="processes", workers=2))


@pytest.mark.parametrize("name", METHODS)
def test_vectorised_agrees_within_tolerance(name):
    assert_same(usual(name), run(name, executor="vectorised"), tolerance=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_two_and_two_rounds_are_four(name, tmp_path):
    whole = usual(name)
    checkpoints = Checkpoints(tmp_path, every=1, fingerprint="x")
    algorithm = catalog.build(name)
    task = task_of(algorithm)
    cohort = 6 if algorithm.mixing.full else 3
    settings = {"rounds": 4, "cohort": cohort, "seed": 1, "training": TRAINING, "executor": "serial"}
    running = simulate(algorithm, task, FEDERATION, **settings)
    for _ in range(2):
        result = next(running)
        checkpoints.save(result.state, result.memory)
    running.close()
    memory = ClientMemory()
    assert_same(whole, run(name, state=checkpoints.load(memory).state, memory=memory))


@pytest.mark.parametrize("name", METHODS)
def test_memory_on_disk_changes_nothing(name, tmp_path):
    assert_same(usual(name), run(name, memory=ClientMemory(tmp_path / "memory")))


@pytest.mark.parametrize("name", METHODS)
def test_another_seed_gives_another_run(name):
    a, b = usual(name).state.broadcast, run(name, seed=2).state.broadcast
    assert not all(torch.equal(tensor, b[entry]) for entry, tensor in a.items())


@pytest.mark.parametrize("name", METHODS)
def test_local_round_leaves_its_inputs_alone(name):
    algorithm = catalog.build(name)
    task = task_of(algorithm)
    plan = Plan(4, 6 if algorithm.mixing.full else 3, 1)
    state = open_run(algorithm, task, 6, plan)
    training = algorithm.client.local(TRAINING)
    info, ids = open_round(state, plan, training)
    own = algorithm.client.init(task, state.broadcast, 7)
    before = {n: t.clone() for n, t in (state.broadcast | own).items()}
    stream = ClientStream(FEDERATION, ids[0], 4, 5)
    upload, kept, _ = local_round(algorithm.client, task, training, state.broadcast, own, stream, info, ids[0], 3)
    assert all(torch.equal(before[n], t) for n, t in (state.broadcast | own).items())
    sent = dict.fromkeys(upload.mix, "mix") | dict.fromkeys(upload.mean, "mean")
    assert sent == dict(algorithm.client.sends) and len(sent) == len(upload.mix) + len(upload.mean)
    assert not kept or kept.keys() == own.keys()  # a rule may keep nothing and start anew in every round


def _results(algorithm: Algorithm, task: Task, order: list[int]) -> tuple:
    """One round of all clients, reported in a given order."""
    plan = Plan(4, 6, 1)
    state = open_run(algorithm, task, 6, plan)
    training = algorithm.client.local(TRAINING)
    info, _ = open_round(state, plan, training)
    parts = []
    for client in order:
        own = algorithm.client.init(task, state.broadcast, rng.key(1, "own", client))
        stream = ClientStream(FEDERATION, client, 4, rng.key(1, "batches", client, 0))
        parts.append(local_round(algorithm.client, task, training, state.broadcast, own, stream, info, client, 3, True))
    groups = {
        group: {n: torch.stack([getattr(u, group)[n] for u, _, _ in parts]) for n in getattr(parts[0][0], group)}
        for group in ("mix", "carry", "mean")
    }
    logs = [upload.log for upload, _, _ in parts]
    means, sums = (
        {n: torch.stack([getattr(one, kind)[n] for one in logs]) for n in getattr(logs[0], kind)}
        for kind in ("means", "sums")
    )
    losses = torch.stack([loss for _, _, loss in parts])
    results = Results(torch.tensor(order), FEDERATION.train.sizes[order], log=Log(means, sums), losses=losses, **groups)
    return close_round(algorithm, task, state, results, info)


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_clients_does_not_matter(name):
    algorithm = catalog.build(name)
    task = task_of(algorithm)
    (a, mix_a), (b, mix_b) = (
        _results(algorithm, task, [0, 1, 2, 3, 4, 5]),
        _results(algorithm, task, [3, 0, 5, 1, 4, 2]),
    )
    for entry, tensor in a.broadcast.items():
        assert torch.allclose(tensor, b.broadcast[entry], atol=1e-6), entry
    assert torch.allclose(mix_a.shares[[3, 0, 5, 1, 4, 2]], mix_b.shares)


@pytest.mark.parametrize("name", METHODS)
def test_shares_lie_on_the_simplex(name):
    result = usual(name)
    assert float(result.shares.sum()) == pytest.approx(1, abs=1e-12) and (result.shares >= 0).all()


@pytest.mark.parametrize("name", METHODS)
def test_rules_are_frozen_records_with_validated_fields(name):
    algorithm = catalog.build(name)
    for rule in (algorithm.client, algorithm.mixing, algorithm.server):
        assert dataclasses.is_dataclass(rule) and rule.__dataclass_params__.frozen
        assert (type(rule).__doc__ or "").strip(), "the docstring says what the rule does"
        for field in dataclasses.fields(rule):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(rule, field.name, 0)


@pytest.mark.parametrize("name", METHODS)
def test_learns_something(name):
    """On real digits a short run brings the deployed models well above guessing (0.1)."""
    if catalog.build(name).outcome == "samples":
        pytest.skip("the outcome is a data set")
    digits = federate(load("digits"), Iid(), 5, seed=1)
    training = Training(epochs=3, batch=10, lr=0.1)
    settings = {"rounds": 12, "seed": 1, "training": training, "executor": "serial"}
    *_, last = simulate(catalog.build(name), Task(lambda: TwoNN(64, 30, 10)), digits, **settings)
    assert evaluate(Fitted.of(last)).mean("top1") > 0.5


@pytest.mark.parametrize("mixing", sorted(catalog.MIXINGS))
@pytest.mark.parametrize("server", sorted(catalog.SERVERS))
def test_every_composition_runs(mixing, server):
    algorithm = catalog.build("fedprox", mixing=mixing, server=server)
    assert torch.isfinite(run(algorithm, rounds=2).state.broadcast["theta"]).all()


@pytest.mark.parametrize("name", METHODS)
def test_no_look_ahead(name):
    """The weights of round t depend on rounds up to t only: a longer run starts with the same weights."""

    def shares(rounds: int) -> list[torch.Tensor]:
        algorithm = catalog.build(name)
        cohort = 6 if algorithm.mixing.full else 3
        task = task_of(algorithm)
        settings = {"rounds": rounds, "cohort": cohort, "seed": 1, "training": TRAINING, "executor": "serial"}
        running = simulate(algorithm, task, FEDERATION, **settings)
        first = [next(running).shares, next(running).shares]
        running.close()
        return first

    assert all(torch.equal(a, b) for a, b in zip(shares(2), shares(5), strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_what_is_deployed_is_of_the_kind_that_is_told(name):
    result = run(name)
    rule = result.work.algorithm.client
    if result.work.algorithm.outcome == "samples":
        assert rule.deploys.kind == "samples"
        return
    fitted, clients = Fitted.of(result), range(FEDERATION.num_clients)
    points = [fitted.point(client) for client in clients]
    assert any(isinstance(point, Line) for point in points) == (rule.deploys.kind == LINE)
    theta = result.state.broadcast["theta"]
    alike = all(torch.equal(fitted.deployed(client)["theta"], theta) for client in clients)
    assert alike == (rule.deploys.kind == "global")


# -- what rules leave to the engine -------------------------------------------------------------------------------

INNER = {"traced", "dense", "scratch", "grad_parts"}
"""How a task computes; of the client side, kernels alone may ask."""
CLIENTS = sorted(Path(fedchord.__file__).parent.joinpath("clients").glob("*.py"))


def inner(path: Path) -> list[str]:
    """The attributes and names by which a file reaches for how a task computes."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        named = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
        if isinstance(node, ast.Attribute | ast.Constant) and isinstance(named, str) and named in INNER:
            found.append(f"{path.name}:{node.lineno} {named}")
    return found


def test_a_rule_does_not_know_how_its_task_computes():
    """Every client rule of the catalogue stands in a file that never reads how its task is computed."""
    files = {path.stem for path in CLIENTS if not path.stem.endswith("_kernel")}
    homes = {type(catalog.build(name).client).__module__.rpartition(".")[2] for name in METHODS}
    assert homes <= files
    assert [line for path in CLIENTS if path.stem in files for line in inner(path)] == []
    assert any(inner(path) for path in CLIENTS if path.stem not in files)  # the search finds what there is
