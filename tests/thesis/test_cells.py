"""The cells of the thesis: every printed number, what a kept result makes of it, and what the thesis claims."""

from __future__ import annotations

import copy
import csv
import json
import os
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.invoked import invoke

import fedchord
from fedchord.experiments.config import RunConfig
from fedchord.report import formats
from fedchord.thesis import cells, claims, results, studies
from fedchord.thesis.cells import Cell, Kept, State
from fedchord.thesis.results import Result
from fedchord.thesis.status import Status, claim_table, command, difference, listing, overview

COUNTS = {
    "2_table3": 66, "2_table4": 66, "2_table5": 44, "2_table6": 264, "2_table7": 20, "result_silo": 84, "ag_silo": 21,
    "result_device": 72, "ag_device": 18, "pnp": 40, "cdf_effect": 8, "disc": 24, "disc2": 24, "gen": 24, "gen2": 24,
}  # fmt: skip
"""Counted in the thesis, table by table."""

COLUMNS = {
    "avg": "mean", "worst": "worst10", "worst10": "worst10", "best": "best10", "best10": "best10", "gini": "gini",
    "delta_AG": "gap", "avg_AUROC": "mean", "worst_AUROC": "worst10", "avg_top1": "mean", "worst_top1": "worst10",
    "ECE": "ece mean", "MCE": "mce mean", "loss": "loss swept", "FID": "mean",
}  # fmt: skip


def place_of(table: str, row: dict[str, Any]) -> tuple[str, str, str]:
    """Where a number of the thesis' tables.json stands in our study of the table."""
    data, setting, metric, method = row["dataset"], row["setting"], row["metric"], row["method"]
    if table == "2_table3":
        return method, f"{data} K={setting['K']}", "swept"
    if table == "2_table4":
        return method, f"{data} alpha={setting['alpha']}", "swept"
    if table == "2_table5":
        return method, data, {"top1_acc": "swept", "top5_acc": "top5 swept"}[metric]
    if table == "2_table6":
        return method, f"{data} {setting['noise_type']} {setting['noise_ratio']}", COLUMNS.get(metric, "swept")
    if table == "2_table7":
        return method, f"L/T={setting['L_over_T']:g}", COLUMNS.get(metric, "swept")
    if table in ("disc", "disc2", "gen", "gen2"):
        return method, f"{data} K={setting['K']} alpha={setting['alpha']:g}", "mean"
    label = "Berka leaking" if data == "Berka" else data
    if table == "pnp":
        method += " + AAggFF" if setting["with_AAggFF"] else ""
    if table == "cdf_effect":
        method = method.split("/")[1]
    return method, label, COLUMNS[metric]


def test_there_are_799_cells() -> None:
    assert {table: len(cells.cells(table)) for table in studies.TABLES} == COUNTS
    every = list(cells.every())
    assert len(every) == len(set(every)) == 799


@pytest.mark.parametrize("table", studies.TABLES)
def test_every_number_is_the_thesis_own(table: str) -> None:
    place = os.environ.get("FEDCHORD_THESIS")
    if not place:
        pytest.skip("FEDCHORD_THESIS does not point to the thesis' tables.json")
    path = Path(place) / "tables.json" if Path(place).is_dir() else Path(place)
    printed = json.loads(path.read_text())[table]["rows"]
    expected = {place_of(table, row): (row["mean"], row["std"]) for row in printed}
    assert len(expected) == len(printed) == COUNTS[table]
    assert {(c.row, c.setting, c.column): (c.printed, c.spread) for c in cells.cells(table)} == expected


@pytest.mark.parametrize("table", studies.TABLES)
def test_every_cell_has_runs_at_every_scale_and_a_number_among_the_metrics(table: str) -> None:
    for scale in studies.SCALES:
        planned = {(job.method, job.setting) for job in cells.plan(table, scale).jobs}
        assert planned == {cell.key for cell in cells.cells(table)}
    data = {(job.method, job.setting): job.config.data for job in cells.plan(table, "thesis").jobs}
    for job in cells.plan(table, "small").jobs:
        assert job.config.data == data[job.method, job.setting]  # a small run is one of the same data


