"""The notes under a table: how to read it, and the written protocol of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fedchord.experiments.reading import Run
from fedchord.report import words
from fedchord.report.cells import DAGGER
from fedchord.report.rows import Group, labels

AS_SET, ALL, UNCOUNTED, NONE = "as set", "all", "not counted", "none"
SILENT = {AS_SET, ALL, UNCOUNTED, NONE}
"""Facts that need no line where no run has another one."""


def spread_notes(cells: Iterable[Sequence[Run]], over: str = "seeds") -> list[str]:
    """How to read the brackets."""
    counts = {len(runs) for runs in cells if runs}
    if over == "clients":
        return ["in brackets the std over clients (ddof 0)" + (", mean over seeds" if counts != {1} else "")]
    if counts == {1}:
        return ["one seed: in brackets the std over clients (ddof 0)"]
    several = "mean over seeds, in brackets the std over seeds (ddof 1)"
    return [several, f"{DAGGER} one seed: in brackets the std over clients (ddof 0)"] if 1 in counts else [several]


def why_unvalidated(run: Run) -> str:
    """Why a run has a lambda sweep and no validated values; empty if it has them, or no sweep."""
    swept = run.summary.get("sweep")
    if not swept or swept.get("validated") is not None:
        return ""
    known = [words.why_unvalidated(note) for note in run.notes("unvalidated")]
    return known[0] if known else "its clients have no validation rows; run it with validation=0.1"


def unvalidated(groups: Sequence[Group], names: Sequence[str] = ()) -> list[str]:
    """Why the column `validated` is empty, and where it rests on few rows: one line for groups with the same reason."""
    found: dict[str, dict[str, None]] = {}
    for g, name in zip(groups, names or labels(groups), strict=True):
        reason = next(filter(None, map(why_unvalidated, g.runs)), "")
        few = [words.sentence(note) for run in g.runs for note in run.notes("few-validation-rows")]
        for line in [f"no validated values: {reason}" if reason else "", *few[:1]]:
            found.setdefault(line, {})[name] = None
    return [f"{', '.join(who)}: {line}" for line, who in found.items() if line]


def protocol(groups: Sequence[Group], names: Sequence[tuple[str, ...]]) -> list[str]:
    """The written protocol of the runs: which model, which clients, which split, never sampled, seeds.

    Each group has several names (its method; its setting; both): where groups differ in a fact, they are named by the
    first kind of name that tells them apart.
    """
    facts = [_facts(g) for g in groups]
    lines = []
    for fact in facts[0] if facts else ():
        by_value: dict[str, list[tuple[str, ...]]] = {}
        for known, name in zip(facts, names, strict=True):
            by_value.setdefault(known[fact], []).append(name)
        if set(by_value) <= SILENT:
            continue
        kinds = range(len(names[0]))
        clear = [kind for kind in kinds if _clear([{name[kind] for name in who} for who in by_value.values()])]
        kind = clear[0] if clear else kinds[-1]
        parts = [f"{value} [{', '.join(dict.fromkeys(n[kind] for n in who))}]" for value, who in by_value.items()]
        lines.append(f"{fact}: {'; '.join(parts) if len(by_value) > 1 else next(iter(by_value))}")
    return lines


def _clear(sets: Sequence[set[str]]) -> bool:
    """Whether no name stands for two values."""
    return sum(len(names) for names in sets) == len(set().union(*sets))


def _facts(g: Group) -> dict[str, str]:
    every = [run.protocol for run in g.runs]
    get = every[0].get
    rest = f" ({get('without_rows')} have no rows there)" if get("without_rows") else ""
    rest += ", drawn once" if get("among") else ""
    left_out = [protocol.get("left_out", 0) for protocol in every]
    return {
        "model": str((get("deploys") or {}).get("words", "not written")),
        "measured on": f"{get('split', '?')} rows of {get('evaluated', '?')} of {get('clients', '?')} clients{rest}",
        "after round": str(get("round", "?")),
        "clients never sampled": _range([protocol.get("never_sampled", 0) for protocol in every]),
        "never sampled and left out": _range(left_out) if any(left_out) else NONE,
        "clients that deploy the global model": _without_own(every),
        "seeds": ", ".join(str(run.seed) for run in g.runs),
        "local training": words.training(every[0]) or AS_SET,
    }


def _range(counts: Sequence[int]) -> str:
    """A number, or the lowest and the highest."""
    return " to ".join(str(n) for n in sorted({min(counts), max(counts)}))


def _without_own(every: Sequence[dict[str, Any]]) -> str:
    """How many clients have no model of their own; where one model is for all there is nothing to count."""
    if (every[0].get("deploys") or {}).get("kind") == "global":
        return ALL
    counts = [protocol["global_model"] for protocol in every if "global_model" in protocol]
    return _range(counts) if len(counts) == len(every) else UNCOUNTED
