"""The exported folder: every file of it, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import save

import fedchord
from fedchord.export.again import compare, examples, loaded
from fedchord.export.card import card
from fedchord.export.chosen import Chosen
from fedchord.export.facts import FORMAT, Facts, facts
from fedchord.export.gather import WIDTH, gather
from fedchord.export.network import network
from fedchord.export.preprocessing import ROWS, Told, preprocessing
from fedchord.export.to_onnx import BATCHES, write_onnx
from fedchord.files import written
from fedchord.safe import json_of

FACTS = "run.json"
STANDALONE = "fedchord.export.standalone"
LEFT_OVER = frozenset({"__pycache__"})
"""What using a folder leaves in it."""


def refused(place: Path, replace: bool) -> str:
    """Why a folder may not be written at a place; "" if it may. Only an earlier export is ever replaced."""
    if not place.is_dir() or not any(place.iterdir()):
        return ""
    known = _files(place)
    if known is None:
        return "is not empty and no earlier export"
    foreign = [part.name for part in sorted(place.iterdir()) if part.name not in {*known, *LEFT_OVER}]
    if foreign:
        return f"holds {foreign[0]}, which no export wrote"
    return "" if replace else "holds an earlier export; --replace writes it anew"


def _files(place: Path) -> set[str] | None:
    """The names at the top of an earlier export; None if it is none."""
    try:
        told = json_of((place / FACTS).read_text(encoding="utf-8"))
        return {name.partition("/")[0] for name in told["files"]} | {FACTS} if told["export"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_folder(chosen: Chosen, place: Path, onnx: bool = False) -> Facts:
    """Write the folder, load it again and compare; returns the facts of run.json."""
    told, made = preprocessing(chosen), network(chosen)
    known = {**facts(chosen, made, told), "input": told}
    with written(place) as beside:
        beside.mkdir()
        for name, content in {**made.files, **_code(told), **_settings(chosen, told)}.items():
            file = beside / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        (beside / "weights.safetensors").write_bytes(save(chosen.state()))
        again = loaded(beside)
        compare(chosen, again)
        if onnx:
            apart = write_onnx(again, partial(examples, chosen), beside / "model.onnx", told["target"])
            answer = "probabilities" if told["target"] is None else "prediction"
            known["onnx"] = {"difference": apart, "outputs": ["scores", answer], "batches": list(BATCHES)}
        names = sorted(str(part.relative_to(beside)) for part in beside.rglob("*") if part.is_file())
        (beside / "README.md").write_text(card(known, [*names, FACTS]), encoding="utf-8")
        known["files"] = {name: _digest(beside / name) for name in sorted([*names, "README.md"])}
        kept = {key: value for key, value in known.items() if key != "input"}
        (beside / FACTS).write_text(_json(kept), encoding="utf-8")
    return known


def _code(told: Told) -> dict[str, bytes]:
    """predict.py, and rows.py with what it uses of the library."""
    part = f"{STANDALONE}.{told['kind'].replace(' ', '_')}"
    roots = [(f"{STANDALONE}.shared", "main"), (part, "read"), (part, "ready")]
    story = gather(roots, lambda module: module.startswith(STANDALONE))
    tools = gather(story.outside, calls=story.calls)
    about = f"Predictions of the model in this folder: python predict.py {ROWS[told['kind']]} > out.csv"
    names = sorted(name for _, name in story.outside)
    line = f"from rows import {', '.join(names)}"
    listed = "from rows import (\n" + "".join(f"    {name},\n" for name in names) + ")"
    beside = ["from model import build", line if len(line) <= WIDTH else listed]
    end = 'if __name__ == "__main__":\n    main(read, ready, build)'
    gathered = f"How files are read and rows made ready, gathered from fedchord {fedchord.__version__} (Apache-2.0)."
    return {
        "predict.py": story.text(about, beside, end).encode(),
        "rows.py": tools.text(gathered).encode(),
    }


def _settings(chosen: Chosen, told: Told) -> dict[str, bytes]:
    return {
        "preprocessing.json": _json(told).encode(),
        "settings.toml": chosen.folder.config.read_bytes(),
    }


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
