"""InceptionV3 (Szegedy et al., 2016) up to its last pooling, with weights from a local file.

Names and shapes are torchvision's, so that two public files fit: torchvision's own (1,000 classes), and the weights of
the original FID in pytorch-fid's file (1,008 classes). The second network differs in its pools: averages leave the
padding out, and the last block takes a maximum. Which one a file holds is seen from its classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedchord.check import fail, require
from fedchord.models.efficientnet import read_weights

OWNER = "InceptionV3"
VARIANTS = {1000: "torchvision", 1008: "fid"}
"""Whose weights a file holds, by its number of classes."""

Size = int | tuple[int, int]


class Conv(nn.Module):
    """Convolution without bias, BatchNorm, ReLU; a kernel (1, 7) is padded by (0, 3) and so on, where `same`."""

    def __init__(self, inputs: int, outputs: int, kernel: Size, stride: int = 1, same: bool = True) -> None:
        super().__init__()
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (sides[0] // 2, sides[1] // 2) if same else (0, 0)
        self.conv = nn.Conv2d(inputs, outputs, sides, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


@dataclass(frozen=True)
class Part:
    """One convolution of a block: its name, the part before it ("" is the block's input), size, stride, padding."""

    name: str
    after: str
    outputs: int
    kernel: Size
    stride: int = 1
    same: bool = True


class Mixed(nn.Module):
    """Branches side by side, joined by channels: the ends of the chains of `parts`, then the pool."""

    def __init__(self, inputs: int, parts: tuple[Part, ...], ends: tuple[str, ...], pool: str) -> None:
        super().__init__()
        widths = {"": inputs}
        for part in parts:
            before = widths[part.after]
            self.add_module(part.name, Conv(before, part.outputs, part.kernel, part.stride, part.same))
            widths[part.name] = part.outputs
        self.parts, self.ends, self.pool = parts, ends, pool
        last = widths.get("branch_pool", inputs)
        self.outputs = sum(widths[end] for end in ends) + last

    def forward(self, x: Tensor) -> Tensor:
        found = {"": x}
        for part in self.parts:
            given = pooled(x, self.pool) if part.name == "branch_pool" else found[part.after]
            found[part.name] = self.get_submodule(part.name)(given)
        last = found["branch_pool"] if "branch_pool" in found else pooled(x, self.pool)
        return torch.cat([*(found[end] for end in self.ends), last], 1)


def pooled(x: Tensor, kind: str) -> Tensor:
    """The pool of a block: "average" (padding counts), "inside" (it does not), "largest", or "halve" (stride 2)."""
    if kind == "halve":
        return F.max_pool2d(x, 3, stride=2)
    if kind == "largest":
        return F.max_pool2d(x, 3, stride=1, padding=1)
    return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=kind == "average")


def _chain(stem: str, *steps: tuple[int, Size] | tuple[int, Size, int]) -> tuple[Part, ...]:
    """Parts stem_1, stem_2, ... one after another; a step of stride 2 has no padding."""
    parts, before = [], ""
    for number, (outputs, kernel, *stride) in enumerate(steps, 1):
        name = f"{stem}_{number}" if len(steps) > 1 else stem
        parts.append(Part(name, before, outputs, kernel, stride[0] if stride else 1, same=not stride))
        before = name
    return tuple(parts)


def _pooled_part(outputs: int) -> Part:
    return Part("branch_pool", "", outputs, 1)


def block_a(inputs: int, width: int, pool: str) -> Mixed:
    """1x1; 5x5; two 3x3; pool."""
    five, three = _chain("branch5x5", (48, 1), (64, 5)), _chain("branch3x3dbl", (64, 1), (96, 3), (96, 3))
    parts = (*_chain("branch1x1", (64, 1)), *five, *three, _pooled_part(width))
    return Mixed(inputs, parts, ("branch1x1", "branch5x5_2", "branch3x3dbl_3"), pool)


def block_b(inputs: int) -> Mixed:
    """3x3 of stride 2; two 3x3, the second of stride 2; the largest of 3x3."""
    parts = (*_chain("branch3x3", (384, 3, 2)), *_chain("branch3x3dbl", (64, 1), (96, 3), (96, 3, 2)))
    return Mixed(inputs, parts, ("branch3x3", "branch3x3dbl_3"), "halve")


def block_c(inputs: int, width: int, pool: str) -> Mixed:
    """1x1; 7x7 as 1x7 and 7x1; the same twice; pool."""
    once = _chain("branch7x7", (width, 1), (width, (1, 7)), (192, (7, 1)))
    twice = _chain("branch7x7dbl", (width, 1), (width, (7, 1)), (width, (1, 7)), (width, (7, 1)), (192, (1, 7)))
    parts = (*_chain("branch1x1", (192, 1)), *once, *twice, _pooled_part(192))
    return Mixed(inputs, parts, ("branch1x1", "branch7x7_3", "branch7x7dbl_5"), pool)


