"""The figure of hostile clients, against made-up runs whose numbers are known."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from helpers.documents import DOCUMENTS, ROOT

from fedchord.check import FedchordError
from fedchord.experiments.reading import Run
from fedchord.mixing.robust import Krum
from fedchord.thesis import figure_hostile, figures, studies


def run(method: str, mean: float, worst: float, attack: str = "", share: float = 0.0) -> Run:
    keys: dict[str, Any] = {"method": method} | ({"attack": attack, "attack.share": share} if attack else {})
    return Run(Path("x"), keys, {"metrics": {"top1": {"mean": mean, "worst10": worst}}})


def test_a_column_per_attack_and_a_line_per_defence() -> None:
    cells = {
        ("FedAvg", "honest"): [run("fedavg", 0.9, 0.8), run("fedavg", 0.8, 0.6)],
        ("FedAvg", "noise 0.2"): [run("fedavg", 0.5, 0.3, "noise", 0.2)],
        ("FedAvg", "scaled 0.1"): [run("fedavg", 0.4, 0.2, "scaled", 0.1)],
        ("Krum", "honest"): [run("fedavg", 0.7, 0.5)],
        ("Krum", "noise 0.2"): [run("fedavg", 0.65, 0.45, "noise", 0.2)],
        ("SuPerFed, Krum", "honest"): [run("superfed-mm", 0.95, 0.9)],
        ("SuPerFed, Krum", "noise 0.2"): [run("superfed-mm", 0.94, 0.9, "noise", 0.2)],
    }
    drawn = figure_hostile.hostile(cells)
    grid = drawn.figure.axes
    assert len(grid) == 3 * 2 and [axes.get_title() for axes in grid[:2]] == ["noise", "scaled"]
    fedavg, krum = grid[0].lines
    assert fedavg.get_xdata().tolist() == [0.0, 0.2] and fedavg.get_ydata().tolist() == pytest.approx([0.85, 0.5])
    assert krum.get_ydata().tolist() == pytest.approx([0.7, 0.65])
    assert grid[1].lines[0].get_ydata().tolist() == pytest.approx([0.85, 0.4])
    assert grid[2].lines[0].get_ydata().tolist() == pytest.approx([0.7, 0.3])  # the worst tenth
    assert grid[4].lines[0].get_ydata().tolist() == pytest.approx([0.95, 0.94])
    assert grid[4].lines[0].get_label() == "Krum"
    assert ("noise", "FedAvg", 0.0, False, "mean", pytest.approx(0.85), 2) in drawn.rows
    with pytest.raises(FedchordError, match="no run has an attack"):
        figure_hostile.hostile({("FedAvg", "honest"): [run("fedavg", 0.9, 0.8)]})


def test_the_studies_have_every_attack_with_every_defence() -> None:
    found = studies.load("hostile")
    attacks = ["sign-flip", "scaled", "noise", "little", "label-flip"]
    asked = [(entry.keys.get("attack"), entry.keys.get("attack.share")) for entry in found.settings]
    assert asked == [(None, None), *((attack, share) for attack in attacks for share in (0.1, 0.2, 0.3, 0.4))]
    assert len(found.methods) == 12
    assert {figures.FIGURES[name].study for name in ("hostile", "hostile-mnist")} == {"hostile", "hostile_mnist"}
    for name in ("hostile", "hostile_mnist"):  # Krum has enough clients in a round at every scale
        base = studies.load(name)
        for scale in ("smoke", "small"):
            keys = base.base | base.scales[scale]
            cohort = keys["clients"] if keys["cohort"] == "all" else keys["cohort"]
            Krum(0.4).sizes(cohort)


@pytest.mark.parametrize(
    ("study", "corner", "count"), [("hostile", "defence", 6), ("hostile_mnist", "MNIST, mean / worst tenth", 10)]
)
def test_the_page_on_trust_has_the_numbers_that_were_kept(study: str, corner: str, count: int) -> None:
    kept: dict[tuple[str, str], list[dict[str, str]]] = {}
    with (ROOT / "results" / f"{study}.csv").open() as file:
        for row in csv.DictReader(file):
            kept.setdefault((row["row"], row["setting"]), []).append(row)
    lines = [line.strip("| ").split(" | ") for line in DOCUMENTS["docs/trust.md"].splitlines() if line.startswith("|")]
    start = next(at for at, cells in enumerate(lines) if cells[0] == corner and "sign-flip 0.4" in cells)
    heads, found = lines[start][1:], 0
    rows = {"none": "FedAvg", "bound=median": "bound", "personal models (SuPerFed-MM), none": "SuPerFed"}
    rows["personal, bound=median"] = "SuPerFed, bound"
    for name, *cells in lines[start + 2 :][:count]:
        row = rows.get(name, name.replace("personal, ", "SuPerFed, "))
        for head, cell in zip(heads, cells, strict=True):
            runs = kept[row, "honest" if head == "nobody hostile" else head]
            assert {run["seed"] for run in runs} == {"1", "2"}
            means = [100 * sum(float(run[column]) for run in runs) / len(runs) for column in ("mean", "worst10")]
            assert cell == " / ".join(f"{mean:.1f}" for mean in means), (name, head)
            found += 1
    assert found == count * 9
