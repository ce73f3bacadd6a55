"""A labelled synthetic data set: checked, saved, loaded, exported.

The rows are ordered class by class, class 0 first, and every class has as many rows (`spc`, samples per class).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from fedchord import notebook, rng
from fedchord.check import fail, require, whole
from fedchord.core.objective import Batch
from fedchord.core.rules import SamplesRule
from fedchord.data.federation import Federation
from fedchord.data.formats.npz import read_arrays
from fedchord.evaluation.fitted import Fitted
from fedchord.files import written
from fedchord.paths import expanded

if TYPE_CHECKING:
    from PIL import Image

OWNER = "synthetic"
SET = "synthetic.npz"
"""The file with the final set in a run's folder."""
SLACK = 1e-5
"""How far a value may lie outside the declared range (a share of it) by rounding."""
NEAR = 0.1
"""How much (a share of it) two ranges of numbers may differ that were read off training rows."""

Bound = float | Tensor
"""An end of a range: one number, or one per feature."""


@dataclass(frozen=True)
class SyntheticSet:
    """M = classes x spc rows: x (M, *shape) float32 inside [low, high], y (M,) int64, ordered by class."""

    x: Tensor
    y: Tensor
    low: Bound
    high: Bound
    classes: int
    owner: str = OWNER

    def __post_init__(self) -> None:
        rows, owner = len(self.x) if self.x.ndim else 0, self.owner
        whole(owner, "classes", self.classes, 1)
        require(rows > 0, owner, "the set has no rows")
        require(self.x.dtype == torch.float32 and self.x.ndim > 1, owner, "x must hold rows of float32 numbers")
        require(self.y.dtype == torch.int64 and self.y.shape == (rows,), owner, f"y must hold {rows} labels (int64)")
        check_range(owner, "x", self.x, self.low, self.high)
        fits = rows % self.classes == 0
        require(fits, owner, f"the number of samples must be a multiple of the {self.classes} classes, got {rows}")
        expected = torch.arange(self.classes).repeat_interleave(rows // self.classes)
        ordered = torch.equal(self.y, expected)
        require(ordered, owner, f"every class must have {rows // self.classes} rows, ordered class by class")

    def __repr__(self) -> str:
        samples = f"{notebook.counted(self.spc, 'sample')} of {notebook.shape(self.shape)}"
        return f"SyntheticSet({notebook.counted(self.classes, 'class')} x {samples})"

    @property
    def spc(self) -> int:
        """Samples per class."""
        return len(self.x) // self.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])

    @property
    def batch(self) -> Batch:
        """The rows as a batch."""
        return {"x": self.x, "y": self.y}

    def dataset(self) -> TensorDataset:
        """The rows as a `torch.utils.data.Dataset` of (x, y)."""
        return TensorDataset(self.x, self.y)

    def pixels(self) -> Tensor:
        """The samples as bytes, round(255 (x - low) / (high - low)); only for pictures of one or three channels."""
        picture = len(self.shape) == 3 and self.shape[0] in (1, 3)
        require(picture, self.owner, f"samples of shape {self.shape} are no pictures of one or three channels")
        return as_bytes(self.x, self.low, self.high)


def as_bytes(x: Tensor, low: Bound, high: Bound) -> Tensor:
    """Values in [low, high] as bytes."""
    return ((x - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8)


def check_range(owner: str, name: str, x: Tensor, low: Bound, high: Bound) -> None:
    """Refuse values that are not finite or lie outside [low, high]."""
    finite = torch.isfinite(x)
    require(bool(finite.all()), owner, f"{name} must hold finite numbers, got {int((~finite).sum())} that are not")
    slack = SLACK * (torch.as_tensor(high) - low)
    inside = (x >= low - slack) & (x <= high + slack)
    if not bool(inside.all()):
        least, most = float(x[~inside].min()), float(x[~inside].max())
        shown = f"[{low:g}, {high:g}]" if isinstance(low, float) and isinstance(high, float) else "its feature's range"
        raise fail(owner, f"{name} must lie in {shown}, got values from {least:g} to {most:g}")


def same_ends(made: SyntheticSet, low: Bound, high: Bound, slack: float = 0.0) -> None:
    """Refuse a set whose range is not [low, high], up to a share `slack` of it."""
    least, most = (torch.as_tensor(end, dtype=torch.float32) for end in (low, high))
    for name, bound, end in (("lower", made.low, least), ("upper", made.high, most)):
        own = torch.as_tensor(bound, dtype=torch.float32)
        alike = not own.ndim or not end.ndim or own.shape == end.shape
        same = alike and bool(((own - end).abs() <= slack * (most - least)).all())
        told = f"{float(own.min()):g} and {float(end.min()):g}"
        require(same, made.owner, f"both sets must be in the same range, got the {name} ends {told}")


def check_fits(made: SyntheticSet, federation: Federation) -> None:
    """Refuse a set of another shape, of other classes or in another range than the data's.

    The range of numbers is read off training rows and differs a little between splits: of pictures, a tenth of it is
    allowed; of vectors nothing is compared, and the set is assumed to be in the units of the rows.
    """
    inputs, name = federation.inputs, federation.name
    fits = made.shape == inputs.shape
    require(fits, OWNER, f"the samples have shape {made.shape}, the rows of {name} {inputs.shape}")
    fits = made.classes == federation.classes
    require(fits, OWNER, f"the set has {made.classes} classes, {name} has {federation.classes}")
    if not inputs.observed or len(inputs.shape) > 1:
        same_ends(made, inputs.low, inputs.high, NEAR if inputs.observed else 0.0)


def drawn(fitted: Fitted) -> SyntheticSet:
    """The server's synthetic set after a round, checked against the shape and the range of the data."""
    work, state, rule = fitted.work, fitted.state, fitted.work.algorithm.client
    if not isinstance(rule, SamplesRule):
        raise fail(OWNER, f"{type(rule).__name__} ends with a model, not with samples")
    batch = rule.synthesise(work.task, state.broadcast, rng.key(work.seed, "synthesise", state.round))
    x, y = batch["x"].detach().cpu(), batch["y"].cpu()
    owner, inputs = work.algorithm.title, work.task.inputs or work.federation.inputs
    shape = tuple(x.shape[1:])
    require(shape == inputs.shape, owner, f"samples must have the shape {inputs.shape} of the data, got {shape}")
    return SyntheticSet(x, y, inputs.low, inputs.high, work.federation.classes, owner)


# -- files ---------------------------------------------------------------------------------------------------------


def save(made: SyntheticSet, path: str | Path) -> Path:
    """Write an .npz file with x, y, low, high and classes, whole or not at all."""
    file = Path(path)
    require(file.suffix == ".npz", OWNER, f"the file must end in .npz, got {str(file)!r}")
    low, high = (np.asarray(bound) for bound in (made.low, made.high))
    with written(file) as partial, partial.open("wb") as stream:
        np.savez_compressed(stream, x=made.x.numpy(), y=made.y.numpy(), low=low, high=high, classes=made.classes)
    return file


def load(path: str | Path) -> SyntheticSet:
    """Read a file of `save`. Any .npz with x and y is taken; without low and high its range is [0, 1], and bytes are
    divided by 255."""
    file = Path(path)
    require(file.is_file(), OWNER, f"{path}: no such file")
    try:
        arrays = read_arrays(file, ("x", "y", "low", "high", "classes"))
    except ValueError as error:
        raise fail(OWNER, f"{path} is not a readable .npz file of plain arrays ({error})") from None
    for needed in ("x", "y"):
        require(needed in arrays, OWNER, f"{path} has no array {needed}")
    numbers = {name: _numbers(str(path), name, array) for name, array in arrays.items()}
    x = numbers["x"].to(torch.float32) / (255 if arrays["x"].dtype == np.uint8 else 1)
    y = numbers["y"].to(torch.int64)
    require(bool((y == numbers["y"]).all()), str(path), "y must hold labels, which are whole numbers")
    low, high = (_bound(str(path), name, numbers.get(name), end, x) for name, end in (("low", 0.0), ("high", 1.0)))
    classes = numbers.get("classes", y.max() + 1 if y.numel() else torch.tensor(1))
    told = f"classes must be one whole number, got {_shown(classes)}"
    require(classes.numel() == 1 and float(classes).is_integer(), str(path), told)
    return SyntheticSet(x, y, low, high, int(classes), str(path))


def load_set(place: str | Path) -> SyntheticSet:
    """A set by its file, or by the folder of the run that made it."""
    path = expanded(place)
    if path.is_dir():
        made = (path / SET).is_file()
        require(made, OWNER, f"{place} has no {SET}: it holds no finished run of a method that ends with samples")
        path = path / SET
    return load(path)


def _numbers(owner: str, name: str, stored: np.ndarray) -> Tensor:
    """An array of real numbers as a tensor."""
    require(stored.dtype.kind in "biuf", owner, f"{name} must hold numbers, got {stored.dtype.name}")
    return torch.from_numpy(stored.astype(np.float64 if stored.dtype.kind == "f" else np.int64))


def _bound(owner: str, name: str, bound: Tensor | None, default: float, x: Tensor) -> Bound:
    """An end of the range: one number, or as many as fit a row."""
    if bound is None:
        return default
    shape = tuple(x.shape[1:])
    try:
        fits = torch.broadcast_shapes(bound.shape, shape) == shape
    except RuntimeError:
        fits = False
    require(fits, owner, f"{name} must be one number or fit rows of shape {shape}, got {_shown(bound)}")
    return float(bound) if bound.ndim == 0 else bound.to(torch.float32)


def _shown(array: Tensor) -> str:
    return f"{array.item():g}" if array.numel() == 1 else f"shape {tuple(array.shape)}"


def save_pictures(made: SyntheticSet, folder: str | Path) -> int:
    """Write one PNG per sample, FOLDER/CLASS/NUMBER.png, as image-folder readers expect; returns how many.

    The folder is whole or not there; one that holds anything is refused.
    """
    root, pixels, digits = Path(folder), made.pixels(), len(str(made.classes - 1))
    require(not root.is_dir() or not any(root.iterdir()), OWNER, f"{root} is not empty; choose another folder")
    with written(root, flush=False) as beside:
        for row, (picture, label) in enumerate(zip(pixels, made.y.tolist(), strict=True)):
            place = beside / f"{label:0{digits}d}"
            place.mkdir(parents=True, exist_ok=True)
            to_image(picture).save(place / f"{row % made.spc:04d}.png")
    return len(pixels)


def to_image(pixels: Tensor) -> Image.Image:
    """Bytes (channels, height, width) of one or three channels as a picture."""
    from PIL import Image  # here, since most runs draw nothing

    plain = pixels[0] if pixels.shape[0] == 1 else pixels.permute(1, 2, 0)
    return Image.fromarray(plain.contiguous().numpy())
