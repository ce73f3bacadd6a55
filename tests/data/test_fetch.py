"""Downloads from a real server on this machine: whole or not at all, checked, and never outside their folder."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedchord.check import FedchordError
from fedchord.data.official.facts import Download, Facts
from fedchord.data.official.fetch import STAGE, _Bar, get, unpack


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "data"


def sha(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def everything(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def refused(owner: str, items: tuple[Download, ...], root: Path, **how: Any) -> str:
    with pytest.raises(FedchordError) as error:
        list(get(owner, items, root, **how))
    assert "\n" not in str(error.value)
    return str(error.value)


def tar(members: dict[str, bytes | str], mode: str = "w:gz") -> bytes:
    """An archive; a text is the target of a symbolic link."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode) as made:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                made.addfile(info)
            else:
                info.size = len(content)
                made.addfile(info, io.BytesIO(content))
    return held.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return held.getvalue()


# -- files ----------------------------------------------------------------------------------------------------------


def files(server, contents: dict[str, bytes]) -> tuple[Download, ...]:
    for name, content in contents.items():
        (server.folder / name).write_bytes(content)
    return tuple(
        Download((server.url(f"{name}?download=1"),), f"set/{name}", sha(content)) for name, content in contents.items()
    )


def test_files_are_checked_and_put_into_place(server, root):
    contents = {"a.bin": os.urandom(300_000), "b.txt": b"text"}
    items = files(server, contents)
    lines = list(get("set", items, root))
    assert lines == [f"set/{name}: downloaded; its checksum is the published one" for name in contents]
    assert everything(root) == {f"set/{name}": content for name, content in contents.items()}
    assert not (root / STAGE).exists()
    asked = len(server.asked)
    assert set(get("set", items, root)) == {
        f"{item.place} is there already, with the published checksum" for item in items
    }
    assert len(server.asked) == asked == 2


def test_md5_sums_are_understood(server, root):
    (server.folder / "a").write_bytes(b"content")
    digest = hashlib.md5(b"content", usedforsecurity=False).hexdigest()
    list(get("set", (Download((server.url("a"),), "a", f"md5:{digest}"),), root))
    assert (root / "a").read_bytes() == b"content"
    wrong = Download((server.url("a"),), "b", "md5:" + "0" * 32)
    assert refused("set", (wrong,), root).endswith(f"than md5:{'0' * 32} (got {digest}); nothing was kept")


def test_another_checksum_is_refused_and_nothing_is_kept(server, root):
    (item,) = files(server, {"a": b"what was published"})
    (server.folder / "a").write_bytes(b"something else")
    message = refused("set", (item,), root)
    expected = f"{item.urls[0]} has another checksum than {item.checksum} (got {sha(b'something else')[7:]})"
    assert message == f"set: cannot be downloaded: {expected}; nothing was kept"
    assert everything(root) == {}


def test_without_a_published_checksum_it_is_said(server, root):
    (server.folder / "a").write_bytes(b"x")
    lines = list(get("set", (Download((server.url("a"),), "set/a"),), root))
    assert lines == ["set/a: downloaded; no checksum is published to check it by"]


def test_files_without_a_checksum_do_not_stop_the_others(server, root):
    """As with mqp: the first file has no published checksum, the second broke off; the same command goes on."""
    (server.folder / "a").write_bytes(b"x")
    items = (Download((server.url("a"),), "set/a"), *files(server, {"b": b"y"}))
    server.folder.joinpath("b").rename(server.folder / "hidden")
    assert "404" in refused("set", items, root)
    server.folder.joinpath("hidden").rename(server.folder / "b")
    server.asked = []
    there = "set/a is there already and left as it is; there is no checksum to check the file by"
    assert list(get("set", items, root)) == [there, "set/b: downloaded; its checksum is the published one"]
    assert [path.partition("?")[0] for path in server.asked] == ["/b"]
    assert list(get("set", items, root)) == [there, "set/b is there already, with the published checksum"]


def test_missing_files_and_the_next_address(server, root):
    (item,) = files(server, {"a": b"x"})
    both = Download((server.url("gone"), *item.urls), "a", item.checksum)
    list(get("set", (both,), root))
    assert [path.partition("?")[0] for path in server.asked] == ["/gone", "/a"]
    none = Download((server.url("gone"), server.url("lost")), "b", item.checksum)
    told = f"{server.url('gone')} (404 File not found); {server.url('lost')} (404 File not found)"
    assert refused("set", (none,), root) == f"set: cannot be downloaded: {told}; nothing was kept"
    assert everything(root) == {"a": b"x"}


