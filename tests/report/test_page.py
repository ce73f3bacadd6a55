"""The report without a browser: what its tables and charts hold, beside the summaries they come from."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import statistics
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from helpers import reported
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from fedchord.check import FedchordError
from fedchord.experiments.config import RunConfig
from fedchord.experiments.reading import read_all
from fedchord.report.compare import interval
from fedchord.report.page import again, charts, look, numbers, pictures
from fedchord.report.page.problems import Problem, of_runs
from fedchord.report.page.write import Report, page, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return reported.two_methods(tmp_path_factory.mktemp("page") / "runs")


@pytest.fixture(scope="module")
def problem(folder) -> Problem:
    (found,) = of_runs(read_all([folder])[0])
    return found


@pytest.fixture(scope="module")
def html(problem) -> str:
    return page(Report([problem], "fedchord report runs"))[0]


def summary(folder: Path, name: str) -> dict:
    return json.loads((folder / name / "summary.json").read_text())


class Tree(HTMLParser):
    """Every tag with its attributes, and whether all are closed in order."""

    EMPTY = ("meta", "input", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


# -- the file ------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_loads_nothing(html):
    tree = Tree(html)
    ids = [keys["id"] for _, keys in tree.tags if "id" in keys]
    assert len(ids) == len(set(ids)) and {"p1", "p1-lambda", "p1-mixing", "p1-split", "p1-again", "made"} <= set(ids)
    for tag, keys in tree.tags:
        link = keys.get("href") or keys.get("src") or ""
        assert not link or link.startswith(("#", "data:image/png;base64,")), (tag, link)
        assert not link.startswith("#") or link[1:] in ids, link
        clip = re.fullmatch(r"url\(#(.+)\)", keys.get("clip-path") or "")
        assert clip is None or clip[1] in ids
        assert "#" not in re.sub(r"url\(#.*?\)", "", keys.get("style") or ""), keys["style"]  # colours are the page's
    assert not re.search(r"https?://|@import|url\((?!#)", html)


def test_the_same_runs_make_the_same_file(problem, html):
    assert page(Report([problem], "fedchord report runs"))[0] == html


def test_names_are_text_wherever_they_stand(tmp_path):
    runs, _ = read_all([reported.with_evil_names(tmp_path)])
    command = "fedchord report '<script>'"
    text, _ = page(Report(of_runs(runs), command, "<h1>title", "</p><p>", left_out=["<li>: damaged"]))
    tree = Tree(text)
    assert not {"em", "u"} & {tag for tag, _ in tree.tags}
    assert [keys for tag, keys in tree.tags if tag == "i" and "swatch" not in (keys.get("class") or "")] == []
    assert all(keys["src"].startswith("data:image/png") for tag, keys in tree.tags if tag == "img")
    assert not [key for _, keys in tree.tags for key in keys if key.startswith("on")]
    assert [keys.get("type") for tag, keys in tree.tags if tag == "script"] == [None]  # ours alone
    said = "".join(tree.text)
    expected = (*reported.EVIL, "<h1>title", "<li>: damaged", command, "<b>rows.csv")
    assert [name for name in expected if name not in said] == []


# -- tables --------------------------------------------------------------------------------------------------------


def test_results_are_those_of_the_summaries(problem, folder):
    sheet = numbers.results(problem)
    heads = [name for name, _ in sheet.heads]
    assert heads[:4] == ["method", "seeds", "top1 mean %", "95 % interval"]
    for row in sheet.rows:
        values = [summary(folder, f"{row[0].text}-{seed}")["metrics"]["top1"] for seed in (1, 2)]
        assert row[2].value == pytest.approx(100 * statistics.mean(v["mean"] for v in values))
        assert row[2].spread == f"({100 * statistics.stdev(v['mean'] for v in values):.2f})"
        worst = row[heads.index("worst tenth")]
        assert worst.value == pytest.approx(100 * statistics.mean(v["worst10"] for v in values))


def test_the_interval_is_over_clients_after_seeds(problem, folder):
    one, two = (summary(folder, f"fedavg-{seed}")["per_client"]["top1"] for seed in (1, 2))
    means = [(x + y) / 2 for x, y in zip(one, two, strict=True)]
    (row,) = [row for row in problem.rows if row.label == "fedavg"]
    assert numbers.client_means(row, "top1") == pytest.approx(means)
    low, high = interval(means)
    (shown,) = [entries[3] for entries in numbers.results(problem).rows if entries[0].text == "fedavg"]
    assert shown.text == f"{100 * low:.2f} to {100 * high:.2f}" and low < statistics.mean(means) < high


def test_every_client_of_every_seed_is_listed(problem, folder):
    sheet = numbers.clients(problem)
    assert [name for name, _ in sheet.heads] == ["client", "seed", "test rows", "fedavg", "superfed-mm"]
    assert len(sheet.rows) == 12
    for row in sheet.rows:
        for at, method in ((3, "fedavg"), (4, "superfed-mm")):
            table = summary(folder, f"{method}-{row[1].text}")["per_client"]
            place = table["client"].index(row[0].text)
            assert row[at].value == table["top1"][place] and row[2].value == table["size"][place]


def test_lambda_has_the_mean_and_the_worst_tenth_of_each_point(problem, folder):
    (found,) = numbers.swept(problem)
    sweeps = [summary(folder, f"superfed-mm-{seed}")["sweep"] for seed in (1, 2)]
    assert found.lambdas == (0, 0.25, 0.5, 0.75, 1)
    for seed, one in enumerate(sweeps):
        table = np.array(one["per_client"])
        np.testing.assert_allclose(found.mean[seed], table.mean(0))
        np.testing.assert_allclose(found.worst[seed], np.sort(table, axis=0)[:1].mean(0))  # a tenth of six is one
    assert found.best == int(np.argmax(np.mean([one["mean"] for one in sweeps], axis=0)))
    (row,) = numbers.lambdas([found]).rows
    chosen = statistics.mean(one["validated"]["mean"] for one in sweeps)
    assert row[-1].value == pytest.approx(chosen)


def test_bytes_and_seconds(problem, folder):
    for row in numbers.costs(problem).rows:
        every = [summary(folder, f"{row[0].text}-{seed}") for seed in (1, 2)]
        total = statistics.mean(one["bytes"]["up_total"] + one["bytes"]["down_total"] for one in every)
        assert row[3].value == pytest.approx(total)
        assert row[4].value == pytest.approx(statistics.mean(one["seconds"]["total"] for one in every))


# -- charts --------------------------------------------------------------------------------------------------------


def test_a_dot_stands_where_its_client_is(problem, folder):
    """The dots in the page, by their titles and places: the place is a linear function of the client's value."""
    with look.looked():
        figure, marks = charts.strips(problem)
        svg = look.inline(figure, "x", "about", marks)
    dots = re.findall(r'<use [^>]*?x="([\d.]+)"[^>]*data-client="(\d+)"[^>]*><title>(.+?)</title>', svg)
    assert len(dots) == 24
    x = np.array([float(place) for place, *_ in dots])
    said = [re.fullmatch(r"client (\d+), seed (\d): ([\d.]+)", title) for *_, title in dots]
    values = []
    for place, ((_, client, _), told) in enumerate(zip(dots, said, strict=True)):
        table = summary(folder, f"{'fedavg' if place < 12 else 'superfed-mm'}-{told[2]}")["per_client"]
        values.append(table["top1"][table["client"].index(client)])
        assert told[1] == client and float(told[3]) == round(100 * values[-1], 1)
    slope, start = np.polyfit(values, x, 1)
    assert slope > 0 and np.abs(slope * np.array(values) + start - x).max() < 0.02


