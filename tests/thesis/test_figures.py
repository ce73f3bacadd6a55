"""Figures of chapter 2: the numbers behind them against independent ones, and what is drawn against the numbers."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.invoked import invoke
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread
from torch import nn

from fedchord.check import FedchordError
from fedchord.core.task import Task
from fedchord.experiments import reading, study
from fedchord.experiments.loaded import Loaded
from fedchord.experiments.reading import Run
from fedchord.report import study_table
from fedchord.synthetic.set import load_set
from fedchord.thesis import figure_data, figure_draw, figure_land, figures, studies
from fedchord.thesis.figure_data import Bins, Curve, Link, Panel, Spread, Start

TINY = ["data=digits", "clients=6", "cohort=3", "rounds=3", "epochs=1", "executor=serial", "eval_every=0"]


def quiet(line: str) -> None:
    """Says nothing."""


def made_up(per_client: list[list[float | None]], two: int = 1, seed: int = 1, **config: Any) -> Run:
    """A run with a sweep over three lambdas."""
    sweep = {"lambdas": [0.0, 0.5, 1.0], "per_client": per_client, "two_models": two, "one_model": 0}
    return Run(Path("made-up"), {"seed": seed} | config, {"sweep": sweep, "metrics": {}})


def bent(values: list[list[float]], two: int = 1, label: str = "A") -> Curve:
    return Curve(label, np.linspace(0, 1, len(values[0])), np.array(values), two)


# -- curves --------------------------------------------------------------------------------------------------------


def test_a_curve_is_over_the_clients_of_all_seeds() -> None:
    first = made_up([[0.0, 0.5, 0.2], [1.0, None, 0.4]], two=2)
    second = made_up([[0.5, 0.7, 0.9]], seed=2)
    found = figure_data.curve("A", [first, second])
    assert found.mean.tolist() == pytest.approx([0.5, 0.6, 0.5])
    expected = [statistics.pstdev(column) for column in ([0.0, 1.0, 0.5], [0.5, 0.7], [0.2, 0.4, 0.9])]
    assert found.std.tolist() == pytest.approx(expected)
    assert found.best == pytest.approx((0.5, 0.6, 0.1)) and found.two_models == 3


def test_a_run_without_a_sweep_is_named() -> None:
    with pytest.raises(FedchordError, match="made-up: no lambda sweep"):
        figure_data.curve("A", [Run(Path("made-up"), {}, {"sweep": None})])
    other = made_up([[1.0, 1.0, 1.0]])
    other.summary["sweep"]["lambdas"] = [0.0, 0.4, 1.0]
    with pytest.raises(FedchordError, match="other lambdas"):
        figure_data.curve("A", [made_up([[1.0, 1.0, 1.0]]), other])


def test_the_barrier_by_hand() -> None:
    """Ends 0.8 and 0.4: the chord is 0.8, 0.7, 0.6, 0.5, 0.4, and the curve falls 0.3 below it in the middle."""
    assert bent([[0.8, 0.6, 0.3, 0.45, 0.4]]).barrier == pytest.approx(0.3)
    assert bent([[0.8, 0.9, 0.9, 0.9, 0.4]]).barrier == 0.0


def test_the_lambda_figure_shows_mean_band_and_best() -> None:
    drawn = figure_draw.along_lambda([bent([[0.2, 0.6, 0.4], [0.4, 1.0, 0.2]], 2), bent([[0.5, 0.5, 0.5]], label="B")])
    first, second = drawn.figure.axes
    assert first.lines[0].get_ydata().tolist() == pytest.approx([0.3, 0.8, 0.3])
    corners = {(round(float(x), 6), round(float(y), 6)) for x, y in first.collections[0].get_paths()[0].vertices}
    assert {(0.5, 0.6), (0.5, 1.0), (0.0, 0.2), (0.0, 0.4)} <= corners
    assert "best 80.00% at 0.5, worst 50.00% below" in first.get_title() and "2 of 2 clients" in first.get_title()
    assert first.get_ylim() == second.get_ylim()
    assert drawn.rows[1] == pytest.approx(("A", 0.5, 0.8, 0.2, 2, 2)) and len(drawn.rows) == 6


# -- grids ---------------------------------------------------------------------------------------------------------


def test_the_grid_has_mu_down_and_nu_across_for_each_mixing() -> None:
    pairs = [(mixing, mu, nu) for mixing in ("MM", "LM") for mu in (1.0, 0.0) for nu in (5.0, 0.0)]
    values = {pair: 0.1 * place for place, pair in enumerate(pairs)}
    panels = [Panel(*pair, bent([[values[pair]] * 3])) for pair in pairs]
    drawn = figure_draw.munu(panels)
    grid = np.array([axes.texts[0].get_text() for axes in drawn.figure.axes]).reshape(2, 4)
    told = [[f"{100 * values[m, mu, nu]:.2f}" for m in ("MM", "LM") for nu in (0.0, 5.0)] for mu in (0.0, 1.0)]
    assert grid.tolist() == told
    assert drawn.figure.axes[0].get_title() == "MM\nnu=0" and drawn.figure.axes[2].get_title() == "LM\nnu=0"
    assert drawn.figure.axes[4].get_ylabel() == "mu=1"
    assert len(drawn.rows) == 8 * 3


def test_the_grid_reads_mu_and_nu_from_the_runs() -> None:
    run = made_up([[0.1, 0.2, 0.3]], **{"method.mu": 0.01, "method.nu": 2})
    (panel,) = figure_data.panels({("MM", "x"): [run]})
    assert (panel.mixing, panel.mu, panel.nu) == ("MM", 0.01, 2.0)
    with pytest.raises(FedchordError, match=r"made-up: its config.toml has no method.mu"):
        figure_data.panels({("MM", "x"): [made_up([[0.1, 0.2, 0.3]])]})


def test_the_start_figure_shows_both_mixings() -> None:
    points = [Start(m, at, 0.9 - at / 10, 0.05, 0.5 + at, 0.1, 8, 10) for m in ("MM", "LM") for at in (0.4, 0.0)]
    drawn = figure_draw.starts(points)
    accuracy, loss, counts = drawn.figure.axes
    assert [text.get_text() for text in accuracy.get_legend().get_texts()] == ["MM", "LM"]
    assert accuracy.containers[0][0].get_ydata().tolist() == pytest.approx([0.9, 0.86])
    assert loss.containers[1][0].get_ydata().tolist() == pytest.approx([0.5, 0.9])
    assert counts.lines[0].get_ydata().tolist() == [0.8, 0.8]
    assert drawn.rows[0] == ("MM", 0.4, 0.86, 0.05, 0.9, 0.1, 8, 10)


# -- clients and bins ----------------------------------------------------------------------------------------------


def test_the_clients_of_several_seeds_keep_their_names_and_gaps() -> None:
    def one(seed: int, top1: list[float | None]) -> Run:
        return Run(Path("r"), {"seed": seed}, {"per_client": {"client": ["a", "b"], "top1": top1}})

    assert figure_data.spread("A", [one(1, [0.5, 1.0])]).clients == ("a", "b")
    found = figure_data.spread("A", [one(1, [0.5, 1.0]), one(2, [None, 0.25])])
    assert found.clients == ("a (seed 1)", "b (seed 1)", "a (seed 2)", "b (seed 2)")
    assert found.values.tolist() == pytest.approx([0.5, 1.0, np.nan, 0.25], nan_ok=True)
    drawn = figure_draw.clients([found, Spread("B", ("a",), np.array([0.75]))])
    (axes,) = drawn.figure.axes
    ticks = [line for line in axes.lines if line.get_marker() == "_"]
    assert sorted(ticks[0].get_ydata().tolist()) == [0.25, 0.5, 1.0]
    dots = [line.get_ydata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert dots == pytest.approx([1.75 / 3, 0.75])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["A", "B"]
    with pytest.raises(FedchordError, match="has no auroc per client"):
        figure_data.spread("A", [one(1, [0.5, 1.0])], "auroc")


def test_a_reliability_panel_shows_bins_that_hold_rows() -> None:
    bins = Bins("A", np.array([0.0, 4.0]), np.array([np.nan, 0.5]), np.array([np.nan, 0.9]), 0.4, 0.4, 0.1, 0.2)
    drawn = figure_draw.reliability([bins])
    (axes,) = drawn.figure.axes
    (bar,) = axes.containers[0]
    assert bar.get_height() == 0.5 and bar.get_x() + bar.get_width() / 2 == pytest.approx(0.75)
    (gap,) = axes.containers[1]
    assert (gap.get_y(), gap.get_height()) == pytest.approx((0.5, 0.4))
    assert "ECE 0.400, MCE 0.400 on all rows" in axes.get_title() and "clients 0.100, 0.200" in axes.get_title()


def test_connectivity_says_where_there_is_no_cosine_and_no_private_model() -> None:
    nothing = np.zeros(0)
    everyone = bent([[0.5, 0.5, 0.5]], two=0)
    alone = Link(everyone, everyone.of(np.array([False])), nothing, nothing)
    below, axes = figure_draw.connectivity([alone]).figure.axes
    assert below.texts[0].get_text() == "no cosine in these runs' rounds.jsonl"
    assert "no client has trained" in axes.get_title()
    assert len(axes.lines) == 1


# -- real runs, tiny -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study of digits: both ways of mixing and FedAvg's last copies."""
    content: dict[str, Any] = {
        "title": "tiny",
        "settings": {pair.split("=")[0]: pair.split("=")[1] for pair in TINY},
        "method": [
            {"label": "FedAvg", "method": "fedavg-ft", "method.form": "last"},
            {"label": "MM", "method": "superfed-mm", "method.warmup": 0.34},
            {"label": "LM", "method": "superfed-lm", "method.warmup": 0.34},
        ],
    }
    for key in ("clients", "cohort", "rounds", "epochs", "eval_every"):
        content["settings"][key] = int(content["settings"][key])
    out = tmp_path_factory.mktemp("runs")
    plan = study.plan(study.parse("tiny", content))
    outcome = study.run(plan, out, say=quiet)
    assert not outcome.failed and outcome.done == 3
    for job in plan.jobs:
        (out / job.folder).rename(out / job.method)
    return out


