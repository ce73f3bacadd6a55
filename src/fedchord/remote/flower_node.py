"""Flower's SuperNode in a process of ours: `python -m fedchord.remote.flower_node` takes its options.

A SuperNode that finds no message sleeps for 3 s, and looks twice a second whether the client has answered. Here it
looks more often while there is work: the pause grows with the time since the last message, up to Flower's own. Where
another version of Flower has no such pause at this place, it keeps its own.
"""

from __future__ import annotations

import time

from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

from fedchord.remote.processes import live_with_parent

SHORTEST = 0.1
BUSY = 0.3
PATIENCE = 0.1
"""The pause after an empty look, as a share of the time since the last message."""


class Pauses:
    """In place of the module `time` there: the same sleep, shorter while there is work."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep at most so long."""
        now = time.monotonic()
        if seconds < 1:  # a message is with the client
            self._last = now
            time.sleep(min(seconds, SHORTEST))
        else:
            time.sleep(min(seconds, max(BUSY, PATIENCE * (now - self._last))))


if __name__ == "__main__":
    live_with_parent()
    start_client_internal.time = Pauses()  # type: ignore[assignment]
    flower_supernode()
