import copy
from types import SimpleNamespace

import pytest
import torch
from helpers.federations import make_federation
from torch import nn

from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Ragged
from fedchord.engine.simulate import simulate
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.sweep import LAMBDAS, Sweep, sweep
from fedchord.models import TwoNN

FEDERATION = make_federation([13, 20, 7, 31, 10, 9], test=9)


def with_validation():
    """The same clients with their last training rows as validation part."""
    federation = copy.copy(FEDERATION)
    object.__setattr__(federation, "validation", Ragged.of([FEDERATION.train[i][-4:] for i in range(6)]))
    object.__setattr__(federation, "train", Ragged.of([FEDERATION.train[i][:-4] for i in range(6)]))
    return federation


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.norm(self.a(x))))


def trained(name: str, federation, make=lambda: TwoNN(6, 5, 3), dense: bool = True, **parameters) -> SimpleNamespace:
    algorithm, task = catalog.build(name, parameters), Task(make, dense=dense)
    settings = {"rounds": 4, "cohort": 2, "seed": 1, "training": Training(lr=0.2, batch=4), "executor": "serial"}
    *_, last = simulate(algorithm, task, federation, **settings)
    return SimpleNamespace(task=task, last=last, fitted=Fitted.of(last))


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("name", ["superfed-mm", "apfl", "ditto"])
def test_every_point_is_the_mixed_model_on_the_clients_rows(name, dense):
    run = trained(name, FEDERATION, dense=dense, **({"warmup": 0.0} if name == "superfed-mm" else {}))
    result = sweep(run.fitted)
    assert (
        result.clients == tuple(range(6)) and result.two_ended.tolist() == (run.last.state.visits.tensor() > 0).tolist()
    )
    g = run.last.state.broadcast["theta"]
    for client in range(6):
        own = run.last.memory.get(client)
        far = g if own is None else own["own" if name == "superfed-mm" else "v"]
        x, y = (FEDERATION.columns[c][FEDERATION.test[client]] for c in ("x", "y"))
        for point, lam in enumerate(LAMBDAS):
            module = TwoNN(6, 5, 3)
            torch.nn.utils.vector_to_parameters((1 - lam) * g + lam * far, module.parameters())
            accuracy = float((module(x).argmax(1) == y).double().mean())
            assert float(result.test[client, point]) == pytest.approx(accuracy), (client, lam)


def test_other_metrics_beside_have_a_best_lambda_of_their_own():
    """The loss along the line by hand: cross-entropy of the mixed model on the client's test rows."""
    run = trained("ditto", FEDERATION)
    result = sweep(run.fitted, also=("loss", "top1"))
    assert set(result.others) == {"loss"} and result.test.equal(sweep(run.fitted).test)
    g, by_hand = run.last.state.broadcast["theta"], torch.zeros(6, len(LAMBDAS))
    for client in range(6):
        own = run.last.memory.get(client)
        x, y = (FEDERATION.columns[c][FEDERATION.test[client]] for c in ("x", "y"))
        for point, lam in enumerate(LAMBDAS):
            module = TwoNN(6, 5, 3)
            torch.nn.utils.vector_to_parameters(
                (1 - lam) * g + lam * (g if own is None else own["v"]), module.parameters()
            )
            by_hand[client, point] = torch.nn.functional.cross_entropy(module(x), y).detach()
    found = result.of("loss")
    assert torch.allclose(found.test.float(), by_hand, atol=1e-5)
    lam, values = found.best_mean()
    assert lam == LAMBDAS[int(by_hand.mean(0).argmin())] and float(values.mean()) == pytest.approx(
        float(by_hand.mean(0).min()), abs=1e-5
    )
    assert found.validated() is None


def test_summaries_by_hand():
    test = torch.tensor([[0.1, 0.9, 0.2], [0.8, 0.5, 0.6]], dtype=torch.float64)
    validation = torch.tensor([[0.3, 0.2, 0.9], [0.9, 0.1, 0.1]], dtype=torch.float64)
    result = Sweep("top1", (0.0, 0.5, 1.0), (0, 1), test, validation, torch.tensor([True, True]))
    assert result.mean.tolist() == pytest.approx([0.45, 0.7, 0.4])
    assert result.std.tolist() == pytest.approx([0.35, 0.2, 0.2])
    lam, values = result.best_mean()
    assert lam == 0.5 and values.tolist() == [0.9, 0.5]
    assert result.optimistic().tolist() == [0.9, 0.8]
    lams, values = result.validated()
    assert lams.tolist() == [1.0, 0.0] and values.tolist() == [0.2, 0.8]
    lower = Sweep("loss", (0.0, 0.5, 1.0), (0, 1), test, None, torch.tensor([True, True]))
    assert lower.best_mean()[0] == 1.0 and lower.optimistic().tolist() == [0.1, 0.5] and lower.validated() is None


