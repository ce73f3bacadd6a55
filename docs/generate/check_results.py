"""Looks every number of docs/results.md up in results/, by the row and the setting that stand beside it.

    python docs/generate/check_results.py

It reads the kept files and nothing of the library that wrote the page: a number must be, at its digits, one of the
numbers kept for that row and setting, or the mean of one over seeds. The section Successors is left out: its numbers
stand with the commands of their studies.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LEFT_OUT = "Successors"
NUMBER = re.compile(r"(?<![\w.=/-])-?\d+\.\d+")
FOUND = re.compile(r"^(?P<place>.+?), (?P<column>[^,:]+): (?P<pairs>.+)$")
PAIR = re.compile(r"(?:^|, (?:at least|below|above) )(?P<name>.+?) (?P<number>-?\d+\.\d+)(?=, |$)")


def numbers(value: Any) -> Iterator[tuple[str, float]]:
    """The single numbers of a kept part, each with its place; lists are of clients or of lambdas."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from ((f"{key}/{place}", number) for place, number in numbers(one))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield "", float(value)


def kept(folder: Path) -> dict[tuple[str, str], list[float]]:
    """What is kept for every row and setting: the numbers of each run, and their means over the seeds of equal runs."""
    seeds: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for path in sorted(folder.glob("*/*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        config = json.dumps({key: one for key, one in run["config"].items() if key != "seed"}, sort_keys=True)
        places = seeds.setdefault((run["row"], run["setting"], config), {})
        for part in ("metrics", "synthetic"):
            for place, number in numbers(run.get(part, {})):
                places.setdefault(place, []).append(number)
    found: dict[tuple[str, str], list[float]] = {}
    for (row, setting, _), places in seeds.items():
        for values in places.values():
            found.setdefault((row, setting), []).extend([*values, sum(values) / len(values)])
    return found


def is_kept(number: str, values: list[float]) -> bool:
    """Whether a number is one of some values at its digits, as it is or in percent."""
    digits = len(number.partition(".")[2])
    return any(f"{value * times:.{digits}f}" == number for value in values for times in (1, 100))


def wrong(page: str, folder: Path) -> list[str]:
    """The numbers of a page that are not kept, each with its line."""
    known, found, left_out = kept(folder), [], False
    for count, line in enumerate(page.splitlines(), 1):
        left_out = line[3:] == LEFT_OUT if line.startswith("## ") else left_out
        if left_out:
            continue
        explained = []
        for cell in line.split(" | "):
            if told := FOUND.match(cell.strip("| ")):
                explained += [
                    pair["number"]
                    for pair in PAIR.finditer(told["pairs"])
                    if is_kept(pair["number"], _of(known, told["place"], pair["name"]))
                ]
        for number in NUMBER.findall(
            re.sub(r"\([^)]*\)|`[^`]*`|L/T = \S+|alpha=\S+|(?:pair|symmetric) 0\.\d+", "", line)
        ):
            if number in explained:
                explained.remove(number)
            else:
                found.append(f"docs/results.md:{count}: {number} is not in results/")
    return found


def _of(known: dict[tuple[str, str], list[float]], place: str, name: str) -> list[float]:
    """What is kept where one of two words is the row and the other the setting; a row in brackets is the run's."""
    names = (name.partition(" (")[0], name.partition(" (")[2].rstrip(")"))
    return [number for one in names for key in ((one, place), (place, one)) for number in known.get(key, [])]


def main() -> int:
    """Say what is wrong."""
    found = wrong((ROOT / "docs" / "results.md").read_text(encoding="utf-8"), ROOT / "results")
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