@pytest.mark.parametrize("table", studies.TABLES)
def test_the_command_of_a_cell_makes_its_runs(table: str) -> None:
    seeds = 1 if table.startswith("2_") or table == "cdf_effect" else 3  # as the thesis' captions say
    for cell in (cells.cells(table)[0], cells.cells(table)[-1]):
        assert cells.has_command(cell) and not cells.has_command(replace(cell, row="Nobody"))
        done = invoke(*shlex.split(command(table, *cell.key))[1:], "--dry-run")
        assert done.exit_code == 0, done.stderr
        assert f"at scale thesis: {seeds} run" in done.stdout, done.stdout


def test_the_scale_of_the_thesis_has_its_networks_and_lengths() -> None:
    """By its tables 2_table2, dataset_desc and its text: rounds, epochs, batch, rate and model of every column."""
    expected = {
        "2_table4": {"CIFAR-100": (500, 5, 20, 0.01, "resnet9"), "TinyImageNet": (500, 5, 20, 0.02, "mobilenet")},
        "2_table5": {"FEMNIST": (500, 10, 10, 0.01, "vgg9"), "Shakespeare": (500, 5, 50, 0.8, "lstm-characters")},
        "2_table6": {"MNIST": (500, 10, 10, 0.01, "twonn"), "CIFAR-10": (500, 10, 10, 0.01, "twocnn")},
        "2_table7": {"L/T": (200, 10, 10, 0.01, "twocnn")},
        "result_device": {
            "CelebA": (3000, 1, 20, 0.1, "leafconv"),
            "Reddit": (300, 1, 20, 10 ** (7 / 8), "lstm-words"),
            "SpeechCommands": (500, 1, 20, 0.1, "m5"),
        },
    }
    for table, columns in expected.items():
        for job in cells.plan(table, "thesis").jobs:
            config = job.config
            rounds, epochs, batch, lr, model = next(v for k, v in columns.items() if job.setting.startswith(k))
            assert (config.rounds, config.epochs, config.batch, config.model) == (rounds, epochs, batch, model)
            assert config.lr == pytest.approx(lr, rel=1e-6)
    for table in ("disc", "disc2", "gen", "gen2"):
        models = {job.method: job.config.model for job in cells.plan(table, "thesis").jobs}
        assert models == {"FedCGAN": "cgan:64", "FedCVAE": "cvae:64", "FedEvg": "resnet10"}
        assert {job.config.rounds for job in cells.plan(table, "thesis").jobs} == {500}
        for job in cells.plan(table, "thesis").jobs:
            assert job.config.plan().size(int(job.config.clients or 0)) == 10
            method, lr, decay = decays(job.config)
            assert (lr, decay) == (0.001, (0.9, 50, 1e-4)), method  # Adam, of the code: the text says that rates decay


def decays(config: RunConfig) -> tuple[str, float, tuple[float, int, float]]:
    """The method, its clients' rate, and factor, rounds and weight decay as the clients train by them."""
    keys = config.values() | dict(config.parameters)
    if config.method == "fedevg-thesis":
        from fedchord.clients.energy import THESIS

        return config.method, THESIS["lr"], (THESIS["lr_decay"], THESIS["lr_step"], THESIS["weight_decay"])
    return config.method, keys["method.local_lr"], (keys["lr_decay"], keys["lr_step"], keys["weight_decay"])


# -- what a kept result makes of a cell ----------------------------------------------------------------------------


def kept(cell: Cell, scale: str = "thesis", verdict: str = "original", mean: float = 0.9, **keys: Any) -> list[Result]:
    """Results as they would be read, one a seed, with made-up numbers."""
    found = []
    for job in cells.plan(cell.table, scale).jobs:
        if (job.method, job.setting) == cell.key:
            config = RunConfig.from_values(job.config.values() | keys | {"seed": keys.get("seed", job.seed)})
            numbers = {cell.metric: {cell.name: mean + job.seed / 100, "std": 0.1, "swept_std": 0.1}}
            content = {"data": {"verdict": verdict}, "versions": {"fedchord": fedchord.__version__}, "metrics": numbers}
            found.append(Result(Path("x"), cell.study, cell.row, cell.setting, config, content))
    return found