def block_d(inputs: int) -> Mixed:
    """3x3 of stride 2; 7x7 and 3x3 of stride 2; the largest of 3x3."""
    seven = _chain("branch7x7x3", (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2))
    parts = (*_chain("branch3x3", (192, 1), (320, 3, 2)), *seven)
    return Mixed(inputs, parts, ("branch3x3_2", "branch7x7x3_4"), "halve")


def block_e(inputs: int, pool: str) -> Mixed:
    """1x1; 1x3 and 3x1 side by side, after 1x1 and after 3x3; pool."""
    parts = (
        Part("branch1x1", "", 320, 1),
        Part("branch3x3_1", "", 384, 1),
        Part("branch3x3_2a", "branch3x3_1", 384, (1, 3)),
        Part("branch3x3_2b", "branch3x3_1", 384, (3, 1)),
        Part("branch3x3dbl_1", "", 448, 1),
        Part("branch3x3dbl_2", "branch3x3dbl_1", 384, 3),
        Part("branch3x3dbl_3a", "branch3x3dbl_2", 384, (1, 3)),
        Part("branch3x3dbl_3b", "branch3x3dbl_2", 384, (3, 1)),
        _pooled_part(192),
    )
    ends = ("branch1x1", "branch3x3_2a", "branch3x3_2b", "branch3x3dbl_3a", "branch3x3dbl_3b")
    return Mixed(inputs, parts, ends, pool)


class InceptionV3(nn.Module):
    """Pictures (n, 3, 299, 299) in [-1, 1] -> (n, 2048), the means over the image of the last maps ("pool3").

    21,785,568 parameters.
    """

    def __init__(self, variant: str = "fid") -> None:
        super().__init__()
        pool, last = ("inside", "largest") if variant == "fid" else ("average", "average")
        self.Conv2d_1a_3x3 = Conv(3, 32, 3, stride=2, same=False)
        self.Conv2d_2a_3x3 = Conv(32, 32, 3, same=False)
        self.Conv2d_2b_3x3 = Conv(32, 64, 3)
        self.Conv2d_3b_1x1 = Conv(64, 80, 1)
        self.Conv2d_4a_3x3 = Conv(80, 192, 3, same=False)
        inputs = 192
        blocks = {
            "5b": lambda n: block_a(n, 32, pool),
            "5c": lambda n: block_a(n, 64, pool),
            "5d": lambda n: block_a(n, 64, pool),
            "6a": block_b,
            "6b": lambda n: block_c(n, 128, pool),
            "6c": lambda n: block_c(n, 160, pool),
            "6d": lambda n: block_c(n, 160, pool),
            "6e": lambda n: block_c(n, 192, pool),
            "7a": block_d,
            "7b": lambda n: block_e(n, pool),
            "7c": lambda n: block_e(n, last),
        }
        for name, make in blocks.items():
            block = make(inputs)
            self.add_module(f"Mixed_{name}", block)
            inputs = block.outputs

    def forward(self, x: Tensor) -> Tensor:
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, stride=2)))
        x = F.max_pool2d(x, 3, stride=2)
        for name, part in self.named_children():
            if name.startswith("Mixed_"):
                x = part(x)
        return x.mean((2, 3))


def load_inception(path: str | Path) -> tuple[InceptionV3, str]:
    """InceptionV3 in evaluation mode with the weights of a file, and whose they are ("fid" or "torchvision")."""
    stored = read_weights(path, OWNER)
    require("fc.weight" in stored, OWNER, f"{path} has no fc.weight: not weights of InceptionV3")
    shape = tuple(stored["fc.weight"].shape)
    if shape not in ((1000, 2048), (1008, 2048)):
        raise fail(OWNER, f"fc.weight of {path} must have shape (1000, 2048) or (1008, 2048), got {shape}")
    variant = VARIANTS[shape[0]]
    module = InceptionV3(variant)
    _fill(module, stored, path)
    return module.eval(), variant


def _fill(module: InceptionV3, stored: Mapping[str, Tensor], path: str | Path) -> None:
    """Take over the weights of a file; the first mismatch is named. Its classifiers and counters are not used."""
    known = {
        name: tensor
        for name, tensor in stored.items()
        if not name.startswith(("fc.", "AuxLogits.")) and not name.endswith("num_batches_tracked")
    }
    wanted = {n: t for n, t in module.state_dict().items() if not n.endswith("num_batches_tracked")}
    for name, tensor in wanted.items():
        require(name in known, OWNER, f"{path} has no {name}")
        shape, expected = tuple(known[name].shape), tuple(tensor.shape)
        require(shape == expected, OWNER, f"{name} of {path} must have shape {expected}, got {shape}")
    for name in known:
        require(name in wanted, OWNER, f"{path} has {name}, which InceptionV3 has not")
    module.load_state_dict(known, strict=False)
