"""SCAFFOLD: local steps corrected by control variates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch

from fedchord import rng
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, Upload, Visit
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Scaffold(ClientRule):
    """Local SGD along g_i(y) - c_i + c (Karimireddy et al., 2020, SCAFFOLD, option II).

        y <- y - lr (g_i(y) - c_i + c),   c_i' = c_i - c + (x - y) / (steps lr).

    Upload: y - x (mixed with equal weights by default) and c_i' - c_i (plain mean). Plain SGD is part of the
    derivation of c_i', so momentum, weight decay, clipping and Adam are switched off, and the summary says so.
    """

    sends: ClassVar[Mapping[str, str]] = {"theta": "mix", "control": "mean"}

    def local(self, training: Training) -> Training:
        return replace(training, momentum=0.0, weight_decay=0.0, clip=0.0, optimiser="sgd")

    def opening(self, task: Task, key: int) -> Tensors:
        model = task.init(key)
        return model | {"control": torch.zeros_like(model["theta"])}

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        return {"control": torch.zeros_like(shared["theta"])}

    def start(self, visit: Visit) -> Tensors:
        # the correction c - c_i is the same at every step of the round
        correction = visit.shared["control"] - visit.own["control"]
        return {"theta": visit.shared["theta"], "buffers": visit.shared["buffers"], "correction": correction}

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Tensors:
        slope = visit.slope(trained, batch, key)
        slope["theta"] = slope["theta"] + trained["correction"]
        return slope

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        update = trained["theta"] - visit.shared["theta"]
        moved = -update / (visit.steps * visit.info.lr) if visit.info.epochs else torch.zeros_like(update)
        change = moved - visit.shared["control"]
        upload = Upload(mix={"theta": update}, carry={"buffers": trained["buffers"]}, mean={"control": change})
        return upload, {"control": visit.own["control"] + change}
