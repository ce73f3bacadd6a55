"""Figures of chapter 3: what is drawn against made-up runs whose numbers are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedchord.check import FedchordError
from fedchord.experiments import study
from fedchord.experiments.reading import Run
from fedchord.thesis import figure_fair, figures, studies


def made_up(folder: Path, lines: list[dict[str, Any]], auroc: list[float | None], seed: int = 1) -> Run:
    """A run with these rounds and these clients' values."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps({"round": at, **line}) + "\n" for at, line in enumerate(lines, 1))
    (folder / "rounds.jsonl").write_text(text)
    known = sorted(value for value in auroc if value is not None)
    told = {"auroc": {"mean": sum(known) / len(known), "worst10": known[0]}}
    names = [f"c{place}" for place in range(len(auroc))]
    return Run(folder, {"seed": seed}, {"metrics": told, "per_client": {"client": names, "auroc": auroc}})


def weighed(shares: list[float], cohort: list[int], **log: float) -> dict[str, Any]:
    return {"cohort": cohort, "shares": shares, "log": log}


def test_ridges_have_every_client_the_mean_and_the_worst(tmp_path: Path) -> None:
    first = made_up(tmp_path / "a", [], [0.5, 0.9, None])
    second = made_up(tmp_path / "b", [], [0.3, 0.7, 0.8], seed=2)
    drawn = figure_fair.fairness({("A", "X"): [first, second], ("B", "X"): [first], ("A", "Y"): [second]})
    left, right = drawn.figure.axes
    assert [left.get_title(), right.get_title()] == ["X", "Y"]
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["A", "B"]
    ticks = [line for line in left.lines if line.get_marker() == "|"]
    assert sorted(ticks[0].get_xdata().tolist()) == [0.3, 0.5, 0.7, 0.8, 0.9]
    marks = {m: [float(line.get_xdata()[0]) for line in left.lines if line.get_marker() == m] for m in "ov"}
    assert marks["o"] == pytest.approx([3.2 / 5, 0.7]) and marks["v"] == pytest.approx([0.4, 0.5])
    assert drawn.heads == ("setting", "method", "client", "auroc") and len(drawn.rows) == 6 + 3 + 3
    assert drawn.rows[1] == ("X", "A", "c1 (seed 1)", 0.9)


def test_weights_are_put_to_their_clients(tmp_path: Path) -> None:
    """The cohort may come in any order."""
    runs = [
        made_up(tmp_path / "a", [weighed([0.4, 0.6], [0, 1]), weighed([0.9, 0.1], [1, 0])], [0.5, 0.6]),
        made_up(tmp_path / "b", [weighed([0.2, 0.8], [0, 1]), weighed([0.7, 0.3], [1, 0])], [0.5, 0.6], seed=2),
    ]
    drawn = figure_fair.weights({("S", "X"): runs})
    (axes,) = drawn.figure.axes
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([0.3, 0.2])  # c0
    assert axes.lines[1].get_ydata().tolist() == pytest.approx([0.7, 0.8])
    assert axes.lines[2].get_ydata()[0] == 0.5  # 1 / K
    assert ("X", "S", 2, 2, "c1", 0.7) in drawn.rows and len(drawn.rows) == 2 * 2 * 2
    some = made_up(tmp_path / "c", [weighed([1.0], [1])], [0.5, 0.6])
    with pytest.raises(FedchordError, match="every client in every round"):
        figure_fair.weights({("S", "X"): [some]})


def test_objectives_are_summed_over_rounds(tmp_path: Path) -> None:
    """Sums 1, 3, 6 and 3, 5, 6: their mean is 2, 4, 6, and the first lies 1, 1, 0 below it."""
    cells = {}
    for name, values in (("Normal", [1.0, 2.0, 3.0]), ("Weibull", [3.0, 2.0, 1.0])):
        lines = [weighed([1.0], [0], objective=value) for value in values]
        cells[name, "X"] = [made_up(tmp_path / name, lines, [0.5, 0.75])]
    drawn = figure_fair.objectives(cells)
    above, below = drawn.figure.axes
    assert above.lines[0].get_ydata().tolist() == pytest.approx([-1, -1, 0])
    assert above.lines[1].get_ydata().tolist() == pytest.approx([1, 1, 0])
    assert [row[3] for row in drawn.rows] == pytest.approx([1, 3, 6, 3, 5, 6])
    assert drawn.rows[0][4:] == pytest.approx((0.625, 0.5))
    assert [tick.get_text() for tick in below.get_yticklabels()] == ["Normal", "Weibull"]


def test_regret_stands_beside_its_bound(tmp_path: Path) -> None:
    runs = [
        made_up(tmp_path / str(seed), [weighed([1.0], [0], regret=seed * t, bound=10.0 * t) for t in (1, 2)], [1.0])
        for seed in (1, 3)
    ]
    drawn = figure_fair.regrets({("S", "X"): runs})
    (axes,) = drawn.figure.axes
    assert axes.lines[2].get_ydata().tolist() == [2.0, 4.0]  # the mean, after a line per seed
    assert axes.lines[3].get_ydata().tolist() == [10.0, 20.0]
    assert "30% of the bound" in axes.get_title() and len(drawn.rows) == 4
    bare = made_up(tmp_path / "bare", [weighed([1.0], [0])], [1.0])
    with pytest.raises(FedchordError, match="has no 'regret'"):
        figure_fair.regrets({("S", "X"): [bare]})
    short = made_up(tmp_path / "short", [weighed([1.0], [0], regret=0.0, bound=1.0)], [1.0])
    with pytest.raises(FedchordError, match="other numbers of rounds"):
        figure_fair.logged([runs[0], short], "regret")


@pytest.mark.parametrize("name", ["fairness", "weights", "cdf", "regret"])
def test_each_is_listed_and_its_runs_can_be_planned(name: str) -> None:
    kind = figures.find(name)
    for scale in (None, "thesis"):
        plan = study.plan(studies.load(kind.study), scale)
        assert study.picked(plan, kind.only)


@pytest.mark.parametrize("name", ["weights", "regret", "fairness", "cdf"])
def test_each_is_drawn_from_real_runs(name: str, tmp_path: Path) -> None:
    """Three rounds of AAggFF-S on a table of two hospitals, through the study machinery."""
    generator = np.random.default_rng(1)
    lines = ["a,b,label,client"]
    for row in range(60):
        y = int(row % 3 == 0)
        a, b = generator.normal(size=2) + y
        lines.append(f"{a:.3f},{b:.3f},{y},{row % 2}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    content = {
        "metric": "auroc",
        "settings": {"data": str(tmp_path / "t.csv"), "model": "logreg", "cohort": "all", "rounds": 3},
        "method": [{"label": c, "method": "aaggff-s", "method.cdf": c} for c in ("normal", "weibull")],
    }
    plan = study.plan(study.parse("t", content))
    assert not study.run(plan, tmp_path / "runs", say=lambda line: None).failed
    drawn = figures.FIGURES[name].draw(plan.runs(tmp_path / "runs"))
    picture, table = figures.save(drawn, tmp_path / f"{name}.png")
    assert picture.stat().st_size > 5000 and len(table.read_text().splitlines()) == 1 + len(drawn.rows)
