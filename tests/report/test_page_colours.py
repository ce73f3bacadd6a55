"""The colours of the page can be told apart by the colour-blind, in the light and in the dark."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from fedchord.report.page.look import SERIES
from fedchord.report.page.write import TEMPLATE

SIMULATED = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
"""Machado, Oliveira and Fernandes (2009), on linear light."""


def schemes() -> list[list[str]]:
    """The colours of rows, as often as the style has them: light, dark, print."""
    found = re.findall(r"--s(\d): (#[0-9a-f]{6})", (TEMPLATE / "style.css").read_text())
    assert len(found) == 24 and [place for place, _ in found] == list("01234567") * 3
    return [[colour for _, colour in found[start : start + 8]] for start in (0, 8, 16)]


def lab(colour: str, matrix: list[list[float]]) -> np.ndarray:
    """CIE Lab (D65) of what is seen."""
    rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    light = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(matrix) @ light, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt((to_xyz @ seen) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("kind", SIMULATED)
@pytest.mark.parametrize("scheme", [0, 1])
def test_no_two_rows_look_alike(kind, scheme):
    seen = [lab(colour, SIMULATED[kind]) for colour in schemes()[scheme]]
    distances = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in itertools.combinations(range(8), 2)}
    assert min(distances.values()) > 10, min(distances, key=distances.get)


def test_red_and_green_would_be_found_out():
    """What the bound is for: two colours that differ for most people only."""
    seen = [lab(colour, SIMULATED["deuteranopia"]) for colour in ("#a0522d", "#6b6b1e")]
    assert np.linalg.norm(seen[0] - seen[1]) < 10


def test_charts_and_style_agree():
    light, _, paper = schemes()
    assert tuple(light) == SERIES == tuple(paper)
