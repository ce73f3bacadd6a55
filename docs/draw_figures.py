"""Draws pictures of the page of figures by their commands (docs/generate/figures.toml), small enough to be kept.

    python docs/draw_figures.py lambda munu            # those
    python docs/draw_figures.py                        # all that have a picture: hours

The runs go to runs/ and are not made again. A picture holds its command; a test compares it with the page's.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, PngImagePlugin

sys.path.insert(0, str(Path(__file__).with_name("generate")))

import figures

WIDTH = 1400
COLOURS = 256
"""A palette of so many, spread over all that a picture has and then moved to what it has most of."""


def keep(drawn: Path, to: Path, command: str) -> None:
    """Write a picture with a small palette, and the command within."""
    picture = Image.open(drawn).convert("RGB")
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
    facts = PngImagePlugin.PngInfo()
    facts.add_text("Comment", command)
    small = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    small.save(to, optimize=True, pnginfo=facts)


def main(names: list[str]) -> int:
    """Draw some figures, or all."""
    for name in names or [name for name, said in figures.told().items() if "missing" not in said]:
        command = figures.command(name)
        with tempfile.TemporaryDirectory() as folder:
            drawn = Path(folder) / "drawn.png"
            words = [sys.executable, "-m", *shlex.split(command), "--to", str(drawn)]
            if code := subprocess.run(words, check=False).returncode:
                return code
            keep(drawn, figures.PICTURES / f"{name}.png", command)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
