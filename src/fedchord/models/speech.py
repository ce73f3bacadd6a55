"""M5: convolutions over raw sound."""

from __future__ import annotations

from torch import Tensor, nn

from fedchord.check import one_of, require
from fedchord.models.parts import NORMS, groups, sizes

LEAST = 4 * (4**4 - 1) + 80
"""The shortest waveform that leaves one value after the last pool."""


class M5(nn.Module):
    """Four 1-D convolutions over a waveform (Dai et al., 2017): (n, samples) or (n, 1, samples) -> (n, classes).

    `body`: conv of 80 samples, stride 4, to w channels; conv 3 (padding 1) to w, 2w and 4w channels (w is `width`);
    each followed by norm, ReLU and max-pool 4. Then the mean over time and the linear `head`; all with biases. One
    second at 16 kHz is 16,000 samples -> 3,981 -> 995 -> 248 -> 62 -> 15.

    150,819 parameters at width 64 and 35 classes. `norm` is "batch", as published (statistics are buffers), or "group".
    """

    def __init__(self, classes: int = 35, width: int = 64, norm: str = "batch") -> None:
        super().__init__()
        sizes("M5", classes=classes, width=width)
        one_of("M5", "norm", norm, NORMS)
        self.body = nn.Sequential()
        inputs = 1
        for stage, (outputs, kernel) in enumerate(((width, 80), (width, 3), (2 * width, 3), (4 * width, 3)), 1):
            stride, padding = (4, 0) if stage == 1 else (1, 1)
            self.body.add_module(f"conv{stage}", nn.Conv1d(inputs, outputs, kernel, stride=stride, padding=padding))
            normed = nn.BatchNorm1d(outputs) if norm == "batch" else nn.GroupNorm(groups(outputs), outputs)
            self.body.add_module(f"norm{stage}", normed)
            self.body.add_module(f"act{stage}", nn.ReLU())
            self.body.add_module(f"pool{stage}", nn.MaxPool1d(4))
            inputs = outputs
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1) if x.dim() == 2 else x
        logits: Tensor = self.head(self.body(x).mean(-1))
        return logits


def samples(shape: tuple[int, ...]) -> int:
    """The length of a waveform of shape (samples,) or (1, samples)."""
    fits = len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)
    require(fits, "M5", f"needs waveforms of shape (samples,) or (1, samples), got {shape}")
    require(shape[-1] >= LEAST, "M5", f"needs waveforms of at least {LEAST} samples, got {shape[-1]}")
    return shape[-1]
