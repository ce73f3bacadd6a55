"""The long fuzzing, guided by coverage: every reader of files of unknown origin, so many cases of each.

    python tests/fuzz.py --cases 100000 --counts fuzz.json        # all readers; goes on where it was interrupted
    python tests/fuzz.py --cases 1000 csv npz                     # some of them

It needs atheris (extra fuzz). A reader begins with its valid file; libFuzzer changes it and keeps what reaches new code
of fedchord, every second time by the changes of the short version (helpers/mutate.py). Nothing but our own error of one
line may come out, in less than 1.5 GB, and no file may be left. What else comes out is written to `--found` and becomes
a named test. Every reader is a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import atheris

with atheris.instrument_imports(include=["fedchord"]):
    from helpers.mutate import ODD, mutated
    from helpers.read_all import READERS, contents
    from helpers.read_state import STATE

    from fedchord.check import FedchordError

if TYPE_CHECKING:
    from helpers.read_all import Reader

STEP = 20_000
"""Cases between two notes of how many there were."""
MEMORY, PATIENCE, LONGEST = 1500, 120, 16384
KINDS = ("flip", "cut", "end", "double", "odd", "instead")


def changed(data: bytes, most: int, seed: int) -> bytes:
    """The mutations of the short version, or libFuzzer's."""
    draw = random.Random(seed)
    if draw.random() < 0.5:
        return atheris.Mutate(data, most)
    changes = []
    for _ in range(draw.randint(1, 4)):
        kind = draw.choice(KINDS)
        top = len(ODD) - 1 if kind in ("odd", "instead") else 64
        changes.append((kind, draw.randrange(1 << 20), draw.randint(kind == "flip", top)))
    return mutated(data, changes)[:most]


def signature(error: BaseException) -> str:
    """What tells one fault from another: its type and the innermost line of ours."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "/fedchord/" in f.filename]
    place = f"{Path(ours[-1].filename).name}-{ours[-1].lineno}" if ours else "elsewhere"
    return f"{type(error).__name__}-{place}"


def fuzz(reader: Reader, runs: int, seed: int, corpus: Path, found: Path) -> None:
    """In a process of its own: so many cases of a reader. It never returns."""
    home = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    path = reader.laid_out(home)
    folder, content = path.parent, path.read_bytes()
    reader.read(path)
    before, count = contents(folder), 0
    (corpus / "valid").write_bytes(content)
    warnings.simplefilter("ignore")

    def wrong(name: str, data: bytes, told: str) -> None:
        place = found / f"{reader.name.replace(' ', '-')}-{name}"
        if not place.exists():
            place.write_bytes(data)
            place.with_name(f"{place.name}.txt").write_text(told)
            print(f"FOUND {place}", flush=True)

    def case(data: bytes) -> None:
        nonlocal count
        count += 1
        path.write_bytes(data)
        try:
            reader.read(path)
        except FedchordError as error:
            if not str(error) or "\n" in str(error):
                wrong("words", data, repr(str(error)))
        except Exception as error:
            wrong(signature(error), data, traceback.format_exc())
        if count % 500 == 0 and contents(folder) != before:
            wrong("left", data, str(set(contents(folder)) ^ set(before)))

    options = [f"-atheris_runs={runs}", f"-seed={seed}", f"-max_len={max(LONGEST, 2 * len(content))}", "-len_control=0"]
    options += [f"-rss_limit_mb={MEMORY}", f"-timeout={PATIENCE}", f"-artifact_prefix={found}/", "-print_final_stats=1"]
    atheris.Setup(["fuzz", *options, str(corpus)], case, custom_mutator=changed)
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def child(reader: Reader, runs: int, seed: int, corpus: Path, found: Path, log: Path) -> int:
    """The exit code of a process that fuzzes."""
    pid = os.fork()
    if pid == 0:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        try:
            fuzz(reader, runs, seed, corpus, found)
        except SystemExit as end:
            os._exit(int(end.code or 0))
        except BaseException:
            traceback.print_exc()
            os._exit(70)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def reached(log: Path) -> tuple[int, int]:
    """Edges and features that libFuzzer counted."""
    seen = re.findall(r"cov: (\d+) ft: (\d+)", log.read_text(errors="replace"))
    return (int(seen[-1][0]), int(seen[-1][1])) if seen else (0, 0)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("readers", nargs="*")
    asked.add_argument("--cases", type=int, default=100_000)
    asked.add_argument("--counts", type=Path, default=Path("fuzz.json"))
    asked.add_argument("--found", type=Path, default=Path("fuzz-found"))
    asked.add_argument("--minutes", type=float, default=1e9, help="begin no new step after so many")
    given = asked.parse_args()
    given.found.mkdir(parents=True, exist_ok=True)
    counts: dict[str, Any] = json.loads(given.counts.read_text()) if given.counts.exists() else {}
    chosen = [reader for reader in (*READERS, *STATE) if not given.readers or reader.name in given.readers]
    end = time.monotonic() + 60 * given.minutes
    for goal in sorted({min(given.cases, goal) for goal in (STEP // 10, STEP, *range(STEP, given.cases + STEP, STEP))}):
        for reader in chosen:
            known = counts.setdefault(reader.name, {"cases": 0, "edges": 0, "features": 0, "ended": 0})
            runs = goal - known["cases"]
            if runs <= 0 or time.monotonic() > end:
                continue
            corpus = given.found / f"corpus-{reader.name.replace(' ', '-')}"
            corpus.mkdir(exist_ok=True)
            seed = int.from_bytes(hashlib.sha256(f"{reader.name} {known['cases']}".encode()).digest()[:4], "big")
            log = given.found / f"{reader.name.replace(' ', '-')}.log"
            code = child(reader, runs, seed or 1, corpus, given.found, log)
            edges, features = reached(log)
            known["edges"], known["features"] = max(known["edges"], edges), max(known["features"], features)
            if code:
                known["ended"] += 1
                print(f"{reader.name}: ended with {code}, see {log}", flush=True)
            known["cases"] += runs if code == 0 else 0
            given.counts.write_text(json.dumps(counts, indent=1) + "\n")
            print(f"{reader.name}: {known['cases']} cases, {edges} edges, {features} features", flush=True)


if __name__ == "__main__":
    main()
