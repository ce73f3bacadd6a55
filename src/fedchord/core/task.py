"""Task: what is learnt. An `nn.Module` used as a function of one parameter vector, its loss and its metrics.

`Task` gives rules three functions of theta: `outputs`, `loss` (differentiable) and `grad`. How the gradient is computed
is hidden here: by the dense form (see `dense.py`) where the model qualifies, by `torch.autograd.grad` over views of
theta otherwise, by `torch.func` inside a vectorised run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedchord import rng
from fedchord.check import FedchordError, fail
from fedchord.core import fused
from fedchord.core.captured import Captured
from fedchord.core.dense import Dense
from fedchord.core.inputs import Inputs
from fedchord.core.objective import BINARY, CLASSIFICATION, Batch, Objective, mean_loss
from fedchord.tensors import Layout, Tensors

Score = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A function of the outputs: its value, and numbers to watch."""
Pull = Callable[[Tensor], Tensors]
"""From a slope at a function's value to the slopes at its inputs."""


class _Applied(nn.Module):
    """A module whose forward takes a whole batch, for `functional_call`."""

    def __init__(self, module: nn.Module, apply: Callable[[nn.Module, Batch], Tensor]) -> None:
        super().__init__()
        self.module, self.apply_to = module, apply

    def forward(self, batch: Batch) -> Tensor:
        return self.apply_to(self.module, batch)

    if TYPE_CHECKING:

        def __call__(self, batch: Batch) -> Tensor: ...


def _on_x(module: nn.Module, batch: Batch) -> Tensor:
    outputs: Tensor = module(batch["x"])
    return outputs


