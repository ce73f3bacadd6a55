"""Paired differences against literal numbers, scipy's bootstrap and full enumeration."""

from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import tomli_w
from helpers.invoked import invoke

from fedchord.check import FedchordError
from fedchord.experiments import reading, study
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.report import compare, study_table, tables, visits, words


def write_run(folder: Path, top1: list[float | None], loss: list[float] | None = None, **keys: Any) -> Path:
    """A finished run with these values of its clients."""
    keys = {"method": "fedavg", "data": "digits", "clients": len(top1), "seed": 1} | keys
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps({**keys, "out": str(folder)}))
    names = [f"client {i}" for i in range(len(top1))]
    per_client = {"client": names, "size": [4] * len(top1), "top1": top1, "loss": loss or [1.0] * len(top1)}
    metrics = {"top1": {"mean": 0.5}, "loss": {"mean": 1.0}}
    summary = {"layout": 2, "metrics": metrics, "per_client": per_client, "sweep": None}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def compared(*places: Path, against: str, **options: Any) -> list[compare.Difference]:
    found, _ = reading.read_all(places)
    return compare.differences(found, against, **options)


# -- the interval --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [12, 20, 100])
@pytest.mark.parametrize("level", [0.95, 0.5])
def test_the_interval_is_that_of_scipy(size, level):
    x = np.random.default_rng(size).gamma(1.5, size=size) - 1
    found = compare.interval(x.tolist(), level, resamples=60_000)
    other = scipy.stats.bootstrap(
        (x,), np.mean, confidence_level=level, n_resamples=60_000, method="percentile", rng=np.random.default_rng(7)
    ).confidence_interval
    error = x.std() / np.sqrt(size)
    assert found == pytest.approx(tuple(other), abs=0.03 * error)
    for wrong in (0.9 if level == 0.95 else 0.6, 0.99):  # the tolerance tells levels apart
        assert compare.interval(x.tolist(), wrong, resamples=60_000) != pytest.approx(tuple(other), abs=0.03 * error)


def test_the_interval_is_that_of_all_resamples():
    """6^6 = 46,656 equally likely resamples of six values."""
    x = [0.1, 0.45, -0.2, 0.8, 0.31, -0.07]
    means = [sum(draw) / 6 for draw in itertools.product(x, repeat=6)]
    low, high = np.quantile(means, [0.025, 0.975])
    assert compare.interval(x, resamples=100_000) == pytest.approx((low, high), abs=0.005)


def test_the_interval_is_seeded_and_needs_two_values(monkeypatch):
    x = np.random.default_rng(3).normal(size=30).tolist()
    assert compare.interval(x) == compare.interval(x) != compare.interval(x, seed=1)
    assert compare.interval([0.3, 0.3, 0.3]) == pytest.approx((0.3, 0.3))
    assert all(np.isnan(compare.interval([0.3])))
    whole = compare.interval(x)
    monkeypatch.setattr(compare, "DRAWN", 40)  # drawn in many pieces
    assert compare.interval(x) == pytest.approx(whole, abs=0.02)


# -- pairs ---------------------------------------------------------------------------------------------------------


def test_differences_by_hand(tmp_path):
    """Seeds are averaged first: d = (0.2, 0, -0.3)."""
    write_run(tmp_path / "a1", [0.5, 0.6, 0.9], seed=1)
    write_run(tmp_path / "a2", [0.4, 0.7, 0.8], seed=2)
    write_run(tmp_path / "b1", [0.6, 0.7, 0.5], seed=1, method="ditto")
    write_run(tmp_path / "b2", [0.7, 0.6, 0.6], seed=2, method="ditto")
    (d,) = compared(tmp_path, against="fedavg")
    assert (d.label, d.against, d.seeds, d.alone) == ("ditto", "fedavg", (1, 2), ())
    assert d.mean == pytest.approx((0.2 + 0 - 0.3) / 3)
    assert (d.better, d.equal, d.worse, d.clients, d.pairs, d.undefined) == (1, 1, 1, 3, 6, 0)
    assert (d.low, d.high) == pytest.approx(compare.interval([0.2, 0.0, -0.3]))
    (turned,) = compared(tmp_path, against="ditto")
    assert (turned.label, turned.mean) == ("fedavg", pytest.approx(-d.mean))
    assert (turned.better, turned.worse) == (d.worse, d.better)


