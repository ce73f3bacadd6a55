"""Sweeps: which runs a grid has, which setting is chosen on which rows, and what is told of it."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import signal
import statistics
import tomllib
from pathlib import Path
from typing import Any

import pytest
from helpers.invoked import invoke
from matplotlib.figure import Figure

from fedchord import FedchordError
from fedchord.cli.sweep import Unseen
from fedchord.experiments import run as runs
from fedchord.experiments import sweep_grid
from fedchord.experiments.config import RunConfig
from fedchord.experiments.progress import Silent
from fedchord.experiments.settings import split_values
from fedchord.report import sweep_plot, sweep_table

TINY = ["model=logreg", "clients=6", "cohort=3", "rounds=2", "executor=serial"]


def labels(*pairs: str) -> list[str]:
    return [point.label for point in sweep_grid.parse(pairs).points]


def refused(*pairs: str) -> str:
    with pytest.raises(FedchordError) as error:
        sweep_grid.parse(pairs)
    assert "\n" not in str(error.value)
    return str(error.value)


# -- the grid ------------------------------------------------------------------------------------------------------


def test_values_with_commas_cross_and_seeds_repeat():
    grid = sweep_grid.parse(["lr=0.1,0.03", "method=fedavg,scaffold", "seed=1,2,3", "rounds=7"])
    jobs = [(job.config.method, job.config.lr, job.seed, job.config.rounds) for job in grid.plan.jobs]
    methods, rates = ("fedavg", "scaffold"), (0.1, 0.03)
    assert jobs == [(method, lr, seed, 7) for method in methods for lr in rates for seed in (1, 2, 3)]
    assert grid.axes == ("lr", "method") and grid.seeds == (1, 2, 3) and grid.left_out == ()
    assert len({job.folder for job in grid.plan.jobs}) == 12
    assert grid.plan.jobs[0].folder.startswith("fedavg-lr-0.1_seed1_")
    assert {job.config.validation for job in grid.plan.jobs} == {0.1}
    assert sweep_grid.parse(["lr=1,2", "validation=0.2"]).plan.jobs[0].config.validation == 0.2
    assert [job.seed for job in sweep_grid.parse(["lr=1,2", "seed=3-5"]).plan.jobs] == [3, 4, 5] * 2


def test_a_parameter_is_left_out_for_methods_without_it():
    """Points are fewer, not the same twice; and it is said."""
    pairs = ["method=fedavg,fedprox,ditto", "method.mu=0.1,1", "method.lam=2", "lr=0.1,0.03"]
    grid = sweep_grid.parse(pairs)
    assert [point.label for point in grid.points] == [
        *(f"fedavg lr={lr}" for lr in (0.1, 0.03)),
        *(f"fedprox method.mu={mu} lr={lr}" for mu in (0.1, 1) for lr in (0.1, 0.03)),
        *(f"ditto lr={lr}" for lr in (0.1, 0.03)),
    ]
    assert [dict(job.config.parameters) for job in grid.plan.jobs[::2]] == [
        {},
        {"method.mu": 0.1},
        {"method.mu": 1},
        {"method.lam": 2},
    ]
    assert grid.left_out == (
        "method.mu left out for fedavg, ditto: no such parameter, so fewer settings",
        "method.lam left out for fedavg, fedprox: no such parameter",
    )


def test_so_is_one_of_another_mixing_or_server():
    grid = sweep_grid.parse(["mixing=uniform,q-fedavg", "mixing.q=1,5", "server=fedadam,step", "server.tau=0.1"])
    assert len(grid.points) == 2 * (1 + 2)
    assert grid.left_out[0] == (
        "mixing.q left out for mixing=uniform server=fedadam, mixing=uniform server=step: "
        "no such parameter, so fewer settings"
    )
    assert grid.left_out[1].startswith("server.tau left out for mixing=uniform server=step, ")


def test_commas_that_are_a_keys_own():
    grid = sweep_grid.parse(["metrics=f1,kappa", "sweep.lambdas=0,0.5,1", "lr=1,2", "method=ditto"])
    assert grid.axes == ("lr",) and len(grid.points) == 2
    config = grid.plan.jobs[0].config
    assert (config.metrics, config.sweep_lambdas) == (("f1", "kappa"), (0.0, 0.5, 1.0))
    quoted = ["method=fedper", 'method.head="first,head",head', "model=twonn"]
    assert [dict(job.config.parameters)["method.head"] for job in sweep_grid.parse(quoted).plan.jobs] == [
        "first,head",
        "head",
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [("1", ["1"]), ("1, 2,3", ["1", "2", "3"]), ("a,,b", ["a", "", "b"]), (",", ["", ""]), ("'a,b',c", ["'a,b'", "c"]),
     ('"it\'s, so",b', ['"it\'s, so"', "b"]), ("it's,b", ["it's,b"])],
)  # fmt: skip
def test_splitting_at_commas(text, parts):
    assert split_values(text) == parts


def test_the_folder_is_that_of_the_grid():
    """The same whatever the order, the spelling, the seeds and the executor; another for other runs."""
    one = sweep_grid.parse(["lr=0.1,0.03", "method=fedavg,scaffold"]).folder
    for same in (["method=scaffold,fedavg", "lr=.03,1e-1"], ["lr=0.1,0.03", "method=fedavg,scaffold", "seed=1,2",
                 "executor=serial", "validation=0.1"]):  # fmt: skip
        assert sweep_grid.parse(same).folder == one
    assert one.parent == Path("runs") and one.name.startswith("sweep-") and len(one.name) == 14
    assert sweep_grid.parse(["lr=0.1,0.02", "method=fedavg,scaffold"]).folder != one


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        (["lr="], "sweep: lr has no value; write lr=VALUE"),
        (["lr=1,"], "sweep: lr has an empty value in '1,'"),
        (["lr=1", "lr=2"], "sweep: lr is given twice"),
        (["lr=1,1"], "sweep: lr has the value 1 twice"),
        (["epochs=1,1.0"], "sweep: fedavg epochs=1 and fedavg epochs=1.0 are the same run; give each value once"),
        (["lr=1"], "sweep: there is nothing to choose between; give a key several values, such as lr=0.1,0.03"),
        (["seed=1,2"], "sweep: seeds are repeats, not choices; give another key several values, such as lr=0.1,0.03"),
        (["lr=1,2", "seed=1,1"], "sweep: seeds must be different whole numbers, got [1, 1]"),
        (["lr=1,2", "executor=serial,auto"], "sweep: executor does not change the result; give it one value"),
        (["lr=1,0"], "sweep, fedavg lr=0: Training: lr must be above 0, got 0.0"),
        (["method=fedavg,scaffold", "method.nu=1,2"], "unknown parameter of fedavg 'method.nu'"),
        (["lr=1,2", "validation=0"], "sweep: validation=0 leaves only test rows to choose on, which is what a sweep"),
        (["lr=1,2", "validation=0.1,0.0"], "sweep: validation=0 leaves only test rows to choose on"),
        (["seed=1-400", "lr=1,2,3"], "sweep: 1,200 runs; if you mean it, add --yes (--dry-run lists them)"),
    ],
)
def test_mistakes_in_one_line(pairs, told):
    assert refused(*pairs).startswith(told)


def test_many_runs_are_counted_before_they_are_made():
    """As points are, without those that are left out; and never more than anybody can mean."""
    some = ["method=fedavg,fedprox", "method.mu=" + ",".join(map(str, range(1, 500))), "seed=1,2"]
    assert len(sweep_grid.parse(some).plan.jobs) == 2 * (499 + 1)
    more = [*some[:2], "seed=1,2,3"]
    assert refused(*more).startswith("sweep: 1,500 runs")
    assert len(sweep_grid.parse(more, many=True).plan.jobs) == 1500
    huge = [f"{key}=" + ",".join(map(str, range(1, 200))) for key in ("rounds", "epochs", "batch", "lr_step")]
    with pytest.raises(FedchordError, match=r"^sweep: 1,568,239,201 runs are more than the 100,000 that it takes$"):
        sweep_grid.parse(huge, many=True)


# -- the choice, by runs that are made up --------------------------------------------------------------------------


class FakeRuns:
    """In the place of `runs.execute`: writes a run folder with the numbers it was given for a setting and seed."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def __call__(self, config: Any, resume: bool = False, report: Any = None, progress: Any = None) -> dict[str, Any]:
        folder, found = Path(config.out), self.numbers(config)
        if found is None:
            raise FedchordError("data: out of luck")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(config.to_toml())
        held = {name: {"mean": value, "std": 0.25, "pooled": 0.0} for name, value in found.items() if name != "test"}
        tested = {name: {"mean": found["test"], "std": 0.5, "worst10": found["test"] / 2} for name in held}
        deploys = {"words": "the global model", "kind": "global"}
        told = {"deploys": deploys, "split": "test", "round": 2, "clients": config.clients, "notes": []}
        summary = {"layout": 2, "metrics": tested, "protocol": told, "seconds": {"total": 0.5}}
        summary |= {"validation": {"clients": 20, "evaluated": 20, "without_rows": 0, "metrics": held}}
        (folder / "summary.json").write_text(json.dumps(summary))
        return summary


