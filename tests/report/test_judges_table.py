"""The table of judges: Student's interval against scipy's paired test, rows and references by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy import stats

from fedchord.check import FedchordError
from fedchord.experiments.reading import Run
from fedchord.report.judges_table import paired, tabulate
from fedchord.synthetic.panel import Panel

PANEL = Panel(("logreg", "twonn"), seeds=2)


def run(method: str, seed: int, alpha: float = 1.0) -> Run:
    config = {"method": method, "seed": seed, "data": "digits", "split": "dirichlet", "split.alpha": alpha}
    return Run(Path(f"{method}-{seed}-{alpha}"), config, {"metrics": {}})


def found(runs: list[Run], level: dict[str, float]) -> dict[Path, dict[str, list[float]]]:
    """Verdicts that depend on method and seed: the second classifier is 0.1 below, the second draw 0.02 above."""
    made = {}
    for one in runs:
        base = level[one.config["method"]] + 0.01 * (one.seed**2 % 5)
        made[one.folder] = {"logreg": [base, base + 0.02], "twonn": [base - 0.1, base - 0.08]}
    return made


def cells(table, row: int) -> dict[str, str]:
    return {head.name: str(cell) for head, cell in zip(table.heads, table.rows[row], strict=True)}


def test_the_interval_is_that_of_the_paired_t_test():
    a, b = [0.91, 0.93, 0.9, 0.94, 0.92], [0.9, 0.91, 0.91, 0.9, 0.9]
    expected = stats.ttest_rel(a, b)
    interval = expected.confidence_interval(0.95)
    made = paired([x - y for x, y in zip(a, b, strict=True)])
    assert made.p == pytest.approx(expected.pvalue) and made.seeds == 5
    assert (made.low, made.high) == pytest.approx((interval.low, interval.high))
    one = paired([0.3])
    assert one.mean == 0.3 and math.isnan(one.low) and math.isnan(one.p)
    assert paired([0.25, 0.25]).p == 0 and paired([0.0, 0.0]).p == 1


def test_rows_are_means_over_seeds_and_differences_are_paired():
    runs = [run("fedcgan", 1), run("fedcgan", 2), run("fedevg", 1), run("fedevg", 2), run("fedevg", 3)]
    table = tabulate(PANEL, runs, found(runs, {"fedcgan": 0.8, "fedevg": 0.85}), {}, "fedcgan")
    first, second = cells(table, 0), cells(table, 1)
    assert first["set"] == "fedcgan" and first["difference"] == "-"
    assert first["logreg"] == "83.50 (2.12)" and first["twonn"] == "73.50 (2.12)" and first["all"] == "78.50 (2.12)"
    assert second["all"].startswith("84.00") and second["seeds"] == "3"  # 0.86, 0.89, 0.89 less 0.04
    assert second["difference"] == "+5.00" and second["low"] == "+5.00" and second["high"] == "+5.00"
    assert "difference" not in cells(tabulate(PANEL, runs, found(runs, {"fedcgan": 0.8, "fedevg": 0.85}), {}, None), 0)


def test_real_rows_stand_once_for_each_problem():
    runs = [run(method, seed, alpha) for method in ("fedcgan", "fedevg") for seed in (1, 2) for alpha in (1.0, 0.1)]
    seen = found(runs, {"fedcgan": 0.8, "fedevg": 0.8})
    table = tabulate(PANEL, runs, seen, seen, None)
    real = [cells(table, row) for row in range(len(table.rows)) if cells(table, row)["set"] == "as many real rows"]
    assert [(line["split.alpha"], line["seeds"]) for line in real] == [("1", "2"), ("0.1", "2")]


def test_a_problem_without_the_reference_has_no_difference():
    runs = [run("fedcgan", 1), run("fedevg", 1), run("fedevg", 1, alpha=0.1)]
    table = tabulate(PANEL, runs, found(runs, {"fedcgan": 0.8, "fedevg": 0.85}), {}, "fedcgan")
    assert [cells(table, row)["difference"] for row in range(3)] == ["-", "+5.00", "-"]


def test_a_reference_that_is_not_there_is_refused():
    runs = [run("fedcgan", 1), run("fedevg", 1)]
    with pytest.raises(FedchordError, match="fedcvae"):
        tabulate(PANEL, runs, found(runs, {"fedcgan": 0.8, "fedevg": 0.8}), {}, "fedcvae")