def test_who_has_two_models_is_who_trained_after_the_start(folder: Path) -> None:
    """Mixing starts in round floor(0.34 * 3) = 1 from 0: the second line of rounds.jsonl."""
    lines = [json.loads(line) for line in (folder / "MM" / "rounds.jsonl").read_text().splitlines()]
    expected = {client for line in lines[1:] for client in line["cohort"]}
    found = Loaded.of(folder / "MM").two_ended()
    assert set(np.flatnonzero(found)) == expected and 0 < len(expected) < 6
    assert not Loaded.of(folder / "FedAvg").two_ended().any()


def test_the_link_has_both_curves_and_the_cosine_after_the_start(folder: Path) -> None:
    run = reading.read(folder / "MM")
    found = figure_data.link("MM", [run])
    ended = Loaded.of(folder / "MM").two_ended()
    rows = np.array(run.summary["sweep"]["per_client"])
    assert np.allclose(found.everyone.values, rows) and np.allclose(found.trained.values, rows[ended])
    assert found.trained.two_models == ended.sum() == run.summary["sweep"]["two_models"]
    logged = [json.loads(line)["log"] for line in (folder / "MM" / "rounds.jsonl").read_text().splitlines()]
    assert found.rounds.tolist() == [2, 3]
    assert found.cosine.tolist() == pytest.approx([abs(log["cosine"]) for log in logged[1:]])
    drawn = figure_draw.connectivity([found])
    below, axes = drawn.figure.axes
    assert below.lines[0].get_ydata().tolist() == pytest.approx(found.cosine.tolist())
    assert axes.lines[-1].get_ydata().tolist() == pytest.approx(rows.mean(0).tolist())
    assert {row[0] for row in drawn.rows} == {"accuracy", "cosine"}


