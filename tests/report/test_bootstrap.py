"""Intervals over seeds and over test rows, against scipy, enumeration and numbers computed by hand."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import tomli_w
import torch
from helpers.invoked import invoke

from fedchord import metrics, rng
from fedchord.check import FedchordError
from fedchord.experiments import reading
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.loaded import Loaded
from fedchord.report import bootstrap as resample


def write_run(folder: Path, auroc: list[float], **keys: Any) -> Path:
    """A finished run whose clients have these values."""
    keys = {"method": "fedavg", "data": "digits", "clients": len(auroc), "seed": 1} | keys
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps({**keys, "out": str(folder)}))
    ordered = sorted(auroc)
    told = {"mean": sum(auroc) / len(auroc), "worst10": ordered[0], "best10": ordered[-1]}
    told |= {"gap": ordered[-1] - ordered[0], "gini": 0.1}
    per_client = {"client": [f"c{i}" for i in range(len(auroc))], "size": [4] * len(auroc), "auroc": auroc}
    (folder / "summary.json").write_text(
        json.dumps({"layout": 2, "metrics": {"auroc": told}, "per_client": per_client})
    )
    return folder


def found(*places: Path, **options: Any) -> list[resample.Interval]:
    return resample.intervals(reading.read_all(places)[0], **options)


# -- seeds ---------------------------------------------------------------------------------------------------------


def test_over_seeds_by_hand_and_by_scipy(tmp_path: Path) -> None:
    """Worst clients 0.1 s apart: d_s = 0.1, -0.3, 0.2, 0.4; scipy resamples the same four."""
    d = [0.1, -0.3, 0.2, 0.4]
    for seed, change in enumerate(d, 1):
        write_run(tmp_path / f"r{seed}", [0.5, 0.9], seed=seed)
        write_run(tmp_path / f"x{seed}", [0.5 + change, 0.95], seed=seed, method="uniform")
    write_run(tmp_path / "x9", [0.1, 0.2], seed=9, method="uniform")
    (one,) = found(tmp_path, against="fedavg", statistic="worst10")
    assert (one.label, one.against, one.seeds, one.alone) == ("uniform", "fedavg", (1, 2, 3, 4), (9,))
    assert one.value == pytest.approx(0.1)
    assert (one.better, one.equal, one.worse) == (3, 0, 1)
    other = scipy.stats.bootstrap(
        (d,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert (one.low, one.high) == pytest.approx(tuple(other), abs=0.02)
    (gap,) = found(tmp_path, against="fedavg", statistic="gap")
    assert gap.value == pytest.approx(0.05 - 0.1)
    assert (gap.better, gap.worse) == (3, 1)  # a smaller gap is better
    own = found(tmp_path, statistic="mean")
    assert {o.label: len(o.seeds) for o in own} == {"fedavg": 4, "uniform": 5} and not own[0].against
    assert own[0].value == pytest.approx(0.7) and own[0].better == own[0].worse == 0


def test_over_seeds_and_clients_by_enumeration(tmp_path: Path) -> None:
    """Two seeds of two clients: each of two places takes a seed and two of its clients, 8 x 8 equally likely outcomes.

    The worst of two clients is not linear, so that method and reference must be drawn alike and differ afterwards."""
    ours, theirs = {1: [0.9, 0.4], 2: [0.6, 0.8]}, {1: [0.5, 0.6], 2: [0.7, 0.3]}
    for seed in (1, 2):
        write_run(tmp_path / f"r{seed}", theirs[seed], seed=seed)
        write_run(tmp_path / f"x{seed}", ours[seed], seed=seed, method="uniform")
    for statistic, over in (("mean", np.mean), ("worst10", min)):
        one_place = [
            over([ours[seed][c] for c in drawn]) - over([theirs[seed][c] for c in drawn])
            for seed in (1, 2)
            for drawn in itertools.product((0, 1), repeat=2)
        ]
        means = [(a + b) / 2 for a in one_place for b in one_place]
        (one,) = found(tmp_path, against="fedavg", statistic=statistic, over="both")
        assert one.value == pytest.approx(np.mean([over(ours[s]) - over(theirs[s]) for s in (1, 2)]))
        assert (one.low, one.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.03)
    with pytest.raises(FedchordError, match="it needs --against"):
        found(tmp_path, over="both")


def test_no_seed_in_common_and_missing_numbers(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.5, 0.9], seed=1)
    write_run(tmp_path / "b", [0.5, 0.9], seed=2, method="uniform")
    with pytest.raises(FedchordError, match="no seed in common"):
        found(tmp_path, against="fedavg")
    with pytest.raises(FedchordError, match="has no top1 mean"):
        found(tmp_path, metric="top1")


# -- test rows -----------------------------------------------------------------------------------------------------


def test_auroc_on_all_resamples_within_classes() -> None:
    """Two positives and three negatives: 2^2 x 3^3 = 108 equally likely resamples, enumerated pair by pair."""
    positive, negative = [0.7, 0.3], [0.1, 0.5, 0.3]

    def area(p: tuple[float, ...], n: tuple[float, ...]) -> float:
        return sum((a > b) + 0.5 * (a == b) for a in p for b in n) / (len(p) * len(n))

    all_draws = [
        area(p, n) for p in itertools.product(positive, repeat=2) for n in itertools.product(negative, repeat=3)
    ]
    scores = torch.tensor([[0.1], [0.7], [0.5], [0.3], [0.3]])
    labels = torch.tensor([0, 1, 0, 1, 0])
    drawn = resample.resample("auroc", scores, labels, 40_000, key=5)
    assert drawn.mean() == pytest.approx(np.mean(all_draws), abs=0.005)
    assert drawn.std() == pytest.approx(np.std(all_draws), abs=0.005)
    assert np.quantile(drawn, [0.1, 0.9]) == pytest.approx(np.quantile(all_draws, [0.1, 0.9]), abs=0.01)
    free = labels[torch.from_numpy(np.random.default_rng(0).integers(0, 5, (100, 5)))]
    assert (free.sum(1) == 0).any()  # drawn freely, some resamples would have one class


def test_a_class_of_one_row_is_drawn_as_it_is() -> None:
    scores, labels = torch.tensor([[0.9], [0.1], [0.2]]), torch.tensor([1, 0, 0])
    assert resample.resample("auroc", scores, labels, 50, key=1).tolist() == [1.0] * 50


BY_HAND: dict[str, Callable[[list[float], bool], float]] = {
    "mean": lambda x, up: statistics.fmean(x),
    "worst10": lambda x, up: statistics.fmean(x[:2] if up else x[-2:]),  # a tenth of 23 clients
    "best10": lambda x, up: statistics.fmean(x[-2:] if up else x[:2]),
    "gap": lambda x, up: statistics.fmean(x[-2:]) - statistics.fmean(x[:2]),
    "gini": lambda x, up: sum(abs(a - b) for a in x for b in x) / (2 * len(x) * sum(x)),
}


@pytest.mark.parametrize("statistic", resample.STATISTICS)
@pytest.mark.parametrize("higher", [True, False])
def test_statistics_over_clients_are_those_of_the_summary(statistic: str, higher: bool) -> None:
    values = np.random.default_rng(2).random((6, 23))
    made = metrics.over_clients(torch.from_numpy(values), statistic, higher)
    told = [metrics.summarise(torch.from_numpy(row), None, higher)[statistic] for row in values]
    assert made.tolist() == pytest.approx(told)
    assert made.tolist() == pytest.approx([BY_HAND[statistic](sorted(row), higher) for row in values.tolist()])
    assert metrics.over_clients(torch.zeros(1, 3), "gini").tolist() == [0.0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods with two seeds on a table with two classes and three clients."""
    root = tmp_path_factory.mktemp("rows")
    generator = np.random.default_rng(0)
    lines = ["a,b,label,client"]
    for client in range(3):
        for row in range(40):
            y = row % 4 == 0
            a, b = generator.normal(size=2) + (0.8 - 0.6 * client) * y
            lines.append(f"{a:.4f},{b:.4f},{int(y)},{client}")
    (root / "loans.csv").write_text("\n".join(lines) + "\n")
    base = {
        "data": str(root / "loans.csv"),
        "model": "logreg",
        "rounds": 4,
        "lr": 0.5,
        "cohort": "all",
        "executor": "serial",
    }
    for method in ("fedavg", "uniform", "local"):
        for seed in (1, 2):
            out = str(root / "runs" / f"{method}{seed}")
            runs.execute(RunConfig.from_values(base | {"method": method, "seed": seed, "out": out}))
    return root / "runs"


