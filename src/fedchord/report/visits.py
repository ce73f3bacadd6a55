"""Runs seen by their rarely, or often, sampled clients alone: how often each was in a cohort is in rounds.jsonl."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

from fedchord.check import fail, require
from fedchord.experiments.reading import Run, whole_rounds

OWNER = "visits"


def wanted(text: str) -> tuple[int, int]:
    """Two numbers of visits, the least and the most, from "0-2", or from "3" for exactly three."""
    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text.strip())
    if found is None:
        raise fail(OWNER, f"must be a number or a range such as 0-2, got {text!r}")
    low, high = int(found[1]), int(found[2] or found[1])
    require(low <= high, OWNER, f"the first number must not be above the second, got {text!r}")
    return low, high


def of(run: Run) -> list[int]:
    """How often each client of a run was in a cohort, in the order of its clients."""
    clients = len(run.summary.get("per_client", {}).get("client", ()))
    told = f"{run.folder} measured {clients} clients of {run.protocol.get('clients')}, and visits need all of them"
    require(clients == run.protocol.get("clients"), OWNER, told)
    cohorts = [line.get("cohort") for line in whole_rounds(run.folder)]
    whole = len(cohorts) == run.summary.get("rounds") and all(isinstance(cohort, list) for cohort in cohorts)
    require(
        whole, OWNER, f"the rounds of {run.folder} are not all there; fedchord resume {run.folder} makes them again"
    )
    counts = Counter(client for cohort in cohorts for client in cohort or ())
    return [counts[client] for client in range(clients)]


def restricted(run: Run, low: int, high: int) -> Run:
    """The run with the numbers of those clients alone that were sampled so often."""
    kept = [low <= visits <= high for visits in of(run)]
    require(any(kept), OWNER, f"{run.folder} has no client that was sampled {low} to {high} times")

    def some(values: list[Any]) -> list[Any]:
        return [value for value, keep in zip(values, kept, strict=True) if keep]

    each = {name: some(values) for name, values in run.summary["per_client"].items()}
    summary, swept = run.summary | {"per_client": each}, run.summary.get("sweep")
    if swept is not None:
        chosen = swept["validated"]
        chosen = None if chosen is None else chosen | {"lambdas": some(chosen["lambdas"])}
        summary["sweep"] = swept | {"per_client": some(swept["per_client"]), "validated": chosen}
    return replace(run, summary=summary)
