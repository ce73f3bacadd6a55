"""profile=true: the same run, with a table of where its time went and a trace."""

from __future__ import annotations

import json

import pytest

from fedchord.core.clock import DATA, EVALUATION, KINDS, MIXING, MODEL, OTHER, UPDATE, WAITING, WRITING, Clock
from fedchord.experiments.config import RunConfig
from fedchord.experiments.profile import lines, totals, trace
from fedchord.experiments.run import execute

RUN = ("data=digits", "clients=6", "cohort=4", "rounds=2", "model=logreg", "eval_every=1")


@pytest.mark.parametrize("more", [("executor=serial",), ("executor=processes", "workers=2"), ("optimiser=adam",)])
def test_a_watched_run_is_the_same_run(tmp_path, more):
    said: list[str] = []
    plain = RunConfig.from_pairs([*RUN, *more])
    watched = RunConfig.from_pairs([*RUN, *more, "profile=true", f"out={tmp_path / 'a'}"])
    assert watched.fingerprint() == plain.fingerprint()
    assert execute(watched, report=said.append)["metrics"] == execute(plain)["metrics"]
    kinds = {line.split("  ")[1] for line in said if line.startswith("  ")}
    assert {DATA, MODEL, UPDATE, MIXING, EVALUATION, WRITING} <= kinds <= set(KINDS)
    assert said[-1].startswith(f"the trace is in {tmp_path / 'a' / 'profile.json'}")
    events = json.loads((tmp_path / "a" / "profile.json").read_text())["traceEvents"]
    assert {event["name"] for event in events if event["tid"] == 0} >= {"round", DATA, MODEL, UPDATE, MIXING}
    rows = {event["tid"] for event in events}
    assert rows == ({0, 1} if "workers=2" in more else rows)
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in events if event["ph"] == "X")


def test_a_worker_with_nothing_to_do_waits():
    clock = Clock()
    clock.seconds |= {MODEL: 6.0, OTHER: 4.0}
    clock.add(0, (dict.fromkeys(KINDS, 0.0) | {MODEL: 7.0}, [(MODEL, 101.0, 108.0)], 0))
    clock.spans.append((OTHER, 100.0, 110.0))
    assert totals(clock) == dict.fromkeys(KINDS, 0.0) | {MODEL: 13, OTHER: 4, WAITING: 3}
    told = lines(clock)
    assert told[0] == "where the time went, 2 processes together:"
    assert told[1].split() == ["forward", "and", "backward", "13.00", "s", "65.0", "%"]
    spans = [event for event in trace(clock)["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["tid"], event["ts"], event["dur"]) for event in spans] == [
        ("round", 0, 0.0, 1e7),
        (MODEL, 1, 1e6, 7e6),
    ]
