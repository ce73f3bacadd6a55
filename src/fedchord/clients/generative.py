"""Rivals of FedEvg: FedAvg of a conditional generative network, from which the server draws labelled samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedchord import check, rng
from fedchord.core.objective import Batch, live_mean
from fedchord.core.rules import SAMPLES, Deployed, Phase, SamplesRule, Upload, Visit
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser, Training
from fedchord.models.generative import Cgan, Cvae
from fedchord.tensors import Layout, Tensors

Network = TypeVar("Network", bound=nn.Module)

DRAWN = Deployed("a classifier trained on samples that the server drew from the mean network", SAMPLES)


@final
@dataclass(frozen=True)
class FedCvae(SamplesRule):
    """A conditional variational auto-encoder, trained locally and averaged (thesis, chapter 4, baseline).

        L(x, y) = R(x, p(. | z, y)) + beta KL(q(z | x, y) || N(0, I)),   z = mean + exp(log variance / 2) noise,

    with R summed over the pixels: ||x - sigmoid(logits)||^2 ("gaussian"), or the cross-entropy of x and the pixels'
    probabilities ("bernoulli"). The divergence of two normals has a closed form, see `divergence`. Labels reach encoder
    and decoder. The server decodes z ~ N(0, I) under every label, `spc` times each. The local optimiser is Adam;
    `local_lr`, `beta1` and `batch` replace the run's, and `iterations`, where above 0, the run's epochs.

    Departs: the thesis' code has the mean over pixels beside the sum over z, under which the divergence wins and z is
    not used, and tells the label to the decoder alone.
    """

    deploys: ClassVar[Deployed] = DRAWN

    spc: int = 10
    beta: float = 2.0
    reconstruction: str = "gaussian"
    iterations: int = 10
    local_lr: float = 0.002
    beta1: float = 0.9
    batch: int = 32

    def __post_init__(self) -> None:
        _check("FedCvae", self)
        check.at_least("FedCvae", "beta", self.beta, 0)
        check.one_of("FedCvae", "reconstruction", self.reconstruction, RECONSTRUCTIONS)

    def local(self, training: Training) -> Training:
        return _adam(self, training)

    def opening(self, task: Task, key: int) -> Tensors:
        _network("FedCvae", task, Cvae)
        return task.init(key)

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return (_stretch(("theta",), self.iterations, visit),)

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Tensors:
        model = _network("FedCvae", visit.task, Cvae)
        x, y = _unit(visit.task, batch["x"]), batch["y"]
        noise = rng.normal_rows(key, len(y), model.latent, x.device)

        def objective(views: Tensors) -> Tensor:
            mean, spread = _call(model.encoder, _below(views, "encoder"), x, y).chunk(2, 1)
            z = mean + (spread / 2).exp() * noise
            errors = RECONSTRUCTIONS[self.reconstruction](_call(model.decoder, _below(views, "decoder"), z, y), x)
            return live_mean(errors + self.beta * divergence(mean, spread), None, batch)

        _, pull = visit.task.pullback(objective, visit.task.layout.views(trained["theta"]))
        return {"theta": _flat(pull(torch.ones((), device=x.device))), "buffers": trained["buffers"]}

    def synthesise(self, task: Task, shared: Tensors, key: int) -> Batch:
        model = _network("FedCvae", task, Cvae)
        y = balanced(model.classes, self.spc)
        z = rng.normal_rows(key, len(y), model.latent)
        return _draw(task, model.decoder, _below(task.layout.views(shared["theta"]), "decoder"), z, y)


@final
@dataclass(frozen=True)
class FedCgan(SamplesRule):
    """A conditional adversarial pair, both networks trained locally in turn and averaged (thesis, chapter 4, baseline).

        discriminator:  -log D(x, y) - log(1 - D(G(z, y'), y'))
        then generator: -log D(G(z, y'), y'),                      z ~ U(-1, 1),

    where D is the sigmoid of the logit s(x) + c(x)[y], and each network has its own Adam moments. `local_lr`, `beta1`
    and `batch` replace the run's settings, and `iterations`, where above 0, the run's epochs. The labels y' of the
    fakes are those of the real batch (`labels` "own"), or drawn from all classes alike ("all"). Image and label of a
    fake always belong together: G is asked for y', and D judges the image as y'.

    `auxiliary` is the weight of the classes' cross-entropy of c on real and fake images, as in AC-GAN (Odena et al.,
    2017); D is then the sigmoid of s(x) alone, and the fakes' classes are those they were asked for. Departs: the
    thesis' code scores the fakes' classes against labels drawn anew.
    """

    deploys: ClassVar[Deployed] = DRAWN

    spc: int = 10
    labels: str = "own"
    auxiliary: float = 0.0
    iterations: int = 10
    local_lr: float = 0.004
    beta1: float = 0.5
    batch: int = 32

    def __post_init__(self) -> None:
        _check("FedCgan", self)
        check.one_of("FedCgan", "labels", self.labels, ("own", "all"))
        check.at_least("FedCgan", "auxiliary", self.auxiliary, 0)

    def local(self, training: Training) -> Training:
        return _adam(self, training)

    def opening(self, task: Task, key: int) -> Tensors:
        _network("FedCgan", task, Cgan)
        return task.init(key)

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return (_stretch(("generator", "discriminator"), self.iterations, visit),)

    def start(self, visit: Visit) -> Tensors:
        discriminator, generator = visit.task.layout.cut(("discriminator",)).split(visit.shared["theta"])
        return {"generator": generator, "discriminator": discriminator, "buffers": visit.shared["buffers"]}

    def step(
        self, trained: Tensors, memory: Tensors, visit: Visit, batch: Batch, key: rng.Key, optimiser: LocalOptimiser
    ) -> tuple[Tensors, Tensors]:
        model, moves = _network("FedCgan", visit.task, Cgan), visit.phase.moves
        x, y = _unit(visit.task, batch["x"]), batch["y"]
        z, asked = self.order(model, y, key)
        maker, judge = Layout.of_parameters(model.generator), Layout.of_parameters(model.discriminator)

        def make(views: Tensors) -> Tensor:
            return torch.sigmoid(_call(model.generator, views, z, asked))

        def judged(views: Tensors) -> Tensor:
            real, fake = _call(model.discriminator, views, torch.cat([x, fakes])).chunk(2)
            return live_mean(self.judgement(real, y, 1) + self.judgement(fake, asked, 0), None, batch)

        def missed(made: Tensors) -> Tensor:
            seen = _call(model.discriminator, judge.views(trained["discriminator"]), made["x"])
            return live_mean(self.judgement(seen, asked, 1), None, batch)

        fakes, through = visit.task.pullback(make, maker.views(trained["generator"]))
        _, pull = visit.task.pullback(judged, judge.views(trained["discriminator"]))
        count, one = memory.get("count"), torch.ones((), device=x.device)
        trained, memory = optimiser.step(trained, {"discriminator": _flat(pull(one))}, memory, moves)
        if count is not None:
            memory["count"] = count  # each network takes one step a batch
        _, pull = visit.task.pullback(missed, {"x": fakes})
        return optimiser.step(trained, {"generator": _flat(through(pull(one)["x"]))}, memory, moves)

    def order(self, model: Cgan, y: Tensor, key: rng.Key) -> tuple[Tensor, Tensor]:
        """The noise and the labels that fakes are made from, one for each row of a batch."""
        z = 2 * rng.uniform(rng.fold(key, 0), len(y) * model.latent, y.device).reshape(len(y), model.latent) - 1
        if self.labels == "own":
            return z, y
        return z, (rng.uniform(rng.fold(key, 1), len(y), y.device) * model.classes).long()

    def judgement(self, outputs: Tensor, y: Tensor, real: int) -> Tensor:
        """The loss per image of a discriminator that should say `real` (1 or 0) about images of the labels y."""
        source, kinds = outputs[:, 0], outputs[:, 1:]
        if self.auxiliary:
            classes = F.cross_entropy(kinds, y, reduction="none")
            return F.softplus(-source if real else source) + self.auxiliary * classes
        logit = source + kinds.gather(1, y[:, None])[:, 0]
        return F.softplus(-logit if real else logit)

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        cut = visit.task.layout.cut(("discriminator",))
        theta = cut.join(trained["discriminator"], trained["generator"])
        return Upload(mix={"theta": theta - visit.shared["theta"]}, carry={"buffers": trained["buffers"]}), visit.own

    def synthesise(self, task: Task, shared: Tensors, key: int) -> Batch:
        model = _network("FedCgan", task, Cgan)
        y = balanced(model.classes, self.spc)
        z, _ = self.order(model, y, key)
        return _draw(task, model.generator, _below(task.layout.views(shared["theta"]), "generator"), z, y)


def divergence(mean: Tensor, spread: Tensor) -> Tensor:
    """KL(N(mean, exp(spread)) || N(0, I)) = 1/2 sum (mean^2 + exp(spread) - 1 - spread) over the last axis, where
    `spread` is the logarithm of the variance."""
    return 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(-1)


def squared_error(logits: Tensor, x: Tensor) -> Tensor:
    """||x - sigmoid(logits)||^2 per image, summed over its pixels."""
    return (torch.sigmoid(logits) - x).square().flatten(1).sum(1)


def cross_entropy(logits: Tensor, x: Tensor) -> Tensor:
    """-x log p - (1 - x) log(1 - p) with p = sigmoid(logits), per image, summed over its pixels."""
    return F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1)


RECONSTRUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"gaussian": squared_error, "bernoulli": cross_entropy}


def balanced(classes: int, spc: int) -> Tensor:
    """Labels 0, ..., 0, 1, ..., 1, ...: every class `spc` times, class by class."""
    return torch.arange(classes).repeat_interleave(spc)


def _check(owner: str, rule: FedCvae | FedCgan) -> None:
    """The fields that both rules have."""
    check.whole(owner, "spc", rule.spc, 1)
    check.whole(owner, "iterations", rule.iterations)
    check.positive(owner, "local_lr", rule.local_lr)
    check.below(owner, "beta1", rule.beta1, 1)
    check.whole(owner, "batch", rule.batch)


def _adam(rule: FedCvae | FedCgan, training: Training) -> Training:
    return replace(training, optimiser="adam", lr=rule.local_lr, beta1=rule.beta1, batch=rule.batch, momentum=0.0)


def _network(owner: str, task: Task, kind: type[Network]) -> Network:
    """The task's network, which must be of a kind."""
    module = next(iter(task.named_modules()))[1]
    if not isinstance(module, kind):
        raise check.fail(owner, f"the model must be {kind.__name__.lower()}, got {type(module).__name__}")
    return module


def _stretch(moves: tuple[str, ...], iterations: int, visit: Visit) -> Phase:
    return Phase(moves, visit.info.epochs, steps=iterations or None)


def _call(module: nn.Module, views: Tensors, *inputs: Tensor) -> Tensor:
    """A part of a network as a function of its parameters."""
    outputs: Tensor = functional_call(module, views, inputs)
    return outputs


def _below(views: Tensors, part: str) -> Tensors:
    """The parameters of one part of a network, by the names the part gives them."""
    return {name.removeprefix(f"{part}."): view for name, view in views.items() if name.startswith(f"{part}.")}


def _flat(slopes: Tensors) -> Tensor:
    return torch.cat([slope.reshape(-1) for slope in slopes.values()])


def _unit(task: Task, x: Tensor) -> Tensor:
    """Images in [0, 1], from the range of the data."""
    return x if task.inputs is None else task.inputs.to_unit(x)


def _draw(task: Task, decoder: nn.Module, views: Tensors, z: Tensor, y: Tensor) -> Batch:
    """Images of the labels y in the range of the data."""
    with torch.no_grad():
        u = torch.sigmoid(_call(decoder, views, z.to(task.device), y.to(task.device)))
    return {"x": u if task.inputs is None else task.inputs.from_unit(u), "y": y}
