"""Where the time of a run went: a few lines to read, and a trace for a viewer of Chrome traces, such as Perfetto."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedchord.core.clock import KINDS, OTHER, WAITING, Clock, watch
from fedchord.files import write_text

TRACE = "profile.json"


def profiled(run: Callable[[], dict[str, Any]], out: str | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The summary of a run that is watched while it runs; tells where its time went."""
    with watch() as clock:
        summary = run()
    for line in lines(clock):
        say(line)
    if out:
        write_text(Path(out, TRACE), json.dumps(trace(clock)))
        say(f"the trace is in {Path(out, TRACE)}; open it in Perfetto or another viewer of Chrome traces")
    return summary


def totals(clock: Clock) -> dict[str, float]:
    """Seconds of all processes together by kind; a worker that has nothing to do waits."""
    whole = sum(clock.seconds.values())
    found = {kind: sum(each.seconds[kind] for each in (clock, *clock.others)) for kind in KINDS}
    found[WAITING] += sum(max(0.0, whole - sum(other.seconds.values())) for other in clock.others)
    return found


def lines(clock: Clock) -> list[str]:
    """Seconds and shares by kind of work."""
    found, count = totals(clock), 1 + len(clock.others)
    whole = sum(found.values()) or 1.0
    told = f"{count} processes together" if count > 1 else "one process"
    rows = [f"  {kind:<21}{found[kind]:>9.2f} s{100 * found[kind] / whole:>7.1f} %" for kind in KINDS if found[kind]]
    return [f"where the time went, {told}:", *rows]


def trace(clock: Clock) -> dict[str, Any]:
    """The spans as a Chrome trace: a row for each process, times in microseconds since the first span."""
    clocks = [clock, *clock.others]
    first = min((start for each in clocks for _, start, _ in each.spans), default=0.0)
    events: list[dict[str, Any]] = []
    for row, each in enumerate(clocks):
        name = "this process" if row == 0 else f"worker {row}"
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": row, "args": {"name": name}})
        for kind, start, end in each.spans:
            shown = "round" if kind == OTHER else kind
            times = {"ts": round(1e6 * (start - first), 1), "dur": round(1e6 * (end - start), 1)}
            events.append({"name": shown, "ph": "X", "pid": 0, "tid": row, **times})
    left_out = sum(each.left_out for each in clocks)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"spans left out": str(left_out)}}
