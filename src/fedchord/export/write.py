"""What `fedchord export` writes: a folder that loads without fedchord, or the weights alone in one file."""

from __future__ import annotations

import io
import re
from pathlib import Path

import torch
from safetensors.torch import save

from fedchord.check import one_of, require
from fedchord.experiments.folder import RunFolder
from fedchord.export.chosen import Chosen, choose
from fedchord.export.folder import refused, write_folder
from fedchord.export.preprocessing import ROWS
from fedchord.export.to_onnx import check_extra
from fedchord.files import blocked, write_stream

SUFFIXES = (".pt", ".pth", ".safetensors")
FORMATS = ("torch", "onnx")


def export(
    folder: str | Path,
    client: int | str | None = None,
    to: str | Path | None = None,
    format: str = "torch",
    replace: bool = False,
) -> list[str]:
    """Write the global model, or the one a client would use; returns lines that say what was written."""
    one_of("export", "format", format, FORMATS)
    if to is None:
        RunFolder(folder).read_values()  # whether there is a run comes before whether one can write there
    place = Path(to) if to is not None else Path(folder) / _usual(client)
    single = place.suffix in SUFFIXES and not place.is_dir()
    _check(place, single, to is not None, format)
    lines: list[str] = []
    if not single:
        reason = refused(place, replace)
        require(not reason, "export", f"{place} {reason}")
    chosen = choose(folder, client, lines.append)
    return [*lines, *(_file(chosen, place) if single else _folder(chosen, place, format))]


def _usual(client: int | str | None) -> str:
    """The name of the folder unless one is given."""
    return "export" if client is None else f"export-{re.sub(r'[^0-9A-Za-z._-]+', '_', str(client))}"


def _check(place: Path, single: bool, given: bool, format: str) -> None:
    """Refuse a place that cannot be written, and a format that does not go there."""
    known = single or not place.suffix or place.is_dir() or not given
    told = "a file must end in .pt or .safetensors, and a folder has no suffix"
    require(known, "export", f"{told}, got {str(place)!r}")
    require(
        format == "torch" or not single, "export", f"--format {format} writes a folder, got the file {str(place)!r}"
    )
    reason = f"{place} is a file" if not single and place.is_file() else blocked(place)
    require(not reason, "export", f"{place} cannot be written ({reason})")
    if format == "onnx":
        check_extra()


def _file(chosen: Chosen, file: Path) -> list[str]:
    state = chosen.state()
    packed = io.BytesIO()  # written by Python, which tells why a disk takes no more
    if file.suffix == ".safetensors":
        packed.write(save(state))
    else:
        torch.save(state, packed)
    write_stream(file, lambda stream: stream.write(packed.getbuffer()))
    count = sum(tensor.numel() for tensor in state.values())
    return [f"wrote {file}: {chosen.words}, {count:,} numbers in {len(state)} tensors"]


def _folder(chosen: Chosen, place: Path, format: str) -> list[str]:
    facts = write_folder(chosen, place, format == "onnx")
    lines = [
        f"wrote {place}: {chosen.words}, {facts['model']['class']} with {facts['model']['parameters']:,} parameters; "
        "loaded again, it gives the same outputs",
        f"try it with: python {place}/predict.py {ROWS[facts['input']['kind']]}",
    ]
    if "onnx" in facts:
        batches = " and ".join(map(str, facts["onnx"]["batches"]))
        apart = f"{facts['onnx']['difference']:.1e}"
        lines.insert(1, f"model.onnx was run beside torch on {batches} rows; the largest difference is {apart}")
    if "fedchord" in facts["needs"]:
        lines.append("its own file imports fedchord, which must be installed where it is used")
    return lines
