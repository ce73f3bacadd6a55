"""Ctrl-C, or SIGTERM, while a run is under way: the first ends it after its round, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_asked = False  # signals are the whole process's, and so are these
_inside = False


class Stopped(KeyboardInterrupt):
    """The user stopped the run; the text says where it stands and how to go on."""


def stopping() -> bool:
    """Whether a run in this process was asked to stop: for those who wait inside of a round."""
    return _asked


@contextmanager
def interrupts(told: bool = True) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, or SIGTERM sent; the second time raises KeyboardInterrupt.

    Only the main thread can listen; it says so if it is to be `told`. Inside of another one, as a run is inside of a
    study, what was asked stays asked.
    """
    global _asked, _inside

    def heard(number: int, frame: FrameType | None) -> None:
        global _asked
        if _asked:
            raise KeyboardInterrupt
        _asked = True
        if told:
            os.write(2, b"\nstopping after this round; Ctrl-C again stops at once\n")  # print is not safe in a handler

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    within, _inside = _inside, True
    _asked = _asked and within
    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        _inside = within
        _asked = _asked and within
        for number, handler in before.items():
            signal.signal(number, handler)
