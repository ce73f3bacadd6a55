"""Tables of runs, against means and deviations computed by the statistics module from literal run folders."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import statistics
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from helpers.invoked import invoke

from fedchord.check import FedchordError
from fedchord.experiments import reading
from fedchord.experiments.columns import COLUMNS
from fedchord.report import cells, formats, tables


def write_run(folder: Path, top1: list[float], gini: float = 0.05, loss: float = 1.0, **keys: Any) -> Path:
    """A finished run with these accuracies of its clients; its summary is computed here, not by the library."""
    keys = {"method": "fedavg", "data": "digits", "clients": len(top1), "rounds": 5, "seed": 1} | keys
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps({**keys, "out": str(folder)}))
    values = {
        "mean": statistics.fmean(top1),
        "std": statistics.pstdev(top1),
        "worst10": min(top1),
        "best10": max(top1),
        "gap": max(top1) - min(top1),
        "gini": gini,
        "pooled": statistics.fmean(top1),
        "weighted": statistics.fmean(top1),
        "clients": len(top1),
        "undefined": 0,
    }
    summary = {
        "layout": 2,
        "config": keys,
        "protocol": {
            "deploys": {"words": f"the model of {keys['method']}", "kind": "own"},
            "split": "test",
            "round": 5,
            "clients": len(top1),
            "evaluated": len(top1),
            "without_rows": 0,
            "never_sampled": 1,
        },
        "metrics": {"top1": values, "loss": {**values, "mean": loss, "std": 0.25}},
        "per_client": {"client": list(range(len(top1))), "size": [1] * len(top1), "top1": top1},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def rows_of(table: cells.Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(formats.render(table, "csv"))))


def made(tmp_path: Path, **options: Any) -> cells.Table:
    runs, _ = reading.read_all([tmp_path])
    return tables.tabulate(runs, **options)


def bold(table: cells.Table, head: str) -> list[str]:
    place = [h.name for h in table.heads].index(head)
    return [str(row[0]) for row in table.rows if row[place].best]


ACCURACIES = {1: [0.5, 0.7], 2: [0.6, 0.9], 3: [0.4, 0.9]}


def test_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    for seed, top1 in ACCURACIES.items():
        write_run(tmp_path / f"a{seed}", top1, seed=seed)
        write_run(tmp_path / f"p{seed}", [x / 2 for x in top1], seed=seed, method="fedprox", **{"method.mu": 0.1})
    first, second = rows_of(made(tmp_path))
    means = [statistics.fmean(top1) for top1 in ACCURACIES.values()]
    worst = [min(top1) for top1 in ACCURACIES.values()]
    assert (first["method"], first["method.mu"], first["seeds"]) == ("fedavg", "", "3")
    assert (second["method"], second["method.mu"], second["seeds"]) == ("fedprox", "0.1", "3")
    assert float(first["top1 mean %"]) == pytest.approx(100 * statistics.fmean(means))
    assert float(first["top1 mean % std"]) == pytest.approx(100 * statistics.stdev(means))
    assert float(first["top1 worst10 %"]) == pytest.approx(100 * statistics.fmean(worst))
    assert float(first["top1 worst10 % std"]) == pytest.approx(100 * statistics.stdev(worst))
    assert float(second["top1 mean %"]) == pytest.approx(50 * statistics.fmean(means))
    assert float(first["top1 gini x100"]) == pytest.approx(5.0)


def test_one_seed_has_its_spread_over_clients(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.5, 0.7])
    table = made(tmp_path)
    (row,) = rows_of(table)
    assert float(row["top1 mean % std"]) == pytest.approx(100 * statistics.pstdev([0.5, 0.7]))
    assert row["top1 worst10 % std"] == ""
    assert "one seed: in brackets the std over clients (ddof 0)" in table.notes
    assert cells.DAGGER not in formats.render(table, "markdown")


def test_rows_of_one_seed_are_marked_among_others(tmp_path: Path) -> None:
    for seed, top1 in ACCURACIES.items():
        write_run(tmp_path / f"a{seed}", top1, seed=seed)
    write_run(tmp_path / "b", [0.1, 0.3], method="local")
    text = formats.render(made(tmp_path), "markdown")
    assert "20.00 (10.00)†" in text
    assert text.count("†") == 2  # the cell and its note; columns without brackets are not marked


def test_spread_over_clients_can_be_asked_for(tmp_path: Path) -> None:
    for seed, top1 in ACCURACIES.items():
        write_run(tmp_path / f"a{seed}", top1, seed=seed)
    (row,) = rows_of(made(tmp_path, spread="clients"))
    inside = [statistics.pstdev(top1) for top1 in ACCURACIES.values()]
    assert float(row["top1 mean % std"]) == pytest.approx(100 * statistics.fmean(inside))


def test_bold_follows_what_is_better(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.50, 0.90], gini=0.20, loss=0.9)
    write_run(tmp_path / "b", [0.60, 0.62], gini=0.02, loss=0.4, method="local")
    table = made(tmp_path, metrics=["top1", "loss"], columns=["mean", "gini", "gap", "std", "clients"])
    assert bold(table, "top1 mean %") == ["fedavg"]
    assert bold(table, "top1 gini x100") == ["local"]
    assert bold(table, "top1 gap %") == ["local"]
    assert bold(table, "top1 std %") == ["local"]
    assert bold(table, "loss mean") == ["local"]
    assert bold(table, "top1 clients") == []


def test_bold_holds_for_all_that_print_the_same(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.70001])
    write_run(tmp_path / "b", [0.70004], method="local")
    write_run(tmp_path / "c", [0.70006], method="scaffold")
    assert bold(made(tmp_path, columns=["mean"]), "top1 mean %") == ["scaffold"]
    (tmp_path / "c" / "summary.json").unlink()
    assert bold(made(tmp_path, columns=["mean"]), "top1 mean %") == ["fedavg", "local"]


def test_bold_needs_a_contest_and_a_number(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.7])
    assert bold(made(tmp_path), "top1 mean %") == []
    broken = write_run(tmp_path / "b", [0.9], method="local")
    summary = json.loads((broken / "summary.json").read_text())
    summary["metrics"]["top1"]["mean"] = None  # undefined, as JSON writes it
    (broken / "summary.json").write_text(json.dumps(summary))
    write_run(tmp_path / "c", [0.8], method="scaffold")
    table = made(tmp_path, columns=["mean"])
    assert bold(table, "top1 mean %") == ["scaffold"]
    assert "nan" in formats.render(table, "markdown")


def test_only_rows_of_the_same_problem_are_compared(tmp_path: Path) -> None:
    for data, top1 in (("digits", 0.9), ("mnist", 0.5)):
        write_run(tmp_path / f"{data}-a", [top1], data=data)
        write_run(tmp_path / f"{data}-b", [top1 - 0.1], data=data, method="local")
    table = made(tmp_path, columns=["mean"])
    assert bold(table, "top1 mean %") == ["fedavg", "fedavg"]
    assert [str(row[1]) for row in table.rows] == ["digits", "digits", "mnist", "mnist"]
    assert "bold: the best of its column, among rows of the same problem" in table.notes


def test_markdown_and_latex_say_what_csv_says(tmp_path: Path) -> None:
    for seed, top1 in ACCURACIES.items():
        write_run(tmp_path / f"a{seed}", top1, seed=seed)
        write_run(tmp_path / f"b{seed}", [x / 2 for x in top1], seed=seed, method="my_rule")
    table = made(tmp_path)
    numbers = rows_of(table)
    lines = [line for line in formats.render(table, "markdown").splitlines() if line.startswith("|")]
    parsed = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    assert parsed[0] == [head.name for head in table.heads]
    assert parsed[1][0] == ":--" and parsed[1][-1] == "--:"
    for line, row in zip(parsed[2:], numbers, strict=True):
        shown = line[2].strip("*")
        assert shown == f"{float(row['top1 mean %']):.2f} ({float(row['top1 mean % std']):.2f})"
    assert parsed[2][2].startswith("**") and not parsed[3][2].startswith("**")
    latex = formats.render(table, "latex")
    body = [line for line in latex.splitlines() if line.endswith("\\\\")]
    assert all(line.count("&") == len(table.heads) - 1 for line in body)
    assert "\\textbf{66.67 (7.64)}" in body[1] and "my\\_rule" in body[2] and "top1 mean \\%" in body[0]


def test_raw_scale_and_losses_are_not_multiplied(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.5, 0.7], loss=1.25)
    percent = rows_of(made(tmp_path, metrics=["loss"], columns=["mean", "gini"]))[0]
    assert (float(percent["loss mean"]), float(percent["loss gini x100"])) == (1.25, 5.0)
    raw = rows_of(made(tmp_path, scale="raw"))[0]
    assert float(raw["top1 mean"]) == pytest.approx(0.6)
    assert float(raw["top1 gini"]) == pytest.approx(0.05)


def test_where_and_how_a_run_was_made_does_not_split_a_row(tmp_path: Path) -> None:
    same = {"method": "fedprox", "cohort": 5}
    write_run(tmp_path / "a", [0.5], seed=1, executor="serial", workers=1, **same, **{"method.mu": 1})
    write_run(tmp_path / "b", [0.7], seed=2, executor="processes", eval_every=3, **same, **{"method.mu": 1.0})
    (row,) = rows_of(made(tmp_path))
    assert row["seeds"] == "2" and float(row["top1 mean %"]) == pytest.approx(60)


def test_of_two_runs_with_one_seed_the_newer_counts(tmp_path: Path) -> None:
    old, new = write_run(tmp_path / "z-old", [0.5]), write_run(tmp_path / "a-new", [0.7])
    for folder, time in ((old, 1_000), (new, 2_000)):
        os.utime(folder / "summary.json", (time, time))
    (row,) = rows_of(made(tmp_path))
    assert row["seeds"] == "1" and float(row["top1 mean %"]) == pytest.approx(70)


def test_folders_that_are_no_finished_run_are_named(tmp_path: Path) -> None:
    write_run(tmp_path / "good", [0.5])
    (write_run(tmp_path / "half", [0.5]) / "summary.json").unlink()
    (write_run(tmp_path / "cut", [0.5]) / "summary.json").write_text('{"metrics": {"top1"')
    (write_run(tmp_path / "strange", [0.5]) / "summary.json").write_text('{"layout": 2, "metrics": 3}')
    (write_run(tmp_path / "toml", [0.5]) / "config.toml").write_text("method = = 3")
    runs, problems = reading.read_all([tmp_path])
    assert [run.folder.name for run in runs] == ["good"]
    assert [problem.removeprefix(str(tmp_path) + "/") for problem in problems] == [
        f"cut: summary.json is damaged; make it again with: fedchord resume {tmp_path}/cut",
        f"half: not finished (go on with: fedchord resume {tmp_path}/half)",
        f"strange: summary.json is damaged; make it again with: fedchord resume {tmp_path}/strange",
        "toml: config.toml is damaged",
    ]


def test_no_finished_run_is_an_error_of_one_line(tmp_path: Path) -> None:
    (write_run(tmp_path / "half", [0.5]) / "summary.json").unlink()
    for places, words in (([tmp_path], "no finished run here"), ([tmp_path / "nowhere"], "no such run folder")):
        with pytest.raises(FedchordError, match=words) as caught:
            reading.read_all(places)
        assert "\n" not in str(caught.value)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FedchordError, match=r"no config\.toml"):
        reading.read_all([empty])


def test_patterns_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a-1", "a-2", "b-1"):
        write_run(tmp_path / "runs" / name, [0.5], seed=int(name[-1]))
    (tmp_path / "runs" / "notes.txt").write_text("not a run")
    monkeypatch.chdir(tmp_path)
    assert [path.name for path in reading.find(["runs/a-*"])] == ["a-1", "a-2"]
    assert [path.name for path in reading.find(["runs/*"])] == ["a-1", "a-2", "b-1"]
    assert [path.name for path in reading.find(["runs", "runs/b-1"])] == ["a-1", "a-2", "b-1"]


def test_unknown_names_have_a_nearest_match(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.5])
    for options, near in (({"metrics": ["topp1"]}, "'top1'"), ({"columns": ["worst"]}, "'worst10'")):
        with pytest.raises(FedchordError, match=f"did you mean {near}"):
            made(tmp_path, **options)


def test_notes_repeat_the_protocol(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"a{seed}", [0.5], seed=seed)
    write_run(tmp_path / "b", [0.5], method="local", seed=2)
    notes = made(tmp_path).notes
    assert "model: the model of fedavg [fedavg]; the model of local [local]" in notes
    assert "measured on: test rows of 1 of 1 clients" in notes
    assert "clients never sampled: 1" in notes
    assert "seeds: 1, 2 [fedavg]; 2 [local]" in notes


def test_the_command_prints_every_format(tmp_path: Path) -> None:
    for seed, top1 in ACCURACIES.items():
        write_run(tmp_path / f"a{seed}", top1, seed=seed)
        write_run(tmp_path / f"b{seed}", [x / 2 for x in top1], seed=seed, method="local")
    (write_run(tmp_path / "half", [0.5]) / "summary.json").unlink()
    told = {f: invoke("table", str(tmp_path), "--format", f) for f in formats.FORMATS}
    assert all(result.exit_code == 0 for result in told.values())
    assert all("half: not finished" in result.stderr for result in told.values())
    assert "**66.67 (7.64)**" in told["rich"].stdout  # not a terminal: bold is written out
    assert "66.67 (7.64)" in told["markdown"].stdout and "\\toprule" in told["latex"].stdout
    assert len(list(csv.reader(io.StringIO(told["csv"].stdout)))) == 3
    assert "std over seeds" in told["csv"].stderr


def test_a_wide_table_is_not_cut(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.5], **{"method.a_parameter_with_a_long_name": 1})
    write_run(tmp_path / "b", [0.5], **{"method.a_parameter_with_a_long_name": 2})
    columns = [part for name in COLUMNS for part in ("--column", name)]
    result = invoke("table", str(tmp_path), *columns)
    assert "…" not in result.stdout and "a_parameter_with_a_long_name" in result.stdout


def test_undefined_is_not_zero() -> None:
    cell = cells.cell_of(cells.Estimate(math.nan, math.nan, "seeds", 2), "top1", "mean")
    assert str(cell) == "nan"
    assert str(cells.cell_of(None, "top1", "mean")) == cells.DASH
