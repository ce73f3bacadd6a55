"""The yardstick: plain loops with nn.Module, loss.backward() and torch.optim, one process, one thread."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from plain_samples import fedevg, witness
from works import Job, contend

from fedchord.models import build


def trained(job: Job, count: int) -> Iterator[None]:
    """FedAvg as one would write it without a library."""
    inputs, labels = map(torch.from_numpy, job.inputs())
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


def measured(job: Job, count: int) -> Iterator[None]:
    """Accuracies along the lines between one model and those of the clients, one mixed model at a time."""
    inputs, labels = map(torch.from_numpy, job.inputs())
    model = build(job.model, job.shape, job.classes)
    draw = [parameter.detach().clone() for parameter in model.parameters()]
    own = [[tensor + 0.01 * torch.randn_like(tensor) for tensor in draw] for _ in range(job.clients)]
    for _ in range(count):
        found = torch.zeros(job.clients, job.points)
        with torch.no_grad():
            for client, other in enumerate(own):
                x, y = (part[client * job.rows : (client + 1) * job.rows] for part in (inputs, labels))
                for point in range(job.points):
                    lam = point / (job.points - 1)
                    for parameter, near, far in zip(model.parameters(), draw, other, strict=True):
                        parameter.copy_((1 - lam) * near + lam * far)
                    found[client, point] = (model(x).argmax(1) == y).double().mean()
        yield


def rounds(job: Job, count: int, options: argparse.Namespace) -> Iterator[None]:
    """One round at a time, or one sweep."""
    torch.set_num_threads(1)
    others = {"fedevg": fedevg, "fedevg-witness": witness, "superfed-mm": measured}
    return others.get(job.method, trained)(job, count)


if __name__ == "__main__":
    contend(rounds)
