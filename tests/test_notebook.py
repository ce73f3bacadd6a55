"""The pieces of HTML that notebooks are shown, and how a notebook is told from a script."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from helpers.pages import Page
from matplotlib.figure import Figure
from PIL import Image

from fedchord import notebook

NASTY = '<script>alert("1")</script> & <b>'


def test_a_table_holds_its_texts_and_nothing_of_them_is_html():
    page = Page(notebook.table(["a", NASTY], [["x", "1"], [NASTY, "2"]]))
    assert page.rows == [["a", NASTY], ["x", "1"], [NASTY, "2"]]


def test_paragraphs_and_folds():
    assert Page(notebook.paragraph(NASTY)).texts == [NASTY]
    assert Page(notebook.paragraph("x", strong=True)).tags == ["p", "strong"]
    page = Page(notebook.folded(NASTY, notebook.paragraph("inside")))
    assert (page.tags, page.texts) == (["details", "summary", "p"], [NASTY, "inside"])


def test_a_picture_is_a_png_within_the_page(tmp_path):
    ((about, coded),) = Page(notebook.picture(Figure(figsize=(2, 1)), f"{NASTY}'")).images
    assert about == f"{NASTY}'"
    (tmp_path / "a.png").write_bytes(coded)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (2 * notebook.DPI, notebook.DPI)


@pytest.mark.parametrize("html", ["<p>x", "<p><b>x</p></b>", "</p>", "<p>x</p><script>1</script>"])
def test_html_that_is_not_well_formed_or_not_ours_is_found(html):
    with pytest.raises(AssertionError):
        Page(html)


def test_words():
    assert [notebook.counted(n, "class") for n in (0, 1, 2)] == ["0 classes", "1 class", "2 classes"]
    assert (notebook.counted(1, "row"), notebook.counted(5, "row")) == ("1 row", "5 rows")
    assert notebook.one_line(" a\n\tb ") == "a b" and notebook.shape((1, 8, 8)) == "1x8x8"
    assert [notebook.value(n) for n in (None, float("nan"), 0.5)] == ["-", "-", "0.5000"]


@pytest.mark.parametrize("shell, there", [
    (None, False),
    (SimpleNamespace(), False),  # IPython in a terminal has no kernel
    (SimpleNamespace(kernel=None), False),
    (SimpleNamespace(kernel=object()), True),
])  # fmt: skip
def test_a_notebook_is_a_shell_with_a_kernel(shell, there, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert (notebook.shell() is shell and shell is not None) == there


def test_without_ipython_there_is_no_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook.shell() is None
