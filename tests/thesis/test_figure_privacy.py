"""The figures of epsilon against accuracy, from made-up runs whose numbers are known; the numbers of the page."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.documents import DOCUMENTS, ROOT

from fedchord.check import FedchordError
from fedchord.experiments.reading import Run
from fedchord.thesis import figure_privacy, figures, studies


def run(method: str, mean: float, epsilon: float | None = None, noise: float | None = None, **more: Any) -> Run:
    keys: dict[str, Any] = {"method": method, "seed": int(1000 * mean)}
    keys |= {"privacy.epsilon": epsilon} if epsilon else {"privacy.noise": noise} if noise is not None else {}
    return Run(Path("x"), keys | more, {"metrics": {"top1": {"mean": mean, "worst10": mean - 0.2}}})


def test_a_line_over_epsilon_that_ends_without_noise_and_a_level_for_what_hides_nothing() -> None:
    cells = {
        ("alone", "s"): [run("local", 0.7)],
        ("A, 8", "s"): [run("a", 0.8, 8.0), run("a", 0.6, 8.0)],
        ("A, 1", "s"): [run("a", 0.5, 1.0)],
        ("A, no noise", "s"): [run("a", 0.9, noise=0.0)],
        ("B, 1", "s"): [run("b", 0.4, 1.0)],
        ("A, no clip", "s"): [run("a", 0.95, noise=0.0, clip=9.0)],
    }
    drawn = figure_privacy.epsilons(cells)
    mean, worst = drawn.figure.axes
    assert [axes.get_title() for axes in (mean, worst)] == ["mean over clients", "worst tenth"]
    bars = {each.get_label(): each for each in mean.containers}
    assert list(bars) == ["A", "B, 1"]
    line, _, (spread,) = bars["A"].lines
    assert line.get_xdata() == pytest.approx([1.0, 8.0, 16.0]) and line.get_ydata() == pytest.approx([0.5, 0.7, 0.9])
    ends = [np.ptp(part[:, 1]) / 2 for part in spread.get_segments()]
    assert ends == pytest.approx([0.0, np.std([0.8, 0.6], ddof=1), 0.0])
    levels = {one.get_label(): one.get_ydata()[0] for one in mean.lines if one.get_linestyle() not in ("-", "None")}
    assert levels == {"alone": 0.7, "A, no clip": 0.95}
    assert [text.get_text() for text in mean.get_xticklabels()] == ["1", "8", "no noise"]
    assert ("A, 8", 8.0, "top1", "mean", pytest.approx(0.7), pytest.approx(0.1414, abs=1e-4), 2) in drawn.rows
    with pytest.raises(FedchordError, match="no run has an epsilon"):
        figure_privacy.epsilons({("alone", "s"): [run("local", 0.7)]})


def test_synthetic_sets_are_shown_on_official_rows() -> None:
    made = Run(
        Path("x"),
        {"method": "w", "privacy.epsilon": 1.0},
        {
            "metrics": {"top1": {"mean": 0.5, "worst10": 0.1}},
            "synthetic": {"numbers": {"official": {"mean": 0.6}}},
        },
    )
    drawn = figure_privacy.epsilons({("w, 1", "s"): [made]})
    assert [axes.get_title() for axes in drawn.figure.axes] == ["mean over clients", "official test rows"]


def test_every_study_of_privacy_has_a_figure() -> None:
    names = {path.stem for path in Path(studies.__file__).parent.glob("privacy_*.toml")}
    assert {kind.study for name, kind in figures.FIGURES.items() if name.startswith("privacy-")} == names


KEPT = {
    "privacy_writers": ("mean", "worst10"),
    "privacy_heart": ("mean", "worst10"),
    "privacy_sets": ("mean", "official mean", "membership mean"),
    "privacy_sets_writers": ("mean", "official mean", "membership mean"),
}


@pytest.mark.parametrize("study", KEPT)
def test_the_page_on_trust_has_the_numbers_that_were_kept(study: str) -> None:
    with (ROOT / "results" / f"{study}.csv").open() as file:
        kept: dict[str, list[dict[str, str]]] = {}
        for line in csv.DictReader(file):
            kept.setdefault(line["row"], []).append(line)
    lines = [line.strip("| ").split(" | ") for line in DOCUMENTS["docs/trust.md"].splitlines()]
    begin = next(n for n, cells in enumerate(lines) if cells[0] == f"`{study}`")
    shown = {cells[0]: cells[1:] for cells in lines[begin + 2 : begin + 2 + len(kept)]}
    assert shown.keys() == kept.keys()
    for row, cells in shown.items():
        for cell, column in zip(cells, KEPT[study], strict=True):
            values = [100 * float(run[column]) for run in kept[row]]
            spread = f" ({np.std(values, ddof=1):.2f})" if len(values) > 1 else ""
            assert cell == f"{np.mean(values):.2f}{spread}", (row, column)
