"""Rows that the processes of a machine share."""

import json
import os
from dataclasses import fields, replace

import pytest
import torch
from helpers import paged
from helpers.torchrun import done
from torch import Tensor

from fedchord.check import Unwritten
from fedchord.data import Dirichlet, Iid, federate, from_arrays, load
from fedchord.data.ragged import Ragged
from fedchord.engine import pages
from fedchord.engine.group import Group


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """What is written lies in the test's own folder."""
    monkeypatch.setattr(pages.tempfile, "tempdir", str(tmp_path))


def same(one, other) -> bool:
    """Whether two parts of a federation are equal, tensors to the bit and by their types."""
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, Ragged):
        return same(one.rows, other.rows) and same(one.offsets, other.offsets)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return one == other


def given():
    """Columns of several types, turned in memory, empty and small ones among them."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.rand(3, 4, 1797, generator=generator)
    made = federate(load("digits"), Dirichlet(0.5), 7, noise="pair", noise_rate=0.2, seed=4)
    more = {
        "turned": rows.permute(2, 0, 1),
        "mask": rows[0, 0] > 0.5,
        "wide": rows.double().permute(2, 1, 0),
        "short": (100 * rows[0, 1]).to(torch.int16),
        "empty": torch.zeros(1797, 0),
    }
    return replace(made, columns=made.columns | more, holdout={"x": rows[0].t(), "y": torch.arange(1797)})


def test_what_is_mapped_is_what_was_written():
    federation = given()
    found = pages._mapped(pages.Path(pages._written(federation)))
    for field in fields(federation):
        assert same(getattr(federation, field.name), getattr(found, field.name)), field.name
    assert found.columns["turned"].is_contiguous() and found.columns["x"].data_ptr() % pages.ALIGNED == 0


def test_what_lies_in_a_file_is_mapped_from_there(tmp_path):
    """Not copied; unless something was written to it, which the file does not know."""
    rows = torch.arange(512 * 100, dtype=torch.float32).reshape(512, 100)
    rows.numpy().tofile(tmp_path / "x.bin")
    for change in (False, True):
        x = torch.from_file(str(tmp_path / "x.bin"), shared=False, size=rows.numel()).reshape(512, 100)
        if change:
            x[100, 3] = -1.0
        federation = federate(from_arrays(x, torch.arange(512) % 2), Iid(), 4)
        federation = replace(federation, columns=federation.columns | {"x": x})
        folder = pages.Path(pages._written(federation))
        copied = (folder / pages.ROWS).stat().st_size
        found = pages._mapped(folder).columns["x"]
        assert torch.equal(found, x) and float(found[100, 3]) == (-1.0 if change else 10003.0)
        assert (copied > rows.numel() * 4) is change


def test_one_process_makes_its_own():
    federation = given()
    assert pages.read_once(Group(), lambda: federation) is federation


def test_where_nothing_can_be_written_the_line_says_what_to_set(monkeypatch, tmp_path):
    monkeypatch.setattr(pages.tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(Unwritten, match=r"^executor: the rows cannot be written .*; set TMPDIR to a folder with room$"):
        pages._written(given())


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="the kernel tells it on Linux")
def test_processes_of_a_machine_read_once_and_share_the_pages(tmp_path, monkeypatch):
    out, place = tmp_path / "out", tmp_path / "place"
    out.mkdir(), place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    done(2, paged.__file__, out, place)
    first, second = (json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(2))
    assert (first["made"], second["made"]) == (1, 0)
    assert first["sum"] == second["sum"] == float(paged.numbers().double().sum())
    assert first["rows"] == second["rows"] and first["names"] == second["names"]
    for told in (first, second):
        assert told["resident"] >= 4 * paged.ROWS * paged.WIDTH / 1024
        assert told["share"] < 0.6 * told["resident"]  # two processes, half of it each
        assert told["error"] == "digits: the file is gone"
        assert told["left"] == []  # no file has a name any more
    assert (first["own"], second["own"]) == (7.0, 8.0)
