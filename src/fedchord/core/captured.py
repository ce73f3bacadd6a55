"""Gradients by a recorded list of operations, where autograd's bookkeeping would cost more than the arithmetic.

After many steps on batches of one shape the gradient is traced once, forward and backward, to the operations below
autograd; later steps call these, by torch's own interpreter where it has one and one by one from here otherwise. They
are the very kernels that autograd calls, in its order, so the bits are the same: that is checked on the batch at hand
before the list is used, and where it does not hold autograd goes on. It serves
modules that compute the same way every time: made of layers of torch and of `fedchord.models` alone, without buffers,
frozen or shared parameters, hooks and random draws. A branch on values cannot be traced, and autograd goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, fx, nn

from fedchord.core import fused
from fedchord.core.objective import PLAIN, Batch, Objective, mean_loss

AFTER = 10_000
"""Steps on one shape after which tracing, about a second, is likely to pay for itself."""
MOST_OPERATIONS = 600
"""A longer list belongs to a module whose arithmetic outweighs all else, or that loops over time."""

Key = tuple[object, ...]
Gradient = Callable[..., Sequence[Tensor]]
"""From parameters and columns to the slopes of the parameters."""

_aten = torch.ops.aten
_SAME = (_aten.detach.default, _aten.alias.default)
_TURN = _aten.t.default
_FILLED = {_aten.ones_like.default: 1.0, _aten.zeros_like.default: 0.0}
_FOLDED = (_aten.expand.default, _aten.div.Scalar, _aten.mul.Scalar, _aten.view.default, _aten.neg.default)


class Captured:
    """Counts the steps of a module on batches of each shape and records the gradient when there were many."""

    def __init__(self, applied: nn.Module, names: list[str], objective: Objective) -> None:
        self._applied, self._names, self._objective = applied, names, objective
        self._counts: dict[Key, int] = {}
        self._found: dict[Key, Gradient | None] = {}

    @staticmethod
    def of(applied: nn.Module, module: nn.Module, names: list[str], objective: Objective) -> Captured | None:
        """The recorder of a module's gradient in the parameters of these names; None if the module does not qualify."""
        owned = [name for name, _ in module.named_parameters(remove_duplicate=False)]
        if objective.losses not in PLAIN or owned != names or next(module.buffers(), None) is not None:
            return None
        return Captured(applied, names, objective) if all(_plain(part) for part in module.modules()) else None

    def gradient(self, batch: Batch, exact: Callable[[], list[Tensor]], values: list[Tensor]) -> list[Tensor]:
        """The gradient on a batch at these values of the parameters: by the record, if there is one, or `exact`."""
        key = (*batch, batch["x"].shape, batch["x"].dtype, batch["y"].shape)
        if (record := self._found.get(key)) is not None:
            return list(_below(record, (*values, *batch.values())))
        slopes = exact()
        if key not in self._found:
            self._counts[key] = self._counts.get(key, 0) + 1
            if self._counts[key] >= AFTER:
                self._found[key] = self._recorded(batch, slopes, values)
        return slopes

    def _recorded(self, batch: Batch, slopes: list[Tensor], values: list[Tensor]) -> Gradient | None:
        """The record of the gradient on batches like this one, in the faster form that gives the same bits here."""
        given = (*values, *batch.values())
        with suppress(Exception):  # tracing meets whatever a module does; autograd goes on
            traced = self._trace(batch, values)
            operations = sum(node.op == "call_function" for node in traced.graph.nodes)
            for form in (_interpreted, _called) if operations <= MOST_OPERATIONS else ():
                with suppress(Exception):
                    record = form(traced, given)
                    if all(map(torch.equal, _below(record, given), slopes)):
                        return record
        return None

    def _trace(self, batch: Batch, values: list[Tensor]) -> fx.GraphModule:
        from torch.fx.experimental.proxy_tensor import make_fx  # here, since it takes half a second to import

        columns, count = list(batch), len(self._names)

        def slopes(*flat: Tensor) -> tuple[Tensor, ...]:
            points = [value.detach().requires_grad_() for value in flat[:count]]
            inside = {f"module.{name}": point for name, point in zip(self._names, points, strict=True)}
            rows = dict(zip(columns, flat[count:], strict=True))
            outputs = torch.func.functional_call(self._applied, inside, (rows,))
            loss = mean_loss(self._objective, outputs, rows)
            found = torch.autograd.grad(loss, points, materialize_grads=True)
            return tuple(part.contiguous() for part in found)

        traced = make_fx(slopes, tracing_mode="fake")(*values, *batch.values())
        _shorten(traced)
        return traced


