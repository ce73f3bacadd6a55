import copy
from types import SimpleNamespace

import pytest
import torch
from conftest import make_federation
from torch import nn

from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.data.federation import Ragged
from fedchord.engine.simulate import simulate
from fedchord.local import Training
from fedchord.models import TwoNN
from fedchord.sweep import LAMBDAS, Sweep, sweep
from fedchord.task import Task

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
    return SimpleNamespace(
        algorithm=algorithm, task=task, last=last, arguments=(algorithm, task, federation, last.state, last.memory)
    )


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("name", ["superfed-mm", "apfl", "ditto"])
def test_every_point_is_the_mixed_model_on_the_clients_rows(name, dense):
    run = trained(name, FEDERATION, dense=dense, **({"warmup": 0.0} if name == "superfed-mm" else {}))
    result = sweep(*run.arguments)
    assert result.clients == tuple(range(6)) and result.two_ended.tolist() == (run.last.state.visits > 0).tolist()
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


def test_lambda_is_chosen_on_validation_rows_only():
    federation = with_validation()
    run = trained("ditto", federation)
    result = sweep(*run.arguments)
    assert result.validation.shape == result.test.shape
    chosen, values = result.validated()
    for client in range(6):
        point = int(result.validation[client].argmax())
        assert float(chosen[client]) == pytest.approx(LAMBDAS[point])
        assert values[client] == result.test[client, point]


def test_statistics_of_a_mixed_model_are_recomputed_on_the_training_rows():
    """Against a module whose BatchNorm averages plainly over the same batches."""
    run = trained("superfed-mm", FEDERATION, Normed, warmup=0.0)
    client = int(run.last.state.visits.argmax())
    own, g = run.last.memory.get(client)["own"], run.last.state.broadcast["theta"]
    module = Normed()
    torch.nn.utils.vector_to_parameters(0.7 * g + 0.3 * own, module.parameters())
    module.norm.momentum = None
    module.norm.reset_running_stats()
    rows = FEDERATION.train[client]
    module.train()(FEDERATION.columns["x"][rows])
    x, y = (FEDERATION.columns[c][FEDERATION.test[client]] for c in ("x", "y"))
    accuracy = float((module.eval()(x).argmax(1) == y).double().mean())
    result = sweep(*run.arguments, lambdas=(0.3,))
    assert float(result.test[client, 0]) == pytest.approx(accuracy)


def test_one_model_methods_have_no_sweep_and_bad_grids_are_refused():
    run = trained("fedavg", FEDERATION)
    assert sweep(*run.arguments) is None
    for grid, line in [
        ((0.0, 1.5), "every lambda must lie between 0 and 1, got 1.5"),
        ((-0.1, 1.0), "every lambda must lie between 0 and 1, got -0.1"),
        ((float("nan"),), "every lambda must lie between 0 and 1, got nan"),
        ((), "needs at least one lambda"),
    ]:
        with pytest.raises(FedchordError) as error:
            sweep(*run.arguments, lambdas=grid)
        assert str(error.value) == f"sweep: {line}"
