"""What is printed of the objects one meets, what a notebook shows of them, and the progress of a run there."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.federations import make_federation
from helpers.pages import Page
from PIL import Image
from torch import nn

import fedchord
from fedchord import Task, Training, metrics
from fedchord.clients.ditto import Ditto
from fedchord.core.rules import Algorithm
from fedchord.data import DataSet, Federation, Ragged, from_arrays, load
from fedchord.data.page import CLIENTS
from fedchord.evaluation.sweep import Sweep, sweep
from fedchord.experiments import progress
from fedchord.experiments.session import Run
from fedchord.mixing.static import BySize
from fedchord.servers.step import Step
from fedchord.synthetic.set import SyntheticSet

NASTY = "<script>alert('1')</script> $\\frac{ & \n<b>"
"""A name that is HTML, that matplotlib would take for a formula, and that has two lines."""


def own(**changes: Any) -> Run:
    algorithm = Algorithm(Ditto(), BySize(), Step(), changes.pop("name", "mine"))
    settings = {"rounds": 4, "cohort": 3, "seed": 2, "executor": "serial", "eval_every": 2}
    federation = changes.pop("federation", None) or make_federation([13, 20, 7, 31], test=8)
    training = Training(lr=0.2, batch=4)
    return fedchord.run(algorithm, Task(lambda: nn.Linear(6, 3)), federation, training=training, **settings | changes)


def nasty() -> Federation:
    return replace(make_federation([13, 20, 7, 31], test=8), name=NASTY, client_names=(NASTY, "<i>", "a", "b"))


# -- in a line -----------------------------------------------------------------------------------------------------


def test_data_in_a_line():
    federation = make_federation([13, 20, 7, 31], test=8)
    assert repr(federation) == "Federation(toy: 4 clients, 103 rows, 3 classes)"
    assert repr(federation.only([1])) == "Federation(toy: 1 client, 28 rows, 3 classes)"
    assert repr(federation.train) == "Ragged(4 clients, 71 rows)" and repr(Ragged.of([])) == "Ragged(0 clients, 0 rows)"
    assert repr(load("digits")) == "DataSet(digits: 1797 rows of 1x8x8, 10 classes)"
    grouped = from_arrays(torch.zeros(6, 2), torch.arange(6) % 2, clients=["a", "b", "c"] * 2, name="mine")
    assert repr(grouped) == "DataSet(mine: 6 rows of 2, 2 classes, 3 groups)"
    assert (
        repr(DataSet("x", {"x": torch.zeros(1), "y": torch.zeros(1)}, 1)) == "DataSet(x: 1 row of one number, 1 class)"
    )
    made = SyntheticSet(torch.zeros(6, 1, 2, 2), torch.tensor([0, 0, 1, 1, 2, 2]), 0.0, 1.0, 3)
    assert repr(made) == "SyntheticSet(3 classes x 2 samples of 1x2x2)"


def test_a_run_in_a_line(tmp_path):
    run = own(out=tmp_path / "a")
    assert repr(run) == "Run(mine on toy: not started)"
    rounds = iter(run)
    first, second = next(rounds), next(rounds)
    top1 = f"top1 {second.evaluation.mean('top1'):.4f}"
    assert repr(first) == f"Round(1: 3 clients, {first.seconds:.2g} s)"
    assert repr(second) == f"Round(2: 3 clients, {second.seconds:.2g} s, {top1})"
    assert repr(run) == f"Run(mine on toy: round 2 of 4, {top1})"
    means = ", ".join(f"{name} {second.evaluation.mean(name):.4f}" for name in second.evaluation.metrics)
    assert repr(second.evaluation) == f"Evaluation(round 2, test rows of 4 clients: {means})"
    assert repr(second.fitted) == "Fitted(mine on toy after round 2: 4 clients)"
    rounds.close()
    assert repr(own(out=tmp_path / "a", resume=True)) == "Run(mine on toy: to go on)"
    run.finish()
    assert repr(run) == f"Run(mine on toy: finished, top1 {run.evaluation.mean('top1'):.4f})"
    again = own(out=tmp_path / "a", resume=True)
    assert list(again) == [] and repr(again) == repr(run) and again._repr_html_() == run._repr_html_()


def test_a_sweep_in_a_line():
    run = own()
    run.finish()
    found = sweep(run.fitted, lambdas=(0.0, 0.5, 1.0))
    lam, values = found.best_mean()
    assert repr(found) == f"Sweep(top1 of 4 clients at 3 lambdas: best mean {float(values.mean()):.4f} at {lam:g})"
    undefined = Sweep("auroc", (0.0,), (0,), torch.full((1, 1), torch.nan), None, torch.tensor([True]))
    assert repr(undefined) == "Sweep(auroc of 1 client at 1 lambda: best mean - at 0)"


def test_no_name_makes_two_lines_of_one():
    federation = nasty()
    run = own(federation=federation, name=NASTY)
    run.finish()
    dataset = DataSet(NASTY, {"x": torch.zeros(2, 3), "y": torch.zeros(2)}, 2)
    for what in (federation, run, run.fitted, run.evaluation, dataset):
        assert "\n" not in repr(what) and len(repr(what)) < 200


# -- in a notebook -------------------------------------------------------------------------------------------------


def size(coded: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(coded)) as picture:
        assert picture.format == "PNG"
        return picture.size


def row(name: str, values: dict[str, float]) -> list[str]:
    return [name, *(f"{values[column]:.4f}" for column in ("mean", "std", "worst10", "best10", "pooled"))]


def test_a_run_shows_where_it_stands():
    run = own()
    assert Page(run._repr_html_()).texts == ["mine on toy", "not started"]
    rounds = iter(run)
    next(rounds)
    assert Page(run._repr_html_()).texts == ["mine on toy", "round 1 of 4"]
    evaluation = next(rounds).evaluation
    page = Page(run._repr_html_())
    assert page.texts[:2] == ["mine on toy", "round 2 of 4"] and page.images == []  # one point is no curve
    assert page.rows[0] == ["metric", "mean", "std", "worst tenth", "best tenth", "pooled"]
    assert page.rows[1:] == [row(name, values) for name, values in evaluation.metrics.items()]
    list(rounds)
    page = Page(run._repr_html_())
    assert page.texts[1] == "finished"
    assert page.rows[1:] == [row(name, values) for name, values in run.evaluation.metrics.items()]
    ((about, coded),) = page.images
    assert about == "top1 over rounds" and size(coded)[0] > 300


def test_an_evaluation_shows_its_metrics():
    run = own()
    run.finish()
    page = Page(run.evaluation._repr_html_())
    assert page.texts[0] == "round 4, test rows of 4 clients"
    assert page.rows[1:] == [row(name, values) for name, values in run.evaluation.metrics.items()]


def test_a_federation_shows_sizes_and_split():
    page = Page(make_federation([13, 20, 7, 31], test=8)._repr_html_())
    assert page.texts[0] == "toy: 4 clients, 103 rows, 3 classes"
    assert page.rows[:4] == [
        ["part", "rows", "smallest client", "median", "largest"],
        ["train", "71", "7", "13", "31"],
        ["validation", "0", "0", "0", "0"],
        ["test", "32", "8", "8", "8"],
    ]
    assert page.rows[4:6] == [["client", "train", "validation", "test"], ["client 0", "13", "0", "8"]]
    assert len(page.rows) == 9
    ((about, coded),) = page.images
    assert about == "the split of toy" and min(size(coded)) > 300


@pytest.mark.parametrize("clients, shown", [(CLIENTS, True), (CLIENTS + 1, False)])
def test_many_clients_are_neither_drawn_nor_listed(clients, shown):
    page = Page(make_federation([3] * clients, test=1)._repr_html_())
    assert bool(page.images) == shown and (len(page.rows) > clients) == shown


def test_rows_of_several_labels_have_no_picture():
    federation = make_federation([3, 4])
    tokens = replace(federation, columns=federation.columns | {"y": federation.columns["y"][:, None].expand(-1, 5)})
    page = Page(tokens._repr_html_())
    assert page.images == [] and len(page.rows) == 7


def test_names_come_out_as_text():
    """The page is made of our tags alone (Page refuses others), and the names are in it, letter by letter."""
    try:
        run = own(federation=nasty(), name=NASTY, metrics={"top1": None, NASTY: lambda scores, labels: 0.5})
        run.finish()
    finally:
        metrics.METRICS.pop(NASTY, None)
        metrics.HIGHER_IS_BETTER.discard(NASTY)
    page = Page(run._repr_html_())
    assert page.texts[0] == f"{NASTY} on {NASTY}" and [NASTY, "0.5000"] in [row[:2] for row in page.rows]
    assert [NASTY, "0.5000"] in [row[:2] for row in Page(run.evaluation._repr_html_()).rows]
    page = Page(nasty()._repr_html_())
    assert NASTY in [row[0] for row in page.rows] and "<i>" in [row[0] for row in page.rows]
    assert page.texts[0].startswith(f"{NASTY}: 4 clients") and page.images[0][0] == f"the split of {NASTY}"


# -- progress ------------------------------------------------------------------------------------------------------


class Shell:
    """Stands for a notebook: what was published, by display."""

    kernel = object()

    def __init__(self) -> None:
        self.shown: list[tuple[str, bool, dict[str, str]]] = []
        self.display_pub = self

    def publish(self, data, transient, update):
        assert set(data) == {"text/plain", "text/html"}
        self.shown.append((transient["display_id"], update, data))


@pytest.fixture
def shell(monkeypatch) -> Shell:
    found = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: found))
    monkeypatch.setattr(progress.Cell, "OFTEN", 0.0)
    return found


def test_in_a_notebook_a_line_is_drawn_anew_in_its_place(shell, capsys):
    own(name="<b>").finish()
    displays = {display for display, _, _ in shell.shown}
    assert len(displays) == 1 and "" not in displays
    assert [update for _, update, _ in shell.shown] == [False, *[True] * 5]  # begin, four rounds, end
    lines = [data["text/plain"] for _, _, data in shell.shown]
    assert lines[0] == "<b>: round 0 of 4" and lines[1].startswith("<b>: round 1 of 4, about ")
    assert ", top1 0." in lines[2] and lines[-1].startswith("<b>: round 4 of 4, top1 0.") and lines[-1].endswith(" s")
    for _, _, data in shell.shown:
        page = Page(data["text/html"])
        assert page.tags == ["div", "progress"] and page.texts == [f" {data['text/plain']}"]
    assert capsys.readouterr() == ("", "")


def test_a_run_that_is_left_says_so_and_goes_on_in_another_line(shell):
    run = own()
    for _ in run:
        break
    assert shell.shown[-1][2]["text/plain"].startswith("mine: round 1 of 4, stopped after ")
    run.finish()
    assert len({display for display, _, _ in shell.shown}) == 2
    assert shell.shown[-1][2]["text/plain"].startswith("mine: round 4 of 4")


def test_it_is_not_drawn_too_often(shell, monkeypatch):
    monkeypatch.setattr(progress.Cell, "OFTEN", 60.0)
    own().finish()
    assert [data["text/plain"][:17] for _, _, data in shell.shown] == ["mine: round 0 of ", "mine: round 4 of "]


def test_lines_worth_reading_are_printed_below(shell, capsys):
    progress.Cell(shell).say("a <line>")
    assert capsys.readouterr().out == "a <line>\n"


def test_what_is_shown_where(shell, monkeypatch):
    cell, own_one = progress.Cell, progress.Silent()
    assert isinstance(progress.picked(None), cell) and isinstance(progress.picked(True), cell)
    assert progress.picked(False) is None and progress.picked(own_one) is own_one
    monkeypatch.delitem(sys.modules, "IPython")
    assert progress.picked(None) is None and progress.picked(False) is None
    assert isinstance(progress.picked(True), progress.Lines)  # standard error is no terminal here


@pytest.mark.parametrize("asked, words", [(None, 0), (False, 0), (True, 5)])
def test_a_script_is_silent_unless_told_otherwise(asked, words, capsys):
    own(progress=asked).finish()
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == words


# -- for real ------------------------------------------------------------------------------------------------------

CELLS = [
    """
