"""Speech Commands v0.02: 35 spoken words, one second each at 16 kHz, by speaker (Warden, 2018).

Licence: CC BY 4.0. Source: speech_commands_v0.02.tar.gz, SHA-256
af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58, unpacked into `speech_commands/` (or where torchaudio
unpacks it): WORD/SPEAKER_nohash_NUMBER.wav, validation_list.txt and testing_list.txt. An unpacked folder has no
checksum; a subset is recognised by its counts.

Clips are 16-bit numbers, padded with zeros at the end to 16,000, stored as they are and batched as float32 in [-1, 1).
The training part is what neither list names; clients are its speakers with at least 3 clips. The clips of the testing
list are the holdout, those of the validation list are not used. Labels are the words in sorted order. The official
training part has 84,843 clips and the testing list 11,005; the thesis has 2,005 clients with 84,700 rows (42.24 on
average, std 36.69).
"""

from __future__ import annotations

import wave
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchord.check import fail, require, unknown
from fedchord.data.federation import DataSet
from fedchord.data.formats.cache import Writer, cached, fill_files, skipped_note
from fedchord.data.source import Source

WORDS = (
    *("backward", "bed", "bird", "cat", "dog", "down", "eight", "five", "follow", "forward", "four", "go"),
    *("happy", "house", "learn", "left", "marvin", "nine", "no", "off", "on", "one", "right", "seven"),
    *("sheila", "six", "stop", "three", "tree", "two", "up", "visual", "wow", "yes", "zero"),
)
RATE, LENGTH, LEAST = 16000, 16000, 3
_FILES = ("validation_list.txt", "testing_list.txt", "*/*_nohash_*.wav")
_FOLDERS = ("speech_commands", "SpeechCommands/speech_commands_v0.02")


def read(root: Path, skip_damaged: bool = False) -> DataSet:
    """Sound as 16-bit numbers, (n, 1, 16000); clients are the speakers.

    A damaged clip is an error, or skipped and counted if asked for; the rule of 3 clips counts it all the same.
    """
    folder = _folder(root)
    clips = _clips(folder)
    listed = {part: _listed(folder / f"{part}_list.txt") for part in ("validation", "testing")}
    unlisted = [clip for clip in clips if clip not in listed["validation"] and clip not in listed["testing"]]
    counts = Counter(_speaker(folder, clip) for clip in unlisted)
    names = sorted(speaker for speaker, count in counts.items() if count >= LEAST)
    number = {speaker: i for i, speaker in enumerate(names)}
    kept = [clip for clip in unlisted if _speaker(folder, clip) in number]
    require(bool(kept), "speechcommands", f"{folder}: no speaker has at least {LEAST} training clips")
    tested = [clip for clip in clips if clip in listed["testing"]]
    rows = [(clip, number[_speaker(folder, clip)]) for clip in kept] + [(clip, -1) for clip in tested]
    items = [(folder / clip, {"y": WORDS.index(clip.partition("/")[0]), "client": client}) for clip, client in rows]

    def build(writer: Writer) -> dict[str, Any]:
        return {"skipped": fill_files("speechcommands", writer, items, read_clip, skip_damaged)}

    inputs = [*(folder / f"{part}_list.txt" for part in listed), *(path for path, _ in items)]
    columns, facts = cached("speechcommands", root, inputs, f"{LENGTH} {skip_damaged}", build)
    client = columns.pop("client")
    trained = int((client >= 0).sum())
    told = SOURCE.origin(len(unlisted), len(tested)) + (
        f" {len(names)} of {len(counts)} speakers have at least {LEAST} clips, {trained} in all; the thesis has 2005 "
        "clients and 84700 rows."
    )
    return DataSet(
        "speechcommands",
        {name: column[:trained] for name, column in columns.items()},
        len(WORDS),
        groups=client[:trained],
        group_names=tuple(names),
        holdout={name: column[trained:] for name, column in columns.items()} if trained < len(client) else None,
        origin=told + skipped_note(facts["skipped"]),
    )


def _folder(root: Path) -> Path:
    """The first folder that holds both lists and clips; what is left over of another one beside it does not count."""
    lacking = []
    for folder in _FOLDERS:
        wanted = [f"{folder}/{name}" for name in _FILES]
        missing = [place for place in wanted if not any(path.is_file() for path in root.glob(place))]
        if not missing:
            return root / folder
        lacking.append((len(missing), missing))
    raise SOURCE.absent(root, min(lacking)[1])


def read_clip(path: Path) -> NDArray[np.int16]:
    """A clip of at most a second, (1, 16000), with zeros after its end."""
    owner = "speechcommands"
    try:
        with wave.open(str(path), "rb") as clip:
            kind = (clip.getnchannels(), clip.getsampwidth(), clip.getframerate())
            length, data = clip.getnframes(), clip.readframes(LENGTH + 1)
    except (wave.Error, EOFError, OSError, RuntimeError) as error:
        reason = str(error) or "its end"
        raise fail(owner, f"{path} is damaged: expected a wav file, got {reason}") from None
    told = f"{kind[0]} channels of {8 * kind[1]} bits at {kind[2]} Hz"
    require(kind == (1, 2, RATE), owner, f"{path} must have 1 channel of 16 bits at {RATE} Hz, got {told}")
    require(0 < length <= LENGTH, owner, f"{path} must hold 1 to {LENGTH} samples, got {length}")
    require(len(data) == 2 * length, owner, f"{path} is damaged: it holds {len(data) // 2} of {length} samples")
    padded = np.zeros((1, LENGTH), dtype=np.int16)
    padded[0, :length] = np.frombuffer(data, dtype="<i2")
    return padded


def _clips(folder: Path) -> list[str]:
    """WORD/FILE.wav of every clip, sorted."""
    found: list[str] = []
    for place in sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "_."):
        if place.name not in WORDS:
            raise unknown(f"word in {folder}", place.name, WORDS)
        found += [f"{place.name}/{path.name}" for path in sorted(place.glob("*.wav"))]
    return found


def _listed(path: Path) -> set[str]:
    try:
        lines: Iterable[str] = path.read_text(encoding="utf-8").split()
    except UnicodeDecodeError:
        raise fail("speechcommands", f"{path} is damaged: expected a list of clips") from None
    lines = set(lines)
    odd = sorted(line for line in lines if not line.endswith(".wav") or line.count("/") != 1)
    require(not odd, "speechcommands", f"{path} must list WORD/FILE.wav, got {odd[0] if odd else ''!r}")
    return lines


def _speaker(folder: Path, clip: str) -> str:
    speaker, mark, _ = clip.partition("/")[2].partition("_nohash_")
    require(bool(mark and speaker), "speechcommands", f"{folder / clip} must be named SPEAKER_nohash_NUMBER.wav")
    return speaker


SOURCE = Source(
    name="speechcommands",
    title="Speech Commands v0.02, 35 spoken words by speaker, 16 kHz",
    licence="CC BY 4.0",
    home="https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
    load=read,
    skips=True,
    classes=len(WORDS),
    natural=True,
    model="m5",
    rows=84843,
    holdout=11005,
    files=tuple(tuple(f"{folder}/{name}" for folder in _FOLDERS) for name in _FILES),
)