def test_pairing_is_what_makes_the_interval_small(tmp_path):
    """Clients that differ much, a gain that is the same for all."""
    base = np.linspace(0.1, 0.8, 30)
    write_run(tmp_path / "a", base.tolist())
    write_run(tmp_path / "b", (base + 0.05).tolist(), method="ditto")
    (d,) = compared(tmp_path, against="fedavg")
    assert (d.low, d.high) == pytest.approx((0.05, 0.05)) and d.better == 30
    alone = compare.interval(base.tolist())
    assert alone[1] - alone[0] > 0.1


def test_lower_losses_are_better(tmp_path):
    write_run(tmp_path / "a", [0.5, 0.5, 0.5], [1.0, 2.0, 0.75])
    write_run(tmp_path / "b", [0.5, 0.5, 0.5], [0.5, 3.0, 0.5], method="ditto")
    (d,) = compared(tmp_path, against="fedavg", metric="loss")
    assert (d.mean, d.better, d.worse) == (pytest.approx(0.25 / 3), 2, 1)


def test_undefined_values_and_lonely_seeds_are_left_out_and_told(tmp_path):
    write_run(tmp_path / "a1", [0.5, None, 0.9], seed=1)
    write_run(tmp_path / "a2", [0.5, None, 0.9], seed=2)
    write_run(tmp_path / "a3", [0.5, 0.5, 0.9], seed=3)
    write_run(tmp_path / "b1", [0.6, 0.7, None], seed=1, method="ditto")
    write_run(tmp_path / "b2", [0.8, 0.7, 0.8], seed=2, method="ditto")
    (d,) = compared(tmp_path, against="fedavg")
    assert (d.clients, d.pairs, d.undefined, d.alone) == (2, 3, 3, (3,))
    assert d.mean == pytest.approx((0.2 - 0.1) / 2)
    notes = compare.tabulate([d], None, "deployed").notes
    assert "ditto: seeds 3 have no partner and are left out" in notes
    assert "ditto: 3 pairs are left out, since top1 is undefined or not finite" in notes


def test_a_reference_is_a_label_a_method_or_a_run(tmp_path):
    write_run(tmp_path / "a", [0.5, 0.6])
    write_run(tmp_path / "p", [0.6, 0.6], method="fedprox", **{"method.mu": 0.1})
    write_run(tmp_path / "q", [0.7, 0.6], method="fedprox", **{"method.mu": 1})
    for against in ("fedavg", "FedAvg", str(tmp_path / "a")):
        assert [d.label for d in compared(tmp_path, against=against)] == ["fedprox, mu=0.1", "fedprox, mu=1"]
    assert [d.label for d in compared(tmp_path, against="fedprox, mu=1")] == ["fedavg", "fedprox, mu=0.1"]
    elsewhere = compared(tmp_path / "p", against=str(tmp_path / "q"))  # the reference need not be among the runs
    assert [(d.label, d.against) for d in elsewhere] == [("fedprox, mu=0.1", "fedprox, mu=1")]


# -- federations ---------------------------------------------------------------------------------------------------


def test_each_run_is_compared_on_its_own_federation(tmp_path):
    """As in the folder of a study: settings x methods, and a record beside them."""
    (tmp_path / "study.json").write_text("{}")
    for clients, gain in ((2, 0.1), (3, 0.2)):
        write_run(tmp_path / f"a{clients}", [0.5] * clients)
        write_run(tmp_path / f"b{clients}", [0.5 + gain] * clients, method="ditto")
    made = compared(tmp_path, against="fedavg")
    assert [(d.group.config["clients"], d.clients, round(d.mean, 9)) for d in made] == [(2, 2, 0.1), (3, 3, 0.2)]
    drawn = compare.tabulate(made, None, "deployed")
    assert [head.name for head in drawn.heads][:3] == ["clients", "method", "top1 difference (points)"]
    assert [[str(cell) for cell in row[:3]] for row in drawn.rows] == [
        ["2", "ditto", "+10.00"],
        ["3", "ditto", "+20.00"],
    ]


