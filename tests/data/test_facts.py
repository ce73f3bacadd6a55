"""Facts of data sets, what checksums and counts say of a copy, statistics, caches, and a hostile array."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import pickle
import re
import statistics as oracle
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedchord.check import FedchordError
from fedchord.data import SOURCES, DataSet, Iid, Natural, federate, load, status
from fedchord.data.formats import cache
from fedchord.data.official import facts as known
from fedchord.data.official.facts import FACTS, Download, Facts, Thesis
from fedchord.data.official.verify import checksum, content_checksum, look, official_rows, verdict
from fedchord.data.samples import samples_picture, sizes_picture
from fedchord.data.statistics import client_sizes, statistics

MNIST = SOURCES["mnist"]
PARTS = [places[0] for places in MNIST.files]


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">I", length) for length in array.shape)
    return head + array.astype(np.uint8).tobytes()


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"


@pytest.fixture
def mnist(tmp_path, monkeypatch) -> dict[str, bytes]:
    """A small MNIST that is the official one as far as the facts know: 6 training and 3 test rows."""
    draw = np.random.default_rng(0)
    contents = {}
    for part, rows in (("train", 6), ("t10k", 3)):
        contents[f"mnist/{part}-images-idx3-ubyte.gz"] = idx(draw.integers(0, 256, (rows, 28, 28)))
        contents[f"mnist/{part}-labels-idx1-ubyte.gz"] = idx(np.arange(rows) % 10)
    assert list(contents) == PARTS
    packed = {place: gzip.compress(content, mtime=1) for place, content in contents.items()}
    for place, content in packed.items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(content)
    sums = {place: md5(content) for place, content in packed.items()}
    inner = {place: md5(content) for place, content in contents.items()}
    monkeypatch.setitem(FACTS, "mnist", Facts(checksums=sums, unpacked=inner))
    small = replace(MNIST, rows=6, holdout=3)
    monkeypatch.setitem(SOURCES, "mnist", small)
    monkeypatch.setattr("fedchord.data.sources.mnist.SOURCE", small)
    return contents


def judged(root: Path, count: bool = True) -> tuple[list[str], str]:
    """The states of the files and the verdict."""
    source = SOURCES["mnist"]
    data = load("mnist", root)
    rows = (len(data.columns["y"]), len(data.holdout["y"])) if count else None
    files = look(source, root)
    return [file.state for file in files], verdict(source, files, rows)[0]


# -- facts ----------------------------------------------------------------------------------------------------------


def test_every_source_has_facts():
    assert set(SOURCES) <= set(FACTS)
    for name, source in SOURCES.items():
        facts = FACTS[name]
        assert bool(facts.downloads or facts.manual) != source.embedded, name
        usual = {places[0] for places in source.files}
        assert set(facts.checksums) <= usual, name
        assert set(facts.unpacked) <= set(facts.checksums), name


@pytest.mark.parametrize("name", sorted(FACTS))
def test_downloads_fill_the_places_that_are_read(name):
    if name not in SOURCES:
        pytest.skip(f"{name} is not a source yet")
    facts, source = FACTS[name], SOURCES[name]
    if not facts.downloads:
        return
    places = [item.place for item in facts.downloads]
    for usual in (places_of[0] for places_of in source.files):
        assert any(usual == place or usual.startswith(f"{place}/") for place in places), usual
    for item in facts.downloads:
        assert item.urls and all(re.match(r"https?://[\w.-]+/\S+$", url) for url in item.urls)
        if item.top is None and item.checksum:
            assert facts.checksums[item.place] == item.checksum


def test_the_page_on_data_names_every_source():
    page = (Path(__file__).parents[2] / "docs/data.md").read_text()
    assert [name for name in SOURCES if f"`{name}`" not in page] == []
    for name, source in SOURCES.items():
        line = next(line for line in page.splitlines() if line.startswith("|") and f"`{name}`" in line)
        assert source.embedded or f"`{source.folder}/`" in line, name
        assert ("`get`" in line) == bool(FACTS[name].downloads), name
    skipping = next(line for line in page.split("\n\n") if "data.skip_damaged" in line)
    assert all(f"`{name}`" in skipping for name, source in SOURCES.items() if source.skips)


def test_checksums_look_like_checksums():
    sums = [value for facts in FACTS.values() for value in (*facts.checksums.values(), *facts.unpacked.values())]
    sums += [item.checksum for facts in FACTS.values() for item in facts.downloads if item.checksum]
    assert all(re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", value) for value in sums)
    assert len(sums) > 40


def thesis_tables() -> dict:
    place = os.environ.get("FEDCHORD_THESIS")
    if not place or not Path(place).is_file():
        pytest.skip("FEDCHORD_THESIS does not point to the thesis' tables.json")
    return json.loads(Path(place).read_text())


def test_the_numbers_are_those_of_the_thesis():
    """Both ways: each number of the two tables is in the facts, and each of the facts in a table."""
    tables = thesis_tables()
    stat: dict[str, dict[str, float]] = {}
    for row in tables["dataset_stat"]["rows"]:
        stat.setdefault(row["dataset"], {})[row["metric"]] = row["mean"]
    clients: dict[str, set[int]] = {}
    for row in tables["2_table2"]["rows"]:
        if row["metric"] == "K":
            found = row["mean"] if isinstance(row["mean"], list) else [row["mean"]]
            clients.setdefault(row["dataset"], set()).update(found)
    by_label = {facts.thesis.label: facts.thesis for facts in FACTS.values() if facts.thesis and facts.thesis.label}
    assert set(by_label) == set(stat) | set(clients)
    for label, numbers in stat.items():
        told = by_label[label]
        assert told.table == "dataset_stat"
        assert (told.clients, told.samples) == ((numbers["clients"],), numbers["samples"])
        assert (told.mean, told.std) == (numbers["avg_samples"], numbers["std_samples"])
    for label, counts in clients.items():
        assert (by_label[label].table, set(by_label[label].clients)) == ("2_table2", counts)
    (evg,) = [row["mean"] for row in tables["fedevg_config"]["rows"] if row["metric"] == "K"]
    assert FACTS["dermamnist_64"].thesis.clients == FACTS["organcmnist_64"].thesis.clients == tuple(evg)


def test_the_means_of_the_thesis_are_its_samples_over_its_clients():
    for facts in FACTS.values():
        told = facts.thesis
        if told is not None and told.samples is not None:
            assert told.samples / told.clients[0] == pytest.approx(told.mean, abs=0.005), told.label


# -- what a copy is -------------------------------------------------------------------------------------------------


def test_checksums_of_files_and_of_their_content(tmp_path):
    path, packed = tmp_path / "a", tmp_path / "a.gz"
    path.write_bytes(b"abc")
    packed.write_bytes(gzip.compress(b"abc"))
    assert checksum(path, "md5:") == "md5:900150983cd24fb0d6963f7d28e17f72"  # RFC 1321
    assert checksum(path, "sha256:x").startswith("sha256:ba7816bf8f01cfea414140de5dae2223")  # FIPS 180
    assert content_checksum(packed, "md5:") == checksum(path, "md5:") == content_checksum(path, "md5:")
    packed.write_bytes(gzip.compress(b"abc")[:-9])
    assert content_checksum(packed, "md5:") == "damaged"


def test_originals(tmp_path, mnist):
    assert judged(tmp_path) == (["official"] * 4, "original")
    assert judged(tmp_path, count=False)[1] == "original"
    assert load("mnist", tmp_path).origin.endswith("3 test rows, the official number.")


def test_packed_anew_and_unpacked(tmp_path, mnist):
    (tmp_path / PARTS[0]).write_bytes(gzip.compress(mnist[PARTS[0]], 1, mtime=2))
    assert judged(tmp_path) == (["repacked", *["official"] * 3], "content")
    for place, content in mnist.items():
        (tmp_path / place).unlink()
        (tmp_path / place.removesuffix(".gz")).write_bytes(content)
    assert judged(tmp_path) == (["repacked"] * 4, "content")
    assert load("mnist", tmp_path).origin.endswith("the official number.")


def test_a_copy_with_the_same_counts_is_not_the_original(tmp_path, mnist):
    changed = bytearray(mnist[PARTS[0]])
    changed[100] ^= 1  # one bit of one pixel
    (tmp_path / PARTS[0]).write_bytes(gzip.compress(bytes(changed)))
    assert judged(tmp_path) == (["altered", *["official"] * 3], "altered")
    told = load("mnist", tmp_path).origin
    assert told.endswith(
        "the official number. By their checksums 1 of the 4 files are not the official ones (a re-encoded or altered "
        "copy); results are not comparable with published ones."
    )
    assert told in federate(load("mnist", tmp_path), Iid(), 2).notes  # so a run says it, too


def test_a_subset_is_named(tmp_path, mnist):
    (tmp_path / PARTS[2]).write_bytes(gzip.compress(idx(np.zeros((2, 28, 28)))))
    (tmp_path / PARTS[3]).write_bytes(gzip.compress(idx(np.zeros(2))))
    assert judged(tmp_path) == (["official", "official", "altered", "altered"], "subset")
    assert judged(tmp_path, count=False)[1] == "altered"
    files = look(SOURCES["mnist"], tmp_path)
    told = verdict(SOURCES["mnist"], files, (6, 2))[1]
    assert told == (
        "a subset: 6 + 2 rows, where the official files give 6 + 3 rows; 2 of 4 files are not the official ones by "
        "their checksums"
    )
    assert verdict(SOURCES["mnist"], files, (7, 3))[0] == "other"


@pytest.mark.parametrize("packed", [True, False])
def test_renamed_files_are_recognised(tmp_path, mnist, packed):
    """The test images under the name of the training images, and the other way round, packed as published or anew."""
    one, two = (gzip.compress(mnist[place], mtime=1 if packed else 3) for place in (PARTS[0], PARTS[2]))
    (tmp_path / PARTS[0]).write_bytes(two)
    (tmp_path / PARTS[2]).write_bytes(one)
    files = look(SOURCES["mnist"], tmp_path)
    assert [file.state for file in files] == ["renamed", "official", "renamed", "official"]
    content = "" if packed else "the content of "
    assert files[0].told == f"is {content}{PARTS[2]} by its MD5 sum"
    word, told = verdict(SOURCES["mnist"], files, None)
    assert word == "altered" and f"{PARTS[0]} is {content}{PARTS[2]} by its MD5 sum" in told
    with pytest.raises(FedchordError, match=r"labels-idx1-ubyte.gz holds 6 labels for 3 images"):
        load("mnist", tmp_path)


def test_missing_damaged_and_without_a_checksum(tmp_path, mnist, monkeypatch):
    (tmp_path / PARTS[0]).write_bytes(b"<html>not found</html>")
    (tmp_path / PARTS[1]).unlink()
    files = look(SOURCES["mnist"], tmp_path)
    assert [file.state for file in files] == ["altered", "missing", "official", "official"]
    assert verdict(SOURCES["mnist"], files, None) == ("missing", f"missing {PARTS[1]}")
    monkeypatch.setitem(FACTS, "mnist", Facts())
    files = look(SOURCES["mnist"], tmp_path)
    assert [file.state for file in files] == ["unknown", "missing", "unknown", "unknown"]
    present = [file for file in files if file.count]
    assert verdict(SOURCES["mnist"], present, (6, 3))[0] == "counts"
    assert verdict(SOURCES["mnist"], present, None)[0] == "unread"
    assert verdict(SOURCES["shakespeare_words"], present, (6, 3))[0] == "own"
    assert verdict(SOURCES["digits"], [], None)[0] == "original"


def test_a_derived_file_stands_in(tmp_path):
    source = SOURCES["berka"]
    for place in ("loan.asc", "account.asc", "district.asc", "order.asc", "trans_by_account.csv"):
        (tmp_path / "berka").mkdir(exist_ok=True)
        (tmp_path / "berka" / place).write_text("x")
    files = look(source, tmp_path)
    assert files[-1].told == "stands in for berka/trans.asc"
    assert verdict(source, files, (621, 0)) == (
        "derived",
        "derived in part; berka/trans_by_account.csv stands in for berka/trans.asc",
    )


def test_speech_commands_have_fewer_rows_than_clips():
    """Speakers with fewer than 3 clips are left out, so the official files give the thesis' 84,700 rows."""
    assert official_rows(SOURCES["speechcommands"]) == (84700, 11005)
    assert official_rows(SOURCES["mnist"]) == (60000, 10000)


