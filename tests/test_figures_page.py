"""The page of figures: every figure has a picture drawn by the command above it, or a reason why there is none."""

from __future__ import annotations

import re
import shlex
import struct
import zlib
from itertools import pairwise

import pytest
from helpers.site import DOCS, script

from fedchord.experiments import study
from fedchord.thesis import studies
from fedchord.thesis.figures import FIGURES

figures = script("figures")
SHOWN = [name for name, said in figures.told().items() if "missing" not in said]
LARGEST = 150_000


def comment(name: str) -> str:
    """The command in a picture, read byte by byte: the chunk tEXt with the word Comment."""
    content, at = (DOCS / "figures" / f"{name}.png").read_bytes(), 8
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        kind, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + body) == struct.unpack(">I", content[at + 8 + length : at + 12 + length])[0]
        if kind == b"tEXt" and body.startswith(b"Comment\0"):
            return body.partition(b"\0")[2].decode("latin-1")
        at += 12 + length
    return ""


def test_every_figure_is_on_the_page_with_a_command_and_a_picture_or_a_reason() -> None:
    page = figures.pages()["figures.md"]
    parts = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(parts) == list(FIGURES) and set(figures.told()) == set(FIGURES)
    for name, part in parts.items():
        (command,) = re.findall(r"```sh\n(.+)\n```", part)
        assert command.split()[:3] == ["fedchord", "figure", name]
        assert f"studies/{FIGURES[name].study}.md" in part
        assert (f"](figures/{name}.png)" in part) == (name in SHOWN) == ("No picture: " not in part)
    assert {"lambda", "munu", "landscape", "cdf", "grid-mnist"} <= {
        name for name, said in figures.told().items() if "thesis" in said
    }


@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_is_small_and_of_the_command_above_it(name: str) -> None:
    command = figures.command(name)
    assert (DOCS / "figures" / f"{name}.png").stat().st_size < LARGEST
    assert comment(name) == command, f"draw it anew: python docs/draw_figures.py {name}"
    words = shlex.split(command)[3:]
    only = [label for word, label in pairwise(words) if word == "--only"]
    pairs = [word for word in words if "=" in word and word not in only]
    assert len(pairs) + 2 * len(only) == len(words)
    plan = study.plan(studies.load(FIGURES[name].study), None, pairs)
    assert study.picked(plan, [*only, *(() if only else FIGURES[name].only)])