import fedchord
from fedchord.data import Iid
from fedchord.models import TwoNN
digits = fedchord.federate(fedchord.load("digits"), Iid(), num_clients=4)
digits""",
    """
task = fedchord.Task(lambda: TwoNN(inputs=64, hidden=10, classes=10))
run = fedchord.run(fedchord.method("fedavg"), task, digits, rounds=4, eval_every=1, workers=2)
for result in run:
    print(result.round)
run""",
    "fedchord.run(fedchord.method('fedavg'), task, digits, rounds=2, progress=False).finish()['rounds']",
]


@pytest.mark.filterwarnings("ignore")
def test_a_real_notebook_shows_all_of_it():
    nbformat = pytest.importorskip("nbformat", reason="nbclient and ipykernel are not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    client.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    first, second, third = (cell.outputs for cell in book.cells)
    assert [output.output_type for output in first] == ["execute_result"]
    assert first[0].data["text/plain"] == "Federation(digits: 4 clients, 1797 rows, 10 classes)"
    assert len(Page(first[0].data["text/html"]).images) == 1
    kinds = [output.output_type for output in second]
    assert kinds.count("display_data") == 1 and kinds[-1] == "execute_result"  # one line, whatever was printed between
    (bar,) = (output for output in second if output.output_type == "display_data")
    assert bar.data["text/plain"].startswith("fedavg: round 4 of 4, top1 0.")
    assert "".join(output.text for output in second if output.output_type == "stream").split() == ["1", "2", "3", "4"]
    assert second[-1].data["text/plain"].startswith("Run(fedavg on digits: finished, top1 0.")
    assert len(Page(second[-1].data["text/html"]).images) == 1
    assert [output.data["text/plain"] for output in third] == ["2"]