def test_a_server_that_is_not_there(server, root):
    url = server.url("a")
    server.close()
    server.close = lambda: None
    message = refused("set", (Download((url,), "a"),), root)
    assert message.startswith(f"set: cannot be downloaded: {url} (") and message.endswith("; nothing was kept")


def test_a_connection_that_breaks_off(server, root):
    items = files(server, {"a": b"first", "b": os.urandom(200_000), "c": b"third"})
    server.cut = {"/b?download=1"}
    (server.folder / "b?download=1").write_bytes((server.folder / "b").read_bytes())
    assert f"{items[1].urls[0]} (" in refused("set", items, root)
    assert everything(root) == {"set/a": b"first"}
    server.cut, server.asked = set(), []
    list(get("set", items, root))
    assert [path.partition("?")[0] for path in server.asked] == ["/b", "/c"]  # the first is not fetched again
    assert sorted(everything(root)) == ["set/a", "set/b", "set/c"]


def test_what_is_there_is_not_overwritten(server, root):
    (item,) = files(server, {"a": b"official"})
    (root / "set").mkdir(parents=True)
    (root / "set/a").write_bytes(b"mine")
    message = refused("set", (item,), root)
    assert (
        message
        == f"set: {root / 'set/a'} is there already, not the official file by its SHA256 sum; --replace takes it away"
    )
    assert (root / "set/a").read_bytes() == b"mine" and server.asked == []
    (server.folder / "a").write_bytes(b"broken")
    refused("set", (item,), root, replace=True)
    assert (root / "set/a").read_bytes() == b"mine"  # a failed download changes nothing
    (server.folder / "a").write_bytes(b"official")
    list(get("set", (item,), root, replace=True))
    assert (root / "set/a").read_bytes() == b"official"


# -- archives -------------------------------------------------------------------------------------------------------

MEMBERS = {"./top/one.txt": b"1" * 1000, "./top/deep/two.bin": os.urandom(100_000), "other/three": b"3"}


def archive(server, name: str, content: bytes, place: str, top: str, known: bool = True) -> Download:
    (server.folder / name).write_bytes(content)
    return Download((server.url(name),), place, sha(content) if known else "", top)


@pytest.mark.parametrize("name, pack", [("a.tar.gz", tar), ("a.tar", partial(tar, mode="w")), ("a.zip", zipped)])
@pytest.mark.parametrize("top, place", [("top", "set"), ("", "set"), ("top", "deep/er/set")])
def test_archives(server, root, name, pack, top, place):
    item = archive(server, name, pack(MEMBERS), place, top)
    list(get("set", (item,), root))
    start = "top/" if not top else ""
    expected = {f"{place}/{start}one.txt": MEMBERS["./top/one.txt"]}
    expected |= {f"{place}/{start}deep/two.bin": MEMBERS["./top/deep/two.bin"]}
    expected |= {} if top else {f"{place}/other/three": b"3"}
    assert everything(root) == expected
    assert [path.name for path in root.iterdir()] == [place.partition("/")[0]]  # nothing is left beside it


def test_a_folder_that_is_there(server, root):
    item = archive(server, "a.zip", zipped(MEMBERS), "set", "top")
    (root / "set").mkdir(parents=True)
    (root / "set/mine").write_bytes(b"mine")
    (other,) = files(server, {"b": b"other"})
    other = replace(other, place="other/b")
    lines = list(get("set", (item, other), root))  # nothing is known of the files in the archive
    assert lines[0] == "set is there already and left as it is; there is no checksum to check the folder by"
    assert lines[1].startswith("other/b: downloaded") and (root / "set/mine").read_bytes() == b"mine"
    known = {"set/one.txt": sha(MEMBERS["./top/one.txt"])}
    told = f"set: {root / 'set/one.txt'} is missing in a folder that is there already; --replace takes it away"
    assert refused("set", (item,), root, facts=Facts(checksums=known)) == told
    (root / "set/one.txt").write_bytes(b"another")
    differs = "is there already, not the official file by its SHA256 sum; --replace takes it away"
    told = f"set: {root / 'set/one.txt'} {differs}"
    assert refused("set", (item,), root, facts=Facts(checksums=known)) == told
    (root / "set/one.txt").write_bytes(MEMBERS["./top/one.txt"])
    lines = list(get("set", (item,), root, facts=Facts(checksums=known)))
    assert lines == ["set is there already, with the published checksums of its files"]
    assert (root / "set/mine").read_bytes() == b"mine"
    (root / "other/b").unlink()
    (root / "other/b").mkdir()
    assert refused("set", (other,), root).endswith("other/b is there already and no file; take it away")
    list(get("set", (item,), root, replace=True))
    shutil.rmtree(root / "other")
    assert sorted(everything(root)) == ["set/deep/two.bin", "set/one.txt"]
    assert [path.name for path in root.iterdir()] == ["set"]


