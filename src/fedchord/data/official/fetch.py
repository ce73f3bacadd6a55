"""Downloads of public files: checked against their published checksums, whole or not at all, never outside the root.

A file goes to `.downloads/` in the data root first (by pooch, which keeps it only if its checksum agrees), then to its
place by one renaming; an archive is unpacked beside its place and renamed. Whatever fails, what was there before stays
as it was. A download that was interrupted begins anew with the file it was at; finished files are not fetched again.
"""

from __future__ import annotations

import lzma
import shutil
import struct
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace as with_changed
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fedchord.check import FedchordError, Unwritten, fail, require
from fedchord.data.official.facts import Download, Facts
from fedchord.data.official.verify import OFFICIAL, REPACKED, state_of
from fedchord.files import made_folder, placed, renamed
from fedchord.safe import check_growth

STAGE = ".downloads"
TIMEOUT = 60.0
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    RuntimeError,
    NotImplementedError,
    ValueError,
    IndexError,
    struct.error,
)


def get(
    owner: str,
    downloads: tuple[Download, ...],
    root: Path,
    replace: bool = False,
    facts: Facts | None = None,
) -> Iterator[str]:
    """Fetch what is not there yet, and tell of each file what was done.

    What is there already stays as it is, unless `replace` is true. One that differs from its published checksum is an
    error; where there is nothing to check it by, that is said, and the others are fetched. `facts` have the checksums
    of files in archives and of unpacked ones, by their places.
    """
    for item in downloads:
        there = "" if replace else _there(owner, item, root, facts or Facts())
        if there:
            yield there
            continue
        try:
            fetched = retrieve(owner, item, made_folder(root / STAGE))
            if item.top is None:
                place_file(owner, fetched, root / item.place)
            else:
                place_archive(owner, fetched, item, root)
                fetched.unlink()
        finally:
            _tidy(root / STAGE)
        checked = "its checksum is the published one" if item.checksum else "no checksum is published to check it by"
        yield f"{item.place}: downloaded; {checked}"
    _tidy(root / STAGE)


def _tidy(stage: Path) -> None:
    """Take the folder of downloads away, if nothing is in it."""
    if stage.is_dir() and not any(stage.iterdir()):
        stage.rmdir()


def _there(owner: str, item: Download, root: Path, facts: Facts) -> str:
    """What to say of what is in the place already, nothing if it is empty; what is not official is an error."""
    place = root / item.place
    if not place.exists():
        return ""
    kind = "file" if item.top is None else "folder"
    require(place.is_file() == (kind == "file"), owner, f"{place} is there already and no {kind}; take it away")
    inside = {at: value for at, value in facts.checksums.items() if at.startswith(f"{item.place}/")}
    known = inside if kind == "folder" else {item.place: item.checksum} if item.checksum else {}
    repacked = ""
    for at in known:
        file = root / at
        require(file.is_file(), owner, f"{file} is missing in a folder that is there already; --replace takes it away")
        state, told = state_of(file, at, with_changed(facts, checksums=known))
        good = state in (OFFICIAL, REPACKED)
        require(good, owner, f"{file} is there already, {told}; --replace takes it away")
        repacked = told if state == REPACKED else repacked
    if known:
        sums = f"the published checksum{'' if kind == 'file' else 's of its files'}"
        return f"{item.place} is there already, {repacked or f'with {sums}'}"
    return f"{item.place} is there already and left as it is; there is no checksum to check the {kind} by"


def retrieve(owner: str, item: Download, folder: Path) -> Path:
    """The downloaded file, from the first address that has it; its checksum is the published one, if there is one."""
    import pooch  # here, since only downloads need it

    pooch.get_logger().setLevel("ERROR")
    problems: list[str] = []
    for url in item.urls:
        name = f"{owner}-{PurePosixPath(url.partition('?')[0]).name}"
        bar = _Bar(name) if sys.stderr.isatty() else None
        downloader = pooch.HTTPDownloader(progressbar=bar or False, chunk_size=1 << 16, timeout=TIMEOUT)
        try:
            return Path(pooch.retrieve(url, item.checksum or None, name, folder, downloader=downloader))
        except ValueError as error:  # pooch says so of a checksum
            got = str(error).partition(" but got ")[2].partition(".")[0]
            told = f"{url} has another checksum than {item.checksum}" if got else f"{url} ({error})"
            problems.append(told + (f" (got {got})" if got else ""))
        except OSError as error:  # what requests raises is of this kind
            problems.append(f"{url} ({_reason(error)})")
        finally:
            if bar is not None:
                bar.close()
    raise fail(owner, f"cannot be downloaded: {'; '.join(problems)}; nothing was kept")


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"{response.status_code} {response.reason}"
    return " ".join(str(error).split())[:200] or type(error).__name__