def test_bins_are_those_of_the_deployed_models(folder: Path) -> None:
    """Every row scored by hand with torch's own layers; the bins counted by numpy's histogram."""
    run = reading.read(folder / "MM")
    here = Loaded.of(folder / "MM")
    confidence, right, offsets = [], [], [0]
    for client in range(6):
        model = here.fitted.deployed(client)
        weights = list(here.parts.task.state_dict(model["theta"], model["buffers"]).values())
        rows = here.parts.federation.batch(here.parts.federation.test[client])
        x = rows["x"].flatten(1)
        for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            x = F.relu(F.linear(x, weight, bias))
        top, best = F.linear(x, *weights[-2:]).double().softmax(1).max(1)
        confidence += top.tolist()
        right += (best == rows["y"]).double().tolist()
        offsets.append(len(right))
    found = figure_data.bins("MM", [run])
    edges = np.linspace(0, 1, 16)
    count = np.histogram(confidence, edges)[0]
    assert found.count.tolist() == count.tolist()
    gaps = np.abs(
        np.histogram(confidence, edges, weights=right)[0] - np.histogram(confidence, edges, weights=confidence)[0]
    )
    assert found.ece == pytest.approx(gaps.sum() / len(right), abs=1e-5)
    assert found.mce == pytest.approx((gaps[count > 0] / count[count > 0]).max(), abs=1e-5)
    assert found.client_ece == pytest.approx(np.mean(run.summary["per_client"]["ece"]))


