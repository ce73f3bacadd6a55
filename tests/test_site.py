"""What the site is made of: pages of methods with formula and source, set formulas, costs, drawings, links."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from helpers.documents import DOCUMENTS
from helpers.site import DOCS, generated, script

from fedchord.catalog import METHODS

links, methods, formulas = script("links"), script("methods"), script("formulas")


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed (extra docs): no formula is set")
    return generated()


# -- methods -------------------------------------------------------------------------------------------------------

CITED = re.compile(r"\(([A-Z]\w+)(?: and \w+| et al\.)?,\s+(\d{4})")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_formula_source_use_and_costs(name):
    assert methods.formulas(name), "no rule of it has a formula in its docstring"
    told, papers = methods.told()[name], methods.told()["papers"]
    assert told["when"].endswith(".") and told["family"] in methods.told()["families"]
    sources = [papers[one] for one in told["papers"]]
    text = " ".join([METHODS[name].about, *(methods.doc(methods.rule(METHODS[name], part)) for part in methods.PARTS)])
    usual = {("McMahan", "2017")} if name != "fedavg" else set()  # weights by size and the plain step, in most methods
    for author, year in set(CITED.findall(METHODS[name].about)) - usual:
        assert any(f"{author}," in one and year in one for one in sources), f"{author} {year} is not a source"
    assert sources or "control" in text or "own" in told
    assert set(methods.costs()[name]) == {"down", "up", "kept", "gradients", "forwards"}


def test_every_rule_has_a_formula_of_its_own():
    rules = {methods.rule(method, part) for method in METHODS.values() for part in methods.PARTS}
    assert len(rules) > 30 and [one.__name__ for one in rules if not methods.formulas_of(one)] == []


def test_every_method_has_a_page(made):
    for name in METHODS:
        page = made[f"methods/{name}.md"]
        assert "<math" in page, name
        for title in ("When to use it", "Formula", "Source", "Departures", "What it costs"):
            assert re.search(rf"## {title}\n\n\S", page), f"{name}: {title}"
        assert f"]({name}.md)" in made["methods/index.md"]


def test_the_commands_of_the_pages_are_good(made):
    from fedchord.experiments.config import RunConfig

    for name in METHODS:
        (command,) = re.findall(r"^fedchord run (.+)$", made[f"methods/{name}.md"], re.MULTILINE)
        assert RunConfig.from_pairs(command.split()).method == name


def test_departures_are_those_of_docstrings_and_thesis_map():
    (one,) = [text for text in methods.departures("fedmgda") if "mean norm" in text]
    assert "rescale=mean" in one
    assert any("E4" in text and "E(real) - E(chain)" in text for text in methods.departures("fedevg"))
    assert methods.departures("fedavg") == []


def test_costs_are_counted_anew():
    costs = script("measure_costs")
    for name, expected in {
        "scaffold": {"down": 2.0, "up": 2.0, "kept": 1.0},
        "apfl": {"gradients": 2.0, "kept": 1.0},
    }.items():
        found = costs.measured(name)
        assert found == methods.costs()[name], "count them anew: python docs/measure_costs.py"
        assert expected.items() <= found.items()  # by hand: a control variate both ways; two gradients, one model kept
    assert list(methods.costs()) == list(METHODS)


# -- formulas ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("theta <- theta - lr grad F(theta)", r"\theta \leftarrow \theta - \ \text{lr}\ \nabla F(\theta)"),
        ("p_{t+1, i} ~ exp(-sum_s gbreve_{s, i} / zeta)", r"p_{t+1, i} \sim \exp(-\sum_{s} \breve{g}_{s, i} / \zeta)"),
        ("sqrt(log(K) / t)^2", r"\sqrt{\log(K) / t}^{2}"),
        ("F_i^(q - 1) ||D_i||^2", r"F_{i}^{q - 1} \| D_{i}\|^{2}"),
        ("<p, r> <= C2", r"\langle p, r\rangle \le C_{2}"),
        ("lam over the simplex", r"\lambda \ \text{over}\ \text{the}\ \text{simplex}"),
    ],
)
def test_plain_notation_becomes_latex(plain, expected):
    assert re.sub(r"\s+", "", formulas.latex(plain)) == re.sub(r"\s+", "", expected)


def test_brackets_that_do_not_close_are_told():
    with pytest.raises(ValueError, match="do not close"):
        formulas.latex("sqrt(t + 1")


def test_words_commands_and_tables_are_no_formulas():
    text = 'Words.\n\n    fedchord run method=fedavg\n\n    "global"   at g as well\n\n    a <- b'
    assert formulas.set_blocks(text, lambda block: f"[{block}]").endswith("\n\n[a <- b]")
    assert formulas.set_blocks(text, lambda block: "X").count("X") == 1


def test_an_inner_product_in_words_is_no_tag():
    assert formulas.set_blocks("pays <p, r> for `x <y>`") == "pays &lt;p, r> for `x <y>`"


def test_every_formula_is_set(made):
    """All of it is MathML that can be parsed, and no symbol is lost: letters and digits are those of the plain text."""
    for name in METHODS:
        for plain in methods.formulas(name):
            root = ElementTree.fromstring(formulas.mathml(plain))
            assert root.iter("{http://www.w3.org/1998/Math/MathML}math")
            shown = "".join(root.itertext())
            for letter in set(re.findall(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])", plain)):
                assert letter in shown or letter in "T", f"{name}: {letter} of {plain}"
            assert "\\" not in shown, f"{name}: {shown}"


# -- drawings ------------------------------------------------------------------------------------------------------


def words(svg: str) -> list[str]:
    return sorted(
        "".join(one.itertext()).strip() for one in ElementTree.fromstring(svg).iter() if one.tag.endswith("text")
    )


def test_the_drawings_are_what_their_script_draws():
    concepts = script("draw_concepts")
    for name in concepts.DRAWINGS:
        there = (DOCS / "drawings" / f"{name}.svg").read_text()
        assert words(there) == words(concepts.drawn(name)), f"draw {name} anew: python docs/draw_concepts.py"
        assert "prefers-color-scheme: dark" in there and f"drawings/{name}.svg" in DOCUMENTS["docs/concepts.md"]
        assert len(words(there)) > 3 and not re.search(r"(?<!--)(?:fill|stroke): #(?!000)", there.split("</style>")[1])


# -- links ---------------------------------------------------------------------------------------------------------


def test_links_out_of_the_documents_lead_to_pages():
    text = "[a](../src/fedchord/rng.py) [b](../CONTRIBUTING.md#to-add) [c](data.md)\n```sh\n[a](../x)\n```\n"
    assert links.relinked(text, "personal.md") == (
        "[a](source/src/fedchord/rng.py.md) [b](contributing.md#to-add) [c](data.md)\n```sh\n[a](../x)\n```\n"
    )
    assert links.relinked("[d](docs/data.md) [e](https://x.org/y)", "readme.md") == "[d](data.md) [e](https://x.org/y)"
    study = "[s](../src/fedchord/thesis/studies/disc.toml)"
    assert links.relinked(study, "results.md") == "[s](studies/disc.md)"


def test_no_link_of_the_site_is_broken(made):
    written = {name.removeprefix("docs/"): text for name, text in DOCUMENTS.items() if name.startswith("docs/")}
    pages = written | made
    pages |= links.sources(pages)
    for place, text in pages.items():
        if place.startswith("source/"):
            continue
        for path in links.targets(text, place):
            there = links.place_of(path)
            known = there in pages or there.startswith("reference/") or (DOCS / there).is_file()
            assert known, f"{place}: {path}"


def test_seeds_that_are_kept_as_lines_are_averaged(tmp_path):
    """By hand: 0.5 and 0.7 of two seeds of one hundred; the third is of another."""
    path = tmp_path / "many.csv"
    head = "setting,row,seed,rounds,run,mean,official mean,chosen lambda,data\n"
    lines = [f'S,"A, b",{rest}\n' for rest in ("401,3,a,0.5,0.1,,x", "402,3,b,0.7,0.2,,x", "1201,3,c,0.9,0.3,,x")]
    path.write_text(head + "".join(lines))
    shown = script("study_pages")._lines(path)
    assert "| setting | method | seeds | mean | official mean |" in shown
    assert "| S | A, b | 401 to 402 (2) | 60.00 | 15.00 |" in shown
    assert "| S | A, b | 1201 to 1201 (1) | 90.00 | 30.00 |" in shown


@pytest.mark.parametrize(
    ("verdict", "mark"), [("content", ""), ("altered", "†"), ("derived", "†"), ("subset", "‡"), ("other", "‡")]
)
def test_numbers_on_other_data_are_marked(verdict, mark):
    from fedchord.thesis.cells import State, cells

    pages = script("study_pages")
    for state, number in (("full", f"**90.00**{mark}<br>"), ("reduced", f"90.00{mark}<br>")):
        shown = pages._shown(cells("2_table3")[0], State(state, 90.0, verdict=verdict))
        assert shown == f"{number}<small>95.69</small>"  # the thesis' FedAvg with 50 clients
    assert not mark or f"{mark}: " in pages.LEGEND


def test_names_with_markup_in_them_are_escaped():
    (shown, _) = script("study_pages")._about("a <b> with `code <i>` and *stars*")
    assert shown == r"a \<b> with `code <i>` and \*stars\*"
