"""Clients that come when training is over: who they are, that they had no part in it, and what they measure."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers.federations import make_federation
from torch import Tensor, nn

from fedchord import catalog, rng
from fedchord.check import FedchordError
from fedchord.core.rules import Phase
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation, Ragged
from fedchord.engine.simulate import RoundResult, simulate
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.newcomers import Welcome, count, divide, welcome
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.models import TwoNN
from fedchord.report.show import newcomer_notes, result_notes

FEDERATION = make_federation([13, 20, 7, 31, 10, 5, 9, 16], test=6)
TRAINING = Training(epochs=2, batch=4, lr=0.1, momentum=0.5, weight_decay=0.01, lr_decay=0.5, lr_step=2)
SEED, ROUNDS = 3, 5


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.head = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.a(x))))


def two() -> nn.Module:
    return TwoNN(6, 5, 3)


def run(name: str, federation: Federation, make=two) -> RoundResult:
    settings = {"rounds": ROUNDS, "cohort": 3, "seed": SEED, "training": TRAINING, "executor": "serial"}
    *_, last = simulate(catalog.build(name), Task(make), federation, **settings)
    return last


def arrive(name: str, epochs: int, make=two, federation: Federation = FEDERATION) -> tuple[RoundResult, Welcome]:
    early, late = divide(federation, 3, SEED)
    last = run(name, early, make)
    return last, welcome(Fitted.of(last), late, TRAINING, epochs)


# -- who they are --------------------------------------------------------------------------------------------------


def test_some_clients_keep_their_rows_and_names():
    part = FEDERATION.only([5, 2])
    assert part.num_clients == 2 and part.client_names == ("client 5", "client 2")
    for new, old in enumerate((5, 2)):
        for split in ("train", "validation", "test"):
            assert torch.equal(part.part(split)[new], FEDERATION.part(split)[old])
    assert part.columns is FEDERATION.columns


@pytest.mark.parametrize(
    ("clients", "line"),
    [
        ([8], "toy: there is no client 8"),
        ([-1], "toy: there is no client -1"),
        ([], "toy: a federation needs at least one client"),
        ([1, 1], "toy: a client is named twice"),
    ],
)
def test_clients_that_are_not_there_are_refused(clients, line):
    with pytest.raises(FedchordError) as error:
        FEDERATION.only(clients)
    assert str(error.value) == line


@pytest.mark.parametrize(
    ("newcomers", "clients", "expected"),
    [(0, 10, 0), (3, 10, 3), (9, 10, 9), (0.0, 10, 0), (0.3, 10, 3), (0.29, 100, 29), (0.01, 10, 1), (0.99, 10, 9)],
)
def test_a_number_or_a_share(newcomers, clients, expected):
    assert count(newcomers, clients) == expected


def test_the_choice_is_seeded_uniform_and_leaves_nobody_out():
    seen: Counter[str] = Counter()
    for seed in range(400):
        early, late = divide(FEDERATION, 2, seed)
        assert sorted(early.client_names + late.client_names) == sorted(FEDERATION.client_names)
        assert late.client_names == divide(FEDERATION, 2, seed)[1].client_names
        seen.update(late.client_names)
    assert len(seen) == 8 and max(abs(n - 100) for n in seen.values()) < 40  # 400 * 2 / 8, std 8.7
    assert divide(FEDERATION, 0) == (FEDERATION, None)


def test_newcomers_that_cannot_be_measured_are_refused_before_the_run():
    nothing = Ragged.of([torch.zeros(0, dtype=torch.int64)] * 8)
    with pytest.raises(FedchordError, match="run: none of the 2 newcomers has test rows"):
        divide(replace(FEDERATION, test=nothing), 2)


# -- what they measure ---------------------------------------------------------------------------------------------


def measured(module: nn.Module, federation: Federation, client: int) -> tuple[float, float]:
    """Loss and accuracy on the client's test rows."""
    x, y = (federation.columns[name][federation.test[client]] for name in ("x", "y"))
    with torch.no_grad():
        outputs = module.eval()(x)
    return float(F.cross_entropy(outputs, y)), float((outputs.argmax(1) == y).double().mean())


@pytest.mark.parametrize("make", [two, Normed])
@pytest.mark.parametrize("epochs", [0, 1, 3])
@pytest.mark.parametrize("name", ["fedavg", "superfed-mm", "ditto"])
def test_against_plain_torch(name, epochs, make):
    """The global model, and torch.optim from it with the learning rate of the last round."""
    last, found = arrive(name, epochs, make)
    _, late = divide(FEDERATION, 3, SEED)
    assert found.model == "the global model" and found.epochs == epochs
    assert found.received.protocol["never_sampled"] == found.tuned.protocol["clients"] == 3
    for client in range(3):
        module = make()
        shared = last.state.broadcast
        module.load_state_dict(Task(make).state_dict(shared["theta"], shared["buffers"]))
        expected = [measured(module, late, client)]
        optimiser = torch.optim.SGD(module.parameters(), 0.1 * 0.5**2, 0.5, weight_decay=0.01)
        key = rng.key(SEED, "batches", client, ROUNDS)
        stream = ClientStream(late, client, 4, key, least=2 if make is Normed else 1)
        module.train()
        for batch in stream.batches(0, Phase(epochs=epochs)):
            optimiser.zero_grad()
            F.cross_entropy(module(batch["x"]), batch["y"]).backward()
            optimiser.step()
        expected.append(measured(module, late, client))
        for evaluation, (loss, accuracy) in zip((found.received, found.tuned), expected, strict=True):
            assert float(evaluation.per_client["loss"][client]) == pytest.approx(loss, abs=5e-5)
            assert float(evaluation.per_client["top1"][client]) == pytest.approx(accuracy)
    assert (found.received.mean("loss") == found.tuned.mean("loss")) == (epochs == 0)


