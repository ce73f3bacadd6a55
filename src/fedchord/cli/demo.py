"""`fedchord demo`: five methods on real digits, 20 clients with two classes each, three seeds, under a minute.

A model that a client trained alone is only ever asked about that client's own classes, which is easy. So every model is
measured twice: on its client's own test rows, and on the test rows of all clients.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import torch

from fedchord.check import FedchordError
from fedchord.engine.executors import one_thread
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts
from fedchord.experiments.progress import Progress, Silent, for_stream
from fedchord.experiments.session import Run
from fedchord.experiments.summary import method_line
from fedchord.metrics import over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS: dict[str, dict[str, float]] = {
    "local": {},
    "fedavg": {},
    "fedprox": {"method.mu": 0.1},
    "scaffold": {},
    "fedadam": {"method.lr": 0.01},
}
"""The methods and their own parameters, set once and tuned for none of them."""
SEEDS = (0, 1, 2)
SETTINGS: dict[str, str | int | float] = {
    "data": "digits",
    "split": "pathological",
    "clients": 20,
    "model": "twonn",
    "rounds": 50,
    "cohort": 5,
    "epochs": 2,
    "batch": 10,
    "lr": 0.1,
}
EVERY = 2
COLOURS = dict(zip(METHODS, ("#7F7F7F", "#0072B2", "#56B4E9", "#D55E00", "#009E73"), strict=True))
COLUMNS = {"mean": "mean", "worst10": "worst 10 %", "gini": "Gini", "everyone": "all rows"}


@dataclass(frozen=True)
class Score:
    """One run: accuracies over rounds on own rows and on everyone's rows, and what the last round gave."""

    method: str
    seed: int
    rounds: tuple[int, ...]
    own: tuple[float, ...]
    everyone: tuple[float, ...]
    clients: tuple[float, ...]
    last: dict[str, float]


Scores = dict[str, list[Score]]


def run_demo(
    out: str | Path = ".",
    methods: Sequence[str] = tuple(METHODS),
    seeds: Sequence[int] = SEEDS,
    progress: Progress | None = None,
    **settings: str | int | float,
) -> Scores:
    """Run everything, print the table and what it shows, write demo.png."""
    from fedchord.report.show import console, table

    start, used = time.perf_counter(), SETTINGS | settings
    scores = compare(methods, seeds, used, progress or for_stream())
    printed = console()
    rows, bold = cells(scores)
    printed.print("top-1 accuracy in percent after the last round, mean (std) over seeds")
    printed.print(table(["method", *COLUMNS.values()], rows, bold))
    printed.print("mean, worst 10 %, Gini: over clients, each on its own test rows, which hold about two classes")
    printed.print("all rows: the same models on the test rows of all clients, which hold all ten classes")
    printed.print(f"\n{' '.join(findings(scores))}\n")
    for line in how(methods, seeds, used):
        printed.print(line)
    printed.print(f"{time.perf_counter() - start:.0f} s; figure: {draw(scores, Path(out))}")
    return scores


def compare(
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: dict[str, str | int | float],
    progress: Progress | None = None,
) -> Scores:
    """Every method with every seed; the same data, model and budget for all."""
    shown = progress or Silent()
    shown.begin("demo", len(methods) * len(seeds), unit="run")
    scores: Scores = {method: [] for method in methods}
    try:
        for seed in seeds:
            for method in methods:
                scores[method].append(measure(configure(method, settings, seed)))
                done = sum(len(found) for found in scores.values())
                shown.update(done, f"{method}, all rows:", scores[method][-1].everyone[-1])
    finally:
        shown.end()
    return scores


def configure(method: str, settings: dict[str, str | int | float], seed: int = 0) -> RunConfig:
    """The settings of one run."""
    return RunConfig.from_values({**settings, **METHODS[method], "method": method, "seed": seed})


def measure(config: RunConfig) -> Score:
    """One run, measured on own rows and on everyone's every other round."""
    parts = replace(Parts.build(config.with_values(eval_every=EVERY)), metrics=("top1",))
    rounds: list[int] = []
    own: list[float] = []
    everyone: list[float] = []
    made = Run(parts)
    with one_thread():  # the models are tiny: threads would only wait for each other
        for done in made:
            if done.evaluation is not None:
                rounds.append(done.round)
                own.append(done.evaluation.mean("top1"))
                everyone.append(on_all_rows(done.fitted))
    assert made.evaluation is not None
    clients = tuple(made.evaluation.per_client["top1"].tolist())
    last = made.evaluation.metrics["top1"] | {"everyone": everyone[-1]}
    return Score(config.method, config.seed, tuple(rounds), tuple(own), tuple(everyone), clients, last)


def on_all_rows(fitted: Fitted) -> float:
    """The accuracy of the clients' models on the test rows of all clients together: the plain mean over clients."""
    task, federation = fitted.work.task, fitted.work.federation
    batch = federation.batch(federation.test.rows)
    known: dict[int, tuple[torch.Tensor, float]] = {}  # a shared model is asked once; it is held: its id is its own
    values = []
    for client in range(federation.num_clients):
        model = fitted.deployed(client)
        theta = model["theta"]
        if id(theta) not in known:
            right = task.outputs(theta, model["buffers"], batch).argmax(1) == batch["y"]
            known[id(theta)] = theta, float(right.double().mean())
        values.append(known[id(theta)][1])
    return fmean(values)


# -- what it says --------------------------------------------------------------------------------------------------


def estimate(scores: Sequence[Score], column: str) -> tuple[float, float]:
    """Mean and standard deviation over seeds; accuracies in percent."""
    factor = 1.0 if column == "gini" else 100.0
    return over_seeds([factor * score.last[column] for score in scores])


