"""The joint choice, recomputed by brute force from all clients' rows; what is deployed after it; who may choose."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import scipy.stats
import torch
from helpers.federations import make_federation
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedchord import FedchordError, catalog
from fedchord.core import local
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.hold import hold_out
from fedchord.engine import work
from fedchord.engine.simulate import simulate
from fedchord.evaluation.choice import Choice, Chooser, choose, losses_of, owns, settled, settled_on, with_effort
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.models import TwoNN

WHOLE = make_federation([13, 20, 9, 31, 10, 1], test=9)
FEDERATION = hold_out(WHOLE, 0.3, seed=5)
SETTINGS = {"rounds": 4, "cohort": 3, "seed": 1, "training": Training(lr=0.2, batch=4), "executor": "serial"}
GRID = (0.0, 0.3, 0.7, 1.0)


def two() -> nn.Module:
    return TwoNN(6, 5, 3)


def trained(method: str, make=two, federation=FEDERATION, **parameters: object) -> Fitted:
    algorithm = catalog.build(method, parameters)
    *_, last = simulate(algorithm, Task(make), federation, **SETTINGS)
    return Fitted.of(last)


def held_loss(fitted: Fitted, client: int, theta: torch.Tensor) -> float:
    """The sum of the losses on a client's held-out rows, by a module of torch's own."""
    task, rows = fitted.work.task, FEDERATION.held[client]
    module = two().eval()
    views = {entry.name: theta[entry.slice].reshape(entry.shape) for entry in task.layout.entries}
    outputs = functional_call(module, views, (FEDERATION.columns["x"][rows],))
    return float(cross_entropy(outputs.double(), FEDERATION.columns["y"][rows], reduction="sum"))


def ends(fitted: Fitted, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The global model and what the client's rule has beside it, read from broadcast and memory."""
    near, rule = fitted.state.broadcast["theta"], fitted.work.algorithm.client
    own = fitted.work.tune(client, fitted.memory_of(client), fitted.state)
    if not own or ("trained" in own and not own["trained"]):
        return near, near
    entry = next(name for name in ("v", "own", "theta") if name in own)
    assert type(rule).__name__
    return near, own[entry]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("make", [two, small])  # by the kernel of dense stacks, and by autograd
@pytest.mark.parametrize("method", ["fedavg-ft", "superfed-stateless"])
def test_one_training_passes_through_all_efforts(method, make, monkeypatch):
    """To the bits of a training for each; a client that holds rows back in batches of 4 has short ones too."""
    fitted = trained(method, make, **({"warmup": 0.0} if method != "fedavg-ft" else {}))
    efforts, calls = (0, 1, 2, 5), []
    for client in range(5):
        apart = [
            with_effort(fitted, effort).work.tune(client, fitted.memory_of(client), fitted.state) for effort in efforts
        ]
        with monkeypatch.context() as patched:
            patched.setattr(work, "train", lambda *given, client=client: calls.append(client) or local.train(*given))
            found = owns(fitted, client, efforts)
        for one, other in zip(found, apart, strict=True):
            assert (one or {}).keys() == (other or {}).keys()
            assert all(torch.equal(one[name], other[name]) for name in one or {})
        assert not torch.equal(next(iter(found[1].values())), next(iter(found[3].values())))
    assert calls == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("within", [0.5, 1.0, 2.0])
def test_the_global_model_is_kept_within_so_many_standard_errors(within):
    """Against scipy's standard error, on both sides of the border."""
    tables = torch.randn(40, 7, generator=torch.Generator().manual_seed(2)).double() + 3
    tables[:, 4] -= 0.3
    lowest = int(tables.sum(0).argmin())
    apart = tables[:, 0] - tables[:, lowest]
    error = scipy.stats.sem(apart.numpy())
    for factor, expected in ((0.99, 0), (1.01, lowest)):
        moved = tables.clone()
        moved[:, 0] += factor * within * error - apart.mean()
        assert settled_on(moved, within) == expected
        assert settled_on(moved, 0.0) == lowest != 0
    moved[3, 0] = torch.inf
    assert settled_on(moved, 100.0) == lowest


def test_a_careful_choice_is_never_farther_from_the_global_model():
    fitted = trained("fedavg-ft", tune_epochs=3)
    plain, careful, most = (choose(fitted, Chooser("lambda", GRID, within=within)) for within in (0.0, 1.0, 1e9))
    assert plain.losses == careful.losses == most.losses
    assert plain.at == GRID[int(torch.tensor(plain.losses[0]).argmin())]
    assert most.at == 0.0 != plain.at and careful.at in (0.0, plain.at)


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("fedavg-ft", {"tune_epochs": 3}),
        ("apfl", {}),
        ("ditto", {}),
        ("superfed-mm", {"warmup": 0.0}),
        ("superfed-lm", {"warmup": 0.0}),
        ("superfed-stateless", {"warmup": 0.0, "tune_epochs": 2}),
    ],
)
def test_lambda_is_the_one_with_the_lowest_sum_of_losses(method, parameters):
    fitted = trained(method, **parameters)
    choice = choose(fitted, Chooser("lambda", GRID))
    totals = []
    for lam in GRID:
        total = 0.0
        for client in range(5):  # the sixth has one row and holds none out
            near, far = ends(fitted, client)
            total += held_loss(fitted, client, (1 - lam) * near + lam * far)
        totals.append(total)
    rows = len(FEDERATION.held.rows)
    assert choice.at == GRID[min(range(4), key=lambda i: totals[i])] and choice.epochs is None
    assert choice.losses[0] == pytest.approx([total / rows for total in totals], rel=1e-5)
    assert (choice.clients, choice.rows) == (5, rows) and len(set(choice.losses[0])) == 4


