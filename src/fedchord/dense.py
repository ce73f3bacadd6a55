"""A hand-written gradient for stacks of Linear and ReLU layers under cross-entropy.

It serves logistic regression and TwoNN, where library overhead would otherwise cost more than arithmetic. The task uses
it in place of autograd wherever the model qualifies; rules do not know. With activations h_0 = x, z_l = h_{l-1} W_l'
+ b_l, h_l = max(z_l, 0) and n examples:

    D_L = (softmax(z_L) - onehot(y)) / n,   dW_l = D_l' h_{l-1},   db_l = sum_rows D_l,   D_{l-1} = (D_l W_l) *
    [h_{l-1} > 0].
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedchord.tensors import Layout, Tensors

Pair = tuple[Tensor, Tensor, Tensor | None]
"""Weight, its transpose, bias."""


@dataclass
class _Bound:
    """The layer views of the last vector seen, so that they are made once per training run and not once per step."""

    vector: Tensor | None = None
    layers: list[Pair] = field(default_factory=list)


class Dense:
    """Gradient of the mean cross-entropy of a Linear/ReLU stack, written straight into a flat vector."""

    def __init__(self, layout: Layout, layers: list[tuple[str, bool]], classes: int) -> None:
        self._layout, self._layers = layout, layers
        self._onehot = torch.eye(classes)
        self._theta, self._out = _Bound(), _Bound()
        self._shares: dict[int, Tensor] = {}

    @staticmethod
    def of(module: nn.Module, layout: Layout) -> Dense | None:
        """The dense gradient of a module, or None if the module is not such a stack."""
        if not isinstance(module, nn.Sequential) or type(module).forward is not nn.Sequential.forward:
            return None
        layers: list[tuple[str, bool]] = []
        classes = 0
        ready = True  # a Linear may follow; False directly after a Linear, whose ReLU is still to come
        for index, (name, child) in enumerate(module.named_children()):
            if child._forward_hooks or child._forward_pre_hooks or child._backward_hooks:
                return None
            if type(child) is nn.Flatten and index == 0 and (child.start_dim, child.end_dim) == (1, -1):
                continue
            if type(child) is nn.Linear and ready:
                layers.append((name, child.bias is not None))
                classes, ready = child.out_features, False
            elif type(child) is nn.ReLU and not ready:
                ready = True
            else:
                return None
        expected = [f"{name}.{kind}" for name, bias in layers for kind in (["weight", "bias"] if bias else ["weight"])]
        if ready or [entry.name for entry in layout.entries] != expected or module._forward_hooks:
            return None
        return Dense(layout, layers, classes)

    def _share(self, rows: int) -> Tensor:
        """1 / n as a tensor, which multiplies faster than a number."""
        if rows not in self._shares:
            self._shares[rows] = torch.tensor(1.0 / rows, device=self._onehot.device)
        return self._shares[rows]

    def _views(self, bound: _Bound, vector: Tensor) -> list[Pair]:
        if bound.vector is not vector:
            bound.layers, bound.vector = self._named(vector), vector
        return bound.layers

    def _named(self, vector: Tensor) -> list[Pair]:
        named: Tensors = self._layout.views(vector)
        weights = [(named[f"{n}.weight"], named[f"{n}.bias"] if bias else None) for n, bias in self._layers]
        return [(weight, weight.t(), bias) for weight, bias in weights]

    def grad(self, theta: Tensor, x: Tensor, y: Tensor, live: Tensor | None, out: Tensor) -> Tensor:
        """The gradient at theta on one batch, written into `out`; `live` marks the rows that count."""
        layers, slopes = self._views(self._theta, theta), self._views(self._out, out)
        if self._onehot.device != out.device:
            self._onehot, self._shares = self._onehot.to(out.device), {}
        with torch._C._InferenceMode(True):  # less bookkeeping in each of these small operations
            rows = y.shape[0]
            inputs = [x if x.dim() == 2 else x.reshape(rows, -1)]
            for _, weight, bias in layers[:-1]:
                inputs.append(_affine(inputs[-1], weight, bias).relu_())
            _, weight, bias = layers[-1]
            error = torch.softmax(_affine(inputs[-1], weight, bias), 1)
            error.sub_(torch.index_select(self._onehot, 0, y))
            error.mul_(self._share(rows) if live is None else (live / live.sum()).unsqueeze(1))
            for index in range(len(layers) - 1, -1, -1):
                slope, _, shift = slopes[index]
                torch.mm(error.t(), inputs[index], out=slope)
                if shift is not None:
                    torch.sum(error, 0, out=shift)
                if index:
                    error = torch.ops.aten.threshold_backward(error.mm(layers[index][0]), inputs[index], 0)
        return out

    def along(self, near: Tensor, far: Tensor, x: Tensor, lambdas: Tensor) -> Tensor:
        """The outputs, (points, rows, classes), of the models (1 - lam) near + lam far.

        The first layer is linear in lam before its activation, so two products serve all points; the others are mixed.
        """
        first, second = self._named(near), self._named(far)
        x = x.reshape(len(x), -1)
        lam = lambdas.to(x.dtype).reshape(-1, 1, 1)
        hidden = torch.lerp(_affine(x, *first[0][1:]), _affine(x, *second[0][1:]), lam)
        for (_, weight, bias), (_, other, shift) in zip(first[1:], second[1:], strict=True):
            hidden = torch.bmm(hidden.relu_(), torch.lerp(weight, other, lam))
            if bias is not None and shift is not None:
                hidden += torch.lerp(bias, shift, lam)
        return hidden


def _affine(x: Tensor, transposed: Tensor, bias: Tensor | None) -> Tensor:
    return x.mm(transposed) if bias is None else torch.addmm(bias, x, transposed)
