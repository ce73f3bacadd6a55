"""The command `deploy plan`: from everybody's facts to the two files that server and parties must have alike."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from fedchord.check import FedchordError, require
from fedchord.data import outline as outlines
from fedchord.experiments.config import RunConfig
from fedchord.files import write_text, written
from fedchord.remote.agree import OWNER, agree
from fedchord.remote.facts import SPLIT, Facts, read_facts
from fedchord.remote.plan import Plan
from fedchord.remote.settings import Fed, Party, read_party


def make_plan(fed: Fed, paths: Sequence[Path]) -> list[str]:
    """Write outline and plan beside a server's file, and into the folders of parties that are on this machine beside
    their facts; says what was agreed on."""
    facts = [read_facts(path) for path in paths]
    asked = {key: float(fed.plan.get(key, getattr(RunConfig, key))) for key in SPLIT}
    for one in facts:
        other = [f"{key}={value:g}" for key, value in asked.items() if one.split.get(key, value) != value]
        told = "its training rows were not told as in the plan"
        ask = f"fedchord deploy facts NODE.toml --share {','.join(one.shared)} {' '.join(other)}"
        require(not other, OWNER, f"{one.party}: {told}; its facts are needed again: {ask}")
    found, notes = agree(fed.name, fed.clients, facts)
    method = str(fed.plan.get("method", RunConfig.method))
    if RunConfig(method=method).algorithm().outcome == "samples" and found.columns["x"].is_floating_point():
        ask = "ask for: fedchord deploy facts NODE.toml --share rows,ranges"
        require(found.declared is not None, OWNER, f"{method} needs the ranges of all parties; {ask}")
    plan = Plan.of(fed.plan, found)
    outlines.save(plan.outline, fed.outline)
    write_text(fed.plan_file, plan.text())
    lines = [*notes, *_facts_lines(plan), f"wrote {fed.plan_file} and {fed.outline}"]
    for path, one in zip(paths, facts, strict=True):
        party = _beside(path, one)
        if party is not None:
            _copy(fed.plan_file, party.plan)
            _copy(fed.outline, party.outline)
            lines.append(f"copied both to {party.folder}")
    if not lines[-1].startswith("copied"):
        lines.append("every party needs both files in its folder")
    return lines


def _facts_lines(plan: Plan) -> list[str]:
    known = plan.outline
    asked = "numbers to predict" if known.regression else f"{known.classes} classes"
    shape = f"{len(known.features)} columns" if known.features else "x".join(map(str, known.shape))
    sizes = ", ".join(
        f"{name} {size}" for name, size in zip(known.client_names, known.train.sizes.tolist(), strict=True)
    )
    return [
        f"{plan.config.method}, {plan.course.rounds} rounds, model {plan.settings['model']}; rows: {shape}, {asked}",
        f"training rows: {sizes}",
        f"fingerprint {plan.fingerprint[:16]}",
    ]


def _beside(path: Path, facts: Facts) -> Party | None:
    """The party whose folder facts lie in, if it is on this machine."""
    try:
        party = read_party(path.parent / "node.toml")
    except FedchordError:
        return None
    return party if party.name == facts.party else None


def _copy(source: Path, place: Path) -> None:
    with written(place) as beside:
        shutil.copyfile(source, beside)