def cell_of(table: str, row: str, setting: str, column: str = "") -> Cell:
    return next(
        cell for cell in cells.cells(table) if cell.key == (row, setting) and (not column or cell.column == column)
    )


FEDAVG = cell_of("2_table3", "FedAvg", "MNIST K=100")


def test_a_cell_is_full_with_the_settings_and_seeds_of_the_thesis() -> None:
    found = cells.state(FEDAVG, Kept(kept(FEDAVG)))
    assert (found.state, found.less, found.seeds) == ("full", (), 1)
    assert found.value == pytest.approx(91.0) and found.spread == pytest.approx(10.0)
    assert difference(FEDAVG, found) == pytest.approx(91.0 - 89.78)
    berka = cell_of("result_silo", "AFL", "Berka leaking", "mean")
    three = kept(berka, verdict="derived")
    found = cells.state(berka, Kept(three))
    assert (found.state, found.seeds, found.verdict) == ("full", 3, "derived")
    assert found.value == pytest.approx(92.0) and found.spread == pytest.approx(1.0)  # 0.91, 0.92, 0.93: std over seeds
    more = [*three, *kept(berka, verdict="derived", mean=0.5, seed=9)[:1]]
    assert cells.state(berka, Kept(more)).value == pytest.approx(92.0)  # all planned seeds are there: no other counts
    two = cells.state(berka, Kept(three[:2]))
    assert (two.state, two.less) == ("reduced", ("2 of 3 seeds",))


@pytest.mark.parametrize(
    ("keys", "verdict", "less"),
    [
        ({"rounds": 30}, "original", ("rounds 30 (500)",)),
        ({"rounds": 30, "epochs": 1}, "original", ("rounds 30 (500)", "epochs 1 (10)")),
        ({"method.lr": 0.5}, "original", ("method.lr 0.5 (usual)",)),
        ({}, "subset", ("subset data",)),
        ({"executor": "serial", "eval_every": 1}, "content", ()),
    ],
)
def test_what_is_less_is_read_from_the_settings(keys: dict[str, Any], verdict: str, less: tuple[str, ...]) -> None:
    found = cells.state(FEDAVG, Kept(kept(FEDAVG, verdict=verdict, **keys)))
    assert found.less == less and found.state == ("reduced" if less else "full")


def test_other_data_are_no_result_of_a_cell_and_full_wins() -> None:
    assert cells.state(FEDAVG, Kept(kept(FEDAVG, data="qmnist"))).state == "none"
    assert cells.state(FEDAVG, Kept([])) == State()
    short, long, full = kept(FEDAVG, "small"), kept(FEDAVG, rounds=400, mean=0.5), kept(FEDAVG, mean=0.7)
    assert cells.state(FEDAVG, Kept([*short, *long])).value == pytest.approx(51.0)
    assert cells.state(FEDAVG, Kept([*full, *short, *long])).value == pytest.approx(71.0)


def test_tables_of_the_same_runs_share_their_results() -> None:
    """The parity gap is of result_silo's runs, and distances do not depend on who asked for them first."""
    gap = cell_of("ag_silo", "AFL", "Berka leaking")
    made = [replace(one, study="result_silo") for one in kept(gap)]
    assert cells.state(gap, Kept(made)).state == "full"
    accuracy, near = (cell_of(table, "FedCVAE", "MNIST K=10 alpha=1") for table in ("disc", "gen"))
    runs = [replace(one, study="disc") for one in kept(accuracy)]
    for one in runs:
        one.content["synthetic"] = {"numbers": {"frechet": {"mean": 100.0}}}
    assert cells.state(accuracy, Kept(runs)).state == "full"
    found = cells.state(near, Kept([replace(one, study="gen") for one in runs]))
    assert found.state == "reduced" and found.less == ("judge.features classifier (inception:inception_v3.pth)",)
    assert difference(near, found) is None  # another measure: no difference is shown