def _called(traced: fx.GraphModule, given: Sequence[Tensor]) -> Gradient:
    """The list as a function of Python, one call after another."""
    return traced.forward


def _interpreted(traced: fx.GraphModule, given: Sequence[Tensor]) -> Gradient:
    """The list run by torch's interpreter, without a call of Python for each operation.

    Its optimisations stay off: they take sums apart, which gives other bits. It does not know the masks of a
    convolution's slopes (an error), where calls of Python hardly count beside the arithmetic.
    """
    plain = torch.jit.optimized_execution
    with warnings.catch_warnings(), torch.no_grad(), plain(False):
        warnings.simplefilter("ignore")  # it is to go one day; the other form then stays
        made = torch.jit.trace(traced, tuple(given), check_trace=False)

    def run(*flat: Tensor) -> Sequence[Tensor]:
        with plain(False):
            found: Sequence[Tensor] = made(*flat)
        return found

    return run


def _below(record: Gradient, given: Sequence[Tensor]) -> Sequence[Tensor]:
    with fused.below_autograd():
        return record(*given)


def _plain(part: nn.Module) -> bool:
    """Whether a layer is one of torch's or of the library's, draws nothing, and nobody listens to it."""
    home = type(part).__module__
    known = home.startswith(("torch.nn.modules.", "fedchord.models", "fedchord.core.task"))
    hooks = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
    return known and not hooks and not isinstance(part, nn.modules.dropout._DropoutNd)


def _shorten(traced: fx.GraphModule) -> None:
    """Leave out what autograd needed and the list does not: marks without a value, numbers that never change."""
    graph, fixed = traced.graph, dict[fx.Node, Tensor]()
    for node in list(graph.nodes):
        if node.op == "call_function" and (before := _before(node)) is not None:
            node.replace_all_uses_with(before)
            graph.erase_node(node)
        elif (value := _fixed(node, fixed)) is not None:
            fixed[node] = value
    for index, (node, value) in enumerate(fixed.items()):
        if any(user not in fixed for user in node.users):
            traced.register_buffer(f"fixed_{index}", value.contiguous(), persistent=False)
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(f"fixed_{index}"))
    graph.eliminate_dead_code()
    traced.recompile()


def _before(node: fx.Node) -> fx.Node | None:
    """The node whose value this one has too: it marks it only, or turns what was turned."""
    first = node.args[0] if node.args else None
    if not isinstance(first, fx.Node):
        return None
    if node.target in _SAME:
        return first
    above = first.args[0] if node.target is _TURN and first.target is _TURN else None
    return above if isinstance(above, fx.Node) else None


def _fixed(node: fx.Node, fixed: dict[fx.Node, Tensor]) -> Tensor | None:
    """The value of a node that follows from shapes alone."""
    if node.op != "call_function":
        return None
    target: Any = node.target
    if target in _FILLED:
        like = node.meta["val"]
        return torch.full(like.shape, _FILLED[target], dtype=like.dtype, device=like.device)
    if target in _FOLDED and isinstance(node.args[0], fx.Node) and node.args[0] in fixed and not node.kwargs:
        value: Tensor = target(fixed[node.args[0]], *node.args[1:])
        return value
    return None
