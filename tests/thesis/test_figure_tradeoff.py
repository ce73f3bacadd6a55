"""Worst tenth against mean: what is drawn against made-up runs whose numbers are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedchord.check import FedchordError
from fedchord.experiments import study
from fedchord.experiments.reading import Run
from fedchord.thesis import figure_tradeoff, figures, studies


def made_up(seed: int, mean: float, worst: float) -> Run:
    return Run(Path("nowhere"), {"seed": seed}, {"metrics": {"top1": {"mean": mean, "worst10": worst}}})


CELLS = {
    ("Uniform, quarter", "X"): [made_up(1, 0.90, 0.70), made_up(2, 0.92, 0.72), made_up(3, 0.91, 0.70)],
    ("q=1, quarter", "X"): [
        made_up(3, 0.90, 0.72),
        made_up(1, 0.90, 0.71),
        made_up(2, 0.91, 0.75),
        made_up(9, 0.1, 0.1),
    ],
    ("Uniform, personal", "X"): [made_up(1, 0.95, 0.80), made_up(2, 0.96, 0.81)],
    ("q=1, personal", "X"): [made_up(1, 0.95, 0.80), made_up(2, 0.96, 0.83)],
}


def test_points_are_means_and_gains_are_paired_by_seed() -> None:
    drawn = figure_tradeoff.tradeoff(CELLS)
    whole, before, after = drawn.figure.axes
    rings = [line for line in whole.lines if line.get_markerfacecolor() == "none"]
    assert [line.get_label() for line in rings] == ["Uniform", "q=1"]
    assert rings[0].get_xdata()[0] == pytest.approx(91) and rings[0].get_ydata()[0] == pytest.approx(100 * 2.12 / 3)
    assert "before" in before.get_title() and "after" in after.get_title()
    found = {row[1:4]: row[4:] for row in drawn.rows}
    gains = np.array([1.0, 3.0, 2.0])  # seeds 1, 2 and 3; 9 has no control
    low, high = stats.t.interval(0.95, 2, gains.mean(), stats.sem(gains))
    assert found["q=1", "before", "worst10"][1:] == pytest.approx((4, 2.0, low, high))
    assert found["q=1", "before", "mean"][2] == pytest.approx(-2 / 3)
    assert found["q=1", "after", "worst10"][:3] == pytest.approx((81.5, 2, 1.0))
    assert found["Uniform", "after", "mean"][2:] == pytest.approx((0, 0, 0)) and len(drawn.rows) == 8


def test_rows_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(FedchordError, match="RULE, FORM"):
        figure_tradeoff.tradeoff(CELLS | {("q=1, half", "X"): CELLS["q=1, quarter", "X"]})
    with pytest.raises(FedchordError, match="after the personal step"):
        figure_tradeoff.tradeoff({("Uniform, personal", "X"): CELLS["Uniform, personal", "X"]})
    with pytest.raises(FedchordError, match="share no seed"):
        figure_tradeoff.tradeoff(CELLS | {("q=1, quarter", "X"): [made_up(9, 0.5, 0.5)]})


def test_it_is_written_with_its_numbers_and_its_runs_can_be_planned(tmp_path: Path) -> None:
    alone = {key: runs for key, runs in CELLS.items() if "personal" not in key[0]}
    picture, table = figures.save(figure_tradeoff.tradeoff(alone), tmp_path / "t.png")
    assert picture.stat().st_size > 5000 and len(table.read_text().splitlines()) == 1 + 4
    kind = figures.find("tradeoff")
    jobs = study.picked(study.plan(studies.load(kind.study), pairs=["seeds=1"]), kind.only)
    assert len({job.method for job in jobs}) == 14 and {job.setting for job in jobs} == {"logistic regression"}
    small = study.plan(study.parse("t", {"seeds": [7, 8, 9], "method": [{"label": "A", "method": "fedavg"}]}))
    assert figures.caption(small).endswith("seed 7 to 9")
