"""The figures of the thesis beside the commands that draw them; pictures of docs/figures are shown."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from fedchord.thesis.figures import FIGURES

PICTURES = Path(__file__).parents[1] / "figures"
ABOUT = """# Figures

`fedchord figure NAME` runs what is missing of its study, draws, and writes the numbers to a CSV file beside the
picture. The commands below have drawn the pictures below them. Some are much shorter than the thesis' runs: they show
what a figure is, and the pages of the studies what was found. `--scale thesis` is the full length."""


@cache
def told() -> dict[str, dict[str, str]]:
    """What figures.toml says of every figure."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def command(name: str) -> str:
    """The command that has drawn the picture of a figure, or would draw it."""
    return f"fedchord figure {name} {told()[name].get('arguments', '')}".rstrip()


def pages() -> dict[str, str]:
    """The page, by its place in the site."""
    lines = [ABOUT, ""]
    for name, kind in FIGURES.items():
        said = told()[name]
        lines += [f"## {name}", "", kind.about[0].upper() + kind.about[1:] + ".", ""]
        lines += [f"In the thesis: {said['thesis']}.", ""] if "thesis" in said else []
        lines += ["```sh", command(name), "```", ""]
        if "missing" in said:
            lines += [f"No picture: {said['missing']}", ""]
        else:
            lines += [f"![The figure {name}](figures/{name}.png)", "", said["differs"], ""]
        lines += [f"Runs of [{kind.study}](studies/{kind.study}.md); at the small scale {kind.time} on two cores.", ""]
    return {"figures.md": "\n".join(lines)}
