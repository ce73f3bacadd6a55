"""The built site in a real Chromium, from the disk: nothing from the network, no complaint, search, phone, dark.

It is run by `make docs-check`, which builds the site first; elsewhere it is skipped.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from helpers.browser import Browser, found

SITE = Path(os.environ.get("FEDCHORD_SITE", ""))
pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("FEDCHORD_SITE"), reason="no site is built: make docs-check builds and tries it"
    ),
    pytest.mark.skipif(found() is None, reason="no Chromium here, so the site is not tried in a browser"),
]
PAGES = ("index", "which-method", "concepts", "results", "methods/superfed-mm", "studies/2_noise", "reference/mixing")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


def opened(browser: Browser, page: str) -> None:
    browser.open(SITE / f"{page}.html")
    assert browser.complaints() == [], page
    assert not [one for one in asked(browser) if not one.startswith(("file:", "data:"))], page


def asked(browser: Browser) -> list[str]:
    events = [event for event in browser.events if event.get("method") == "Network.requestWillBeSent"]
    return [event["params"]["request"]["url"] for event in events]


@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_a_phone_and_a_desk(browser, page):
    for width in (390, 1280):
        browser.look(width=width, height=850, dark=width == 390)
        opened(browser, page)
        assert browser.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), (
            f"{page} {width}"
        )
    assert browser.run("[...document.images].every(i => i.complete && i.naturalWidth > 0)"), page


def test_the_first_page_is_one_screen(browser):
    browser.look(width=1280, height=800)
    opened(browser, "index")
    bottom = (
        "Math.max(...[...document.querySelectorAll('.two img, .highlight')].map(e => e.getBoundingClientRect().bottom))"
    )
    assert browser.run("document.querySelectorAll('.two img').length") == 2 and browser.run(bottom) <= 800
    assert "make demo" in browser.run("document.querySelector('.highlight').innerText")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_drawing_that_is_cut_off_says_so(browser, width):
    browser.look(width=width, height=850)
    opened(browser, "index")
    place = "document.querySelector('img[src*=\"drawings/\"]').parentElement"
    cut = browser.run(f"{place}.scrollWidth > {place}.clientWidth")
    told = browser.run(f"getComputedStyle({place}, '::after').content")
    assert cut == (width == 390) and ("goes on" in told) == cut


def test_formulas_are_set(browser):
    browser.look()
    opened(browser, "methods/superfed-mm")
    sizes = browser.run("[...document.querySelectorAll('.formula math')].map(m => m.getBoundingClientRect().height)")
    assert len(sizes) >= 3 and all(size > 10 for size in sizes)


def test_dark_is_dark(browser):
    shade = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    browser.look(dark=True)
    opened(browser, "index")
    dark = browser.run(shade)
    browser.look(dark=False)
    opened(browser, "index")
    assert dark < 200 < 600 < browser.run(shade)


def test_search_finds_a_method_from_the_disk(browser):
    browser.look()
    opened(browser, "index")
    browser.run("document.querySelector('[data-md-toggle=search]').click()")
    browser.type(".md-search__input", "SCAFFOLD")
    until = time.monotonic() + 30
    titles = "[...document.querySelectorAll('.md-search-result__item h1')].map(e => e.innerText)"
    while not (shown := browser.run(titles)) and time.monotonic() < until:
        time.sleep(0.2)
    assert any("scaffold" in title.lower() for title in shown), shown
    assert browser.complaints() == []
