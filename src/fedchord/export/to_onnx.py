"""The network as an ONNX file that was run beside torch. Needs the extra `onnx`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedchord.check import fail, require

CLOSE = 1e-4
"""The largest difference to torch that is let pass."""
BATCHES = (1, 7)
"""Numbers of rows the file is tried with; it is made with another."""
TRACED = 3
LARGEST = 2_000_000_000
"""The bytes that an ONNX file can hold."""


class Answering(nn.Module):
    """A network with its answer beside its scores: probabilities of the classes, or the predicted number."""

    def __init__(self, network: nn.Module, target: Mapping[str, float] | None) -> None:
        super().__init__()
        self.network, self.target = network, target
        self.names = ("scores", "probabilities" if target is None else "prediction")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.network(x)
        scores = scores.unsqueeze(-1) if scores.ndim == 1 else scores
        if self.target is not None:
            return scores, scores * self.target["std"] + self.target["mean"]
        pair = torch.cat([torch.zeros_like(scores), scores], -1) if scores.shape[-1] == 1 else scores
        return scores, pair.softmax(-1)


def check_extra() -> None:
    """Refuse where the packages are missing, before any work."""
    try:
        import onnx
        import onnxruntime
        import onnxscript
    except ImportError as error:
        advice = "pip install 'fedchord[onnx]'"
        raise fail("export", f"--format onnx needs {error.name or 'onnx'}: {advice}") from None
    assert onnx and onnxruntime and onnxscript


def write_onnx(
    network: nn.Module, examples: Callable[[int], Tensor], path: Path, target: Mapping[str, float] | None = None
) -> float:
    """Write a network for any number of rows and run it beside torch; the largest difference of all outputs."""
    check_extra()
    size = sum(part.numel() * part.element_size() for part in (*network.parameters(), *network.buffers()))
    require(size < LARGEST, "export", f"the model has {size / 1e9:.1f} GB, more than an ONNX file can hold")
    answering = Answering(network, target).eval()
    name = type(network).__name__
    try:
        with _quiet():
            rows = torch.export.Dim("rows", min=1)
            program = torch.onnx.export(
                answering,
                (examples(TRACED),),
                dynamo=True,
                input_names=["x"],
                output_names=list(answering.names),
                dynamic_shapes={"x": {0: rows}},
                external_data=False,
                verbose=False,
            )
            assert program is not None
            program.save(str(path), external_data=False)
    except Exception as error:  # the exporter raises almost anything
        reason = _reason(error)
        raise fail("export", f"{name} cannot be written as ONNX ({reason})") from None
    apart = difference(answering, examples, path)
    if not apart <= CLOSE:
        path.unlink()
        told = f"outputs differ from torch by up to {apart:.2g}, more than {CLOSE:g}"
        raise fail("export", f"{name} as ONNX: {told}; nothing was written")
    return apart


def difference(answering: Answering, examples: Callable[[int], Tensor], path: Path) -> float:
    """The largest difference between a file's outputs and torch's, over batches of several sizes.

    That of predicted numbers is a share of their std in the data, or of the number where that is larger.
    """
    import onnx
    import onnxruntime

    onnx.checker.check_model(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    apart = [0.0]
    for rows in BATCHES:
        x = examples(rows)
        with torch.no_grad():
            expected: tuple[Tensor, ...] = answering(x)
        found: list[Any] = session.run(list(answering.names), {"x": x.numpy()})
        for name, mine, theirs in zip(answering.names, expected, found, strict=True):
            unit = np.ones(1)
            if name == "prediction" and answering.target is not None:
                unit = np.abs(mine.numpy()).clip(max(answering.target["std"], 1e-12))
            same = mine.shape == theirs.shape
            apart.append(float((np.abs(mine.numpy() - theirs) / unit).max()) if same else float("inf"))
    return float("inf") if any(value != value for value in apart) else max(apart)


def _reason(error: Exception) -> str:
    """The first line of the innermost cause that says something."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks about its own inside."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
