"""Files made wrong at random: nothing but our own error of one line comes out of any reader, and no file is left.

A few cases of each run with the tests, always the same ones. `FEDCHORD_FUZZ=100000 pytest tests/test_fuzz.py` tries as
many of each reader, other ones each time.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from helpers.mutate import edits, mutated
from helpers.read_all import READERS, Reader, contents
from helpers.read_state import STATE
from hypothesis import HealthCheck, given, settings

from fedchord.check import FedchordError

CASES = int(os.environ.get("FEDCHORD_FUZZ", "0"))
FEW = 15


def refused(reader: Reader, path: Path) -> str:
    """What the reader says of a file; "" if it takes it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
    except FedchordError as error:
        told = str(error)
        assert told and "\n" not in told
        return told
    return ""


@pytest.mark.parametrize("reader", (*READERS, *STATE), ids=lambda reader: reader.name)
def test_only_our_own_error_comes_out_of(reader, tmp_path):
    path = reader.laid_out(tmp_path)
    folder, content = path.parent, path.read_bytes()
    before = contents(folder)
    assert refused(reader, path) == "", "the file that is made wrong must be a good one"

    @settings(
        max_examples=CASES or FEW,
        derandomize=not CASES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(edits)
    def check(changes: list[tuple[str, int, int]]) -> None:
        path.write_bytes(mutated(content, changes))
        refused(reader, path)
        assert contents(folder) == before

    check()
