"""The jobs' models in plain torch, for peers whose environments have no fedchord; the same layers and sizes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from works import Job


def network(job: Job) -> nn.Module:
    """The job's model."""
    made: nn.Module = NETWORKS[job.model](job)
    return made


def _logreg(job: Job) -> nn.Module:
    channels, height, width = job.shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, job.classes))


def _twonn(job: Job) -> nn.Module:
    channels, height, width = job.shape
    hidden = [nn.Linear(channels * height * width, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(200, job.classes))


def _twocnn(job: Job) -> nn.Module:
    channels, height, width = job.shape
    first = [nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    hidden = [nn.Linear(64 * (height // 4) * (width // 4), 512), nn.ReLU()]
    return nn.Sequential(*first, *second, *hidden, nn.Linear(512, job.classes))


class NextCharacter(nn.Module):
    """Embedding of 8, two LSTM layers of 256, a head on the last state."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.embedding = nn.Embedding(job.classes, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, job.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(self.lstm(self.embedding(x))[0][:, -1])
        return made


class Block(nn.Module):
    """Two 3x3 convolutions with GroupNorm beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.GroupNorm(16, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.GroupNorm(16, outputs),
        )
        narrow = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(16, outputs))
        self.shortcut = nn.Identity() if (inputs, stride) == (outputs, 1) else narrow

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x) + self.shortcut(x))


def _resnet10(job: Job) -> nn.Module:
    stem = [nn.Conv2d(job.shape[0], 64, 3, padding=1, bias=False), nn.GroupNorm(16, 64), nn.ReLU()]
    blocks = [Block(64, 64, 1), Block(64, 128, 2), Block(128, 256, 2), Block(256, 512, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, job.classes))


NETWORKS: dict[str, Callable[[Job], nn.Module]] = {
    "logreg": _logreg,
    "twonn": _twonn,
    "twocnn": _twocnn,
    "lstm-characters": NextCharacter,
    "resnet10": _resnet10,
}