KEYS = [{"data": "mnist"}, {"clients": 9}, {"split": "iid"}, {"split.alpha": 0.1}, {"noise": "pair"},
        {"noise.rate": 0.2}, {"test": 0.3}, {"validation": 0.1}, {"newcomers": 2}]  # fmt: skip


@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: next(iter(keys)))
def test_other_federations_are_refused(tmp_path, keys):
    ours, theirs = write_run(tmp_path / "a", [0.5, 0.5]), write_run(tmp_path / "b", [0.5, 0.6], method="ditto", **keys)
    with pytest.raises(FedchordError) as error:
        compared(theirs, against=str(ours))
    (key,) = keys
    assert str(error.value).startswith(
        f"compare: {theirs} is on another federation than {ours} ({key} {keys[key]}, not"
    )
    with pytest.raises(FedchordError) as error:
        compared(tmp_path, against="fedavg")
    assert str(error.value) == f"compare: there is no run of 'fedavg' on the federation of {theirs}"


def test_clients_that_differ_though_the_settings_agree_are_refused(tmp_path):
    a, b = write_run(tmp_path / "a", [0.5, 0.6]), write_run(tmp_path / "b", [0.5, 0.6], method="ditto")
    summary = json.loads((b / "summary.json").read_text())
    summary["per_client"]["size"] = [4, 5]
    (b / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(
        FedchordError, match=f"compare: {b} and {a} have different clients, though their settings agree"
    ):
        compared(tmp_path, against="fedavg")


def test_mistakes_are_told_in_one_line(tmp_path):
    a = write_run(tmp_path / "a", [0.5, 0.6])
    with pytest.raises(FedchordError, match="compare: there is nothing to compare with fedavg; name more runs"):
        compared(a, against="fedavg")
    b = write_run(tmp_path / "b", [0.5, 0.6], method="ditto", seed=2)
    with pytest.raises(FedchordError, match=f"compare: {b} and {a} have no seed in common"):
        compared(tmp_path, against="fedavg")
    with pytest.raises(FedchordError, match="unknown reference 'dito'; did you mean 'ditto'"):
        compared(tmp_path, against="dito")
    with pytest.raises(FedchordError, match="compare: column must be one of deployed, swept, validated, got 'mean'"):
        compared(tmp_path, against="ditto", column="mean")
    write_run(tmp_path / "c", [0.5, 0.6], method="ditto", seed=1)
    with pytest.raises(FedchordError, match=r"unknown metric per client of .* 'auroc'"):
        compared(tmp_path, against="fedavg", metric="auroc")
    write_run(tmp_path / "d", [0.5, 0.6], method="ditto", lr=0.5)
    write_run(tmp_path / "e", [0.5, 0.6], method="ditto", lr=0.6)
    with pytest.raises(
        FedchordError, match=r"'ditto' on the federation of .* is ambiguous: name one of ditto, lr=0.5; "
    ):
        compared(tmp_path / "d", tmp_path / "e", a, against="ditto")


# -- runs ----------------------------------------------------------------------------------------------------------

SETTINGS = ["clients=6", "model=twonn", "cohort=3", "executor=serial", "lr=0.2"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of the library: two methods with a lambda sweep and one without, two seeds."""
    home = tmp_path_factory.mktemp("runs")
    for method in ("fedavg", "ditto", "superfed-mm"):
        for seed in (1, 2):
            pairs = [*SETTINGS, "rounds=4", f"method={method}", f"seed={seed}", "validation=0.2"]
            runs.execute(RunConfig.from_pairs([*pairs, f"out={home / method}-{seed}"]))
    return home


@pytest.mark.parametrize("column", compare.COLUMNS)
def test_the_mean_of_the_differences_is_the_difference_of_the_means(real, column):
    """For every column, as the summary has its mean."""
    key = {"deployed": "mean"}.get(column, column)

    def mean(method: str) -> float:
        found = [json.loads((real / f"{method}-{seed}" / "summary.json").read_text()) for seed in (1, 2)]
        return sum(summary["metrics"]["top1"][key] for summary in found) / 2

    made = compared(real, against="fedavg", column=column)
    assert [d.label for d in made] == ["ditto", "superfed-mm"]
    for d in made:
        assert d.mean == pytest.approx(mean(d.label) - mean("fedavg"), abs=1e-9)
        assert (d.clients, d.pairs) == (6, 12) and d.low <= d.mean <= d.high


def test_the_command_prints_and_writes_csv(real):
    done = invoke("compare", str(real), "--against", "fedavg", "--column", "validated", "--format", "csv")
    assert done.exit_code == 0, done.exception
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    made = compared(real, against="fedavg", column="validated")
    assert [row["method"] for row in rows] == ["ditto", "superfed-mm"]
    for row, d in zip(rows, made, strict=True):
        assert float(row["top1 difference"]) == pytest.approx(d.mean) and int(row["pairs"]) == 12
        assert (float(row["low"]), float(row["high"])) == pytest.approx((d.low, d.high))
    done = invoke("compare", str(real), "--against", "fedavg", "--format", "markdown")
    assert done.exit_code == 0 and "| method | top1 difference (points) | low | high | better |" in done.stdout
    assert "95% percentile bootstrap over clients" in done.stdout


def test_a_sweep_has_one_metric(real):
    with pytest.raises(FedchordError, match="lambda was swept for top1 only, got loss"):
        compared(real, against="fedavg", metric="loss", column="swept")


def too_few(tmp_path: Path, validation: float, rows: tuple[int, ...]) -> dict[str, Any]:
    """Two runs on a file with clients of these sizes; the summary of the one with a lambda sweep."""
    lines = [f"{i % 5},{i % 3},{(i + client) % 3},{client}" for client, size in enumerate(rows) for i in range(size)]
    (tmp_path / "own.csv").write_text("a,b,label,client\n" + "\n".join(lines) + "\n")
    for method in ("fedavg", "ditto"):
        pairs = [f"data={tmp_path / 'own.csv'}", f"method={method}", "rounds=2", "cohort=all", "executor=serial"]
        summary = runs.execute(RunConfig.from_pairs([*pairs, f"validation={validation}", f"out={tmp_path / method}"]))
    return summary


@pytest.mark.parametrize(
    ("validation", "rows", "reason"),
    [
        (0.0, (9, 8, 7), "its clients have no validation rows; run it with validation=0.1"),
        (0.1, (9, 2, 7), "1 of 3 clients have no validation row, so no lambda is chosen; each needs 3 rows or more"),
        (0.1, (2, 2, 2), "3 of 3 clients have no validation row, so no lambda is chosen; each needs 3 rows or more"),
    ],
)
def test_too_few_validation_rows_are_told_where_they_are_asked_for(tmp_path, validation, rows, reason):
    summary = too_few(tmp_path, validation, rows)
    lines = [line for line in words.sentences(summary["protocol"], "ditto") if line.startswith("validated: ")]
    assert lines == ([f"validated: {reason}"] if validation else [])
    assert summary["metrics"]["top1"]["validated"] is None
    with pytest.raises(FedchordError) as error:
        compared(tmp_path, against="fedavg", column="validated")
    assert str(error.value) == f"{tmp_path / 'ditto'}: has no validated values: {reason}"
    found, _ = reading.read_all([tmp_path / "ditto", tmp_path / "fedavg"])
    assert f"ditto: no validated values: {reason}" in tables.tabulate(found, columns=["validated"]).notes
    assert not [note for note in tables.tabulate(found).notes if "validated" in note]


def test_a_study_says_why_its_validated_column_is_empty(tmp_path):
    rows = [{"label": name, "method": name} for name in ("fedavg", "ditto")]
    keys = {"data": "digits", "model": "logreg", "clients": 3, "cohort": "all", "rounds": 1, "executor": "serial"}
    made = study.plan(study.parse("t", {"columns": ["mean", "validated"], "settings": keys, "method": rows}))
    study.run(made, tmp_path, say=lambda line: None)
    reason = "its clients have no validation rows; run it with validation=0.1"
    notes = [note for note in study_table.tabulate(made, tmp_path).notes if "validated values" in note]
    assert notes == [f"ditto: no validated values: {reason}"]


def test_enough_validation_rows_are_no_matter(tmp_path):
    summary = too_few(tmp_path, 0.1, (9, 3, 7))
    assert not [note for note in summary["protocol"]["notes"] if note["kind"] == "unvalidated"]
    assert compared(tmp_path, against="fedavg", column="validated")[0].clients == 3


# -- visits --------------------------------------------------------------------------------------------------------


def visited(folder: Path, top1: list[float], cohorts: list[list[int]], **keys: Any) -> Path:
    """A finished run whose clients were in these cohorts."""
    write_run(folder, top1, **keys)
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {"protocol": {"clients": len(top1)}, "rounds": len(cohorts)}
    (folder / "summary.json").write_text(json.dumps(summary))
    counted = {"seconds": 0.1, "bytes_up": 1, "bytes_down": 1}
    lines = [json.dumps({"round": r, "cohort": cohort, **counted}) for r, cohort in enumerate(cohorts, 1)]
    (folder / "rounds.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


COHORTS = [[0, 1], [0, 2], [0, 1], [0, 1]]  # visits: 4, 3, 1, 0


@pytest.mark.parametrize(
    ("often", "difference", "clients"), [("0-1", -0.15, 2), ("3", 0.2, 1), ("2-9", 0.25, 2), ("0-9", 0.05, 4)]
)
def test_only_clients_that_were_sampled_so_often_count(tmp_path, often, difference, clients):
    one = visited(tmp_path / "one", [0.5, 0.5, 0.5, 0.5], COHORTS)
    other = visited(tmp_path / "other", [0.8, 0.7, 0.4, 0.3], COHORTS, method="fedavg-ft")
    said = invoke("compare", str(one), str(other), "--against", "fedavg", "--visits", often, "--format", "csv")
    assert said.exit_code == 0, said.output
    row = next(csv.DictReader(io.StringIO(said.stdout)))
    assert float(row["top1 difference"]) == pytest.approx(difference) and int(row["clients"]) == clients


@pytest.mark.parametrize(
    ("often", "told"),
    [
        ("many", "such as 0-2, got 'many'"),
        ("3-1", "must not be above"),
        ("7", "no client that was sampled 7 to 7 times"),
    ],
)
def test_wrong_visits_are_one_line(tmp_path, often, told):
    run = reading.read(visited(tmp_path / "one", [0.5, 0.5, 0.5, 0.5], COHORTS))
    with pytest.raises(FedchordError, match=told):
        visits.restricted(run, *visits.wanted(often))


def test_rounds_that_are_not_there_are_not_counted_as_none(tmp_path):
    folder = visited(tmp_path / "one", [0.5, 0.5, 0.5, 0.5], COHORTS)
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[1:]))
    with pytest.raises(FedchordError, match=r"rounds of .* are not all there; fedchord resume"):
        visits.of(reading.read(folder))


@pytest.mark.parametrize("bootstrap", ["clients", "both"])
def test_a_higher_level_makes_a_wider_interval(tmp_path, bootstrap):
    draw = np.random.default_rng(4)
    for seed in range(1, 7):
        for method, better in (("fedavg", 0.0), ("ditto", 0.1)):
            write_run(tmp_path / f"{method}{seed}", (draw.random(30) + better).tolist(), method=method, seed=seed)
    widths = []
    for level in ("0.5", "0.95", "0.99"):
        options = ["--against", "fedavg", "--bootstrap", bootstrap, "--format", "csv", "--level", level]
        row = next(csv.DictReader(io.StringIO(invoke("compare", str(tmp_path), *options).stdout)))
        widths.append(float(row["high"]) - float(row["low"]))
    normal = scipy.stats.norm.ppf([0.75, 0.975, 0.995])
    assert np.array(widths) / widths[1] == pytest.approx(normal / normal[1], rel=0.15)
    with pytest.raises(FedchordError, match="level must lie between 0 and 1, got 95"):
        raise invoke("compare", str(tmp_path), "--against", "fedavg", "--level", "95").exception
