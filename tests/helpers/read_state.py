"""More readers of files that may come from elsewhere: of studies, kept results, exports, and of federations."""

from __future__ import annotations

import io
import json
import struct
import wave
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedchord.core.round import open_run
from fedchord.data.alone import alone
from fedchord.data.sources import reddit, speechcommands
from fedchord.experiments import study, study_file
from fedchord.experiments.config import RunConfig
from fedchord.export.standalone import arrays
from fedchord.models.efficientnet import read_weights
from fedchord.remote import wire
from fedchord.remote.asking import Asking
from fedchord.remote.checking import signed, welcomed
from fedchord.remote.memory import Versions
from fedchord.remote.node import Node
from fedchord.remote.parcel import Parcel
from fedchord.remote.plan import Plan
from fedchord.synthetic import panel
from fedchord.thesis import keeping, results
from helpers.read_all import Reader
from helpers.remote import FEDERATION, QUICK, direct, plan_of

FLOWER = find_spec("flwr") is not None
"""Whether Flower's records, and certificates, can be read here (extra flower)."""
TOLD = {
    "x": {"shape": [3], "dtype": "float32"},
    "columns": {"label": "y", "client": "who"},
    "scaling": None,
    "delimiter": ",",
}
STUDY = b"""title = "Toy"
seeds = [1, 2]
methods = ["FedAvg", "set:more"]
[settings]
data = "digits"
rounds = 3
[scale.small]
rounds = 1
in = {"few*" = {cohort = 2}}
[row]
FedAvg = {method = "fedavg"}
FedProx = {like = "FedAvg", method = "fedprox", "method.mu" = 0.1}
[set]
more = ["FedProx"]
[[setting]]
label = "few"
clients = 4
[reference]
source = "paper"
[reference.values.FedProx]
few = [95.13, 2.67]
"""
KEPT = {
    "form": 1,
    "study": "s",
    "row": "FedAvg",
    "setting": "few",
    "config": {"data": "digits", "rounds": 2, "method": "fedavg"},
    "metrics": {"top1": {"mean": 0.5}},
    "data": {"name": "digits", "verdict": "official"},
    "versions": {"fedchord": "0.1.0"},
    "seconds": 1.5,
    "per_client": {"top1": [0.5, 0.25]},
}
JUDGED = {"0123456789abcdef": {"test logreg 0": 0.5, "test logreg 1": 0.25}}
VOCABULARY = {"vocab": {word: number for number, word in enumerate((*reddit.SPECIAL, "the", "cat"))}}


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _saved(**given: Any) -> bytes:
    held = io.BytesIO()
    np.savez(held, **given)
    return held.getvalue()


def _wav() -> bytes:
    held = io.BytesIO()
    with wave.open(held, "wb") as clip:
        clip.setparams((1, 2, speechcommands.RATE, 0, "NONE", ""))
        clip.writeframes(struct.pack("<8h", *range(8)))
    return held.getvalue()