def chosen(tmp_path: Path, monkeypatch: Any, pairs: list[str], numbers: Any, metric: str = "top1") -> list[str]:
    """The labels of the chosen settings."""
    monkeypatch.setattr(runs, "execute", FakeRuns(numbers))
    grid = sweep_grid.parse(pairs)
    sweep_grid.study.run(grid.plan, tmp_path, say=lambda line: None)
    return [row.point.label for row in sweep_table.rows(grid, tmp_path, metric) if row.chosen]


def test_test_numbers_have_no_say(tmp_path, monkeypatch):
    """The better a setting is on validation rows, the worse it is on test rows: the choice does not mind."""

    def numbers(config):
        good = {0.1: 0.5, 0.2: 0.9, 0.3: 0.7}[config.lr] + config.seed / 100
        return {"top1": good, "loss": 1.0, "test": 1 - good}

    pairs = ["lr=0.1,0.2,0.3", "method=fedavg,scaffold", "seed=1,2"]
    assert chosen(tmp_path, monkeypatch, pairs, numbers) == ["fedavg lr=0.2", "scaffold lr=0.2"]


def test_lower_is_better_for_a_loss(tmp_path, monkeypatch):
    def numbers(config):
        return {"top1": config.lr, "loss": config.lr, "test": 0.5}

    assert chosen(tmp_path, monkeypatch, ["lr=0.3,0.1,0.2"], numbers, "loss") == ["fedavg lr=0.1"]


