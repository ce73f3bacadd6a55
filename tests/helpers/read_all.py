"""Every reader of files that may come from elsewhere, with a small valid file of each kind."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fedchord.core.per_client import PerClient
from fedchord.core.rules import ServerState
from fedchord.data import from_csv, from_npz
from fedchord.data import outline as outlines
from fedchord.data.formats import batches, cache, idx, leaf, pictures, table, texts
from fedchord.data.official.fetch import unpack
from fedchord.engine.checkpoint import Checkpoints
from fedchord.engine.memory import ClientMemory, load_tensors
from fedchord.experiments import reading
from fedchord.experiments.config import RunConfig
from fedchord.remote import wire
from fedchord.remote.facts import read_facts
from fedchord.remote.parcel import Parcel
from fedchord.remote.settings import read_fed, read_party
from fedchord.synthetic import set as sets
from helpers.federations import make_federation


@dataclass(frozen=True)
class Reader:
    """A reader, the file that is made wrong, and what else must lie beside it."""

    name: str
    content: Callable[[Path], bytes]
    read: Callable[[Path], Any]
    file: str = "file"
    beside: Callable[[Path], Any] = lambda folder: None

    def laid_out(self, home: Path) -> Path:
        """The good file in a folder of its own, with what must lie beside it."""
        made, folder = home / "made", home / "read"
        for place in (made, folder):
            place.mkdir()
        content = self.content(made)
        self.beside(folder)
        path = folder / self.file
        path.write_bytes(content)
        return path


def contents(folder: Path) -> list[str]:
    """The names of all that is below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def _packed(**arrays: Any) -> bytes:
    held = io.BytesIO()
    np.savez(held, **arrays)
    return held.getvalue()


def _dense(**arrays: Any) -> bytes:
    held = io.BytesIO()
    np.savez_compressed(held, **arrays)
    return held.getvalue()


X, Y = np.arange(24, dtype=np.float32).reshape(8, 3) / 7, np.arange(8) % 2
CSV = b"age;ward;who;y\n" + b"".join(
    b"%d,5;%s;n%d;%s\n" % (50 + i, b"AB"[i % 2 :][:1], i % 2, [b"no", b"yes"][i % 2]) for i in range(8)
)
PAIRS = b"method=superfed-mm\nrounds=3\nlr=.1\nmethod.mu=0.1\nsplit=dirichlet\nsplit.alpha=0.5\ncohort=0.5\nseed=7"
FED = b'name = "hearts"\nout = "served"\nclients = ["one", "two"]\n[plan]\nmethod = "fedavg"\nrounds = 3\n'
NODE = (
    b'name = "one"\nclient = 0\nserver = "127.0.0.1:9092"\nmemory = "state"\n'
    b'[data]\ndata = "rows.csv"\nlabel = "y"\n[limits]\nrounds = 5\n'
)
FACTS = {
    "format": 1,
    "party": "one",
    "client": 0,
    "kind": "table",
    "columns": {"x": ["float32", [3]], "y": ["int64", []]},
    "classes": ["a", "b"],
    "named": True,
    "features": [{"name": "age", "is": "number"}],
    "scaled": [True],
    "blocks": [[0, 2, True]],
    "pictures": None,
    "versions": {"torch": "2"},
    "split": {"seed": 0},
    "shared": {},
}


def _idx() -> bytes:
    return bytes([0, 0, 8, 3]) + np.array([2, 4, 4], ">u4").tobytes() + bytes(range(32))


def _batch() -> bytes:
    held = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1], b"filenames": [b"a.png", b"b.png"]}
    return pickle.dumps(held, protocol=2)


def _picture(kind: str) -> bytes:
    held = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(held, kind)
    return held.getvalue()


def _tar(mode: str) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode) as made:  # type: ignore[call-overload]
        for name in ("a.txt", "b/c.txt"):
            info = tarfile.TarInfo(name)
            info.size = 40
            made.addfile(info, io.BytesIO(b"x" * 40))
    return held.getvalue()


def _zip() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("a.txt", b"x" * 40)
        made.writestr("b/c.txt", b"y" * 40)
    return held.getvalue()


