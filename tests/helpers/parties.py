"""A table of several clients, whole for a simulation and cut into a file for each party."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

NAMES = ("north", "south", "west")


def table(seed: int = 0, rows: int = 90, regression: bool = False) -> list[dict[str, str]]:
    """Rows with numbers, gaps, a category of words and one of codes, and a label that depends on them."""
    dice = np.random.default_rng(seed)
    found = []
    for row in range(rows):
        client = NAMES[row % 3]
        age, dose = dice.normal(50 + 5 * (row % 3), 9), dice.exponential(3)
        ward = ("a", "b", "c")[dice.integers(2) + (client == "west")]  # no party has all three
        code = int(dice.integers(1, 4))
        score = (age - 50) / 9 + (ward == "b") + 0.3 * code + dice.normal(0, 0.5)
        found.append(
            {
                "age": "?" if dice.random() < 0.1 else f"{age:.2f}",
                "ward": ward,
                "dose": f"{dose:.3f}",
                "code": str(code),
                "outcome": f"{3 + 2 * score:.3f}" if regression else ("ill" if score > 1 else "well"),
                "client": client,
            }
        )
    return found


def write(path: Path, rows: list[dict[str, str]], columns: list[str] | None = None) -> Path:
    """Rows as a csv file, in the order of the columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns or list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def cut(folder: Path, rows: list[dict[str, str]]) -> dict[str, Path]:
    """A file for each party, without the column that says whose it is."""
    columns = [column for column in rows[0] if column != "client"]
    own = {name: [row for row in rows if row["client"] == name] for name in NAMES}
    return {name: write(folder / name / "rows.csv", mine, columns) for name, mine in own.items()}