def test_seeds_are_repeats(tmp_path, monkeypatch):
    """The mean counts, not the best seed."""

    def numbers(config):
        return {"top1": {0.1: (0.9, 0.1), 0.2: (0.6, 0.5)}[config.lr][config.seed], "loss": 1.0, "test": 0.5}

    assert chosen(tmp_path, monkeypatch, ["lr=0.1,0.2", "seed=0,1"], numbers) == ["fedavg lr=0.2"]


def test_ties_go_to_the_lower_loss_and_then_to_the_first(tmp_path, monkeypatch):
    def numbers(config):
        third = 1 / 3 + 1e-15 * config.lr  # rounding is no difference
        return {"top1": third, "loss": {1.0: 0.5, 2.0: 0.4, 3.0: 0.4}[config.lr], "test": 0.5}

    assert chosen(tmp_path, monkeypatch, ["lr=1,2,3"], numbers) == ["fedavg lr=2"]


def test_what_is_undefined_or_not_finished_is_not_chosen(tmp_path, monkeypatch):
    def numbers(config):
        if config.lr == 3:
            return {"top1": None, "loss": None, "test": 0.5}
        return None if (config.lr, config.seed) == (2, 1) else {"top1": config.lr / 10, "loss": 1.0, "test": 0.5}

    assert chosen(tmp_path, monkeypatch, ["lr=1,2,3", "seed=0,1"], numbers) == ["fedavg lr=1"]
    grid = sweep_grid.parse(["lr=1,2,3", "seed=0,1"])
    table = sweep_table.tabulate(grid, sweep_table.rows(grid, tmp_path, "top1"), "top1")
    shown = [[str(cell) for cell in row] for row in table.rows]
    assert shown[1] == ["fedavg", "2", "1*", "20.00 (25.00)", "-", "-", "-"]
    assert shown[2] == ["fedavg", "3", "2", "nan", "-", "-", "-"]
    assert "* fewer than the 2 seeds asked for: not chosen from" in table.notes
    assert chosen(tmp_path / "b", monkeypatch, ["lr=3,4"], lambda config: None) == []


def test_a_choice_is_made_within_a_problem(tmp_path, monkeypatch):
    """An easier split is no better setting."""

    def numbers(config):
        return {"top1": (0.5 if config.split == "iid" else 0.1) + config.lr, "loss": 1.0, "test": 0.5}

    pairs = ["split=iid,pathological", "lr=0.1,0.2"]
    found = chosen(tmp_path, monkeypatch, pairs, numbers)
    assert found == ["fedavg split=iid lr=0.2", "fedavg split=pathological lr=0.2"]
    grid = sweep_grid.parse(pairs)
    best = sweep_table.winners(sweep_table.rows(grid, tmp_path, "top1"), "top1")
    assert [row.problem for row in best] == [("split=iid",), ("split=pathological",)]