@pytest.mark.parametrize("kind", ["epochs", "both"])
def test_effort_and_both_are_a_grid_of_runs(kind):
    """Each effort is a method of its own; the table has its losses."""
    efforts = (0, 1, 4)
    choice = choose(trained("fedavg-ft"), Chooser(kind, GRID, efforts))
    grid = GRID if kind == "both" else (1.0,)
    expected = {}
    for epochs in efforts:
        fitted = trained("fedavg-ft", tune_epochs=epochs)
        for lam in grid:
            total = 0.0
            for client in range(5):
                near, far = ends(fitted, client)
                total += held_loss(fitted, client, (1 - lam) * near + lam * far)
            expected[lam, epochs] = total / len(FEDERATION.held.rows)
    table = [[expected[lam, epochs] for lam in grid] for epochs in efforts]
    assert [list(row) for row in choice.losses] == [pytest.approx(row, rel=1e-5) for row in table]
    best = min(expected, key=lambda point: expected[point])
    assert choice.epochs == best[1] and choice.at == (best[0] if kind == "both" else None)


def test_equal_losses_go_to_the_nearest_to_the_global_model():
    fitted = trained("fedavg-ft", tune_epochs=0)
    choice = choose(fitted, Chooser("both", (0.0, 0.5, 1.0), (0,)))
    assert len(set(choice.losses[0])) == 1 and (choice.at, choice.epochs) == (0.0, 0)


def test_clients_deploy_after_training_on_all_their_rows():
    """lambda between g and a copy that was tuned on held-out rows as well, by the same run without held-out rows."""
    fitted = trained("fedavg-ft")
    choice = Choice(0.4, 3, GRID, (3,), ((0.0,) * 4,), 5, 20)
    after = settled(fitted, choice)
    assert after.work.federation.held is None
    assert sorted(after.work.federation.train[3].tolist()) == WHOLE.train[3].tolist()
    plain = replace(fitted, work=replace(fitted.work, algorithm=catalog.build("fedavg-ft", {"tune_epochs": 3})))
    full = replace(plain, work=replace(plain.work, federation=after.work.federation))
    near = fitted.state.broadcast["theta"]
    for client in range(6):
        far = full.deployed(client)["theta"]
        torch.testing.assert_close(after.deployed(client)["theta"], near + 0.4 * (far - near))
        assert client == 5 or not torch.equal(far, plain.deployed(client)["theta"])  # it saw the rows


@pytest.mark.parametrize("method", ["fedavg-ft", "ditto", "apfl"])
def test_both_ends_are_the_two_methods_themselves(method):
    """With BatchNorm too: lambda 0 is the global model, and a rule's own lambda what it deploys."""

    def normed() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))

    fitted = trained(method, normed, make_federation([13, 20, 9, 31, 10], test=9))
    shared = fitted.state.broadcast
    own = {"fedavg-ft": 1.0, "ditto": 1.0, "apfl": 0.25}[method]
    for client in range(5):
        zero = replace(fitted, at=0.0).deployed(client)
        assert all(torch.equal(zero[name], shared[name]) for name in zero)
        rule, placed = fitted.deployed(client), replace(fitted, at=own).deployed(client)
        assert all(torch.equal(rule[name], placed[name]) for name in rule)
        if fitted.sampled(client):
            middle = replace(fitted, at=0.5).deployed(client)
            assert torch.equal(middle["buffers"], fitted.statistics(client, middle["theta"]))
    assert evaluate(replace(fitted, at=0.0)).protocol["global_model"] == 5


def test_only_sums_leave_a_client():
    table, units = losses_of(trained("fedavg-ft"), 0, GRID, (None,))
    assert table.shape == (1, 4) and units == len(FEDERATION.held[0])


def test_every_executor_finds_the_same():
    from fedchord.engine.executors import make_executor

    fitted = trained("fedavg-ft")
    pool = make_executor("processes", fitted.work, fitted.state.broadcast, 3, 2)
    try:
        assert choose(fitted, Chooser("both", GRID, (1, 2)), pool) == choose(fitted, Chooser("both", GRID, (1, 2)))
    finally:
        pool.close()


def test_a_choice_can_be_written_down():
    choice = Choice(None, 2, (None,), (0, 2), ((float("inf"),), (0.5,)), 3, 9)
    assert Choice.read(json.loads(json.dumps(choice.told()))) == choice


@pytest.mark.parametrize(
    ("method", "chooser", "told"),
    [
        ("fedavg", Chooser("lambda"), "two ends"),
        ("fedper", Chooser("lambda"), "two ends"),
        ("ditto", Chooser("epochs"), "train before use"),
        ("superfed-mm", Chooser("both"), "train before use"),
    ],
)
def test_methods_that_cannot_choose_are_refused(method, chooser, told):
    with pytest.raises(FedchordError, match=told):
        choose(trained(method), chooser)
    with pytest.raises(FedchordError, match="no rows are held out"):
        choose(trained("fedavg-ft", federation=WHOLE), Chooser())


@pytest.mark.parametrize("bad", [{"kind": "rows"}, {"lambdas": ()}, {"lambdas": (2.0,)}, {"efforts": (-1,)}])
def test_bad_grids_are_refused(bad):
    with pytest.raises(FedchordError):
        Chooser(**bad)
