"""The studies that come with the library: one file each, found by name; `shared/` holds what several of them have."""

from __future__ import annotations

from pathlib import Path

from fedchord.check import unknown
from fedchord.experiments import study_file
from fedchord.experiments.study_file import Study

FOLDER = Path(__file__).parent

ALIASES = {"2_table6": "2_noise", "text": "2_table5", "speech": "result_device"}
"""Tables of the thesis whose study has another name, and names of earlier versions."""
TABLES = (
    *("2_table3", "2_table4", "2_table5", "2_table6", "2_table7"),
    *("result_silo", "ag_silo", "result_device", "ag_device", "pnp", "cdf_effect"),
    *("disc", "disc2", "gen", "gen2"),
)
"""The tables of results in the thesis; each has one study, whose references are its cells."""
SCALES = ("smoke", "small", "thesis")
"""The scales of all studies: does it run, with stated reductions, with the thesis' settings."""


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
    if name not in known:
        raise unknown("study", name, known)
    return study_file.load(known[name])