def on_rows(module: nn.Module, federation, rows: torch.Tensor) -> tuple[int, float]:
    """How many rows a plain module gets right, and its mean loss on them."""
    x, y = (federation.columns[name][rows] for name in ("x", "y"))
    with torch.no_grad():
        scores = module.eval()(x).double()
    return int((scores.argmax(1) == y).sum()), float(nn.functional.cross_entropy(scores, y))


@pytest.mark.parametrize("name", ["ditto", "superfed-mm"])
def test_lambda_is_chosen_on_validation_rows_only(name):
    """Every lambda on the line is scored with a plain module: right answers first, then the loss, then the middle."""
    federation = with_validation()
    run = trained(name, federation, **({"warmup": 0.0} if name == "superfed-mm" else {}))
    chosen, values = sweep(run.fitted).validated()
    g, lowest, apart = run.last.state.broadcast["theta"], 0, 0
    for client in range(6):
        own = run.last.memory.get(client)
        if own is None:
            assert float(chosen[client]) == 0.5  # one model: every lambda is the same
            continue
        found, tested = {}, {}
        for lam in LAMBDAS:
            module = TwoNN(6, 5, 3)
            far = own["own" if name == "superfed-mm" else "v"]
            nn.utils.vector_to_parameters((1 - lam) * g + lam * far, module.parameters())
            found[lam] = on_rows(module, federation, federation.validation[client])
            tested[lam] = on_rows(module, federation, federation.test[client])[0] / len(federation.test[client])
        most = max(right for right, _ in found.values())
        tied = [lam for lam, (right, _) in found.items() if right == most]
        least = min(found[lam][1] for lam in tied)
        (best,) = [lam for lam in tied if found[lam][1] == least]
        assert float(chosen[client]) == pytest.approx(best), client
        assert float(values[client]) == pytest.approx(tested[best])
        lowest += best != tied[0]
        best_tested = max(tested.values())
        apart += tested[best] < best_tested
    assert lowest and apart  # some clients tie, and the validation rows do not choose what the test rows would


def test_ties_are_broken_by_the_loss_and_then_by_the_middle():
    lambdas = (0.0, 0.3, 0.5, 0.7, 1.0)
    top1 = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 1, 1], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1], [0, 0, 1, 1, 1]]).double()
    loss = torch.tensor(
        [[3, 2, 0, 1, 4], [2, 2, 2, 2, 2], [0, 5, 0, 5, 0], [1, 0, 0, 0, 2], [0, 0, torch.inf, torch.nan, torch.inf]]
    ).double()
    test = torch.arange(25).reshape(5, 5).double()
    result = Sweep("top1", lambdas, tuple(range(5)), test, top1, torch.ones(5, dtype=torch.bool), loss)
    chosen, values = result.validated()
    assert chosen.tolist() == pytest.approx([0.7, 0.5, 0.3, 0.0, 0.5])
    assert values.tolist() == [3, 7, 11, 15, 22]
    unknown = Sweep("auroc", lambdas, (0,), test[:1], top1[:1] * torch.nan, torch.tensor([True]), loss[:1])
    assert unknown.validated()[0].tolist() == [0.5]  # an undefined metric leaves the choice to the loss


def test_statistics_of_a_mixed_model_are_recomputed_on_the_training_rows():
    """Against a module whose BatchNorm averages plainly over the same batches."""
    run = trained("superfed-mm", FEDERATION, Normed, warmup=0.0)
    client = int(run.last.state.visits.tensor().argmax())
    own, g = run.last.memory.get(client)["own"], run.last.state.broadcast["theta"]
    module = Normed()
    torch.nn.utils.vector_to_parameters(0.7 * g + 0.3 * own, module.parameters())
    module.norm.momentum = None
    module.norm.reset_running_stats()
    rows = FEDERATION.train[client]
    module.train()(FEDERATION.columns["x"][rows])
    x, y = (FEDERATION.columns[c][FEDERATION.test[client]] for c in ("x", "y"))
    accuracy = float((module.eval()(x).argmax(1) == y).double().mean())
    result = sweep(run.fitted, lambdas=(0.3,))
    assert float(result.test[client, 0]) == pytest.approx(accuracy)


