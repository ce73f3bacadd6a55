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

from fedchord.core import fused
from fedchord.tensors import Layout

Pair = tuple[Tensor, Tensor, Tensor | None]
"""Weight, its transpose, bias."""


@dataclass
class _Bound:
    """The layer views of the last vector seen, so that they are made once per training run and not once per step."""

    vector: Tensor | None = None
    layers: list[Pair] = field(default_factory=list)


class Dense:
    """Gradient of the mean cross-entropy of a Linear/ReLU stack, written straight into a flat vector.

    `binary`: of one logit s, which stands for the two (0, s).
    """

    def __init__(self, layout: Layout, layers: list[tuple[str, bool]], classes: int, binary: bool = False) -> None:
        self._layout, self._layers, self._binary = layout, layers, binary
        self._onehot = torch.eye(classes)
        self._theta, self._out = _Bound(), _Bound()
        self._scaled: dict[int, Tensor] = {}
        self._counts: dict[int, Tensor] = {}

    @staticmethod
    def of(module: nn.Module, layout: Layout, binary: bool = False) -> Dense | None:
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
        if binary and classes != 1:
            return None
        return Dense(layout, layers, 2 if binary else classes, binary)

    def _against(self, rows: int) -> Tensor:
        """-identity / n: row y is what the loss of n examples, each of class y, pulls towards."""
        if rows not in self._scaled:
            self._scaled[rows] = self._onehot / -rows
        return self._scaled[rows]

    def _ones(self, rows: Tensor) -> Tensor:
        """A one for every row; a product with it sums the rows faster than a sum does."""
        if (count := rows.shape[0]) not in self._counts:
            self._counts[count] = torch.ones(count, device=rows.device)
        return self._counts[count]

    def toward(self, y: Tensor, batch: int) -> Tensor:
        """-onehot(y) / n for rows that are cut into batches of n; the last batch may be short."""
        if self._onehot.device != y.device:
            self._onehot, self._scaled, self._counts = self._onehot.to(y.device), {}, {}
        y = y.long() if self._binary else y
        pulls = torch.index_select(self._against(min(batch, y.shape[0])), 0, y)
        if short := y.shape[0] % batch if y.shape[0] > batch else 0:
            pulls[-short:] = torch.index_select(self._against(short), 0, y[-short:])
        return pulls

    def _views(self, bound: _Bound, vector: Tensor) -> list[Pair]:
        if bound.vector is not vector:
            bound.layers, bound.vector = self._named(vector), vector
        return bound.layers

    def _named(self, vector: Tensor) -> list[Pair]:
        parts = iter(self._layout.views(vector).values())
        weights = [(next(parts), next(parts) if bias else None) for _, bias in self._layers]
        return [(weight, weight.t(), bias) for weight, bias in weights]

    def grad(self, theta: Tensor, x: Tensor, y: Tensor, live: Tensor | None, out: Tensor) -> Tensor:
        """The gradient at theta on one batch, written into `out`; `live` marks the rows that count."""
        with fused.inference(True):  # less bookkeeping in each of these small operations
            pulls = self.toward(y, y.shape[0])
            if live is not None:
                pulls = pulls * (live * (y.shape[0] / live.sum())).unsqueeze(1)
            self.slopes(theta, x if x.dim() == 2 else x.flatten(1), pulls, out)
        return out

    def slopes(self, theta: Tensor, x: Tensor, toward: Tensor, out: Tensor) -> None:
        """The gradient at theta on flat rows x, given -onehot(y) / n for each of them; call it in inference mode."""
        layers, slopes = self._views(self._theta, theta), self._views(self._out, out)
        inputs = [x]
        for _, weight, bias in layers[:-1]:
            inputs.append(_affine(inputs[-1], weight, bias).relu_())
        _, weight, bias = layers[-1]
        scores = _affine(inputs[-1], weight, bias)
        if self._binary:  # one logit s stands for the two (0, s)
            error = torch.addcmul(toward[:, 1:], scores.sigmoid_(), toward.sum(1, keepdim=True), value=-1)
        else:
            logs = fused.log_softmax(scores, 1, False)
            error = fused.log_softmax_back(toward, logs, 1, logs.dtype)
        for index in range(len(layers) - 1, -1, -1):
            slope, _, shift = slopes[index]
            turned = error.t()
            torch.mm(turned, inputs[index], out=slope)
            if shift is not None:
                torch.mv(turned, self._ones(error), out=shift)
            if index:
                error = torch.ops.aten.threshold_backward(error.mm(layers[index][0]), inputs[index], 0)

    def clipped(self, theta: Tensor, x: Tensor, y: Tensor, clip: float) -> Tensor:
        """The sum over rows of their own gradients g_i min(1, clip / ||g_i||), none of which is written down.

        ||g_i||^2 = sum_l ||D_l,i||^2 (||h_{l-1},i||^2 + 1), the 1 for a bias, with D of each row's own loss.
        """
        out, n = torch.zeros_like(theta), len(y)
        if not n:
            return out
        layers, slopes = self._named(theta), self._named(out)
        inputs = [x.flatten(1)]
        for _, weight, bias in layers[:-1]:
            inputs.append(_affine(inputs[-1], weight, bias).relu())
        scores = _affine(inputs[-1], *layers[-1][1:])
        if self._binary:
            errors = [scores.sigmoid() - y[:, None].to(scores.dtype)]
        else:
            errors = [scores.softmax(1) - self._onehot.to(y.device)[y]]
        for index in range(len(layers) - 1, 0, -1):
            errors.insert(0, errors[0].mm(layers[index][0]) * (inputs[index] > 0))
        squares = torch.zeros(n, device=x.device)
        for error, given, (_, _, bias) in zip(errors, inputs, layers, strict=True):
            squares += error.square().sum(1) * (given.square().sum(1) + float(bias is not None))
        factor = (clip / squares.sqrt().clamp_min(clip)).unsqueeze(1)
        for error, given, (slope, _, shift) in zip(errors, inputs, slopes, strict=True):
            slope.copy_((factor * error).t().mm(given))
            if shift is not None:
                shift.copy_((factor * error).sum(0))
        return out

    def along(self, near: Tensor, far: Tensor, x: Tensor, lambdas: Tensor) -> Tensor:
        """The outputs, (points, rows, classes), of the models (1 - lam) near + lam far.

        The first layer is linear in lam before its activation, so two products serve all points; the others are mixed.
        """
        first, second = self._named(near), self._named(far)
        x, lam = x.reshape(len(x), -1), lambdas.to(x.dtype).reshape(-1, 1, 1)
        hidden = torch.lerp(_affine(x, *first[0][1:]), _affine(x, *second[0][1:]), lam)
        for (weight, _, bias), (other, _, shift) in zip(first[1:], second[1:], strict=True):
            hidden = torch.bmm(hidden.relu_(), torch.lerp(weight, other, lam).transpose(1, 2))
            if bias is not None and shift is not None:
                hidden += torch.lerp(bias, shift, lam)
        return hidden


def _affine(x: Tensor, transposed: Tensor, bias: Tensor | None) -> Tensor:
    return x.mm(transposed) if bias is None else torch.addmm(bias, x, transposed)
