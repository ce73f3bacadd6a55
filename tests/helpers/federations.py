"""Small federations that many tests share."""

from __future__ import annotations

import torch

from fedchord.data.federation import Federation, Ragged


def make_federation(sizes: list[int], inputs: int = 6, classes: int = 3, seed: int = 0, test: int = 4) -> Federation:
    """Clients of given training sizes with learnable random data, `test` test rows each."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(sizes) + test * len(sizes)
    x = torch.randn(total, inputs, generator=generator)
    y = (x @ torch.randn(inputs, classes, generator=generator)).argmax(1)
    train, tests, start = [], [], 0
    for size in sizes:
        train.append(torch.arange(start, start + size))
        tests.append(torch.arange(start + size, start + size + test))
        start += size + test
    nothing = Ragged.of([torch.zeros(0, dtype=torch.int64)] * len(sizes))
    names = tuple(f"client {i}" for i in range(len(sizes)))
    return Federation("toy", {"x": x, "y": y}, classes, Ragged.of(train), nothing, Ragged.of(tests), names)
