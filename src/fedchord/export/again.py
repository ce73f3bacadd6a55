"""An exported folder loaded again, and compared with the model it was made from."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedchord.check import FedchordError, fail, require
from fedchord.export.chosen import Chosen
from fedchord.models import TextEncoder

CLOSE = 1e-6
"""How far outputs of the same weights may be apart, as a share of the largest."""
ROWS = 7
BESIDE = ("network",)
"""The modules that model.py may import from its own folder."""


def loaded(folder: Path) -> nn.Module:
    """The network of a folder with its weights, for evaluation."""
    spec = importlib.util.spec_from_file_location("fedchord_exported_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _within(folder, spec.name):
        sys.modules[spec.name] = module  # dataclasses look their module up while they are made
        try:
            spec.loader.exec_module(module)
            network: nn.Module = module.build()
            network.load_state_dict(load_file(folder / "weights.safetensors"))
        except FedchordError:
            raise
        except Exception as error:  # the code is the user's, who may import anything
            raise fail("export", f"the folder cannot be loaded again ({_words(error)})") from None
    return network.eval()


@contextmanager
def _within(folder: Path, name: str) -> Iterator[None]:
    """The folder as the first place of imports, with nothing left of it afterwards, bytecode neither."""
    before, silent = {key: sys.modules.pop(key) for key in BESIDE if key in sys.modules}, sys.dont_write_bytecode
    place = str(folder.resolve())
    sys.path.insert(0, place)
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()  # the folder is newer than what Python remembers of its place
    try:
        yield
    finally:
        sys.path.remove(place)
        sys.path_importer_cache.pop(place, None)
        sys.dont_write_bytecode = silent
        for key in (*BESIDE, name):
            sys.modules.pop(key, None)
        sys.modules.update(before)


def examples(chosen: Chosen, rows: int) -> Tensor:
    """Rows as the network takes them, drawn anew: there are none of the data here."""
    x, draw = chosen.federation.columns["x"], torch.Generator().manual_seed(rows)
    shape = (rows, *x.shape[1:])
    if x.is_floating_point():
        return chosen.federation.ready({"x": torch.randn(shape, generator=draw)})["x"]
    ends = {torch.uint8: (0, 256), torch.int16: (-32768, 32768)}.get(x.dtype, (0, _vocabulary(chosen.module)))
    return chosen.federation.ready({"x": torch.randint(*ends, shape, generator=draw).to(x.dtype)})["x"]


def _vocabulary(network: nn.Module) -> int:
    """How many tokens there are, as far as the network tells; a text encoder's words come first."""
    known = [part.num_embeddings for part in network.modules() if isinstance(part, nn.Embedding)]
    return known[0] if isinstance(network, TextEncoder) else min(known, default=1)


def compare(chosen: Chosen, network: nn.Module) -> None:
    """Refuse a network whose outputs are not those of the model it was made from."""
    task, x = chosen.fitted.work.task, examples(chosen, ROWS)
    expected = task.outputs(chosen.model["theta"], chosen.model["buffers"], {"x": x})
    try:
        with torch.no_grad():
            found = network(x)
    except Exception as error:
        raise fail("export", f"the network that was loaded again fails ({_words(error)})") from None
    apart = float((found - expected).abs().max())
    close = apart <= CLOSE * max(1.0, float(expected.abs().max()))
    told = f"the network that was loaded again gives other outputs (the largest difference is {apart:.2g})"
    require(close, "export", told)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