def _weights(_: Path) -> bytes:
    held = io.BytesIO()
    torch.save({"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.int64)}, held)
    return held.getvalue()


def _study(path: Path) -> None:
    found = study_file.load(path)
    for scale in (None, *found.scales):
        study.plan(found, scale)


def _kept(path: Path) -> None:
    found, _ = results.read_all(path.parents[1])
    for one in found:
        assert isinstance(one.verdict + one.version + one.copied, str)
        one.run()


def _judged(path: Path) -> None:
    for found in panel.read_verdicts(path).values():
        panel.overall({"all": list(found.values())}) if found else None


# -- federations ---------------------------------------------------------------------------------------------------


@cache
def _plan() -> Plan:
    return plan_of("scaffold")


@cache
def _shared() -> Any:
    plan = _plan()
    return open_run(plan.algorithm, plan.work().task, plan.clients, plan.course).broadcast


def _versions(folder: Path) -> Versions:
    found = Versions(folder / "memory", "f" * 16)
    if not found.rounds():
        found.put(0, {"w": torch.ones(2)}, -1, "ab")
        found.keep_model({"w": torch.ones(3)}, 1, 0)
        found.note_told("ab")
    return found


def _version_file(name: str) -> Callable[[Path], bytes]:
    return lambda folder: (_versions(folder).folder / name).read_bytes()


def _ledger(path: Path) -> None:
    kept = Versions(path.parents[1], "f" * 16)
    kept.taken()
    kept.get(0)


def _model(path: Path) -> None:
    Versions(path.parents[1], "f" * 16).model()


def _node(folder: Path) -> Node:
    return Node(_plan(), 0, alone(FEDERATION, 0), folder / "memory")


def _answers(folder: Path) -> None:
    """A node's memory as it is after the question was answered once."""
    _node(folder).answer("evaluate", Parcel(_shared(), json.loads(_question())))


def _question() -> bytes:
    return json.dumps(signed(_plan(), round=0, counted=-1, cohort=2, split="test")).encode()


def _asked(path: Path) -> None:
    """A question with wrong facts, to every kind of answer that trains nothing; and a hello."""
    parcel = wire.decode(wire.encode(Parcel({}))[0], _text(path))
    welcomed(_plan(), Parcel(facts=parcel.facts | {"client": 1}))
    node = _node(path.parent)
    node.answer("evaluate", Parcel(_shared(), parcel.facts))


@cache
def _asking(folder: Path) -> Asking:
    return Asking(_plan(), direct(_plan(), folder), _plan().work(), QUICK)


def _upload(folder: Path) -> bytes:
    question = Parcel(_shared(), signed(_plan(), round=0, counted=-1, cohort=2))
    return wire.encode(_node(folder).answer("train", question))[0]


def _answered(path: Path) -> None:
    """An answer with wrong tensors, as a server takes it."""
    asking = _asking(path.parent / "nodes")
    asking.check_upload(wire.decode(path.read_bytes(), json.dumps(signed(_plan(), round=0))))


def _array(_: Path) -> bytes:
    held = io.BytesIO()
    np.save(held, np.frombuffer(wire.encode(Parcel({"w": torch.ones(2)}))[0], np.uint8))
    return held.getvalue()


def _record(path: Path) -> None:
    """A large message, which Flower carries as an array."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    from fedchord.remote.flower import unpack

    body = ArrayRecord({"tensors": Array("uint8", (1,), "numpy.ndarray", path.read_bytes())})
    unpack(RecordDict({"parcel": ConfigRecord({"kind": "train", "facts": "{}"}), "body": body}), 1 << 20)


def _small_record(path: Path) -> None:
    from flwr.app import ConfigRecord, RecordDict

    from fedchord.remote.flower import unpack

    words = path.read_bytes()
    cut = words[0] if words else 0
    facts, kind = words[1 : 1 + cut].decode("utf-8", "replace"), words[-1:].decode("latin-1")
    told = ConfigRecord({"kind": kind, "facts": facts, "tensors": words[1 + cut :]})
    unpack(RecordDict({"parcel": told}), 1 << 20)


def _records() -> tuple[Reader, ...]:
    from fedchord.remote import certificates
    from fedchord.remote.settings import read_nodes

    ca = certificates.authority("toy")
    node, facts = certificates.node_key("one"), b'{"a": 1}'
    small = bytes([len(facts)]) + facts + wire.encode(Parcel({"w": torch.ones(2)}))[0]

    def certificate(path: Path) -> None:
        found = certificates.load_certificate(path)
        certificates.covers(found, "127.0.0.1")
        certificates.signed_by(found, certificates.read_certificate(ca.shown, "ca"))

    def registered(path: Path) -> None:
        for name, line in read_nodes(path).items():
            certificates.check_public(line, name)

    nodes = b'[one]\nkey = "' + node.shown + b'"\n'
    return (
        Reader("flower record", lambda _: small, _small_record),
        Reader("flower array", _array, _record),
        Reader("certificate", lambda _: ca.shown, certificate, "ca.pem"),
        Reader("private key", lambda _: ca.key, lambda p: certificates.read_key(p.read_bytes(), "key")),
        Reader("node key", lambda _: node.key, lambda p: certificates.read_key(p.read_bytes(), "key")),
        Reader("nodes", lambda _: nodes, registered, "nodes.toml"),
    )


MEMORY = f"memory/{'f' * 16}"
STATE = (
    Reader("study", lambda _: STUDY, _study, "toy.toml"),
    Reader(
        "study record",
        lambda _: b'{"study": "s", "scale": "small", "changes": {"lr": 0.1, "sweep.lambdas": [0, 1]}}',
        lambda p: RunConfig.from_pairs(study.recorded(p.parent)[1]),
        study.RECORD,
    ),
    Reader("kept", lambda _: json.dumps(KEPT).encode(), _kept, "s/a.json", lambda f: (f / "s").mkdir()),
    Reader(
        "kept lines",
        lambda _: b"setting,row,seed\nfew,FedAvg,1\nfew,FedProx,2\n",
        lambda p: keeping.read_lines(p, ("setting", "row", "seed")),
        "s.csv",
    ),
    Reader("judges", lambda _: json.dumps(JUDGED).encode(), _judged, "judges.json"),
    Reader("wav", lambda _: _wav(), speechcommands.read_clip, "a.wav"),
    Reader("words", lambda _: json.dumps(VOCABULARY).encode(), lambda p: reddit.stored("reddit", p), "vocab.json"),
    Reader("weights", _weights, read_weights, "w.pt"),
    Reader(
        "exported npz",
        lambda _: _saved(x=np.zeros((2, 3), np.float32), client=np.array(["a", "b"])),
        lambda p: arrays.read(p, TOLD),
        "a.npz",
    ),
    Reader("exported csv", lambda _: b"a,b,c,who\n1,2,3,x\n4,5,6,y\n", lambda p: arrays.read(p, TOLD), "a.csv"),
    Reader(
        "plan",
        lambda _: _plan().text().encode(),
        lambda p: Plan.read(_text(p), _plan().outline),
        "plan.json",
    ),
    Reader("ledger", _version_file("taken.json"), _ledger, f"{MEMORY}/taken.json", _versions),
    Reader(
        "node memory",
        _version_file("after-000000.safetensors"),
        _ledger,
        f"{MEMORY}/after-000000.safetensors",
        _versions,
    ),
    Reader("node model", _version_file("model.safetensors"), _model, f"{MEMORY}/model.safetensors", _versions),
    Reader(
        "node told",
        _version_file("told.json"),
        lambda p: Versions(p.parents[1], "f" * 16).told(),
        f"{MEMORY}/told.json",
        _versions,
    ),
    Reader("question", lambda _: _question(), _asked, beside=_answers),
    Reader("answer", _upload, _answered, beside=lambda f: _asking(f / "nodes")),
    *(_records() if FLOWER else ()),
)
