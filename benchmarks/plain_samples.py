"""FedEvg's visits and those of fedevg-witness as one would write them without a library, in their default settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from works import Job

from fedchord.models import build

SAMPLES, STEPS, CHAIN = 10, 3, 32
GAMMA, SIGMA, LAM, CLIP, SHIFT = 0.1, 0.01, 0.1, 3.0, 0.1


def chosen(outputs: Tensor, labels: Tensor) -> Tensor:
    """f(x)[y]."""
    return outputs.gather(1, labels[:, None]).squeeze(1)


def pull(model: nn.Module, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The clipped gradient of f(u)[v] in u, and f(u)[v]."""
    u = u.detach().requires_grad_()
    scores = chosen(model(u), v)
    return torch.autograd.grad(scores.sum(), u)[0].clamp(-CLIP, CLIP), scores.detach()


def fedevg(job: Job, count: int) -> Iterator[None]:
    """Each client has a model of its own, moves a copy of the samples, and tells energy gradients of all of them."""
    inputs, labels = map(torch.from_numpy, job.inputs())
    options = {"activation": "silu", "spectral": True}
    models = [build(job.model, job.shape, job.classes, options) for _ in range(job.clients)]
    x = torch.randn(job.classes * SAMPLES, *job.shape).clamp(0, 1)
    v = torch.arange(job.classes).repeat_interleave(SAMPLES)
    for cohort in job.cohorts(count):
        num, den = torch.zeros_like(x), torch.zeros(len(x))
        for client in cohort:
            slope, weight = _visit(models[client], inputs, labels, client * job.rows, job, x.clone(), v)
            num, den = num + slope, den + weight
        step = -num / den[:, None, None, None]
        x = (x + GAMMA * step + SIGMA * torch.randn_like(x)).clamp(0, 1)
        yield


def _visit(
    model: nn.Module, inputs: Tensor, labels: Tensor, first: int, job: Job, chain: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    received = chain.clone()
    optimiser = torch.optim.Adam(model.parameters(), job.lr, betas=(0.5, 0.999), weight_decay=1e-4)
    for rows in itertools.islice((first + torch.randperm(job.rows)).split(job.batch), STEPS):
        real, y = inputs[rows], labels[rows]
        picked = torch.randperm(len(v))[:CHAIN]
        u = chain[picked]
        moved = (u + GAMMA * pull(model, u, v[picked])[0] + SIGMA * torch.randn_like(u)).clamp(0, 1)
        chain[picked] = moved
        optimiser.zero_grad()
        outputs = model(torch.cat([real, moved, u]))
        on_real, on_moved, on_u = outputs.split([len(real), CHAIN, CHAIN])
        loss = chosen(on_moved, v[picked]).mean() - chosen(on_real, y).mean()
        loss = loss + F.cross_entropy(on_real, y) + LAM * F.cross_entropy(on_u, v[picked])
        loss.backward()
        optimiser.step()
    slope, scores = pull(model, received, v)
    with torch.no_grad():
        model(torch.randn(job.classes, *job.shape).clamp(0, 1))  # the energy of noise, which is written down
    weight = torch.sign(scores).exp()
    return -slope * weight[:, None, None, None], weight


def witness(job: Job, count: int) -> Iterator[None]:
    """Clients compare mean features of their rows with those of the samples, under a network drawn for the round."""
    inputs, labels = map(torch.from_numpy, job.inputs())
    x = torch.randn(job.classes * SAMPLES, *job.shape).clamp(0, 1)
    v = torch.arange(job.classes).repeat_interleave(SAMPLES)
    for cohort in job.cohorts(count):
        model = build(job.model, job.shape, job.classes)
        right, down = ((2 * torch.rand(2) - 1) * 2 * SHIFT).tolist()
        matrix = torch.tensor([[[1.0, 0.0, right], [0.0, 1.0, down]]])
        grid = F.affine_grid(matrix, [1, *job.shape], align_corners=False)
        num, den = torch.zeros_like(x), torch.zeros(len(x))
        for client in cohort:
            rows = client * job.rows + torch.randperm(job.rows)[: job.batch]
            member = F.one_hot(labels[rows], job.classes).float().t()
            with torch.no_grad():
                means = member @ _features(model, inputs[rows], grid) / member.sum(1).clamp_min(1)[:, None]
            u = x.clone().requires_grad_()
            value = _features(model, u, grid)
            apart = means - value.detach().unflatten(0, (job.classes, SAMPLES)).mean(1)
            slope = torch.autograd.grad(value, u, -apart.repeat_interleave(SAMPLES, 0))[0]
            weight = (member.sum(1) / job.batch)[v]
            num, den = num + slope * weight[:, None, None, None], den + weight
        x = (x - GAMMA * num / den.clamp_min(1e-12)[:, None, None, None]).clamp(0, 1)
        yield


def _features(model: nn.Module, x: Tensor, grid: Tensor) -> Tensor:
    """What the head would be given, of rows that are moved a little."""
    shown = F.grid_sample(x, grid.expand(len(x), -1, -1, -1), padding_mode="border", align_corners=False)
    found: Tensor = model.body(shown)  # type: ignore[operator]
    return found