@pytest.mark.data
@pytest.mark.parametrize(
    "name, word", [("mnist", "content"), ("qmnist", "subset"), ("cifar10", "altered"), ("cifar100", "subset")]
)
def test_real_copies(data_root, name, word):
    """The prepared copies: MNIST packed anew, CIFAR-10 in JPEG, parts of QMNIST and CIFAR-100; or the originals."""
    if status(SOURCES[name], data_root) != "present":
        pytest.skip(f"{name} is not under FEDCHORD_DATA")
    data = load(name, data_root)
    rows = (len(data.columns["y"]), len(data.holdout["y"]))
    files = look(SOURCES[name], data_root)
    found = verdict(SOURCES[name], files, rows)[0]
    assert found in (word, "original")
    honest = "not comparable with published ones" in data.origin
    assert honest == (found in ("subset", "altered"))


@pytest.mark.data
def test_real_heart_is_original(data_root):
    if status(SOURCES["heart"], data_root) != "present":
        pytest.skip("heart is not under FEDCHORD_DATA")
    assert verdict(SOURCES["heart"], look(SOURCES["heart"], data_root), (920, 0))[0] == "original"


# -- statistics and pictures ----------------------------------------------------------------------------------------


def made(sizes: list[int], x: torch.Tensor | None = None) -> DataSet:
    groups = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    rows = len(groups)
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0)) if x is None else x
    return DataSet("toy", {"x": x, "y": torch.arange(rows) % 3}, 3, groups=groups)


