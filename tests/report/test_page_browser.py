"""The report in a real Chromium: what it shows, what moves, and that nothing goes wrong; skipped without one."""

from __future__ import annotations

import base64
import json
import re
import statistics
from pathlib import Path

import pytest
from helpers import reported
from helpers.browser import Browser, found

from fedchord.experiments.reading import read_all
from fedchord.report.page.problems import of_runs
from fedchord.report.page.write import Report, write

NONE = "no Chromium here, so the report is not tried in a browser (Debian: apt-get install chromium)"
pytestmark = pytest.mark.skipif(found() is None, reason=NONE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return reported.two_methods(tmp_path_factory.mktemp("page") / "runs")


@pytest.fixture(scope="module")
def file(folder) -> Path:
    write(Report(of_runs(read_all([folder])[0]), "fedchord report runs"), folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium, file):
    chromium.ask("Emulation.setScriptExecutionDisabled", value=False)
    chromium.look()
    chromium.open(file)
    yield chromium
    assert chromium.complaints() == []


def texts(browser: Browser, selector: str) -> list[str]:
    """The texts of all elements that fit."""
    return browser.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent.trim())")


def shown(browser: Browser, selector: str) -> list[bool]:
    """Whether each element that fits takes any room."""
    return browser.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.checkVisibility())")


def test_everything_is_there_and_nothing_is_loaded(browser, file):
    assert browser.asked_for() == [file.resolve().as_uri()]
    for part in ("rounds", "methods", "clients", "lambda", "mixing", "split", "cost", "again"):
        assert browser.run(f"document.querySelectorAll('#p1-{part}').length") == 1, part
    sizes = browser.run("[...document.querySelectorAll('svg.chart')].map((e) => e.getBoundingClientRect().height)")
    assert len(sizes) >= 8 and min(sizes) > 60
    assert texts(browser, "h1") == ["digits, pathological split, 6 clients"]


def test_a_click_on_a_head_sorts(browser):
    def column() -> list[float]:
        cells = "#p1 > .scroll tbody td:nth-child(3)"
        return browser.run(f"[...document.querySelectorAll('{cells}')].map((e) => Number(e.dataset.value))")

    before, head = column(), "#p1 > .scroll thead th:nth-child(3)"
    assert len(set(before)) == 2
    browser.click(head)
    assert column() == sorted(before, reverse=True)
    assert browser.run(f"document.querySelector('{head}').ariaSort") == "descending"
    browser.run(f"document.querySelector('{head}').focus()")
    browser.press("Enter", 13, "\r")
    assert column() == sorted(before)
    browser.click("#p1 > .scroll thead th:first-child")
    assert texts(browser, "#p1 > .scroll tbody th") == ["fedavg", "superfed-mm"]


def test_a_client_is_found_by_its_name(browser):
    browser.type("[data-find]", "4")
    assert browser.run("document.querySelectorAll('.found').length") == 4  # two methods, two seeds
    assert set(browser.run("[...document.querySelectorAll('.found')].map((e) => e.dataset.client)")) == {"4"}
    visible = shown(browser, "details.clients tbody tr")
    assert len(visible) == 12 and sum(visible) == 2
    assert texts(browser, ".find output") == ["1 client"]
    browser.type("[data-find]", "nobody")
    assert sum(shown(browser, "details.clients tbody tr")) == 0 and texts(browser, ".find output") == ["0 clients"]
    browser.type("[data-find]", "")
    assert browser.run("document.querySelectorAll('.found').length") == 0


def test_the_slider_moves_the_numbers_and_the_line(browser, folder):
    every = [json.loads((folder / f"superfed-mm-{seed}/summary.json").read_text())["sweep"] for seed in (1, 2)]

    def mean(place: int) -> str:
        return f"{100 * statistics.mean(one['mean'][place] for one in every):.2f}"

    assert texts(browser, ".slide .big") == ["0.5"] and texts(browser, "[data-mean]") == [mean(2)]
    browser.run("document.querySelector('.slide input').focus()")
    for _ in range(2):
        browser.press("ArrowRight", 39)
    assert texts(browser, ".slide .big") == ["1"] and texts(browser, "[data-mean]") == [mean(4)]
    # the line stands above the tick of its lambda, and the dot on it
    middle = "(e) => { const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }"
    # in one go: the page may still be moving
    (tick, _), (line, _), dot, ticks = browser.run(f"""(() => {{
        const middle = {middle}, all = (query) => [...document.querySelectorAll(query)];
        const words = all('#p1-lambda svg text');
        const one = words.filter((e) => Number(e.textContent) === 1 && e.textContent.includes('.'))[0];
        const rates = words.filter((e) => e.textContent.includes('%'));
        return [middle(one), middle(all('[id$=-cursor]')[0]), middle(all('[id$=-at-0]')[0]),
            rates.map((e) => [parseFloat(e.textContent), ...middle(e)])];
    }})()""")
    assert line == pytest.approx(tick, abs=1.5) and dot[0] == pytest.approx(tick, abs=1.5)
    (low, _, bottom), (high, _, top) = ticks[0], ticks[-1]
    expected = bottom + (float(mean(4)) - low) / (high - low) * (top - bottom)
    assert dot[1] == pytest.approx(expected, abs=2.5)