# -- real runs -----------------------------------------------------------------------------------------------------

PAIRS = ["lr=0.3,0.05,0.001", "method=fedavg,fedprox", "method.mu=0.1", "seed=1,2", *TINY, "rounds=3"]
PAIRS.remove("rounds=2")


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[Path, Any]:
    """A sweep by the command."""
    folder = tmp_path_factory.mktemp("sweep") / "a"
    return folder, invoke("sweep", *PAIRS, "--out", str(folder))


def by_hand(folder: Path) -> dict[tuple[str, float], tuple[list[float], list[float], list[float]]]:
    """Of every method and rate, seed by seed, from the files alone: validation mean, test mean, worst tenth."""
    found: dict[tuple[str, float], tuple[list[float], list[float], list[float]]] = {}
    for place in sorted(folder.glob("*/summary.json")):
        config = tomllib.loads((place.parent / "config.toml").read_text())
        summary = json.loads(place.read_text())
        held, tested, worst = found.setdefault((config["method"], config["lr"]), ([], [], []))
        held.append(summary["validation"]["metrics"]["top1"]["mean"])
        tested.append(summary["metrics"]["top1"]["mean"])
        worst.append(summary["metrics"]["top1"]["worst10"])
    return found


def test_the_table_is_what_the_summaries_say(swept):
    folder, done = swept
    assert done.exit_code == 0, done.output
    found = by_hand(folder)
    assert len(found) == 6 and all(len(values) == 2 for triple in found.values() for values in triple)
    means = {key: statistics.fmean(held) for key, (held, _, _) in found.items()}
    best = {method: max((m, lr) for (name, lr), m in means.items() if name == method)[1] for method, _ in means}
    with (folder / "sweep.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [(row["method"], float(row["lr"])) for row in table] == [
        (method, lr) for method in ("fedavg", "fedprox") for lr in (0.3, 0.05, 0.001)
    ]
    for row in table:
        key = row["method"], float(row["lr"])
        held, tested, worst = ([100 * value for value in values] for values in found[key])
        assert row["seeds"] == "2" and float(row["validation top1 mean %"]) == pytest.approx(statistics.fmean(held))
        assert float(row["validation top1 mean % std"]) == pytest.approx(statistics.stdev(held))
        assert row["chosen"] == ("yes" if best[key[0]] == key[1] else "-")
        for name, values in (("mean", tested), ("worst10", worst)):
            shown = row[f"test top1 {name} %"], row[f"test top1 {name} % std"]
            if row["chosen"] == "yes":
                assert [float(cell) for cell in shown] == pytest.approx(
                    [statistics.fmean(values), statistics.stdev(values)]
                )
            else:
                assert shown == ("", "")
    assert len({round(mean, 9) for mean in means.values()}) > 3  # there was something to choose


def test_what_is_printed(swept):
    folder, done = swept
    found = by_hand(folder)
    lines = done.stdout.splitlines()
    assert lines[0] == f"sweep in {folder}: 12 of 12 runs finished (0 were there already)"
    assert "test numbers are those of the chosen settings; the others' were not looked at for the choice" in lines
    means = {key: statistics.fmean(held) for key, (held, _, _) in found.items()}
    for method in ("fedavg", "fedprox"):
        _, lr = max((m, rate) for (name, rate), m in means.items() if name == method)
        held, tested, worst = ([100 * value for value in values] for values in found[method, lr])
        told = [f"{statistics.fmean(v):.2f} ({statistics.stdev(v):.2f})" for v in (held, tested, worst)]
        numbers = f"validation {told[0]}, test {told[1]}, worst tenth {told[2]}"
        assert f"best of {method}: {method} lr={lr:g} (top1 mean %: {numbers})" in lines
    assert lines[-1] == f"wrote {folder / 'sweep.csv'} and {folder / 'sweep.png'}"
    assert (folder / "sweep.png").stat().st_size > 5000
    err = done.stderr.splitlines()
    assert err[0] == "method.mu left out for fedavg: no such parameter"
    assert err[1] == "[1/12] fedavg lr=0.3, seed 1" and err[2].startswith(f"{err[1]}: validation top1 mean % ")


