"""The demo in small: what it runs, prints and draws; that its sentences follow the numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from fedchord.check import FedchordError
from fedchord.cli import demo
from fedchord.experiments.config import RunConfig
from fedchord.experiments.progress import Silent
from fedchord.experiments.reading import Run

SMALL = {"rounds": 2, "clients": 6, "epochs": 1}


def kept(method: str, *means: float, column: str = "mean") -> list[Run]:
    """The runs of a method, one for every mean."""
    values = [{"mean": 0.5, "worst10": 0.5} | {column: mean} for mean in means]
    return [
        Run(Path(f"{method}-{seed}"), {"method": method, "seed": seed}, {"metrics": {"top1": found}})
        for seed, found in enumerate(values)
    ]


class Told(Silent):
    """Keeps what a bar would show."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.total = 0

    def begin(self, label: str, rounds: int, done: int = 0, unit: str = "round") -> None:
        self.total = rounds

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        assert metric and value is not None and 0 <= value <= 1
        self.rounds.append(round)


def test_it_runs_prints_and_draws(tmp_path, capsys):
    told = Told()
    demo.run_demo(tmp_path / "figures", told, **SMALL)
    printed = capsys.readouterr().out
    assert told.total == 24 and told.rounds == list(range(1, 25))
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        *("demo-fair.png", "demo-personal.png", "demo-synthetic.png")
    ]
    for path in (tmp_path / "figures").iterdir():
        with Image.open(path) as figure:
            assert figure.width > 1000
    for method in (*demo.PERSONAL.methods, *demo.FAIR.methods):
        assert f"\n {method} " in printed
    assert "top1 worst10" in printed and "as many real digits" in printed
    assert "\x1b" not in printed and "fedchord-demo-" not in printed


@pytest.mark.parametrize("part", demo.PARTS, ids=lambda part: part.name)
def test_all_methods_of_a_part_have_the_same_budget_and_nothing_of_their_own(part):
    configs = [part.config(method, 0, {}) for method in part.methods]
    assert len({(config.plan(), config.training(), config.clients, config.model) for config in configs}) == 1
    assert not [key for config in configs for key in config.given() if key.startswith("method.")]


def test_the_command_it_ends_with_is_its_first_run():
    again = RunConfig.from_pairs(demo.PERSONAL.command().split()[2:])
    assert again.fingerprint() == demo.PERSONAL.config("fedavg", 0, {}).fingerprint()


def test_a_file_is_no_folder_for_figures(tmp_path):
    taken = tmp_path / "notes.txt"
    taken.write_text("mine")
    told = Told()
    with pytest.raises(FedchordError, match=r"^demo: --out is a folder for the figures, .*notes\.txt is a file$"):
        demo.run_demo(taken, told)
    assert told.total == 0 and taken.read_text() == "mine"

    with pytest.raises(FedchordError, match=r"^demo: nothing can be written to --out .*inside \(Not a directory\)$"):
        demo.run_demo(taken / "inside", told)
    assert told.total == 0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that nobody can write to")
def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work():
    told = Told()
    with pytest.raises(FedchordError, match=r"^demo: nothing can be written to --out /proc/self "):
        demo.run_demo("/proc/self", told)
    assert told.total == 0


# -- sentences -----------------------------------------------------------------------------------------------------


def test_personal_says_who_is_ahead_and_whether_seeds_could_tell():
    usual = [*kept("fedavg", 0.8, 0.8), *kept("fedavg-ft", 0.96, 0.98), *kept("superfed-mm", 0.97, 0.99)]
    text = demo.personal([*usual, *kept("local", 0.999, 0.999)])
    assert "fedavg's, is right on 80.0 % of a client's own rows" in text
    assert "(fedavg-ft) make it 97.0 %" in text
    assert "SuPerFed has 98.0 %, 1.0 points more than fedavg-ft (within the spread over seeds)" in text
    assert "has 99.9 %, 1.9 points more than superfed-mm (beyond the spread over seeds): a client is only" in text


def test_personal_says_when_fine_tuning_beats_superfed():
    found = [*kept("fedavg", 0.8, 0.8), *kept("fedavg-ft", 0.98, 0.98), *kept("superfed-mm", 0.9, 0.9)]
    text = demo.personal([*found, *kept("local", 0.7, 0.7)])
    assert "SuPerFed has 90.0 %, 8.0 points less than fedavg-ft (beyond the spread over seeds)" in text
    assert text.endswith("has 70.0 %, 20.0 points less than superfed-mm (beyond the spread over seeds).")


def test_fair_is_about_the_worst_tenth():
    worst = {"uniform": (0.5, 0.7), "q-fedavg": (0.3, 0.3), "aaggff-s": (0.65, 0.75)}
    text = demo.fair([run for name, values in worst.items() for run in kept(name, *values, column="worst10")])
    assert "has 60.0 % with equal weights, 30.0 % with q-fedavg, 30.0 points less than uniform (beyond" in text
    assert "70.0 % with aaggff-s, 10.0 points more than uniform (within the spread over seeds)" in text
    assert "The mean is 50.0 % with uniform, 50.0 % with q-fedavg, 50.0 % with aaggff-s." in text


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ((0.8, 0.8), "5.0 points less than as many real digits (beyond the spread over seeds)"),
        ((0.86, 0.94), "5.0 points more than as many real digits (within the spread over seeds)"),
    ],
)
def test_synthetic_stands_beside_as_many_real_digits(made, words):
    runs = kept("fedevg", *made)
    for run in runs:
        run.summary["synthetic"] = {"samples": 70, "numbers": {"upper": {"mean": 0.85}, "lower": {"mean": 0.1}}}
    text = demo.synthetic(runs)
    assert f"but 70 synthetic digits is right on {50 * sum(made):.1f} % of the clients' rows, {words}" in text
    assert text.endswith("which make 85.0 %; with the labels dealt out at random it is 10.0 %.")