def test_statistics_are_over_clients():
    sizes = [3, 10, 4, 25, 7]
    found = statistics(federate(made(sizes), Natural(), test=0.3, validation=0.2))
    assert (found.clients, found.samples) == (5, 49)
    assert found.mean == pytest.approx(oracle.mean(sizes)) and found.std == pytest.approx(oracle.pstdev(sizes))
    assert found.std != pytest.approx(oracle.stdev(sizes))


@pytest.mark.data
def test_real_berka_has_the_numbers_of_the_thesis(data_root):
    if status(SOURCES["berka"], data_root) != "present":
        pytest.skip("berka is not under FEDCHORD_DATA")
    found, told = statistics(federate(load("berka", data_root), Natural())), FACTS["berka"].thesis
    assert (found.clients, found.samples) == (told.clients[0], told.samples)
    assert (round(found.mean, 2), round(found.std, 2)) == (told.mean, told.std)


@pytest.mark.parametrize(
    "x",
    [
        torch.randint(0, 256, (30, 3, 5, 5), dtype=torch.uint8),
        torch.rand(30, 1, 5, 5),
        torch.randint(-3000, 3000, (30, 1, 64), dtype=torch.int16),
    ],
)
def test_pictures_of_samples(tmp_path, x):
    samples_picture(federate(made([10, 10, 10], x), Natural()), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size[0] > 500 and len(picture.convert("L").getcolors(1 << 20)) > 5


def test_pictures_of_sizes_and_of_nothing(tmp_path):
    toy = federate(made([10, 20, 30]), Natural())
    assert client_sizes(toy).tolist() == [10, 20, 30]
    sizes_picture(toy, tmp_path / "a.svg")
    assert "3 clients, 60 rows" in (tmp_path / "a.svg").read_text() or (tmp_path / "a.svg").stat().st_size > 5000
    with pytest.raises(FedchordError, match=r"^toy: its rows are neither pictures nor sounds, and cannot be drawn$"):
        samples_picture(toy, tmp_path / "b.png")
    with pytest.raises(FedchordError, match=r"^samples_picture: b\.gif must end in \.png, \.pdf, \.svg$"):
        samples_picture(toy, tmp_path / "b.gif")


# -- caches ---------------------------------------------------------------------------------------------------------


def test_stale_caches_are_told_and_cleaned(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)
    files = [tmp_path / "set" / name for name in ("a", "b")]
    files[0].parent.mkdir()
    for file in files:
        file.write_bytes(b"1")

    def build(writer: cache.Writer) -> dict:
        writer.add(x=np.arange(4, dtype=np.int64))
        return {}

    def states() -> list[str]:
        return [one.state for one in cache.caches(tmp_path)]

    assert states() == []
    cache.cached("my-set", tmp_path, files, "", build)
    assert states() == ["in use"]
    files[0].write_bytes(b"22")
    assert states() == ["stale"]
    cache.cached("my-set", tmp_path, files, "", build)
    assert sorted(states()) == ["in use", "stale"]
    (tmp_path / "cache/old-0123456789abcdef").mkdir()
    (tmp_path / "cache/.my-set-0123456789abcdef.x").mkdir()
    (tmp_path / "cache/mine").mkdir()  # not a cache, and never touched
    maker = os.open(tmp_path / "cache/.my-set-0123456789abcdef.x", os.O_RDONLY)
    fcntl.flock(maker, fcntl.LOCK_EX)  # as whoever makes a cache has it
    assert sorted(states()) == ["being made", "damaged", "in use", "stale"]
    os.close(maker)  # killed, or done
    gone = cache.clean(tmp_path)
    assert sorted(one.state for one in gone) == ["damaged", "left over", "stale"]
    assert states() == ["in use"] and (tmp_path / "cache/mine").is_dir()
    assert not any(one.folder.exists() for one in gone)
    files[1].unlink()
    assert states() == ["stale"]
    next((tmp_path / "cache").glob("my-set-*/inputs.json")).unlink()
    assert states() == ["unknown"] and cache.clean(tmp_path) == []


def test_a_shared_cache_of_another_root_is_not_stale(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCHORD_CACHE", str(tmp_path / "shared"))
    for root in ("one", "two"):
        (tmp_path / root).mkdir()
        (tmp_path / root / "a").write_text(root)
    build = lambda writer: writer.add(x=np.arange(2, dtype=np.int64)) or {}  # noqa: E731
    cache.cached("set", tmp_path / "one", [tmp_path / "one/a"], "", build)
    assert [one.state for one in cache.caches(tmp_path / "two")] == ["in use"]
    (tmp_path / "one").rename(tmp_path / "moved")
    assert [one.state for one in cache.caches(tmp_path / "two")] == ["unknown"]
    assert [one.state for one in cache.caches(tmp_path / "moved")] == ["in use"]


# -- a hostile array ------------------------------------------------------------------------------------------------


class Pointers:
    """An array of objects over a buffer of the writer's choice: false pointers, if anything made it."""

    def __reduce__(self):
        return np.ndarray, ((1,), "O", b"\x41" * 8)


class Buffer:
    def __reduce__(self):
        rebuild = np.empty(0).__reduce_ex__(5)[0]
        return rebuild, (b"\x41" * 8, "O", (1,), "C")


@pytest.mark.parametrize("hostile", [Pointers(), Buffer()])
def test_a_pickle_cannot_make_pointers(tmp_path, hostile):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps({"data": hostile, "fine_labels": [0]}, 2))
    with pytest.raises(FedchordError, match=r"^cifar100: .*train is (damaged|refused)[^\n]+$"):
        load("cifar100", tmp_path)


def test_the_records_are_what_they_say():
    assert known.FACTS["mnist"].downloads[0].urls[0].startswith("https://")
    assert Download(("u",), "p").top is None and Thesis("t", "l", (1,)).samples is None