def test_bytes_sum_up_over_rounds(problem, folder):
    lines = [json.loads(line) for line in (folder / "fedavg-1" / "rounds.jsonl").read_text().splitlines()]
    expected = [sum(r["bytes_up"] + r["bytes_down"] for r in lines[:n]) / 1e6 for n in range(1, 5)]
    (row, places, _) = charts.sent(problem, print)[0]
    assert row.label == "fedavg" and places.tolist() == pytest.approx(expected)


def test_rows_that_mix_alike_share_a_picture(problem):
    """Both weigh by size and draw the same cohorts."""
    ((alike, table),) = pictures.shares(problem, print)
    assert [row.label for row in alike] == ["fedavg", "superfed-mm"] and table.shape == (6, 4)
    assert np.nansum(table, axis=0) == pytest.approx([1, 1, 1, 1])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.3))
def test_labels_are_moved_as_little_as_need_be(places, gap):
    """Least squares with a gap between neighbours is isotonic regression of the places less their gaps."""
    ordered = sorted(places)
    steps = gap * np.arange(len(ordered))
    best = IsotonicRegression().fit_transform(np.arange(len(ordered)), np.array(ordered) - steps) + steps
    np.testing.assert_allclose(charts.apart(ordered, gap), best, atol=1e-9)


# -- again ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"method": "fedprox", "method.mu": 0.25, "split": "dirichlet", "split.alpha": 0.1, "cohort": 1.0},
        {"method": "superfed-mm", "sweep.lambdas": [0.0, 0.5], "validation": 0.1, "clients": 7, "cohort": 7},
        {"mixing": "q-fedavg", "server": "fedadam", "rounds": 500, "eval_every": 3, "noise": "pair", "noise.rate": 0.2},
    ],
)
def test_the_command_makes_the_same_run(keys, tmp_path):
    config = RunConfig.from_values(keys | {"seed": 5, "out": str(tmp_path / "a"), "executor": "serial"})
    found = again.unusual(config)
    words = [f"{key}={again.written(value)}" for key, value in found.items()]
    other = RunConfig.from_pairs(shlex.split(shlex.join(words)))
    assert other.fingerprint() == config.fingerprint()
    assert other.values()["eval_every"] == config.values()["eval_every"]
    assert set(found) <= {*keys, "seed"}, found  # nothing that was not asked for