def test_an_archive_without_the_folder(server, root):
    item = archive(server, "a.zip", zipped(MEMBERS), "set", "elsewhere")
    assert refused("set", (item,), root) == "set: set-a.zip holds no folder elsewhere"
    asked = len(server.asked)
    refused("set", (item,), root)
    assert len(server.asked) == asked  # the archive is good and kept for the next try
    assert not (root / "set").exists()


OUTSIDE = ["../evil", "top/../../evil", "/evil", "..", "top\\..\\..\\evil", "C:evil"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind, pack", [("tar.gz", tar), ("zip", zipped)])
@pytest.mark.parametrize("known", [True, False])
def test_an_archive_that_leads_outside(server, root, tmp_path, kind, pack, name, known):
    absolute = str(tmp_path / "evil") if name == "/evil" else name
    item = archive(server, f"a.{kind}", pack({"top/good": b"good", absolute: b"evil"}), "set", "top", known)
    before = everything(tmp_path)
    message = refused("set", (item,), root)
    assert message == f"set: set-a.{kind} is refused: {absolute!r} would be written outside its folder"
    after = {path: content for path, content in everything(tmp_path).items() if STAGE not in path}
    assert after == before


def test_the_bait_works(tmp_path):
    """An unpacker that trusts names does write outside, so the test above shows something."""
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(tar({"../evil": b"evil"}))) as held:
        held.extractall(place)
    assert (tmp_path / "a/evil").read_bytes() == b"evil"


def test_links_are_refused(server, root, tmp_path):
    item = archive(server, "a.tar", tar({"top/link": "/etc", "top/link/x": b"evil"}, mode="w"), "set", "top")
    assert refused("set", (item,), root) == "set: set-a.tar is refused: top/link is not a plain file"
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as made:
        for kind in (tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            info = tarfile.TarInfo("odd")
            info.type, info.linkname = kind, "top"
            made.addfile(info)
    path = tmp_path / "odd.tar"
    path.write_bytes(held.getvalue())
    with pytest.raises(FedchordError, match=r"odd\.tar is refused: odd is not a plain file$|cannot be unpacked"):
        unpack("set", path, tmp_path / "new")


@pytest.mark.parametrize("name, pack", [("a.tar.gz", tar), ("a.tar", partial(tar, mode="w")), ("a.zip", zipped)])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9])
def test_truncated_archives(server, root, name, pack, share):
    content = pack({"top/one": os.urandom(50_000), "top/two": os.urandom(50_000)})
    whole = len(content) if name != "a.tar" else 102_000  # the end of a tar file is nothing but zeros
    item = archive(server, name, content[: int(share * whole)], "set", "top", known=False)
    assert refused("set", (item,), root).startswith(f"set: set-{name} is damaged: ")
    assert everything(root) == {}  # not even the archive, since nothing says that it was good
    (server.folder / name).write_bytes(content)
    list(get("set", (item,), root))
    assert sorted(everything(root)) == ["set/one", "set/two"]


def test_a_damaged_member(tmp_path):
    content = bytearray(zipped({"top/one": os.urandom(1000)}))
    content[200] ^= 255
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(FedchordError, match=r"^set: a\.zip is damaged: Bad CRC-32"):
        unpack("set", tmp_path / "a.zip", tmp_path / "new")
    (tmp_path / "a.bin").write_bytes(b"<html>please log in</html>")
    with pytest.raises(FedchordError, match=r"^set: a\.bin is damaged: file could not be opened successfully"):
        unpack("set", tmp_path / "a.bin", tmp_path / "newer")


def test_the_bar_takes_what_pooch_gives():
    bar = _Bar("a")
    bar.total = 100
    bar.update(64)
    assert (bar.total, bar._drawn.tasks[0].completed) == (100, 64)
    bar.reset()
    bar.update(100)
    bar.close()
    assert bar._drawn.tasks[0].finished