def _leaf() -> bytes:
    data = {user: {"x": [[0.5, 1], [2, 3]], "y": [0, 1]} for user in ("u1", "u2")}
    return json.dumps({"users": ["u1", "u2"], "num_samples": [2, 2], "user_data": data}).encode()


def _npy() -> bytes:
    held = io.BytesIO()
    np.save(held, X)
    return held.getvalue()


def _wrapped(path: Path) -> None:
    """A wrong array in a good archive, whose checksums are right."""
    whole = path.parent / "whole.npz"
    with zipfile.ZipFile(io.BytesIO(_packed(y=Y))) as good, zipfile.ZipFile(whole, "w") as made:
        made.writestr("x.npy", path.read_bytes())
        made.writestr("y.npy", good.read("y.npy"))
    from_npz(whole)


def _unpacked(path: Path) -> None:
    folder = path.parent / "unpacked"
    try:
        unpack("t", path, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _outline(folder: Path) -> bytes:
    outlines.save(make_federation([3, 4]), folder / "o")
    return (folder / "o").read_bytes()


def _checkpointed(folder: Path) -> None:
    memory = ClientMemory()
    memory.put(1, {"w": torch.ones(2)}, 1)
    weights = {"w": torch.zeros(3)}
    Checkpoints(folder, 1, "f", "c").save(ServerState(2, weights, {}, {}, PerClient.filled(2, 0, torch.int64)), memory)


def _checkpoint_file(name: str) -> Callable[[Path], bytes]:
    def content(folder: Path) -> bytes:
        _checkpointed(folder / "saved")
        return (folder / "saved" / name).read_bytes()

    return content


def _cache(folder: Path) -> bytes:
    _cached(folder)
    return next(folder.glob("cache/t-*/meta.json")).read_bytes()


def _cached(folder: Path) -> Any:
    def build(writer: cache.Writer) -> dict[str, Any]:
        writer.add(x=np.zeros((2, 3), np.uint8), y=np.arange(2))
        return {"users": ["a"]}

    return cache.cached("t", folder, [], "", build)


def _cache_again(path: Path) -> None:
    made = next(path.parent.glob("cache/t-*"))
    (made / "meta.json").write_bytes(path.read_bytes())
    cache.caches(path.parent)
    _cached(path.parent)


def _run_folder(folder: Path) -> None:
    (folder / "config.toml").write_text(RunConfig(rounds=2).to_toml())
    (folder / "rounds.jsonl").write_bytes(ROUNDS)
    (folder / "summary.json").write_bytes(SUMMARY)


ROUNDS = b"".join(
    json.dumps(
        {"round": n, "seconds": 0.5, "bytes_up": 10, "bytes_down": 9, "metrics": {"top1": {"mean": 0.5}}}
    ).encode()
    + b"\n"
    for n in (1, 2)
)
SUMMARY = json.dumps(
    {"layout": reading.LAYOUT, "rounds": 2, "metrics": {"top1": {"mean": 0.5}}, "per_client": {"top1": [0.5]}}
).encode()


def _read_run(path: Path) -> None:
    run = reading.read(path.parent)
    for line in reading.rounds(run):
        reading.flat(line)


def _whole(path: Path) -> None:
    reading.whole_rounds(path.parent)
    reading.broken(path.parent)
    reading.check_layout(path.parent)
    _read_run(path)


def _message(path: Path) -> Parcel:
    content = path.read_bytes()
    return wire.decode(content, '{"client": 1}')


def _facts_message(path: Path) -> Parcel:
    tensors, _ = wire.encode(Parcel({"w": torch.ones(2)}))
    return wire.decode(tensors, path.read_bytes().decode("utf-8", "replace"))


def _vocabulary(folder: Path) -> None:
    (folder / "rows.csv").write_bytes(b"text,y\nhello world,0\nworld hell,1\n")


def _safetensors(folder: Path) -> bytes:
    return wire.encode(Parcel({"a/w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.int64)}))[0]


READERS = (
    Reader(
        "pairs", lambda _: PAIRS, lambda p: RunConfig.from_pairs(p.read_bytes().decode("utf-8", "replace").split("\n"))
    ),
    Reader("toml", lambda _: RunConfig(rounds=2).to_toml().encode(), RunConfig.from_toml, "run.toml"),
    Reader("csv", lambda _: CSV, lambda p: from_csv(p, "y", "who"), "rows.csv"),
    Reader(
        "table", lambda _: b"a,b\n1,x\n2,y\n", lambda p: [r.number("a") for r in table.read_rows("t", p, ("a", "b"))]
    ),
    Reader("npz", lambda _: _packed(x=X, y=Y, client=Y), from_npz, "a.npz"),
    Reader("npz packed", lambda _: _dense(x=X, y=Y, client=Y), from_npz, "a.npz"),
    Reader("npy", lambda _: _npy(), _wrapped, "x.npy", lambda folder: (folder / "whole.npz").touch()),
    Reader(
        "medmnist",
        lambda _: _dense(
            **{
                f"{p}_{k}": v
                for p in ("train", "val", "test")
                for k, v in (("images", np.zeros((2, 4, 4), np.uint8)), ("labels", Y[:2, None]))
            }
        ),
        from_npz,
        "a.npz",
    ),
    Reader("idx", lambda _: _idx(), lambda p: idx.read_images("t", p, 4)),
    Reader("idx packed", lambda _: gzip.compress(_idx()), lambda p: idx.read_images("t", p, 4), "a.gz"),
    Reader("batch", lambda _: _batch(), lambda p: batches.read_images("t", p, "labels")),
    Reader("png", lambda _: _picture("PNG"), lambda p: pictures.read_pictures("t", [p]), "a.png"),
    Reader("jpeg", lambda _: _picture("JPEG"), lambda p: pictures.read_pictures("t", [p], 4), "a.jpg"),
    Reader("leaf", lambda _: _leaf(), lambda p: list(leaf.read_users("t", p))),
    Reader(
        "vocabulary",
        lambda _: b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n##o\n",
        lambda p: texts.from_texts(p.parent / "rows.csv", ["text"], p.parent, "y"),
        "vocab.txt",
        _vocabulary,
    ),
    Reader("cache", _cache, _cache_again, beside=_cached),
    Reader("outline", _outline, outlines.load),
    Reader(
        "manifest",
        _checkpoint_file("round-000002/manifest.json"),
        lambda p: Checkpoints(p.parents[1], 1, "f", "c").load(ClientMemory()),
        "round-000002/manifest.json",
        _checkpointed,
    ),
    Reader(
        "state",
        _checkpoint_file("round-000002/state.safetensors"),
        lambda p: Checkpoints(p.parents[1], 1, "f", "c").load(ClientMemory()),
        "round-000002/state.safetensors",
        _checkpointed,
    ),
    Reader("tensors", _safetensors, load_tensors),
    Reader("config", lambda _: RunConfig(rounds=2).to_toml().encode(), _read_run, "config.toml", _run_folder),
    Reader("summary", lambda _: SUMMARY, _read_run, "summary.json", _run_folder),
    Reader("rounds", lambda _: ROUNDS, _whole, "rounds.jsonl", _run_folder),
    Reader("set", lambda _: _dense(x=X / 4, y=np.repeat([0, 1], 4), low=0.0, high=1.0, classes=2), sets.load, "s.npz"),
    Reader("message", _safetensors, _message),
    Reader("message facts", lambda _: b'{"client": 1, "loss": 0.5, "plan": "ab"}', _facts_message),
    Reader("facts", lambda _: json.dumps(FACTS).encode(), read_facts, "facts.json"),
    Reader("fed", lambda _: FED, read_fed, "fed.toml"),
    Reader("node", lambda _: NODE, read_party, "node.toml"),
    Reader("tar", lambda _: _tar("w"), _unpacked, "a.tar"),
    Reader("tar packed", lambda _: _tar("w:gz"), _unpacked, "a.tgz"),
    Reader("zip", lambda _: _zip(), _unpacked, "a.zip"),
)