def plain(theta: torch.Tensor, buffers: torch.Tensor, task: Task) -> nn.Module:
    module = Normed()
    module.load_state_dict(task.state_dict(theta, buffers))
    return module


@pytest.mark.parametrize("name", ["superfed-mm", "apfl", "ditto"])
def test_a_client_without_two_ends_is_measured_with_what_it_deploys(name):
    """With the statistics of the global model, not with new ones; on validation rows as well."""
    federation = with_validation()
    run = trained(name, federation, Normed, **({"warmup": 0.0} if name == "superfed-mm" else {}))
    result, evaluation = sweep(run.fitted, metric="loss"), evaluate(run.fitted)
    never = (run.last.state.visits.tensor() == 0).nonzero().flatten().tolist()
    assert never and result.two_ended.tolist() == [client not in never for client in range(6)]
    shared = run.last.state.broadcast
    for client in never:
        module, place = plain(shared["theta"], shared["buffers"], run.task), result.clients.index(client)
        for table, rows in ((result.test, federation.test), (result.validation, federation.validation)):
            expected = on_rows(module, federation, rows[client])[1]
            assert table[place].tolist() == pytest.approx([expected] * len(LAMBDAS), abs=1e-6)
        measured = evaluation.per_client["loss"][evaluation.clients.index(client)]
        assert result.test[place].tolist() == pytest.approx([float(measured)] * len(LAMBDAS), abs=1e-6)


@pytest.mark.parametrize(("name", "lam"), [("apfl", 0.3), ("ditto", 1.0)])
def test_the_sweep_at_the_deployed_lambda_has_the_same_parameters_and_new_statistics(name, lam):
    for make in (lambda: TwoNN(6, 5, 3), Normed):
        run = trained(name, FEDERATION, make, **({"alpha": 0.3} if name == "apfl" else {}))
        result = sweep(run.fitted, metric="loss", lambdas=(lam,))
        evaluation = evaluate(run.fitted)
        deployed = evaluation.per_client["loss"]
        assert evaluation.clients == result.clients
        same = torch.isclose(result.test[:, 0], deployed, atol=1e-6)
        assert same.tolist() == [make is not Normed or not two for two in result.two_ended.tolist()]


@pytest.mark.parametrize("make", [lambda: TwoNN(6, 5, 3), Normed])
def test_so_many_rows_at_once_as_in_an_evaluation(monkeypatch, make):
    """With few at a time and few scores waiting, the numbers are the same."""
    run, seen = trained("ditto", with_validation(), make), []
    whole = sweep(run.fitted, metric="loss")
    monkeypatch.setattr("fedchord.evaluation.sweep.ROWS", 4)
    monkeypatch.setattr("fedchord.evaluation.sweep.WAITING", 50)
    batch = type(FEDERATION).batch
    monkeypatch.setattr(type(FEDERATION), "batch", lambda f, rows: seen.append(len(rows)) or batch(f, rows))
    parts = sweep(run.fitted, metric="loss")
    if make is not Normed:  # whose statistics take all training rows
        assert max(seen) == 4
    for a, b in ((whole.test, parts.test), (whole.validation, parts.validation)):
        assert torch.allclose(a, b, atol=1e-6) and a.shape == (6, 11) and a.std(0).min() > 0


def test_points_lie_on_the_models_device():
    """Of a device that computes nothing, since there may be no other than the processor."""
    dense = Task(lambda: TwoNN(6, 5, 3)).dense
    near, x = torch.empty(83, device="meta"), torch.empty(4, 6, device="meta")
    found = dense.along(near, near, x, torch.tensor(LAMBDAS, device=near.device))
    assert found.shape == (11, 4, 3) and found.device.type == "meta"


def test_one_model_methods_have_no_sweep_and_bad_grids_are_refused():
    run = trained("fedavg", FEDERATION)
    assert sweep(run.fitted) is None
    for grid, line in [
        ((0.0, 1.5), "every lambda must lie between 0 and 1, got 1.5"),
        ((-0.1, 1.0), "every lambda must lie between 0 and 1, got -0.1"),
        ((float("nan"),), "every lambda must lie between 0 and 1, got nan"),
        ((), "needs at least one lambda"),
    ]:
        with pytest.raises(FedchordError) as error:
            sweep(run.fitted, lambdas=grid)
        assert str(error.value) == f"sweep: {line}"
