"""docs/who-sees-what.md says what travels; here it is compared with the catalogue and with messages of real rounds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers.remote import FEDERATION, QUICK, SECRET, plan_of

from fedchord import catalog
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.serve import serve

PAGE = Path(__file__).parents[2] / "docs" / "who-sees-what.md"
ASKS = {"loss": "its loss", "report": "a noisy report of its loss"}


def told(mixing) -> str:
    return "" if "loss" not in mixing.needs else ASKS["report" if mixing.secret else "loss"]


def methods_table() -> str:
    """One line for all methods that send the same."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in catalog.METHODS:
        algorithm = catalog.build(name)
        sent = ", ".join(f"`{entry}` ({way})" for entry, way in algorithm.client.sends.items()) or "nothing"
        found.setdefault((sent, told(algorithm.mixing) or "-"), []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {sent} | {asked} |" for (sent, asked), names in found.items()]
    return "\n".join(["| method | update | beside it |", "|---|---|---|", *rows])


def mixings_table() -> str:
    rows = []
    for name, make in catalog.MIXINGS.items():
        rule = make()
        rows.append(f"| `{name}` | {told(rule) or 'nothing'} | {'all' if rule.full else 'a cohort'} |")
    return "\n".join(["| mixing rule | asks every client of a round for | who must answer |", "|---|---|---|", *rows])


def test_the_tables_are_those_of_the_catalogue():
    text = PAGE.read_text(encoding="utf-8")
    assert methods_table() in text, f"the table of methods should be:\n{methods_table()}"
    assert mixings_table() in text, f"the table of mixing rules should be:\n{mixings_table()}"


@pytest.mark.parametrize("name", ["scaffold", "fedper", "aaggff-s", "aaggff-p", "fedevg", "pfedme"])
def test_what_left_is_what_the_page_says(name, tmp_path):
    """The names in the audit of every node, question by question."""
    samples = catalog.build(name).outcome == "samples"
    plan = plan_of(name, rounds=2, **({"judge__steps": 2} if samples else {}))
    nodes = nodes_of(plan, FEDERATION, tmp_path, SECRET)
    serve(plan, Direct(nodes), service=QUICK).finish()
    row = next(line for line in PAGE.read_text().splitlines() if re.match(rf"\| .*`{name}`.* \| .* \| .* \|$", line))
    update, beside = row.split(" | ")[1:]
    entries = {f"{way}/{entry}" for entry, way in re.findall(r"`(\w+)` \((\w+)\)", update)}
    entries |= {ask for ask, words in ASKS.items() if beside.removesuffix(" |") == words}
    seen = set()
    for node in nodes.values():
        for line in map(json.loads, node.audit.path.read_text().splitlines()):
            if (line["way"], line["kind"]) == ("out", "train"):
                seen.add("train")
                assert set(line["names"]) - {"carry/buffers"} == entries
            elif line["way"] == "out":
                assert all(re.match(r"metric/|counts$|units$|test/|validation/", part) for part in line["names"])
            assert line["way"] != "refused"
    assert seen == {"train"}
