"""Files made to do harm: they are refused in one line, before memory is taken and before anything is run."""

from __future__ import annotations

import gzip
import io
import pickle
import resource
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.federations import make_federation

from fedchord.check import FedchordError
from fedchord.data import from_npz, outline
from fedchord.data.formats import batches, idx, table
from fedchord.data.formats.npz import read_arrays
from fedchord.data.official import fetch
from fedchord.synthetic import set as sets


def refused(read: Callable[[], object]) -> str:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FedchordError) as error:
        read()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000, "memory was taken (in kB)"
    assert "\n" not in str(error.value)
    return str(error.value)


# -- arrays --------------------------------------------------------------------------------------------------------


def npy(shape: str, kind: str = "<f4", body: bytes = b"\0" * 48) -> bytes:
    """An array whose header says what it likes."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def npz(path: Path, packing: int = zipfile.ZIP_STORED, **arrays: bytes) -> Path:
    with zipfile.ZipFile(path, "w", packing) as made:
        for name, content in arrays.items():
            made.writestr(f"{name}.npy", content)
    return path


def test_the_helper_writes_what_numpy_reads(tmp_path):
    path = npz(tmp_path / "a.npz", x=npy("(4, 3)"))
    assert np.load(path)["x"].shape == (4, 3)
    assert np.array_equal(read_arrays(path, ("x",))["x"], np.zeros((4, 3), np.float32))


@pytest.mark.parametrize("shape", ["(10000000000,)", "(4, 2500000000)", "(4, 4)", "(4, 2)", "(-4, -3)", "(-12,)"])
@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_header_that_promises_what_is_not_there_is_refused(shape, packing, tmp_path):
    path = npz(tmp_path / "a.npz", packing, x=npy(shape), y=npy("(12,)"))
    for read in (from_npz, sets.load):
        assert "its header promises" in refused(lambda read=read: read(path))


def test_texts_without_letters_cannot_be_many(tmp_path):
    path = npz(tmp_path / "a.npz", x=npy("(4, 3)"), y=npy("(1000000000000,)", "<U0", b""))
    assert "empty texts" in refused(lambda: from_npz(path))


def test_python_objects_are_never_loaded(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object), y=[0])
    assert "never loaded" in refused(lambda: from_npz(path))


def test_an_array_that_unpacks_to_far_more_than_its_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedchord.safe.SMALL", 1 << 20)
    zeros = npy("(4000000,)", body=b"\0" * 16_000_000)
    path = npz(tmp_path / "a.npz", zipfile.ZIP_DEFLATED, x=zeros, y=npy("(12,)"))
    assert path.stat().st_size < 20_000 and "would unpack to" in refused(lambda: from_npz(path))


def test_parts_that_share_their_bytes_are_refused(tmp_path):
    path = npz(tmp_path / "a.npz", **{name: npy("(4, 3)") for name in "xy"})
    content = bytearray(path.read_bytes())
    for at in [i for i in range(len(content)) if content[i : i + 4] == b"PK\1\2"]:
        content[at + 20 : at + 24] = struct.pack("<I", len(content))  # each part as long as the file
    path.write_bytes(content)
    assert "overlap" in refused(lambda: from_npz(path))


def test_a_packed_idx_file_is_unpacked_within_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(idx, "SMALL", 1 << 16)
    monkeypatch.setattr("fedchord.safe.SMALL", 1 << 16)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"\0" * (1 << 24)))
    assert "would unpack" in refused(lambda: idx.read_idx("t", path, 8, 3))


# -- pickles -------------------------------------------------------------------------------------------------------

TYPE = b"\x80\x02cnumpy\ndtype\nX\x03\x00\x00\x00>f8\x85R"


def state(*parts: object) -> bytes:
    return pickle.dumps(parts, 2)[2:-1]


def test_a_pickle_cannot_make_pointers_of_numbers(tmp_path):
    """NumPy's own dtype takes flags by which the bytes of an array are followed as addresses of objects."""
    path = tmp_path / "batch"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    kind = TYPE[2:] + state(3, ">", None, None, None, -1, -1, 63) + b"b"
    body = b"K\x01K\x01\x85" + kind + b"\x89C\x08AAAAAAAA"
    path.write_bytes(b"\x80\x03}X\x04\x00\x00\x00data" + array + b"(" + body + b"tbs.")
    found = batches.read_batch("t", path)["data"]
    assert found.dtype == np.dtype(">f8") and not found.dtype.hasobject


def test_a_pickle_cannot_change_the_functions_it_may_call(tmp_path):
    path = tmp_path / "batch"
    change = b"N}X\x0c\x00\x00\x00__defaults__X\x03\x00\x00\x00abc\x85s\x86b"
    path.write_bytes(b"\x80\x02c_codecs\nencode\n" + change + b"0}.")
    assert "a change of code" in refused(lambda: batches.read_batch("t", path))
    assert batches._encode.__defaults__ == ("latin1",)


@pytest.mark.parametrize("place", [b"r\xff\xff\xff\x07", b"r\xff\xff\xff\x7f", b"p999999999\n"])
def test_a_pickle_cannot_take_memory_by_numbering(place, tmp_path):
    path = tmp_path / "batch"
    path.write_bytes(b"\x80\x02}" + place + b".")
    assert "in a file of" in refused(lambda: batches.read_batch("t", path))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_batches_of_every_protocol_are_read(protocol, order, tmp_path):
    path, draw = tmp_path / "batch", np.random.default_rng(protocol)
    data = np.array(draw.integers(0, 256, (3, 3072)), dtype=np.uint8, order=order)
    numbers = np.array([1.5, -2.0], dtype=">f4")
    path.write_bytes(pickle.dumps({"data": data, "labels": [0, 1, 2], "numbers": numbers}, protocol))
    images, labels = batches.read_images("t", path, "labels")
    assert np.array_equal(images.reshape(3, 3072), data) and labels.tolist() == [0, 1, 2]
    assert np.array_equal(batches.read_batch("t", path)["numbers"], numbers)


# -- archives, tables, outlines ------------------------------------------------------------------------------------


def test_an_archive_that_grows_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedchord.safe.SMALL", 1 << 16)
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("a", b"\0" * (1 << 24))
    archive = tmp_path / "a.zip"
    archive.write_bytes(held.getvalue())
    assert "would unpack" in refused(lambda: fetch.unpack("t", archive, tmp_path / "out"))
    assert sum(path.stat().st_size for path in (tmp_path / "out").rglob("*")) <= max(
        1 << 16, 100 * len(held.getvalue())
    )


def test_a_column_with_a_line_break_in_its_name_is_one_line(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'"a\nb",c\n1,2\n')
    assert "has no column x" in refused(lambda: list(table.read_rows("t", path, ("x",))))


@pytest.mark.parametrize("sizes", [[1 << 40, 1], [-1, 5], [1 << 62, 1 << 62], [[1, 2]]])
def test_an_outline_cannot_tell_of_rows_that_nobody_has(sizes, tmp_path, monkeypatch):
    told, tensors = outline._parts(outline.outline(make_federation([3, 4])))
    monkeypatch.setattr(outline, "_parts", lambda found: (told, tensors | {"train.sizes": torch.tensor(sizes)}))
    outline.save(make_federation([3, 4]), tmp_path / "o")
    assert "numbers of rows" in refused(lambda: outline.load(tmp_path / "o"))