def test_the_winner_runs_again_to_the_same_numbers(swept, tmp_path):
    folder, done = swept
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("  fedchord run ")]
    words = shlex.split(line)
    means = {key: statistics.fmean(held) for key, (held, _, _) in by_hand(folder).items()}
    settings = dict(word.split("=", 1) for word in words[2:])
    assert means[settings["method"], float(settings["lr"])] == max(means.values())
    again = runs.execute(RunConfig.from_pairs([*words[2:], f"out={tmp_path / 'again'}"]))
    (first,) = [p for p in folder.iterdir() if p.is_dir() and p.name.startswith(f"{settings['method']}-lr-")
                and f"lr-{float(settings['lr']):g}_seed1_" in p.name]  # fmt: skip
    assert f"is kept, with its first seed, in {first};" in done.stdout
    before = json.loads((first / "summary.json").read_text())
    assert [again[part] for part in ("metrics", "validation", "per_client")] == [
        before[part] for part in ("metrics", "validation", "per_client")
    ]


def test_given_again_everything_is_there(swept):
    folder, first = swept
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    done = invoke("sweep", *PAIRS, "--out", str(folder))
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == f"sweep in {folder}: 12 of 12 runs finished (12 were there already)"
    assert done.stdout.splitlines()[1:] == first.stdout.splitlines()[1:]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")} == before
    more = invoke("sweep", *PAIRS, "--out", str(folder), "--dry-run")
    assert more.stdout.splitlines()[0] == "fedavg lr=0.3, seed 1 (finished)"
    assert more.stdout.splitlines()[-1] == f"12 runs (6 settings x 2 seeds) into {folder}, 12 of them finished"


def test_the_metric_to_choose_by(swept, tmp_path):
    folder = Path(shutil.copytree(swept[0], tmp_path / "copy"))
    done = invoke("sweep", *PAIRS, "--out", str(folder), "--metric", "loss")
    assert "validation loss mean" in (folder / "sweep.csv").read_text().splitlines()[0] and done.exit_code == 0
    for place in (folder, tmp_path / "none"):
        with pytest.raises(FedchordError, match=r"^sweep: kappa is not measured in these runs \(top1, top5, loss, "):
            sweep_grid.metric_of(sweep_grid.parse(PAIRS), place, "kappa")
    asked = sweep_grid.parse([*PAIRS, "metrics=kappa"])
    assert sweep_grid.metric_of(asked, tmp_path / "none", "kappa") == "kappa"
    assert sweep_grid.metric_of(asked, tmp_path / "none") == "top1"
    evg = sweep_grid.parse(["method=fedevg", "lr=0.1,1", "clients=6", "cohort=all"])
    assert sweep_grid.metric_of(evg, tmp_path / "none") == "top1"


def test_methods_that_end_with_samples_are_swept_too(tmp_path):
    pairs = ["method=fedevg,fedcvae", "lr=0.1,0.01", "judge.steps=5", "clients=6", "cohort=2", "rounds=1"]
    done = invoke("sweep", *pairs, "executor=serial", "--out", str(tmp_path))
    assert done.exit_code == 0 and done.stdout.count("best of ") == 2, done.output


# -- stopped, failing ----------------------------------------------------------------------------------------------


class StopAfter(Silent):
    """Presses Ctrl-C after the first round of the third run."""

    def __init__(self) -> None:
        self.runs = 0

    def begin(self, label: str, rounds: int, done: int = 0, unit: str = "round") -> None:
        self.runs += 1

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        if (self.runs, round) == (3, 1):
            signal.raise_signal(signal.SIGINT)


def test_stopped_by_ctrl_c_and_given_again(swept, tmp_path, monkeypatch):
    """The line says how to go on; what was interrupted goes on to the same bits."""
    folder, _ = swept
    monkeypatch.setattr("fedchord.experiments.progress.Silent", StopAfter)
    done = invoke("sweep", *PAIRS, "--out", str(tmp_path))
    monkeypatch.undo()
    assert done.exit_code == 130
    assert done.stdout == f"sweep in {tmp_path}: 2 of 12 runs finished (0 were there already)\n"
    assert done.stderr.splitlines()[-1] == f"interrupted; go on with: fedchord sweep {' '.join(PAIRS)} --out {tmp_path}"
    assert not (tmp_path / "sweep.csv").exists()
    again = invoke("sweep", *PAIRS, "--out", str(tmp_path))
    assert again.exit_code == 0 and "(2 were there already)" in again.stdout
    assert "[3/12] fedavg lr=0.05, seed 1 (going on)" in again.stderr
    assert by_hand(tmp_path) == by_hand(folder)