def test_the_start_grid_has_the_lowest_mean_loss_along_the_line(folder: Path) -> None:
    """The losses at every lambda, client by client, by `Task.outputs` and torch's cross-entropy."""
    run, here = reading.read(folder / "LM"), Loaded.of(folder / "LM")
    task, federation = here.parts.task, here.parts.federation
    shared = here.fitted.state.broadcast["theta"]
    losses = []
    for client, ended in enumerate(here.two_ended()):
        far = here.fitted.memory.get(client)["own"] if ended else shared  # type: ignore[index]
        batch = federation.batch(federation.test[client])
        points = [(1 - lam) * shared + lam * far for lam in np.linspace(0, 1, 11).tolist()]
        scores = [task.outputs(theta, here.fitted.state.broadcast["buffers"], batch) for theta in points]
        losses.append([float(F.cross_entropy(score, batch["y"])) for score in scores])
    table = np.array(losses)
    best = table[:, table.mean(0).argmin()]
    (found,) = figure_data.starts({("LM", "x"): [run]})
    assert (found.loss, found.loss_std) == pytest.approx((best.mean(), best.std()), rel=1e-4)
    assert found.start == 0.34 and found.clients == 6
    accuracy = np.array(run.summary["sweep"]["per_client"]).mean(0).max()
    assert found.accuracy == pytest.approx(accuracy)


