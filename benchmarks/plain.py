"""The yardstick: a plain loop with nn.Module, loss.backward() and torch.optim.SGD, one process, one thread."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from works import Job, contend

from fedchord.models import build


def rounds(job: Job, count: int, options: argparse.Namespace) -> Iterator[None]:
    """FedAvg as one would write it without a library."""
    torch.set_num_threads(1)
    x, y = job.data()
    inputs, labels = torch.from_numpy(x).float() / 255, torch.from_numpy(y)
    model = build(job.model, job.shape, job.classes)
    for cohort in job.cohorts(count):
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        total = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
        for client in cohort:
            model.load_state_dict(start)
            optimiser = torch.optim.SGD(model.parameters(), job.lr, job.momentum, weight_decay=job.weight_decay)
            first = client * job.rows
            for _ in range(job.epochs):
                for rows in (first + torch.randperm(job.rows)).split(job.batch):
                    optimiser.zero_grad()
                    F.cross_entropy(model(inputs[rows]), labels[rows]).backward()
                    optimiser.step()
            for name, tensor in model.state_dict().items():
                total[name] += tensor / job.cohort
        model.load_state_dict(total)
        yield


if __name__ == "__main__":
    contend(rounds)
