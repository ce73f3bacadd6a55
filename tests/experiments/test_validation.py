"""What deployed models measure on validation rows: in the summary of every run that has such rows, and of no other."""

from __future__ import annotations

import json
import statistics

import pytest
import torch

import fedchord
from fedchord.experiments import reading
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts
from fedchord.experiments.session import Run
from fedchord.models import TwoNN
from fedchord.report.show import result_notes
from fedchord.synthetic.learn import judged
from fedchord.synthetic.set import load

TINY = {"model": "logreg", "clients": 6, "cohort": 3, "rounds": 3, "executor": "serial", "seed": 4}


def by_hand(model: torch.nn.Module, federation: fedchord.data.Federation, client: int) -> float:
    """The accuracy of a plain module on a client's validation rows."""
    rows = federation.batch(federation.validation[client])
    with torch.no_grad():
        return float((model(rows["x"]).argmax(1) == rows["y"]).double().mean())


def assert_is(found: dict[str, float], values: list[float], sizes: list[int]) -> None:
    """Mean and std over clients, and all rows as one set."""
    assert found["mean"] == pytest.approx(statistics.fmean(values))
    assert found["std"] == pytest.approx(statistics.pstdev(values))
    rows = sum(value * size for value, size in zip(values, sizes, strict=True))
    assert found["pooled"] == pytest.approx(rows / sum(sizes))


@pytest.mark.parametrize("method", ["fedavg", "apfl", "fedper"])
def test_every_client_uses_the_model_it_deploys(method):
    """APFL has two models and deploys a point between them, which is not the best one of its sweep."""
    run = Run(Parts.build(RunConfig.from_values(TINY | {"method": method, "model": "twonn", "validation": 0.2})))
    found = run.finish()["validation"]
    fitted, federation, task = run.fitted, run.parts.federation, run.parts.task
    values = []
    for client in range(6):
        model, net = fitted.deployed(client), TwoNN(64, 200, 10)
        net.load_state_dict(task.state_dict(model["theta"], model["buffers"]))
        values.append(by_hand(net, federation, client))
    assert_is(found["metrics"]["top1"], values, federation.validation.sizes.tolist())
    assert (found["clients"], found["evaluated"], found["without_rows"]) == (6, 6, 0)
    assert list(found["metrics"]) == ["top1", "top5", "loss", "ece", "mce"]
    assert found["metrics"]["top1"]["mean"] != run.summary["metrics"]["top1"]["mean"]  # other rows


def test_a_method_that_ends_with_samples_is_judged_there_too(tmp_path):
    config = {key: value for key, value in TINY.items() if key != "model"} | {"method": "fedcvae", "judge.steps": 30}
    run = Run(Parts.build(RunConfig.from_values(config | {"validation": 0.2, "out": str(tmp_path / "a")})))
    found = run.finish()["validation"]
    learnt = judged(run.parts.config.judged_by(), load(tmp_path / "a/synthetic.npz"), 4)
    net = TwoNN(64, 200, 10)
    net.load_state_dict(learnt.task.state_dict(learnt.model["theta"], learnt.model["buffers"]))
    values = [by_hand(net, run.parts.federation, client) for client in range(6)]
    assert_is(found["metrics"]["top1"], values, run.parts.federation.validation.sizes.tolist())


def test_clients_without_validation_rows_are_counted(tmp_path):
    own = tmp_path / "own.csv"
    rows = [(i % 2, client) for client in range(4) for i in range(2 if client == 3 else 12)]
    own.write_text("a,label,client\n" + "".join(f"{n},{y},{client}\n" for n, (y, client) in enumerate(rows)))
    settings = TINY | {"data": str(own), "clients": "all", "validation": 0.2}
    found = runs.execute(RunConfig.from_values(settings))["validation"]
    assert (found["clients"], found["evaluated"], found["without_rows"]) == (4, 3, 1)


def test_metrics_that_were_asked_for_are_measured_there():
    found = runs.execute(RunConfig.from_values(TINY | {"validation": 0.2, "metrics": "kappa"}))
    assert list(found["validation"]["metrics"]) == list(found["metrics"])
    assert "kappa" in found["validation"]["metrics"]


def test_without_validation_rows_there_is_no_such_block(tmp_path):
    summary = runs.execute(RunConfig.from_values(TINY | {"out": str(tmp_path / "a")}))
    assert "validation" not in summary
    read = reading.read(tmp_path / "a")
    assert read.value("top1", "mean", "validation") is None and read.value("top1", "mean") is not None
    assert not [line for line in result_notes(summary, None) if "validation rows of" in line]


def test_it_is_read_and_told(tmp_path):
    summary = runs.execute(RunConfig.from_values(TINY | {"validation": 0.2, "out": str(tmp_path / "a")}))
    read, held = reading.read(tmp_path / "a"), summary["validation"]["metrics"]["top1"]
    assert [read.value("top1", column, "validation") for column in held] == list(held.values())
    assert read.value("top1", "worst10", "validation") is None and read.value("f1", "mean", "validation") is None
    (line,) = [line for line in result_notes(summary, None) if "validation rows of" in line]
    assert line.startswith(f"On validation rows of 6 of 6 clients, mean over clients: top1 {held['mean']:.4f}, ")
    summary["validation"]["metrics"]["loss"]["mean"] = None
    (tmp_path / "a/summary.json").write_text(json.dumps(summary))
    assert str(reading.read(tmp_path / "a").value("loss", "mean", "validation")) == "nan"


def test_own_objects_with_validation_rows():
    digits = fedchord.federate(fedchord.load("digits"), fedchord.data.Iid(), 5, validation=0.1, seed=1)
    task = fedchord.Task(lambda: TwoNN(64, 10, 10))
    run = fedchord.run(fedchord.method("fedavg"), task, digits, rounds=1, executor="serial")
    assert run.finish()["validation"]["evaluated"] == 5
