"""The image grids of chapter 4: samples of every method beside real ones, rows are classes; and how alike they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from fedchord.experiments.config import RunConfig
from fedchord.experiments.reading import Run
from fedchord.synthetic.look import grid
from fedchord.synthetic.quality import real_beside
from fedchord.synthetic.set import SyntheticSet, load_set
from fedchord.thesis.figure_data import Cells
from fedchord.thesis.figure_draw import Drawing, Row

COLUMNS = 10
"""Samples of a class that are shown."""


def grids(cells: Cells) -> Drawing:
    """A line of grids per setting: real training rows, then the samples of each method (of the first seed).

    The numbers beside are the std of the pixels over the samples of a class, of each class: 0 is one picture.
    """
    settings = list(dict.fromkeys(setting for _, setting in cells))
    wide = 1 + max(sum(place == setting for _, place in cells) for setting in settings)
    figure = Figure(figsize=(2.9 * wide, 3.1 * len(settings)), layout="constrained")
    axes = figure.subplots(len(settings), wide, squeeze=False)
    rows: list[Row] = []
    for line, setting in zip(axes, settings, strict=True):
        shown = _sets({method: runs[0] for (method, place), runs in cells.items() if place == setting})
        for panel in line:
            panel.set_axis_off()
        for panel, (method, made) in zip(line, shown.items(), strict=False):
            pixels = grid(made, COLUMNS).permute(1, 2, 0).numpy()
            panel.imshow(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels, cmap="gray", vmin=0, vmax=255)
            panel.set_title(f"{method}\n{setting}", fontsize=8)
            rows += [(setting, method, label, spread) for label, spread in enumerate(_spread(made))]
    return Drawing(figure, ("setting", "method", "class", "std_within_class"), rows)


def _sets(runs: Mapping[str, Run]) -> dict[str, SyntheticSet]:
    """Real rows first, as many of each class as the methods have."""
    found = {method: load_set(run.folder) for method, run in runs.items()}
    first = next(iter(runs))
    config = RunConfig.from_values({key: value for key, value in runs[first].config.items() if key != "out"})
    return {"real": real_beside(config.federation(), found[first])} | found


def _spread(made: SyntheticSet) -> list[float]:
    pixels = made.x.reshape(made.classes, made.spc, -1).double().numpy()
    return [float(np.mean(one.std(0))) for one in pixels]