@pytest.mark.parametrize("name", ["fedavg", "superfed-mm", "fedper"])
def test_they_have_no_part_in_the_training(name):
    """With their rows spoilt the run is the same, bit for bit."""
    early, late = divide(FEDERATION, 3, SEED)
    spoilt = FEDERATION.columns["x"].clone()
    spoilt[torch.cat([late.train.rows, late.test.rows])] = torch.nan
    clean, other = run(name, early), run(name, replace(early, columns=early.columns | {"x": spoilt}))
    assert torch.equal(clean.state.broadcast["theta"], other.state.broadcast["theta"])
    assert torch.equal(*(evaluate(Fitted.of(last)).per_client["loss"] for last in (clean, other)))
    assert len(clean.state.visits) == 5


def test_a_shared_part_is_joined_with_an_untrained_rest():
    for name in ("fedper", "fedrep", "lg-fedavg"):
        last, found = arrive(name, 1)
        assert found.model == "the shared part of the global model with an untrained rest"
        algorithm, task = catalog.build(name), Task(two)
        model = algorithm.client.deploy(task, last.state.broadcast, None)
        module = two()
        module.load_state_dict(task.state_dict(model["theta"], model["buffers"]))
        _, late = divide(FEDERATION, 3, SEED)
        for client in range(3):
            loss, _ = measured(module, late, client)
            assert float(found.received.per_client["loss"][client]) == pytest.approx(loss, abs=1e-5)
        assert found.tuned.mean("loss") < found.received.mean("loss")


def test_where_nothing_is_shared_it_is_the_first_model():
    last, found = arrive("local", 1)
    assert found.model == "the first model, since nothing is shared"
    assert torch.equal(last.state.broadcast["theta"], Task(two).init(rng.key(SEED, "model"))["theta"])


# -- a run ---------------------------------------------------------------------------------------------------------

TINY = ["clients=8", "split=iid", "model=logreg", "rounds=3", "cohort=2", "executor=serial", "seed=1"]


def test_a_run_tells_them(tmp_path):
    out = tmp_path / "a"
    summary = runs.execute(RunConfig.from_pairs([*TINY, "newcomers=0.25", "newcomer_epochs=2", f"out={out}"]))
    found = summary["newcomers"]
    assert (found["clients"], found["epochs"], len(found["names"])) == (2, 2, 2)
    assert not set(found["names"]) & set(summary["per_client"]["client"])
    assert summary["protocol"]["clients"] == 6
    assert {"kind": "newcomers", "clients": 2, "of": 8} in summary["protocol"]["notes"]
    assert "newcomers: 2 of 8 clients were kept out of training" in result_notes(summary, None)
    for name in ("global", "tuned"):
        assert set(found[name]) == set(summary["metrics"]) and found[name]["top1"]["clients"] == 2
    assert found["tuned"]["loss"]["mean"] < found["global"]["loss"]["mean"]
    (line,) = newcomer_notes(found)
    top1 = f"top1 {found['global']['top1']['mean']:.4f} -> {found['tuned']['top1']['mean']:.4f}"
    assert line.startswith("2 newcomers got the global model; means as received -> after 2 local epochs: ")
    assert top1 in line
    assert json.loads((out / "summary.json").read_text())["newcomers"] == found
    (out / "summary.json").unlink()  # stopped between the last round and the summary
    assert runs.resume(out)["newcomers"] == found


def test_without_newcomers_a_run_is_as_before():
    plain, none = (RunConfig.from_pairs([*TINY, *more]) for more in ([], ["newcomers=0"]))
    assert plain == none and "newcomers" not in plain.values() and plain.fingerprint() == none.fingerprint()
    assert plain.with_pairs(["newcomers=1"]).fingerprint() != plain.fingerprint()
    assert runs.execute(plain)["newcomers"] is None
    assert newcomer_notes(None) == []


@pytest.mark.parametrize(
    ("pairs", "line"),
    [
        (["newcomers=8"], "run: newcomers must be fewer than the 8 clients, so that some can train, got 8"),
        (["newcomers=-1"], "run: newcomers must be a whole number of at least 0, got -1"),
        (["newcomers=1.5"], "run: newcomers as a share must be at least 0 and below 1, got 1.5"),
        (["newcomers=few"], "run: newcomers must be a number of clients or a share such as 0.1, got 'few'"),
        (["newcomers=true"], "run: newcomers must be a number of clients or a share such as 0.1, got True"),
        (["newcomers=2", "newcomer_epochs=-1"], "run: newcomer_epochs must be a whole number of at least 0, got -1"),
        (["newcomer_epochs=2"], "run: newcomer_epochs is given, but there are no newcomers"),
        (["newcomers=7"], "run: cohort must be at most the number of clients, 1, got 2"),
    ],
)
def test_mistakes_are_told_before_the_run(pairs, line):
    with pytest.raises(FedchordError) as error:
        RunConfig.from_pairs([*TINY, *pairs])
    assert str(error.value) == line
