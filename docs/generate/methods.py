"""A page for every method, made of the catalogue, the docstrings, the thesis map, and counted costs."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import tomllib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from formulas import is_formula, set_blocks

from fedchord.catalog import METHODS, Method, build, fields

HERE = Path(__file__).parent
DOCS = HERE.parent
ROOT = DOCS.parent
PARTS = ("client", "mixing", "server")
USUAL = {"client": "Plain", "mixing": "BySize", "server": "Step"}
RUN = "fedchord run method={name} {data}rounds=20 {cohort}seed=1 out=runs/{name}"


@cache
def told() -> dict[str, Any]:
    """What methods.toml says."""
    return tomllib.loads((HERE / "methods.toml").read_text(encoding="utf-8"))


@cache
def costs() -> dict[str, dict[str, float]]:
    """What measure_costs.py has counted."""
    found: dict[str, dict[str, float]] = json.loads((DOCS / "costs.json").read_text())
    return found


def families() -> dict[str, list[str]]:
    """Methods by family, in the order of the catalogue."""
    return {
        title: [name for name in METHODS if told()[name]["family"] == key] for key, title in told()["families"].items()
    }


def pages() -> dict[str, str]:
    """Every page of this part, by its place in the site."""
    return {"methods/index.md": overview()} | {f"methods/{name}.md": page(name) for name in METHODS}


# -- rules ---------------------------------------------------------------------------------------------------------


def rule(method: Method, part: str) -> type:
    """The class of one of a method's rules."""
    maker = getattr(method, part)
    found: type = maker.func if isinstance(maker, partial) else maker
    return found


def doc(found: type) -> str:
    """What a rule says of itself."""
    return inspect.cleandoc(found.__doc__ or "")


def formulas(name: str) -> list[str]:
    """The formulas of a method, as they are written in the docstrings of its rules."""
    return [block for part in PARTS for block in formulas_of(rule(METHODS[name], part))]


def formulas_of(found: type) -> list[str]:
    """The formulas of one rule."""
    blocks = re.split(r"\n{2,}", doc(found))
    return [block for block in blocks if block.startswith("    ") and is_formula(inspect.cleandoc(block))]


def departures(name: str) -> list[str]:
    """Where a method departs: errata that its docstrings name, sentences of theirs, lines of the thesis map."""
    text = "\n\n".join(doc(rule(METHODS[name], part)) for part in PARTS)
    errata = dict.fromkeys(re.findall(r"E\d+", " ".join(re.findall(r"departs:([^)]*)\)", text))))
    found = [
        f"[{one}](../thesis-map.md#errata): {here} (the thesis: {there})"
        for one in errata
        for there, here in [_erratum(one)]
    ]
    for sentence in re.findall(r"Departs:? [^.]+\.(?=\s|$)", text.replace("\n", " ")):
        found.append(sentence)
    for title, line in re.findall(r"^- \*\*(.+?)\*\*((?:.|\n(?!- ))+)", _section("Departures"), re.MULTILINE):
        if re.sub(r"\W", "", title.lower()) == re.sub(r"\W", "", name):
            found.append(f"{title}{' ' + ' '.join(line.split())} ([thesis map](../thesis-map.md#departures))")
    return found