class Task:
    """An `nn.Module` as a function of theta, with its objective.

    `model` is a module (its present weights are the start) or a function that builds one (drawn anew from the run's
    seed). `apply(module, batch)` calls the module; by default `module(batch["x"])`. `dense=False` switches the dense
    gradient off. A module with a true attribute `channels_last` is given pictures in that memory format. `inputs`
    (`Federation.inputs`) tells rules that make examples what an example looks like.
    """

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        objective: Objective = CLASSIFICATION,
        apply: Callable[[nn.Module, Batch], Tensor] = _on_x,
        dense: bool = True,
        inputs: Inputs | None = None,
    ) -> None:
        self.objective, self._model, self._apply, self.inputs = objective, model, apply, inputs
        if isinstance(model, nn.Module):
            self._module = copy.deepcopy(model)
        else:
            with rng.seeded(rng.key(0, "task")):
                self._module = model()
            if not isinstance(self._module, nn.Module):
                raise fail("Task", f"the model function must return an nn.Module, got {type(self._module).__name__}")
        self._module.train(True)  # all of it, as after an evaluation: pretrained parts are given in evaluation mode
        self._channels_last = bool(getattr(self._module, "channels_last", False))
        self._applied = _Applied(self._module, apply)
        self.layout, self.buffers = Layout.of_parameters(self._module), Layout.of_buffers(self._module)
        if not self.layout.size:
            raise fail("Task", f"{type(self._module).__name__} has no trainable parameters")
        self._parameters = self._owned()
        standard = objective in (CLASSIFICATION, BINARY) and apply is _on_x
        self.dense = Dense.of(self._module, self.layout, objective is BINARY) if dense and standard else None
        self._captured = None if self.dense is not None else self._recorder()
        normed = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in self._module.modules())
        self.least_batch = 2 if normed else 1
        """The smallest batch the module can be trained on: BatchNorm has no statistics of a single row."""
        self._scratch: Tensor | None = None
        self._bound: tuple[Tensor | None, Tensor | None] = (None, None)
        self._values: list[Tensor] = []
        self._draws: bool | None = None
        self.traced = False
        self.device = torch.device("cpu")

    def _recorder(self) -> Captured | None:
        """What records the gradient after many steps, for modules that qualify."""
        if not getattr(self._apply, "__module__", "").startswith("fedchord."):
            return None
        names = [entry.name for entry in self.layout.entries]
        return Captured.of(self._applied, self._module, names, self.objective)

    @property
    def model_name(self) -> str:
        """The class of the module."""
        return type(self._module).__name__

    @property
    def signature(self) -> str:
        """What tells two tasks apart, without their weights: modules, shapes, objective, and how a batch is applied."""
        code = getattr(self._apply, "__code__", None)
        apply = (self._apply.__module__, self._apply.__qualname__, code.co_code.hex() if code else "")
        shapes = [(entry.name, tuple(entry.shape)) for entry in (*self.layout.entries, *self.buffers.entries)]
        return repr((self, str(self._module), shapes, apply))

    def __repr__(self) -> str:
        return f"Task({self.model_name}, {self.layout.size:,} parameters, {self.objective.name})"

    # -- starting points ------------------------------------------------------------------------------------------

    def init(self, key: int) -> Tensors:
        """The first model, {"theta", "buffers"}: the given module's weights, or weights drawn from the key."""
        if isinstance(self._model, nn.Module):
            return self._state_of(self._model)
        return self.fresh(key)

    def fresh(self, key: int) -> Tensors:
        """A model with weights drawn anew from the key."""
        with rng.seeded(key):
            if not isinstance(self._model, nn.Module):
                return self._state_of(self._model())
            module = copy.deepcopy(self._model)
            for name, part in module.named_modules():
                if next(part.parameters(recurse=False), None) is not None:
                    reset = getattr(part, "reset_parameters", None)
                    if reset is None:
                        raise fail(
                            "Task", f"module {name!r} cannot be re-initialised; pass a function that builds the model"
                        )
                    reset()
            return self._state_of(module)

    def _state_of(self, module: nn.Module) -> Tensors:
        theta = self.layout.flatten(dict(module.named_parameters()))
        buffers = self.buffers.flatten(dict(module.named_buffers()))
        return {"theta": theta.to(self.device), "buffers": buffers.to(self.device)}

    def state_dict(self, theta: Tensor, buffers: Tensor) -> Tensors:
        """A plain state_dict of the module with these parameters and buffers; one that has two names has them twice."""
        inside = self._module.state_dict(keep_vars=True)
        found: dict[int, Tensor] = {}
        for layout, vector in ((self.layout, theta), (self.buffers, buffers)):
            for entry in layout.entries:
                found[id(inside[entry.name])] = vector[entry.slice].reshape(entry.shape).to(entry.dtype)
        return {name: found.get(id(tensor), tensor).detach().clone() for name, tensor in inside.items()}

    @property
    def bare(self) -> Task:
        """The task without privacy: itself, where there is none."""
        return self

    def to(self, device: torch.device | str) -> Task:
        """Move the module's constant parts to a device (parameters and buffers follow theta)."""
        self.device = torch.device(device)
        self._module.to(device)
        self._parameters = self._owned()  # some moves make new ones
        self._bound, self._scratch = (None, None), None
        return self

    def _owned(self) -> list[nn.Parameter]:
        """The module's trained parameters in the order of the layout."""
        owned = {name: parameter for name, parameter in self._module.named_parameters() if parameter.requires_grad}
        return [owned[entry.name] for entry in self.layout.entries]

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """The module's parts by name."""
        yield from self._module.named_modules()

    # -- theta as an argument -------------------------------------------------------------------------------------

    def forward(self, theta: Tensor, buffers: Tensor, batch: Batch, training: bool) -> Tensor:
        """The module's outputs, differentiable in theta and in the batch; in training, buffers are changed in place."""
        named = self.layout.views(theta) | self._buffer_views(buffers)
        if self._module.training is not training:
            self._module.train(training)
        inside = {f"module.{name}": tensor for name, tensor in named.items()}
        outputs: Tensor = functional_call(self._applied, inside, (self._shown(batch),))
        return outputs

    def _shown(self, batch: Batch) -> Batch:
        """The batch as the module is given it: pictures with their channels last in memory, where the module says that
        this is faster (`channels_last`); not under `vmap`, which has no such tensors."""
        if not self._channels_last or batch["x"].dim() != 4 or fused.under_vmap():
            return batch
        x = batch["x"].contiguous(memory_format=torch.channels_last)
        if x.shape[1] == 1:  # both formats are the same memory then, and torch looks at the strides
            x = x.squeeze(1).unsqueeze(-1).movedim(-1, 1)
        return batch | {"x": x}

    def loss(self, theta: Tensor, buffers: Tensor, batch: Batch, key: rng.Key) -> tuple[Tensor, Tensor]:
        """The mean loss of a batch in training mode, differentiable in theta, and the buffers after it."""
        buffers = buffers.clone()
        with self._randomness(batch, key):
            return mean_loss(self.objective, self.forward(theta, buffers, batch, training=True), batch), buffers

    def outputs(self, theta: Tensor, buffers: Tensor, batch: Batch) -> Tensor:
        """The module's outputs in evaluation mode, without gradient."""
        with torch.no_grad():
            if self.traced:
                return self.forward(theta, buffers, batch, training=False)
            self._bind(theta, buffers)
            self._module.train(False)
            return self._applied(self._shown(batch))

    def some(self, wanted: Tensor) -> Tensor | slice:
        """The places where `wanted` is true, to save work elsewhere; all of them in a traced run, where no shape may
        depend on a value, and on a GPU, which would have to be waited for."""
        return slice(None) if self.traced or self.device.type != "cpu" else wanted.nonzero()[:, 0]

    def features(self, theta: Tensor, buffers: Tensor, batch: Batch) -> Tensor:
        """What the module's layer `head` is given, one vector per row, in evaluation mode; differentiable in theta and
        in the batch. Of a module without other layers these are the rows themselves."""
        head = dict(self._module.named_modules()).get("head")
        if head is None:
            raise fail("Task", f"{self.model_name} has no layer called head, whose inputs are the features")
        seen: list[Tensor] = []
        handle = head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        try:
            self.forward(theta, buffers, batch, training=False)
        finally:
            handle.remove()
        return seen[0].flatten(1)

    def grad(
        self, theta: Tensor, buffers: Tensor, batch: Batch, key: rng.Key, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The gradient of the mean loss in theta, and the buffers after the batch.

        Without `out` the gradient is a new vector; buffers may be changed in place.
        """
        if self.traced:
            slope, buffers = torch.func.grad(lambda t: self.loss(t, buffers, batch, key), has_aux=True)(theta)
            return slope, buffers
        out = torch.empty_like(theta) if out is None else out
        if self.dense is not None:
            return self.dense.grad(theta, batch["x"], batch["y"], batch.get("live"), out), buffers
        parts = self.grad_parts(theta, buffers, batch, key)
        return torch.cat([part.reshape(-1) for part in parts], out=out), buffers

    def slope(self, theta: Tensor, buffers: Tensor, batch: Batch, key: rng.Key) -> tuple[Tensor, Tensor]:
        """`grad` in a vector that the task keeps: its content lasts until the next call."""
        return self.grad(theta, buffers, batch, key, None if self.traced else self.scratch(theta))

    def descent(
        self, theta: Tensor, buffers: Tensor, batch: Batch, key: rng.Key
    ) -> tuple[Tensor | list[Tensor], Tensor]:
        """`grad` in the form that is cheapest to follow: a vector, or one tensor per entry of the layout."""
        if self.traced or self.dense is not None:
            return self.slope(theta, buffers, batch, key)
        return self.grad_parts(theta, buffers, batch, key), buffers

    def grad_parts(self, theta: Tensor, buffers: Tensor, batch: Batch, key: rng.Key) -> list[Tensor]:
        """The gradient as one tensor per entry of the layout; buffers are changed in place."""
        batch = self._shown(batch)

        def exact() -> list[Tensor]:
            outputs = self._trained_outputs(theta, buffers, batch, key)
            return self._parts(mean_loss(self.objective, outputs, batch))

        if self._captured is None or self.draws(batch):
            return exact()
        self._bind(theta, buffers)
        return self._captured.gradient(batch, exact, self._values)

    def _trained_outputs(self, theta: Tensor, buffers: Tensor, batch: Batch, key: rng.Key) -> Tensor:
        self._bind(theta, buffers)
        if not self._module.training:
            self._module.train(True)
        with self._randomness(batch, key):
            return self._applied(batch)

    def _parts(self, value: Tensor) -> list[Tensor]:
        """The gradient by parameter, in the order of theta's numbers: fused updates do not look at strides."""
        found = torch.autograd.grad(value, self._parameters, materialize_grads=True)
        return [part.contiguous() for part in found]

    def grad_of(
        self, score: Score, theta: Tensor, buffers: Tensor, batch: Batch, key: rng.Key
    ) -> tuple[Tensor | list[Tensor], Tensor, Tensor]:
        """The gradient in theta of any function of the outputs in training mode, the buffers after it, and what the
        function returned beside its value (numbers to watch, without gradient)."""
        if self.traced:

            def value(point: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
                after = buffers.clone()
                found, seen = score(self.forward(point, after, batch, training=True))
                return found, (after, seen)

            slope, (after, seen) = torch.func.grad(value, has_aux=True)(theta)
            return slope, after, seen
        found, seen = score(self._trained_outputs(theta, buffers, self._shown(batch), key))
        return self._parts(found), buffers, seen.detach()

    def grad_x(
        self, score: Callable[[Tensor], Tensor], theta: Tensor, buffers: Tensor, x: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradient in x of a function of the outputs in evaluation mode, and the outputs."""
        if self.traced:

            def value(x: Tensor) -> tuple[Tensor, Tensor]:
                outputs = self.forward(theta, buffers, {"x": x}, training=False)
                return score(outputs), outputs

            slope, outputs = torch.func.grad(value, has_aux=True)(x)
            return slope, outputs
        self._bind(theta, buffers)
        if self._module.training:
            self._module.train(False)
        x = x.detach().requires_grad_()
        outputs = self._applied(self._shown({"x": x}))
        return torch.autograd.grad(score(outputs), x)[0], outputs.detach()

    def pullback(self, function: Callable[[Tensors], Tensor], inputs: Tensors) -> tuple[Tensor, Pull]:
        """The value of a function of named tensors, and what turns a slope at the value into slopes at the inputs.

        By `torch.func` in a traced run; otherwise by plain autograd, whose GroupNorm is faster.
        """
        if self.traced:
            value, pull = torch.func.vjp(function, inputs)  # type: ignore[misc]
            return value, lambda slope: pull(slope)[0]
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in inputs.items()}
        value = function(leaves)
        return value.detach(), lambda slope: dict(
            zip(leaves, torch.autograd.grad(value, list(leaves.values()), slope, materialize_grads=True), strict=True)
        )

    def along(self, near: Tensor, far: Tensor, batch: Batch, lambdas: Tensor) -> Tensor | None:
        """The outputs, (points, rows, classes), of the models (1 - lam) near + lam far, where all points can be had at
        once; None where they cannot."""
        return None if self.dense is None else self.dense.along(near, far, batch["x"], lambdas)

    def statistics(self, theta: Tensor, batches: Iterable[Batch]) -> Tensor:
        """The buffers of a model after plain averages of BatchNorm's batch statistics over some batches.

        Layers with running statistics are in training mode and all others in evaluation mode, so nothing is drawn:
        Dropout and skipped blocks leave no trace in the statistics. Without a batch they are 0 and 1.
        """
        before = [(part, part.training) for part in self._module.modules()]
        momenta: list[tuple[nn.modules.batchnorm._NormBase, float | None]] = []
        try:
            self._module.train(True)  # a module may keep some of its layers frozen
            norms = {
                name: part
                for name, part in self._module.named_modules()
                if isinstance(part, nn.modules.batchnorm._NormBase) and part.training and part.running_mean is not None
            }
            momenta += [(norm, norm.momentum) for norm in norms.values()]
            buffers = self._state_of(self._module)["buffers"]
            for entry in self.buffers.entries:
                owner, _, last = entry.name.rpartition(".")
                if owner in norms:
                    buffers[entry.slice] = float(last == "running_var")
            named = {f"module.{n}": t for n, t in (self.layout.views(theta) | self._buffer_views(buffers)).items()}
            for part, _ in before:
                part.training = False
            for norm in norms.values():
                norm.training = True
            seen = 0
            with torch.no_grad():
                for batch in batches:
                    if len(batch["y"]) < self.least_batch:
                        continue
                    seen += 1
                    for norm in norms.values():
                        norm.momentum = 1 / seen  # a plain average of all batches up to this one
                    functional_call(self._applied, named, (self._shown(batch),))
        finally:
            for part, mode in before:
                part.training = mode
            for norm, momentum in momenta:
                norm.momentum = momentum
        return buffers

    def scratch(self, theta: Tensor) -> Tensor:
        """A gradient vector that is kept between steps; its content lasts until the next use."""
        if self._scratch is None or self._scratch.device != theta.device:
            self._scratch = torch.empty_like(theta)
        return self._scratch

    def _buffer_views(self, buffers: Tensor) -> Tensors:
        """The named buffers inside a vector. Outside a traced run each counts its own changes: autograd would take new
        statistics of one BatchNorm for a change of another's, which it has saved."""
        views = self.buffers.views(buffers)
        return views if self.traced else {name: view.data for name, view in views.items()}

    def _bind(self, theta: Tensor, buffers: Tensor) -> None:
        """Make the module's parameters and buffers views of these vectors."""
        if self._bound[0] is not theta:
            self._values = list(self.layout.views(theta).values())
            for parameter, value in zip(self._parameters, self._values, strict=True):
                parameter.data = value
        if self._bound[1] is not buffers:
            for name, view in self._buffer_views(buffers).items():
                owner, _, last = name.rpartition(".")
                self._module.get_submodule(owner)._buffers[last] = view
        self._bound = (theta, buffers)

    # -- modules that draw random numbers -------------------------------------------------------------------------

    def draws(self, batch: Batch) -> bool:
        """Whether the module draws random numbers in training mode (found out by running it once)."""
        if self._draws is None:
            if self.traced:
                raise FedchordError("Task: draws() must be asked before tracing")
            probe = copy.deepcopy(self._applied).train(True)
            rows = {name: column[: min(2, len(column))] for name, column in batch.items()}
            with rng.restored(), torch.no_grad():
                before = torch.get_rng_state()
                probe(rows)
                self._draws = not torch.equal(before, torch.get_rng_state())
        return self._draws

    def _randomness(self, batch: Batch, key: rng.Key) -> nullcontext[None]:
        if self.traced or not self.draws(batch):
            return nullcontext()
        assert isinstance(key, int)
        return rng.seeded(key)  # type: ignore[return-value]