def test_settings_and_commands_are_in_the_page(problem, html, folder):
    said = "".join(Tree(html).text)
    for run in problem.runs:
        assert again.command(run) in said and again.command(run).startswith("fedchord run ")
    kept = again.settings(problem.runs[0])
    assert kept in said and tomllib.loads(kept)["method"] == "fedavg"


# -- what cannot be shown ------------------------------------------------------------------------------------------


def test_a_run_without_its_rounds_or_data_is_still_reported(folder, tmp_path):
    runs = Path(shutil.copytree(folder, tmp_path / "runs"))
    (runs / "fedavg-1" / "rounds.jsonl").write_text('{"round": 1, "coh\n{"round": 2}\n')
    for part in runs.glob("*/data.safetensors"):
        part.unlink()
    problems = of_runs(read_all([runs])[0])
    told = write(Report(problems, "fedchord report runs", data=False), tmp_path / "r.html")
    assert any("rounds.jsonl is damaged in line 1" in line for line in told)
    assert any("data.safetensors" in line for line in told)
    said = "".join(Tree((tmp_path / "r.html").read_text()).text)
    assert "rounds.jsonl is damaged in line 1" in said and "top1 of every client" in said


def test_without_the_rows_the_split_shows_sizes(problem):
    figure = pictures.split(problem.runs[0], None, print)
    assert figure.axes[0].get_ylabel() == "rows" and len(figure.axes) == 1


def test_undefined_numbers_are_dashes(folder, tmp_path):
    runs = Path(shutil.copytree(folder, tmp_path / "runs"))
    path = runs / "fedavg-1" / "summary.json"
    changed = json.loads(path.read_text())
    changed["per_client"]["top1"][0] = None
    changed["metrics"]["top1"]["worst10"] = None
    path.write_text(json.dumps(changed))
    problems = of_runs(read_all([runs])[0])
    sheet = numbers.clients(problems[0])
    (cell,) = [row[3] for row in sheet.rows if row[1].text == "1" and row[0].text == "0"]
    assert (cell.text, cell.value) == ("-", None)
    assert "nan" in [entry.text for entry in numbers.results(problems[0]).rows[0]]
    assert page(Report(problems, "fedchord report runs", data=False))[0]


def test_a_headline_that_is_nowhere_defined_gives_way(folder, tmp_path):
    runs = Path(shutil.copytree(folder, tmp_path / "runs"))
    for path in runs.glob("*/summary.json"):
        changed = json.loads(path.read_text())
        changed["metrics"]["top1"] = dict.fromkeys(changed["metrics"]["top1"])
        path.write_text(json.dumps(changed))
    found = read_all([runs])[0]
    assert [problem.metric for problem in of_runs(found)] == ["top5"]
    assert page(Report(of_runs(found, "top1"), "fedchord report runs", data=False))[0]  # asked for, all the same


def test_one_client_has_no_interval(problem):
    assert all(math.isnan(end) for end in interval([0.5]))


@pytest.mark.parametrize(
    ("keys", "words"),
    [({"against": "fedavgg"}, "no one row 'fedavgg' to compare with"), ({"metric": "topp1"}, "did you mean 'top1'")],
)
def test_mistakes_are_one_line(folder, keys, words):
    runs, _ = read_all([folder])
    with pytest.raises(FedchordError, match=words):
        page(Report(of_runs(runs, keys.pop("metric", None)), "fedchord report", data=False, **keys))