def cells(scores: Scores) -> tuple[list[list[str]], list[tuple[int, int]]]:
    """The rows of the table, and which cells are the best of their column."""
    rows, best = [], []
    for column in COLUMNS:
        means = [round(estimate(found, column)[0], 3 if column == "gini" else 1) for found in scores.values()]
        best.append(min(means) if column == "gini" else max(means))
    bold = []
    for i, (method, found) in enumerate(scores.items()):
        row = [method]
        for j, column in enumerate(COLUMNS):
            mean, spread = estimate(found, column)
            digits = 3 if column == "gini" else 1
            row.append(f"{mean:.{digits}f} ({spread:.{digits}f})")
            if round(mean, digits) == best[j]:
                bold.append((i, j + 1))
        rows.append(row)
    return rows, bold


def findings(scores: Scores) -> tuple[str, str]:
    """Two sentences, made from the numbers: what learning alone is worth, and how the shared models compare."""
    shared = {method: found for method, found in scores.items() if method != "local"}
    by_all = sorted(shared, key=lambda method: estimate(shared[method], "everyone")[0])
    best, last = by_all[-1], by_all[0]
    (top, top_spread), (low, low_spread) = (estimate(shared[method], "everyone") for method in (best, last))
    alone, wide = (estimate(scores["local"], column)[0] for column in ("mean", "everyone"))
    first = (
        f"A client that learns alone is right on {alone:.1f} % of its own test rows "
        f"{'but only' if wide < alone else 'and'} on {wide:.1f} % of everyone's; "
        f"the best shared model, {best}'s, is right on {_percent(shared, best, 'mean')} of a client's own "
        f"and {top:.1f} % of everyone's."
    )
    beyond = "more than" if top - low > top_spread + low_spread else "not more than"
    fair = sorted(shared, key=lambda method: estimate(shared[method], "worst10")[0])
    second = (
        f"Between {best} and the last shared model, {last}'s with {low:.1f} %, lie {top - low:.1f} points, {beyond} "
        f"their spread over seeds together; the worst tenth of clients have {_percent(shared, fair[-1], 'worst10')} "
        f"with {fair[-1]} and {_percent(shared, fair[0], 'worst10')} with {fair[0]}."
    )
    return first, second


def _percent(scores: Scores, method: str, column: str) -> str:
    return f"{estimate(scores[method], column)[0]:.1f} %"


def how(methods: Sequence[str], seeds: Sequence[int], settings: dict[str, str | int | float]) -> list[str]:
    """How the numbers were made."""
    given = " ".join(f"{key}={value}" for key, value in settings.items())
    rules = [method_line(configure(method, settings).algorithm()) for method in methods]
    seeded = ", ".join(str(seed) for seed in seeds)
    return [
        f"Every method ran with {given}, seeds {seeded} (a seed draws split, model, cohorts and batches).",
        "Nothing was tuned for any method; their rules:",
        *(f"  {rule}" for rule in rules),
    ]


# -- the figure ----------------------------------------------------------------------------------------------------


def draw(scores: Scores, folder: Path) -> Path:
    """Curves over rounds with their spread over seeds, and the clients one by one, as demo.png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
    _curves(axes[0], scores, "own", "on the client's own test rows (two classes)")
    _curves(axes[1], scores, "everyone", "on the test rows of all clients (ten classes)")
    _clients(axes[2], scores)
    _dress(figure, axes, scores)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / "demo.png", dpi=150)
    except OSError as error:
        raise FedchordError(f"demo: {folder / 'demo.png'} cannot be written ({error.strerror})") from None
    return folder / "demo.png"


def _curves(axes: Axes, scores: Scores, what: str, title: str) -> None:
    for method, found in scores.items():
        values = torch.tensor([getattr(score, what) for score in found], dtype=torch.float64) * 100
        rounds, mean = list(found[0].rounds), values.mean(0)
        spread = values.std(0, correction=1) if len(found) > 1 else torch.zeros_like(mean)
        axes.plot(rounds, mean.tolist(), color=COLOURS[method], label=method, linewidth=1.8)
        low, high = (mean - spread).clamp_min(0), (mean + spread).clamp_max(100)
        axes.fill_between(rounds, low.tolist(), high.tolist(), color=COLOURS[method], alpha=0.15, linewidth=0)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("round")
    axes.set_xlim(0, found[0].rounds[-1])


def _clients(axes: Axes, scores: Scores) -> None:
    """A dot per client and seed, moved sideways a little so that equal ones can be seen, and the mean as a line."""
    for place, (method, found) in enumerate(scores.items()):
        values = [100 * value for score in found for value in score.clients]
        sideways = [place + 0.5 * ((0.618034 * i) % 1 - 0.5) for i in range(len(values))]
        axes.scatter(sideways, values, s=14, color=COLOURS[method], alpha=0.55, linewidths=0)
        axes.hlines(fmean(values), place - 0.35, place + 0.35, color="black", linewidth=1.6)
    axes.set_xticks(range(len(scores)), list(scores))
    axes.set_title("last round, own rows: a dot per client and seed", loc="left", fontsize=10)


def _dress(figure: Figure, axes: Sequence[Axes], scores: Scores) -> None:
    for one in axes:
        one.set_ylim(-2, 102)
        one.grid(axis="y", color="#DDDDDD", linewidth=0.6)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("top-1 accuracy (%)")
    seeds = len(next(iter(scores.values())))
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    figure.suptitle(
        f"Real digits, 20 clients with two classes each: mean and one standard deviation over {seeds} seeds",
        x=0.01,
        ha="left",
        fontsize=11,
    )