def test_settings_can_be_copied(browser):
    browser.run("document.querySelector('#made').scrollIntoView()")
    browser.click("#made button")
    until = "new Promise((done) => setTimeout(() => done(document.querySelector('#made button').textContent), 300))"
    assert browser.run(until) in ("copied", "marked")


def test_without_scripts_all_can_be_read(chromium, file):
    chromium.ask("Emulation.setScriptExecutionDisabled", value=True)
    chromium.look()
    chromium.open(file)
    assert chromium.run("document.documentElement.className") == ""
    assert not any(shown(chromium, ".script")) and all(shown(chromium, "svg.chart"))
    assert all(shown(chromium, "#p1 > .scroll td")) and all(shown(chromium, "#p1-lambda table.sortable td"))
    chromium.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_a_phone_scrolls_in_one_direction_only(browser, file):
    browser.look(390, 844)
    browser.open(file)
    assert browser.run("document.documentElement.scrollWidth") == 390
    letters = browser.run("""[...document.querySelectorAll('svg.chart')].map((e) =>
        parseFloat(getComputedStyle(e.querySelector('text')).fontSize) * e.getScreenCTM().a)""")
    assert min(letters) > 8


def rgb(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)[:3]]


def luminance(colour: list[int]) -> float:
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_letters_stand_out_in_the_dark_and_in_the_light(browser, dark):
    browser.look(dark=dark)
    paper = luminance(rgb(browser.run("getComputedStyle(document.body).backgroundColor")))
    assert paper < 0.05 if dark else paper > 0.9
    inks = {selector: f"getComputedStyle(document.querySelector('{selector}'))" for selector in ("h1", ".notes", "a")}
    inks |= {"tick": "getComputedStyle(document.querySelector('svg.chart text'))"}
    for name, style in inks.items():
        ink = luminance(rgb(browser.run(f"{style}.{'fill' if name == 'tick' else 'color'}")))
        light, deep = max(ink, paper), min(ink, paper)
        assert (light + 0.05) / (deep + 0.05) > 4.5, name


def test_on_paper(browser):
    browser.look(dark=True, media="print")
    assert browser.run("getComputedStyle(document.documentElement).getPropertyValue('--paper')").strip() == "#fff"
    assert not any(shown(browser, "nav, .find, .slide, button, details.clients"))
    assert all(shown(browser, "#p1 > .scroll td")) and all(shown(browser, "details.again pre"))
    printed = base64.b64decode(browser.ask("Page.printToPDF", printBackground=False)["data"])
    assert printed.startswith(b"%PDF") and len(re.findall(rb"/Type /Page\b", printed)) >= 3


def test_names_with_markup_stay_names(chromium, tmp_path):
    runs, _ = read_all([reported.with_evil_names(tmp_path)])
    write(Report(of_runs(runs), "fedchord report <b>", title="<script>window.hacked = 3</script>"), tmp_path / "r.html")
    chromium.look()
    chromium.open(tmp_path / "r.html")
    assert chromium.run("window.hacked") is None and chromium.complaints() == []
    assert texts(chromium, "h1") == ["<script>window.hacked = 3</script>"]
    assert set(texts(chromium, "details.clients tbody th")) == set(reported.EVIL)
    chromium.type("[data-find]", "<img src=x")
    assert sum(shown(chromium, "details.clients tbody tr")) == 1
    assert chromium.run("document.querySelector('.found').dataset.client") == reported.EVIL[1]


def test_samples_stand_beside_real_ones(chromium, tmp_path):
    runs, _ = read_all([reported.with_samples(tmp_path / "runs")])
    write(Report(of_runs(runs), "fedchord report runs"), tmp_path / "r.html")
    chromium.look()
    chromium.open(tmp_path / "r.html")
    assert texts(chromium, ".grids h4") == ["real", "fedevg"] and chromium.complaints() == []
    assert min(chromium.run("[...document.querySelectorAll('.grids img')].map((e) => e.naturalWidth)")) > 300
