"""Figures of runs: what is drawn is read back from the figure and compared with literal numbers."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread

from fedchord.check import FedchordError
from fedchord.experiments.reading import read_config
from fedchord.report import plots, tables


def write_run(folder: Path, curve: dict[int, float], finished: bool = True, **keys: Any) -> Path:
    """A run of three clients measured in some rounds; clients 0 and 2 are in every cohort."""
    keys = {"method": "fedavg", "data": "digits", "clients": 3, "rounds": max(curve), "seed": 1} | keys
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps(keys))
    lines = []
    for number in range(1, max(curve) + 1):
        line: dict[str, Any] = {"round": number, "cohort": [0, 2], "shares": [0.25, 0.75]}
        if number in curve:
            line["metrics"] = {"top1": {"mean": curve[number], "worst10": 0.0}}
        lines.append(json.dumps(line))
    (folder / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    if finished:
        last = curve[max(curve)]
        per_client = {"client": ["a", "b", "c"], "size": [1, 1, 1], "top1": [last, last / 2, None], "loss": [1, 3, 2]}
        summary = {"metrics": {"top1": {"mean": last}}, "per_client": per_client, "protocol": {"clients": 3}}
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def groups_of(*folders: Path) -> list[tables.Group]:
    return tables.group(tables.read(folder) for folder in folders)


def test_a_curve_is_the_mean_over_seeds_with_a_band(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a1", {2: 0.5, 4: 0.7}, seed=1)
    two = write_run(tmp_path / "a2", {2: 0.6, 4: 0.9}, seed=2)
    (axes,) = plots.curves(groups_of(one, two)).axes
    (line,) = axes.lines
    assert line.get_xdata().tolist() == [2, 4]
    assert line.get_ydata().tolist() == pytest.approx([0.55, 0.8])
    (band,) = axes.collections
    corners = {(round(float(x)), round(float(y), 9)) for x, y in band.get_paths()[0].vertices}
    std = statistics.stdev([0.7, 0.9])
    assert {(4, round(0.8 - std, 9)), (4, round(0.8 + std, 9))} <= corners
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "top1, mean over clients")
    assert axes.get_legend().get_title().get_text() == "mean and std over 2 seeds"


def test_one_seed_has_no_band(tmp_path: Path) -> None:
    (axes,) = plots.curves(groups_of(write_run(tmp_path / "a", {1: 0.5, 2: 0.7}))).axes
    assert len(axes.lines) == 1 and not axes.collections
    assert axes.get_legend().get_title().get_text() == ""


def test_the_legend_stands_outside_and_reads_from_the_top(tmp_path: Path) -> None:
    low = write_run(tmp_path / "a", {1: 0.1, 2: 0.2})
    high = write_run(tmp_path / "b", {1: 0.1, 2: 0.8}, method="local")
    figure = plots.curves(groups_of(low, high))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1
    assert [text.get_text() for text in legend.get_texts()] == ["local", "fedavg"]


def test_seeds_are_compared_in_the_rounds_they_share(tmp_path: Path) -> None:
    full = write_run(tmp_path / "a1", {1: 0.5, 2: 0.6, 3: 0.7}, seed=1)
    half = write_run(tmp_path / "a2", {1: 0.7, 2: 0.8}, seed=2, finished=False, rounds=3)
    notes = plots.plot([full, half], tmp_path / "figure.png")
    assert notes == [f"{half}: not finished, drawn as far as it went"]
    (axes,) = plots.curves([tables.Group((tables.read(full), read_config(half)))]).axes
    assert axes.lines[0].get_xdata().tolist() == [1, 2]


def test_an_interrupted_last_line_is_left_out_but_damage_is_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", {1: 0.5, 2: 0.7})
    path = folder / "rounds.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"round": 3, "coh')
    assert [entry["round"] for entry in plots.rounds_of(tables.read(folder))] == [1, 2]
    path.write_text('{"round": 1, "coh\n' + whole)
    with pytest.raises(FedchordError, match=r"rounds\.jsonl is damaged in line 1"):
        plots.rounds_of(tables.read(folder))


def test_a_single_measured_round_is_said(tmp_path: Path) -> None:
    notes = plots.plot([write_run(tmp_path / "a", {3: 0.5})], tmp_path / "figure.png")
    assert "eval_every" in notes[0]


def test_clients_are_sorted_from_worst_to_best(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {2: 0.8})
    (axes,) = plots.clients(groups_of(run)).axes
    assert axes.lines[0].get_xdata().tolist() == [0, 100]
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([0.4, 0.8])  # the undefined client is left out
    (axes,) = plots.clients(groups_of(run), "loss").axes
    assert axes.lines[0].get_ydata().tolist() == [3, 2, 1]  # a high loss is the worst


def test_shares_are_drawn_where_a_client_took_part(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {2: 0.8})
    axes = plots.shares(groups_of(run)).axes[0]
    drawn = axes.images[0].get_array()
    expected = np.array([[0.25, 0.25], [np.nan, np.nan], [0.75, 0.75]])
    np.testing.assert_array_equal(np.ma.filled(drawn, np.nan), expected)


def test_many_clients_and_few_at_a_time_are_drawn_as_marks(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {2: 0.8})
    summary = json.loads((run / "summary.json").read_text())
    summary["protocol"]["clients"] = 1000
    (run / "summary.json").write_text(json.dumps(summary))
    axes = plots.shares(groups_of(run)).axes[0]
    assert not axes.images
    assert sorted(axes.collections[0].get_offsets().tolist()) == [[1, 0], [1, 2], [2, 0], [2, 2]]


@pytest.mark.parametrize("kind", plots.KINDS)
def test_every_kind_makes_a_picture(tmp_path: Path, kind: str) -> None:
    runs = [write_run(tmp_path / m, {1: 0.5, 2: 0.8}, method=m) for m in ("fedavg", "local", "scaffold", "uniform")]
    file = tmp_path / "new" / "figure.png"
    assert plots.plot(runs, file, kind=kind) == []
    picture = imread(file)
    assert picture.shape[0] > 300 and picture.shape[1] > 500
    assert picture[..., :3].std() > 0.05  # not an empty sheet


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "curvs"}, "kind must be one of curves, clients, shares"),
        ({"metric": "topp1"}, "did you mean 'top1'"),
        ({"metric": "topp1", "kind": "clients"}, "did you mean 'top1'"),
        ({"column": "worst"}, "did you mean 'worst10'"),
        ({"to": "figure.gif"}, r"must end in \.png, \.pdf, \.svg"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path: Path, options: dict[str, str], words: str) -> None:
    run = write_run(tmp_path / "a", {1: 0.5})
    file = tmp_path / options.pop("to", "figure.png")
    with pytest.raises(FedchordError, match=words):
        plots.plot([run], file, **options)
    assert not file.exists()
