"""What a round costs in bytes, beside what exchanging a model would cost.

A client that sends and receives d parameters moves 2 x 4 d bytes a round. FedEvg moves M samples of D numbers down, M
gradients and M weights up: 4 (2 M D + M) bytes, whatever the network (thesis, chapter 4).
"""

from __future__ import annotations

from dataclasses import dataclass

from fedchord import models

BYTES = 4
"""Per number."""
LARGE = "resnet10"
"""The network of the thesis' experiments, for comparison."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of one client in one round, and how many times as many it would take to exchange models."""

    up: float
    down: float
    parameters: dict[str, int]
    """Models by name, and their numbers of parameters."""

    @property
    def ratios(self) -> dict[str, float]:
        """Bytes of exchanging each model over the bytes of this method: below 1, the model is smaller."""
        own = self.up + self.down
        return {name: 2 * BYTES * count / own if own else float("inf") for name, count in self.parameters.items()}

    def told(self) -> list[str]:
        """The account in sentences."""
        lines = [f"A client sends {size(self.up)} and receives {size(self.down)} a round."]
        for name, ratio in self.ratios.items():
            whole = f"Exchanging {name} ({self.parameters[name]:,} parameters) would take"
            bytes_ = size(2 * BYTES * self.parameters[name])
            if abs(ratio - 1) < 0.005:
                lines.append(f"That is exchanging {name} ({self.parameters[name]:,} parameters).")
            elif ratio < 1:
                lines.append(f"{whole} {bytes_}: the model is smaller, {ratio:.2g} times as much.")
            else:
                lines.append(f"{whole} {bytes_}: {ratio:.3g} times as much.")
        return lines


def size(count: float) -> str:
    """Bytes for reading."""
    return f"{count / 1e6:.3g} MB" if count >= 1e5 else f"{count / 1e3:.3g} kB"


def traffic(
    up: float, down: float, clients: int, own: tuple[str, int], shape: tuple[int, ...], classes: int
) -> Traffic:
    """From the bytes of a whole round and of how many clients they are; `own` is the method's network."""
    known = {own[0]: own[1]}
    if len(shape) == 3 and LARGE not in known:
        network = models.build(LARGE, shape, classes)
        known[LARGE] = sum(parameter.numel() for parameter in network.parameters())
    return Traffic(up / clients, down / clients, known)
