"""The studies that come with the library: one file each, found by name; `shared/` holds what several of them have."""

from __future__ import annotations

from pathlib import Path

from fedchord.check import require, unknown
from fedchord.experiments import study_file
from fedchord.experiments.study_file import Study

FOLDER = Path(__file__).parent

ALIASES = {"2_table6": "2_noise", "2_table7": "2_start"}
"""Tables of the thesis whose study has another name."""
ABSENT = {
    "2_table4": "Dirichlet splits of CIFAR-100 and TinyImageNet; the nearest is 2_table3 with other settings",
    "2_table5": "LEAF; its Shakespeare part is study text, FEMNIST has none",
}
"""Tables of the thesis without a study, and what there is instead."""


def built_in() -> dict[str, Path]:
    """The studies that come with the package, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def load(name: str | Path) -> Study:
    """A study from a file, or a built-in one by its name or that of its table in the thesis."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return study_file.load(path, FOLDER)
    known = built_in()
    name = ALIASES.get(str(name), str(name))
    require(name not in ABSENT, "study", f"table {name} has no study yet ({ABSENT.get(name)})")
    if name not in known:
        raise unknown("study", name, known)
    return study_file.load(known[name])