class _Bar:
    """A progress bar as pooch wants it, drawn by rich."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._drawn = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._drawn.add_task(name, total=None)
        self._drawn.start()

    @property
    def total(self) -> float:
        return self._drawn.tasks[0].total or 0.0

    @total.setter
    def total(self, value: float) -> None:
        self._drawn.update(self._task, total=value or None)

    def update(self, amount: float) -> None:
        self._drawn.update(self._task, advance=amount)

    def reset(self) -> None:
        self._drawn.update(self._task, completed=0)

    def close(self) -> None:
        self._drawn.stop()


# -- into place -----------------------------------------------------------------------------------------------------


def place_file(owner: str, fetched: Path, place: Path) -> None:
    """Move a file to its place in one step."""
    require(not place.is_dir(), owner, f"{place} is a folder; a file belongs there")
    made_folder(place.parent)
    renamed(fetched, place)


def place_archive(owner: str, archive: Path, item: Download, root: Path) -> None:
    """Unpack an archive beside its place, then exchange the folders."""
    try:
        aside = Path(tempfile.mkdtemp(prefix=f".{owner}.", dir=made_folder(root)))
    except OSError as error:
        raise Unwritten(f"{root} cannot be written ({error.strerror or error})") from None
    try:
        made, place = aside / "new", root / item.place
        try:
            unpack(owner, archive, made)
        except BaseException:
            if not item.checksum:
                archive.unlink(missing_ok=True)  # else it would be taken for a good one the next time
            raise
        inner = made / item.top if item.top else made
        require(inner.is_dir(), owner, f"{archive.name} holds no folder {item.top}")
        made_folder(place.parent)
        placed(inner, place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def unpack(owner: str, archive: Path, folder: Path) -> None:
    """The plain files of a tar or zip archive; a name that leads outside the folder and a link are refused."""
    folder.mkdir(parents=True)
    count, size, packed = 0, 0, archive.stat().st_size
    try:
        for name, stream in _members(owner, archive):
            target = folder.joinpath(*_inside(owner, archive, name))
            target.parent.mkdir(parents=True, exist_ok=True)
            with stream, target.open("wb") as file:
                while part := stream.read(1 << 20):
                    size += len(part)
                    check_growth(packed, size)
                    file.write(part)
            count += 1
    except FedchordError:
        raise
    except _DAMAGE as error:
        raise fail(owner, f"{archive.name} is damaged: {_reason(error)}") from None
    except OSError as error:
        raise fail(owner, f"{archive.name} cannot be unpacked ({error.strerror or _reason(error)})") from None
    require(count > 0, owner, f"{archive.name} is damaged: it holds no files")


def _members(owner: str, archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The names and contents of all files in an archive."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                _inside(owner, archive, entry.filename)
                if not entry.is_dir():
                    yield entry.filename, zipped.open(entry)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            _inside(owner, archive, member.name)
            if member.isdir():
                continue
            stream: Any = tar.extractfile(member) if member.isreg() else None
            if stream is None:
                raise fail(owner, f"{archive.name} is refused: {member.name} is not a plain file")
            yield member.name, stream
        # A tar file ends with a block of zeros; without it, reading stops early and says nothing.
        held: Any = tar.fileobj
        if held.tell() < tar.offset + tarfile.BLOCKSIZE:
            raise tarfile.ReadError("unexpected end of data")


def _inside(owner: str, archive: Path, name: str) -> tuple[str, ...]:
    """The parts of a name that stays inside the folder."""
    parts = PurePosixPath(name).parts
    odd = name.startswith("/") or "\\" in name or ".." in parts or (parts and ":" in parts[0]) or "\0" in name
    require(not odd, owner, f"{archive.name} is refused: {name!r} would be written outside its folder")
    return parts
