"""What a server writes is a run folder: tables, comparisons and plots read it, and it says what it does not know."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from helpers.alone import each_alone
from helpers.invoked import invoke
from helpers.remote import FEDERATION, OPEN, QUICK, direct, plan_of, simulated

from fedchord.check import FedchordError
from fedchord.data import outline
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import simulate
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.folder import RunFolder
from fedchord.remote.serve import serve


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two methods, each served to its end."""
    root = tmp_path_factory.mktemp("served")
    for name, more in (("fedavg", {}), ("superfed-mm", {"method__start_round": 0})):
        plan = plan_of(name, eval_every=1, metrics=["f1"], **more)
        serve(plan, direct(plan, root / "nodes" / name, limits=OPEN), root / name, service=QUICK).finish()
    return root


def test_tables_comparisons_and_plots_read_it(folders, tmp_path):
    runs = [str(folders / name) for name in ("fedavg", "superfed-mm")]
    table = invoke("table", *runs)
    assert table.exit_code == 0 and "superfed-mm" in table.output and "fedavg" in table.output
    compared = invoke("compare", *runs, "--against", "fedavg")
    assert compared.exit_code == 0, compared.output
    plotted = invoke("plot", *runs, "--to", str(tmp_path / "curves.png"))
    assert plotted.exit_code == 0 and (tmp_path / "curves.png").stat().st_size > 1000, plotted.output


def test_the_summary_has_the_numbers_of_the_simulator_and_says_what_is_not_known(folders):
    summary = json.loads((folders / "fedavg" / "summary.json").read_text())
    known = each_alone(Fitted.of(simulated(plan_of("fedavg"))), ("top1", "loss", "f1"))
    for metric, row in known.metrics.items():
        for column in ("mean", "std", "worst10", "gini", "weighted"):
            assert summary["metrics"][metric][column] == row[column], (metric, column)
    assert abs(summary["metrics"]["top1"]["pooled"] - known.metrics["top1"]["pooled"]) < 1e-12
    assert summary["metrics"]["f1"]["pooled"] is None  # it needs all rows at once
    assert summary["protocol"]["evaluated"] == 4 and summary["protocol"]["absent"] == 0
    assert summary["per_client"]["size"] == FEDERATION.test.sizes.tolist()
    swept = json.loads((folders / "superfed-mm" / "summary.json").read_text())["sweep"]
    assert len(swept["per_client"]) == 4 and swept["validated"] is not None


def test_the_folder_holds_a_checkpoint_and_an_outline_and_no_memory_of_a_client(folders):
    here = folders / "superfed-mm"
    found = checkpoint.load(here / "checkpoints", ClientMemory())
    assert (
        found.state.round == 3
        and found.state.counted.tolist()
        == simulated(plan_of("superfed-mm", method__start_round=0)).state.counted.tolist()
    )
    assert not list((here / "checkpoints").glob("memory/*"))
    assert len(outline.load(here / "data.safetensors").columns["x"]) == 0
    lines = [json.loads(line) for line in (here / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3] and all("metrics" in line for line in lines)
    assert any(value is not None for value in lines[-1]["log"].values())


def test_a_served_run_goes_on_by_serve_alone(folders):
    with pytest.raises(FedchordError, match="clients were elsewhere; go on with: fedchord serve"):
        RunFolder(folders / "fedavg").read_config()
    again = plan_of("fedavg", eval_every=1, metrics=["f1"])
    transport = direct(again, folders / "nodes" / "fedavg")
    finished = serve(again, transport, folders / "fedavg", service=QUICK, resume=True).finish()
    assert finished["rounds"] == 3
    with pytest.raises(FedchordError, match="already holds another run"):
        serve(plan_of("fedprox"), transport, folders / "fedavg", service=QUICK)


def test_bits_of_the_evaluation_on_the_way_are_there(folders):
    """Every round is measured by the clients, as a simulation is."""
    lines = [json.loads(line) for line in (folders / "fedavg" / "rounds.jsonl").read_text().splitlines()]
    plan = plan_of("fedavg", rounds=3)
    work, course = plan.work(FEDERATION), plan.course
    settings = {"rounds": 3, "cohort": course.cohort, "seed": course.seed, "training": plan.config.training()}
    for line, done in zip(
        lines, simulate(work.algorithm, work.task, FEDERATION, executor="serial", **settings), strict=True
    ):
        assert line["metrics"]["top1"]["mean"] == evaluate(Fitted.of(done)).mean("top1")
        assert line["bytes_up"] == done.bytes_up and line["bytes_down"] == done.bytes_down
        assert torch.tensor(line["shares"]).sum() > 0.999


def test_the_global_model_is_used_on_the_server_and_private_ones_are_not_there(folders, tmp_path):
    rows = tmp_path / "rows.npz"
    np.savez(rows, x=FEDERATION.columns["x"][:7].numpy())
    done = invoke("predict", str(folders / "fedavg"), str(rows))
    assert done.exit_code == 0, done.output
    known = Fitted.of(simulated(plan_of("fedavg"))).predict(FEDERATION.columns["x"][:7]).labels
    told = [line.split(",")[1] for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert told == known
    out = tmp_path / "exported"
    assert invoke("export", str(folders / "fedavg"), "--to", str(out)).exit_code == 0 and (out / "predict.py").is_file()