def test_over_samples_scores_are_made_anew_and_paired(trained: Path) -> None:
    made = {one.label: one for one in found(trained, against="local", metric="auroc", over="samples", draws=400)}
    one = made["fedavg"]
    assert one.low < one.value < one.high and one.seeds == (1, 2)
    parts = []
    for seed in (1, 2):
        x, r = (Loaded.of(trained / f"{method}{seed}") for method in ("fedavg", "local"))
        rows = []
        for client in range(3):
            key = rng.key(0, "bootstrap", seed, client)
            a, b = (resample.resample("auroc", *run.scores_of(client), 400, key) for run in (x, r))
            rows.append(a - b)
        parts.append(np.mean(rows, axis=0))
    expected = np.quantile(np.mean(parts, axis=0), [0.025, 0.975])
    assert (one.low, one.high) == pytest.approx(tuple(expected))
    assert found(trained, against="local", metric="auroc", over="samples", draws=400)[0].low == made[one.label].low


def test_scores_that_do_not_fit_the_summary_are_refused(trained: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(trained / "fedavg1", copy)
    summary = json.loads((copy / "summary.json").read_text())
    summary["per_client"]["auroc"][1] = 0.123456
    (copy / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(FedchordError, match=r"client 1 now has auroc .*, its summary 0.123456"):
        found(copy, metric="auroc", over="samples", draws=10)
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(FedchordError, match="checkpoint"):
        found(copy, metric="auroc", over="samples", draws=10)


def test_the_command(trained: Path) -> None:
    worst = ("--statistic", "worst10", "--format", "markdown")
    done = invoke("compare", str(trained), "--against", "fedavg", "--bootstrap", "seeds", *worst)
    assert done.exit_code == 0 and "auroc worst10 difference (points)" in done.output and "over seeds" in done.output
    own = invoke("compare", str(trained), "--bootstrap", "samples", "--format", "markdown")
    assert own.exit_code == 0 and "| auroc mean % | low | high | seeds |" in own.output
    for words, told in (
        (("--bootstrap", "rows", "--against", "fedavg"), "bootstrap"),
        ((), "needs --against"),
        (("--against", "fedavg", "--statistic", "gap"), "gap needs --bootstrap seeds or samples"),
        (("--bootstrap", "seeds", "--statistic", "median"), "statistic"),
        (("--bootstrap", "seeds", "--column", "swept"), "swept needs --bootstrap clients"),
    ):
        refused = invoke("compare", str(trained), *words)
        assert isinstance(refused.exception, FedchordError) and told in str(refused.exception)
