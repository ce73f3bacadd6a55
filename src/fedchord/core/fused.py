"""Kernels of torch that have no public name, and what takes their place in a torch that lacks one.

Which it is is decided once, when this file is loaded; the calls are the same. The stand-ins give the same numbers to
rounding, in more operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _sgd(
    values: list[Tensor],
    slopes: list[Tensor],
    velocities: list[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    **off: bool,
) -> None:
    """v <- momentum v + (1 - dampening) (g + decay x), x <- x - lr v; without velocities x <- x - lr (g + decay x)."""
    for index, (value, slope) in enumerate(zip(values, slopes, strict=True)):
        step = slope + weight_decay * value if weight_decay else slope
        if velocities:
            step = velocities[index].mul_(momentum).add_(step, alpha=1 - dampening)
        value.sub_(step, alpha=lr)


def _adam(
    values: list[Tensor],
    slopes: list[Tensor],
    firsts: list[Tensor],
    seconds: list[Tensor],
    largest: list[Tensor],
    counts: list[Tensor],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    **off: bool,
) -> None:
    """Adam (Kingma and Ba, 2015) with an L2 term, moments corrected by the count of steps."""
    for value, slope, first, second, count in zip(values, slopes, firsts, seconds, counts, strict=True):
        step = slope + weight_decay * value if weight_decay else slope
        first.mul_(beta1).add_(step, alpha=1 - beta1)
        second.mul_(beta2).addcmul_(step, step, value=1 - beta2)
        done = float(count)
        spread = (second / (1 - beta2**done)).sqrt_().add_(eps)
        value.addcdiv_(first, spread, value=-lr / (1 - beta1**done))


def _log_softmax(scores: Tensor, dim: int, half: bool) -> Tensor:
    return torch.log_softmax(scores, dim)


def _log_softmax_back(toward: Tensor, logs: Tensor, dim: int, kind: torch.dtype) -> Tensor:
    """The slope at the scores, given that at their log-softmax."""
    return toward - logs.exp() * toward.sum(dim, keepdim=True)


def _taken(owner: object, name: str, instead: Callable[..., Any]) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(owner, name, instead)
    return found


sgd = _taken(torch, "_fused_sgd_", _sgd)
adam = _taken(torch, "_fused_adam_", _adam)
log_softmax = _taken(torch, "_log_softmax", _log_softmax)
log_softmax_back = _taken(torch, "_log_softmax_backward_data", _log_softmax_back)
inference = _taken(getattr(torch, "_C", None), "_InferenceMode", torch.inference_mode)
"""Less bookkeeping in each small operation; as a context, `inference(True)`."""
below_autograd = _taken(getattr(torch, "_C", None), "_AutoDispatchBelowAutograd", torch.no_grad)
"""The same for operations whose results may meet autograd later; as a context, `below_autograd()`."""


def under_vmap() -> bool:
    """Whether this is called inside `torch.func.vmap`; true as well where torch cannot tell."""
    functorch: Any = getattr(torch._C, "_functorch", None)
    if not hasattr(functorch, "get_interpreter_stack"):
        return True
    return any(level.key() == functorch.TransformType.Vmap for level in functorch.get_interpreter_stack() or ())
