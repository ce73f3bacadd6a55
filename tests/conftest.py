"""Fixtures that many tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from helpers.federations import make_federation
from helpers.server import Server
from hypothesis import settings

from fedchord.data.federation import Federation

settings.register_profile("fedchord", deadline=None)  # a busy machine is no mistake
settings.load_profile("fedchord")
torch.set_num_threads(1)  # the tests' tensors are tiny: threads would only wait for each other


@pytest.fixture
def federation() -> Federation:
    return make_federation([13, 20, 7, 31, 10, 5])


@pytest.fixture
def data_root() -> Path:
    """The folder with the real data sets; tests that need it are skipped, with the reason, where it is not set."""
    root = os.environ.get("FEDCHORD_DATA")
    if not root:
        pytest.skip("FEDCHORD_DATA is not set: real data are not tested")
    return Path(root)


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[Server]:
    """A server on this machine for the folder `served`."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    (tmp_path / "served").mkdir()
    made = Server(tmp_path / "served")
    yield made
    made.close()