def _section(title: str) -> str:
    text = (DOCS / "thesis-map.md").read_text(encoding="utf-8")
    return re.split(r"^## ", text.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def _erratum(one: str) -> tuple[str, str]:
    found = re.search(rf"^\| {one} \| (.+) \| (.+) \|$", _section("Errata"), re.MULTILINE)
    assert found is not None, one
    return found[1], found[2]


# -- pages ---------------------------------------------------------------------------------------------------------


def overview() -> str:
    """All methods in one table per family."""
    lines = [
        "# Methods",
        "",
        "A method is three rules: what a client does, how much it counts, what the server does with the",
    ]
    lines += [
        "mixed update. Rules can be exchanged (`mixing=`, `server=`). Numbers are counted for one visit of a client, in"
    ]
    lines += ["sizes of the method's model and in passes over the client's rows; [where from](#costs).", ""]
    for title, names in families().items():
        lines += [
            f"## {title}",
            "",
            "| method | what it is | sent down, up | kept | gradients a row |",
            "|---|---|---|---|---|",
        ]
        for name in names:
            found = costs()[name]
            sent = f"{found['down']:g}, {found['up']:g}"
            lines.append(
                f"| [`{name}`]({name}.md) | {METHODS[name].about} | {sent} | {found['kept']:g} | {_passes(found)} |"
            )
        lines.append("")
    return "\n".join([*lines, "## Costs", "", COSTS, ""])


COSTS = """`python docs/measure_costs.py` counts them on the embedded digits, with four clients, one local epoch and the
method's defaults: the bytes that a client receives and sends in a round and what it keeps between rounds, in sizes of
the model that the method trains (`smallconv`, or its own), and how often a row goes through that model forwards and
backwards. A synthetic set is sent instead of a model, and is small beside a large one. Training before use
(`fedavg-ft`, `superfed-stateless`) comes once, after the last round, and is not counted, nor are the generative
networks of `fedcvae` and `fedcgan`, whose parts are trained in turn."""


def _passes(found: dict[str, float]) -> str:
    return f"{found['gradients']:g}" if found["gradients"] else "not counted" if found["up"] == 1 else "0"


def page(name: str) -> str:
    """The page of one method."""
    method, more = METHODS[name], told()[name]
    data = "" if "tables" not in name else "data=heart "
    everyone = more["family"] == "synthetic" or build(name).mixing.full
    cohort = "cohort=all " if everyone else "cohort=5 "
    lines = [f"# {name}", "", f"*{_sentence(method.about)}*", ""]
    lines += ["```sh", RUN.format(name=name, data=data, cohort=cohort), "```", ""]
    lines += ["## When to use it", "", more["when"], "", "[Which method?](../which-method.md) compares.", ""]
    lines += ["## Formula", "", *_rules(method)]
    lines += ["## Source", "", *[f"- {told()['papers'][one]}" for one in more["papers"]]]
    lines += [f"- {more['own']}"] if "own" in more else []
    lines += ["- A control of fedchord's, of no paper."] if not more["papers"] else []
    lines += ["", "## Departures", ""]
    lines += [f"- {one}" for one in departures(name)] or ["None is noted."]
    lines += ["", "## What it costs", "", *_costs(name), ""]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _rules(method: Method) -> list[str]:
    lines: list[str] = []
    for part in PARTS:
        found = rule(method, part)
        if found.__name__ == USUAL[part] and method is not METHODS["fedavg"]:
            lines += [f"**{part.capitalize()} rule** `{found.__name__}`: as in [fedavg](fedavg.md).", ""]
            continue
        path = Path(inspect.getfile(found)).relative_to(ROOT)
        lines += [f"### {part.capitalize()} rule: `{found.__name__}`", "", set_blocks(doc(found)), ""]
        lines += [f"Code: [{path.name}](../../{path}).", "", *_settings(getattr(method, part))]
    return lines


def _settings(maker: Callable[..., object]) -> list[str]:
    known = fields(maker)
    if not known:
        return []
    shown = [f"`method.{name}` = `{_default(value)}`" for name, value in known.items()]
    return ["Settings and their defaults: " + ", ".join(shown) + ".", ""]


def _default(value: object) -> str:
    return "no default" if value is dataclasses.MISSING else str(value) or '""'


def _costs(name: str) -> list[str]:
    found, base = costs()[name], costs()["fedavg"]
    rows = [
        ("received by a client in a round", "down", "models"),
        ("sent by a client in a round", "up", "models"),
        ("kept by a client between rounds", "kept", "models"),
        ("forwards and backwards", "gradients", "times a row"),
        ("forwards alone", "forwards", "times a row"),
    ]
    lines = ["| per client and round | here | FedAvg | |", "|---|---|---|---|"]
    for title, key, unit in rows:
        here = _passes(found) if key == "gradients" else f"{found[key]:g}"
        lines.append(f"| {title} | {here} | {base[key]:g} | {unit} |")
    return [*lines, "", "How it is counted: [Methods](index.md#costs)."]