def test_the_claims_by_the_thesis_own_numbers() -> None:
    """What errata E28 counted by hand, and what anybody can count in the tables."""
    own = {claim.name: claims.answer(claim, claims.printed) for claim in claims.claims()}
    assert all(claim.table in studies.TABLES for claim in claims.claims())
    assert (own["fedevg-accuracy"].holds, own["fedevg-accuracy"].fails) == (7, 1)  # MNIST, K = 10, alpha 0.01
    assert (own["fedevg-quality-medical"].holds, own["fedevg-quality-medical"].fails) == (7, 1)
    assert (own["plug-and-play"].holds, own["plug-and-play"].fails) == (19, 1)  # FedProx on TinyImageNet
    assert (own["aaggff-device-gap"].holds, own["aaggff-device-gap"].fails) == (2, 1)  # Reddit
    assert own["superfed-pathological"].word == "holds" and own["superfed-pathological"].holds == 6
    assert own["plug-and-play"].word == "does not"


def test_a_claim_is_open_unless_all_was_measured_alike() -> None:
    claim = next(one for one in claims.claims() if one.name == "superfed-pathological")
    column = [cell for cell in cells.cells("2_table3") if cell.setting == "MNIST K=50"]
    states = {cell: State() for cell in cells.every()}
    for cell in column:
        best = 0.5 if cell.row.startswith("SuPerFed-MM") else 0.2
        states[cell] = cells.state(cell, Kept(kept(cell, mean=best)))
    look = claims.measured(states, full=True)
    assert claims.answer(claim, look) == claims.Answer(1, 0, 5)
    worse = copy.copy(states)
    mm = next(cell for cell in column if cell.row == "SuPerFed-MM")
    worse[mm] = cells.state(mm, Kept(kept(mm, mean=0.1)))
    lm = next(cell for cell in column if cell.row == "SuPerFed-LM")
    worse[lm] = cells.state(lm, Kept(kept(lm, mean=0.1)))
    assert claims.answer(claim, claims.measured(worse)) == claims.Answer(0, 1, 5)
    shorter = states | {column[0]: cells.state(column[0], Kept(kept(column[0], rounds=9)))}
    assert claims.answer(claim, claims.measured(shorter)) == claims.Answer(0, 0, 6)


def test_the_repository_s_results_can_be_read_and_counted() -> None:
    """What is kept beside the code: every file is whole, small, of the settings it names, and in one state."""
    folder = Path(__file__).parents[2] / "results"
    found = Status(folder)
    assert not found.wrong
    assert sum(path.stat().st_size for path in folder.rglob("*.json")) < 4_000_000
    counted = Counter(one.state for one in found.states.values())
    rows = {str(row[0]): [int(str(cell)) for cell in row[1:6]] for row in overview(found).rows}
    assert rows["all"] == [799, 799, counted["full"], counted["reduced"], counted["none"]]
    assert rows["all"][0] == sum(rows[table][0] for table in studies.TABLES)
    shown = listing(found, "2_table3")
    assert len(shown.rows) == 66
    for line in formats.render(shown, "csv").splitlines()[1:]:
        row = next(csv.reader([line]))
        ours, gap, state = row[5], row[7], row[8]
        assert (state == "none") == (ours == "") == (gap == ""), line
        assert not ours or float(gap) == pytest.approx(float(ours) - float(row[3]), abs=0.011)
    assert len(claim_table(found).rows) == len(claims.claims())
    for result in found.results:
        job_hash = result.path.stem.rpartition("_")[2]
        assert result.config.fingerprint()[:8] == job_hash, result.path
        per_client = result.content["per_client"]
        for metric, values in per_client.items():
            numbers = [value for value in values if value is not None]
            if metric in result.content["metrics"] and numbers:
                mean = result.content["metrics"][metric]["mean"]
                assert sum(numbers) / len(numbers) == pytest.approx(mean, abs=1e-4), (result.path, metric)
    assert results.read_all(folder / "no such folder") == ([], {})