def test_the_landscape_has_one_range_and_the_loss_of_its_models(folder: Path) -> None:
    runs = {label: reading.read(folder / label) for label in ("FedAvg", "MM", "LM")}
    found = figure_land.lands(runs, points=4, rows=60)
    assert all(np.array_equal(land.x, found[0].x) and np.array_equal(land.y, found[0].y) for land in found)
    shortest = []
    for land in found:
        here = Loaded.of(folder / land.label)
        cohort = json.loads((folder / land.label / "rounds.jsonl").read_text().splitlines()[-1])["cohort"]
        assert list(land.clients) == cohort[:2]
        kept = [here.fitted.memory.get(client) for client in land.clients]
        own = [own["theta" if land.label == "FedAvg" else "own"] for own in kept if own is not None]
        g = here.fitted.state.broadcast["theta"]
        distances = [float((theta - g).norm()) for theta in own]
        assert [np.hypot(*mark) for mark in land.marks] == pytest.approx(distances, rel=1e-4)
        shortest += distances
        u = (own[0] - g).double() / (own[0] - g).double().norm()
        v = (own[1] - g).double() - ((own[1] - g).double() @ u) * u
        v /= v.norm()
        test = here.parts.federation.test
        rows = torch.cat([test[client] for client in range(6)])
        batch = here.parts.federation.batch(rows[:: -(-len(rows) // 60)])
        theta = (g.double() + land.x[2] * u + land.y[1] * v).float()
        score = here.parts.task.outputs(theta, here.fitted.state.broadcast["buffers"], batch)
        assert land.loss[1, 2] == pytest.approx(float(F.cross_entropy(score, batch["y"])), rel=1e-3)
        assert land.norm == pytest.approx(float(g.norm()), rel=1e-5)
        steps = [land.radius * step / 5 for step in range(-5, 6)]
        inside = [(right, up) for right in steps for up in steps if np.hypot(right, up) <= 1.000001 * land.radius]
        models = [(g.double() + right * u + up * v).float() for right, up in (*inside, (0.0, 0.0))]
        scores = [here.parts.task.outputs(model, here.fitted.state.broadcast["buffers"], batch) for model in models]
        *around, centre = (float(F.cross_entropy(score, batch["y"])) for score in scores)
        assert len(inside) == 81 and land.flatness == pytest.approx(np.mean(around) - centre, rel=1e-3, abs=1e-6)
    assert found[0].radius == pytest.approx(min(shortest), rel=1e-4)
    drawn = figure_draw.landscape(found)
    heights = {axes.get_zlim() for axes in drawn.figure.axes if hasattr(axes, "get_zlim")}
    assert len(heights) == 1 and len(drawn.rows) == 3 * 16
    FigureCanvasAgg(drawn.figure).draw()


def test_the_random_rise_of_a_linear_model() -> None:
    """The mean over the same unit vectors, with torch's own layer; a step of length 0 does not rise."""
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    task = Task(module)
    start = task.init(0)
    batch = {"x": torch.randn(20, 3), "y": torch.randint(0, 2, (20,))}
    assert figure_land.random_rise(task, start["theta"], start["buffers"], batch, 0.0) == pytest.approx(0, abs=1e-6)
    flat = {"x": torch.zeros(4, 3), "y": torch.tensor([0, 1, 0, 1])}
    theta = torch.zeros_like(start["theta"])  # only the difference d of the biases counts: log(2 cosh(d / 2))
    rises = []
    from fedchord import rng

    for draw in range(figure_land.DRAWS):
        u = rng.normal(rng.key(0, "landscape", draw), (8,)).double().numpy()
        bias = 2 * u[6:] / np.linalg.norm(u)
        rises.append(np.log(2 * np.cosh((bias[0] - bias[1]) / 2)) - np.log(2))
    assert figure_land.random_rise(task, theta, start["buffers"], flat, 2.0) == pytest.approx(np.mean(rises), rel=1e-4)


def test_a_lost_checkpoint_is_told(folder: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(folder / "MM", tmp_path / "MM")
    shutil.rmtree(tmp_path / "MM" / "checkpoints")
    with pytest.raises(FedchordError, match="MM: the checkpoint of the last round is missing"):
        Loaded.of(tmp_path / "MM")


# -- the command ---------------------------------------------------------------------------------------------------


def test_a_figure_runs_what_is_missing_and_draws(tmp_path: Path) -> None:
    asked = ["figure", "lambda", "--out", str(tmp_path / "runs"), "--only", "APFL", "--only", "SuPerFed-MM", *TINY]
    done = invoke(*asked)
    assert done.exit_code == 0, done.output
    picture, table = (Path(line) for line in done.stdout.splitlines())
    assert picture == tmp_path / "runs" / "lambda-small.png" and imread(picture).shape[2] == 4
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["method"] for row in rows} == {"APFL", "SuPerFed-MM"} and len(rows) == 22
    (found,) = (tmp_path / "runs").glob("superfed-mm_seed1_*/summary.json")
    means = json.loads(found.read_text())["sweep"]["mean"]
    assert [float(row["mean"]) for row in rows if row["method"] == "SuPerFed-MM"] == pytest.approx(means, abs=1e-6)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/summary.json")}
    again = invoke(*asked, "--to", str(tmp_path / "other.svg"))
    assert again.exit_code == 0 and (tmp_path / "other.svg").is_file() and (tmp_path / "other.csv").is_file()
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/summary.json")}


def test_mistakes_are_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(FedchordError, match=r"unknown figure 'lamda'.*did you mean 'lambda'"):
        figures.make("lamda", out=tmp_path)
    with pytest.raises(FedchordError, match=r"figure: the file must end in .png, .pdf, .svg, got 'a.gif'"):
        figures.make("lambda", out=tmp_path, to=Path("a.gif"))
    with pytest.raises(FedchordError, match="unknown scale of study 2_lambda"):
        figures.make("lambda", "large", out=tmp_path)
    with pytest.raises(FedchordError, match="unknown row or column of study 2_lambda"):
        figures.make("lambda", out=tmp_path, only=["FedSomething"])
    assert not list(tmp_path.iterdir())


def test_a_failed_run_is_not_drawn(tmp_path: Path) -> None:
    done = invoke("figure", "lambda", "--out", str(tmp_path), "--only", "APFL", *TINY[1:], f"data.root={tmp_path}")
    assert done.exit_code == 1 and "failed: APFL, seed 1" in done.stderr
    assert "not drawn; go on with: fedchord figure lambda --out" in done.stderr
    assert not list(tmp_path.glob("*.png"))


def test_the_list_names_every_figure() -> None:
    shown = invoke("figure", "list").stdout
    assert all(f"{name}\n  {kind.about}\n" in shown for name, kind in figures.FIGURES.items())


@pytest.mark.parametrize("name", list(figures.FIGURES))
def test_every_figure_has_its_runs(name: str) -> None:
    kind = figures.FIGURES[name]
    found = studies.load(kind.study)
    for scale in [scale for scale in ("small", "thesis") if scale in found.scales] or [None]:
        plan = study.plan(found, scale, ["seeds=1"])
        jobs = study.picked(plan, kind.only)
        assert not plan.missing and jobs
        if scale == "small" and kind.study.startswith("2_"):
            assert {job.config.data for job in jobs} == {"mnist"}, "the small scale is MNIST"


def test_the_grids_show_real_rows_and_every_methods_samples(tmp_path: Path) -> None:
    """On digits, at the smoke scale: a panel of real rows and one of each method, and how far samples differ."""
    words = ["--scale", "smoke", "--out", str(tmp_path / "runs"), "--to", str(tmp_path / "grid.png")]
    only = ["--only", "MNIST K=10 alpha=1", "--only", "FedCVAE", "--only", "FedEvg, ours"]
    done = invoke("figure", "grid-mnist", *words, *only)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "grid.png").stat().st_size > 5000
    with (tmp_path / "grid.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["method"] for row in rows} == {"real", "FedCVAE", "FedEvg, ours"} and len(rows) == 3 * 10
    (run,) = (tmp_path / "runs").glob("*fedcvae*")
    made = load_set(run)
    first = made.x[made.y == 0].double().flatten(1)
    by_hand = float((first - first.mean(0)).square().mean(0).sqrt().mean())
    found = next(float(row["std_within_class"]) for row in rows if (row["method"], row["class"]) == ("FedCVAE", "0"))
    assert found == pytest.approx(by_hand, rel=1e-6)


# -- studies -------------------------------------------------------------------------------------------------------


def test_a_named_column_leaves_the_rows_of_the_figure() -> None:
    """regret is drawn for AAggFF-S only: --only Heart must not run the methods that have none."""
    plan = study.plan(studies.load("result_silo"))
    asked = figures._asked(plan, ["heart"], figures.FIGURES["regret"].only)
    assert {(job.method, job.setting) for job in study.picked(plan, asked)} == {("AAggFF-S", "Heart")}
    asked = figures._asked(plan, ["FedAvg"], figures.FIGURES["regret"].only)
    assert {job.method for job in study.picked(plan, asked)} == {"FedAvg"}


def test_the_grids_are_those_of_the_thesis() -> None:
    plan = study.plan(studies.load("2_munu"), "thesis")
    parameters = {
        (job.method, *(dict(job.config.parameters)[f"method.{p}"] for p in ("mu", "nu"))) for job in plan.jobs
    }
    mixings, mus, nus = ("SuPerFed-MM", "SuPerFed-LM"), (0.0, 0.01, 0.1, 1.0), (0.0, 1.0, 2.0, 5.0)
    assert parameters == {(mixing, mu, nu) for mixing in mixings for mu in mus for nu in nus}
    assert {(job.config.data, job.config.rounds) for job in plan.jobs} == {("cifar10", 100)}
    assert {dict(job.config.parameters)["method.warmup"] for job in plan.jobs} == {0.4}
    plan = study.plan(studies.load("2_start"), "thesis")
    found = [
        {name: dict(job.config.parameters)[f"method.{name}"] for name in ("warmup", "mu", "nu")}
        for job in study.picked(plan, figures.FIGURES["start"].only)
    ]
    assert len(found) == 10 and len(plan.jobs) == 15
    assert {part["warmup"] for part in found} == {0.0, 0.2, 0.4, 0.6, 0.8}
    assert {(part["mu"], part["nu"]) for part in found} == {(0.01, 2.0)}
    assert {(job.config.data, job.config.rounds) for job in plan.jobs} == {("cifar10", 200)}
    (landscape,) = {
        (job.config.data, job.config.model) for job in study.plan(studies.load("2_landscape"), "thesis").jobs
    }
    assert landscape == ("cifar10", "twocnn")


def test_the_noise_study_is_that_of_the_thesis() -> None:
    plan = study.plan(studies.load("2_noise"), "thesis")
    kinds = {(job.config.data, job.config.noise, job.config.noise_rate) for job in plan.jobs}
    noises = (("pair", 0.1), ("pair", 0.4), ("symmetric", 0.2), ("symmetric", 0.6))
    assert kinds == {(data, *noise) for data in ("mnist", "cifar10") for noise in noises}
    assert {(job.config.split, job.config.split_alpha, job.config.clients) for job in plan.jobs} == {
        ("dirichlet", 10.0, 100)
    }
    assert {(job.config.rounds, job.config.epochs, job.config.batch, job.config.lr) for job in plan.jobs} == {
        (500, 10, 10, 0.01)
    }


def test_a_study_may_have_columns_of_several_metrics(tmp_path: Path) -> None:
    content: dict[str, Any] = {
        "title": "t",
        "columns": ["mean", "ece mean"],
        "method": [{"label": "A", "method": "fedavg"}],
        "reference": {"source": "paper", "values": {"A": {"x": {"mean": [50.0, 1.0], "ece mean": [0.25, 0.5]}}}},
        "setting": [{"label": "x"}],
    }
    plan = study.plan(study.parse("t", content))
    (job,) = plan.jobs
    (tmp_path / job.folder).mkdir()
    (tmp_path / job.folder / "config.toml").write_text(job.config.to_toml())
    measured = {"top1": {"mean": 0.5, "std": 0.1}, "ece": {"mean": 0.0625, "std": 0.5}}
    (tmp_path / job.folder / "summary.json").write_text(json.dumps({"layout": 2, "metrics": measured}))
    table = study_table.tabulate(plan, tmp_path)
    heads = ["method", "x top1 mean %", "x top1 mean % paper", "x ece mean", "x ece mean paper"]
    assert [head.name for head in table.heads] == heads
    cells = ["A", "50.00 (10.00)", "50.00 (1.00)", "0.0625 (0.5000)", "0.25 (0.50)"]
    assert [str(cell) for cell in table.rows[0]] == cells
    for wrong, told in (("eze mean", "unknown metric"), ("ece maen", "unknown column")):
        with pytest.raises(FedchordError, match=told):
            study.parse("t", content | {"columns": [wrong]})
