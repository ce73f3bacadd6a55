"""The figures of the thesis beside the commands that draw them; pictures of docs/figures are shown."""

from __future__ import annotations

from pathlib import Path

from fedchord.thesis.figures import FIGURES

PICTURES = Path(__file__).parents[1] / "figures"
ABOUT = """# Figures

`fedchord figure NAME` runs what is missing of its study, draws, and writes the numbers to a CSV file beside the
picture; `--scale thesis` is the full length. Pictures below are of the small scale, drawn by the command above them."""


def pages() -> dict[str, str]:
    """The page, by its place in the site."""
    lines = [ABOUT, ""]
    for name, kind in FIGURES.items():
        lines += [f"## {name}", "", kind.about[0].upper() + kind.about[1:] + ".", ""]
        lines += ["```sh", f"fedchord figure {name}", "```", ""]
        lines += [f"Runs of [{kind.study}](studies/{kind.study}.md); {kind.time} on two cores.", ""]
        if (PICTURES / f"{name}.png").exists():
            lines += [f"![The figure {name}](figures/{name}.png)", ""]
    return {"figures.md": "\n".join(lines)}
