"""Ctrl-C, or SIGTERM, while a run is under way: the first ends it after its round, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """The user stopped the run; the text says where it stands and how to go on."""


@contextmanager
def interrupts(told: bool = True) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, or SIGTERM sent; the second time raises KeyboardInterrupt.

    Only the main thread can listen; it says so if it is to be `told`.
    """
    pressed = False

    def heard(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        if told:
            os.write(2, b"\nstopping after this round; Ctrl-C again stops at once\n")  # print is not safe in a handler

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: pressed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