def test_failures_are_told_and_the_others_kept(tmp_path, monkeypatch):
    real = runs.execute

    def sometimes(config, *rest):
        if config.lr == 0.3:
            raise RuntimeError("out of luck")
        return real(config, *rest)

    monkeypatch.setattr(runs, "execute", sometimes)
    done = invoke("sweep", *PAIRS, "--out", str(tmp_path))
    assert done.exit_code == 1
    assert "8 of 12 runs finished" in done.stdout and "best of fedavg: fedavg lr=0.05" in done.stdout
    failed = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
    assert len(failed) == 4 and failed[0].startswith("failed: fedavg lr=0.3, seed 1: RuntimeError: out of luck")
    assert done.stderr.splitlines()[-1].startswith("go on with: fedchord sweep ")
    monkeypatch.setattr(runs, "execute", lambda *rest: (_ for _ in ()).throw(FedchordError("data: gone")))
    none = invoke("sweep", *PAIRS, "--out", str(tmp_path / "none"))
    assert none.exit_code == 1 and "best of" not in none.stdout
    assert "failed: fedavg lr=0.3, seed 1 and 11 more: data: gone" in none.stderr


def test_a_dry_run_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("sweep", *PAIRS, "--dry-run")
    assert done.exit_code == 0 and not list(tmp_path.iterdir())
    lines = done.stdout.splitlines()
    assert len(lines) == 13 and lines[-1].startswith("12 runs (6 settings x 2 seeds) into runs/sweep-")


def test_test_numbers_of_rounds_are_not_shown():
    """Those on the way, in a terminal."""
    told: list[Any] = []

    class Bar(Silent):
        def update(self, round: int, metric: str = "", value: float | None = None) -> None:
            told.append((round, metric, value))

    Unseen(Bar()).update(3, "top1", 0.9)
    assert told == [(3, "", None)]


# -- the figure ----------------------------------------------------------------------------------------------------


def drawn(tmp_path, monkeypatch, pairs) -> Figure | None:
    """The figure of a sweep whose validation accuracy is its rate."""
    numbers = FakeRuns(lambda c: {"top1": min(1.0, c.lr + c.seed / 10), "loss": 1.0, "test": 0.5})
    monkeypatch.setattr(runs, "execute", numbers)
    figures: list[Figure] = []
    monkeypatch.setattr(sweep_plot, "save", lambda figure, to: figures.append(figure))
    grid = sweep_grid.parse(pairs)
    sweep_grid.study.run(grid.plan, tmp_path, say=lambda line: None)
    made = sweep_plot.draw(grid, sweep_table.rows(grid, tmp_path, "top1"), "top1", tmp_path / "sweep.png")
    assert made == bool(figures)
    return figures[0] if figures else None


def test_one_number_is_drawn_with_a_line_for_each_method(tmp_path, monkeypatch):
    figure = drawn(tmp_path, monkeypatch, ["lr=0.3,0.1,0.01", "method=fedavg,scaffold", "seed=0,1"])
    (axes,) = figure.axes
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "lr"
    assert [line.get_label() for line in axes.lines] == ["fedavg", "scaffold"]
    assert axes.lines[0].get_xdata().tolist() == [0.01, 0.1, 0.3]
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([0.06, 0.15, 0.35])
    assert axes.get_ylabel() == "top1, mean over clients, validation rows"


def test_a_narrow_axis_is_plain_and_a_method_without_it_is_level(tmp_path, monkeypatch):
    figure = drawn(tmp_path, monkeypatch, ["method=fedavg,fedprox", "method.mu=1,20", "lr=0.5"])
    (axes,) = figure.axes
    assert axes.get_xscale() == "linear"  # a factor of 20 is not more than 20
    assert [line.get_label() for line in axes.lines] == ["fedavg (has no method.mu)", "fedprox"]
    assert axes.lines[0].get_ydata() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("pairs", [["lr=0.1,0.2", "epochs=1,2"], ["method=fedavg,scaffold"]])
def test_more_than_one_number_or_none_is_not_drawn(tmp_path, monkeypatch, pairs):
    assert drawn(tmp_path, monkeypatch, pairs) is None
