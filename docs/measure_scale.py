"""Counts bytes and floating-point operations of the catalogue's models, and what follows for a cluster: docs/scale.md.

    python docs/measure_scale.py             # prints the tables
    python docs/measure_scale.py --write     # and puts them into docs/scale.md

Nothing is computed: models are made without memory (`meta`), operations are counted by torch's FlopCounterMode (matrix
products and convolutions, forwards and backwards). So the numbers are the same on any machine.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedchord.engine.compress import Compress
from fedchord.models import MODELS, build
from fedchord.tensors import num_bytes

PAGE = Path(__file__).with_name("scale.md")
ROWS = 500
"""Rows that a client reads in a visit."""
SPEED = 30e9
"""Operations a second of one core: what a serial round of W1 reaches on the machine of benchmarks/README.md."""
COHORT = 1000
MEMORY = 64e9 / 32
"""Bytes of memory for each process of a machine of 64 GB with 32 cores."""
LINKS = {"1": 1e9 / 8, "10": 1e10 / 8, "100": 1e11 / 8}
"""Bytes a second of a link, by Gbit/s."""


@dataclass(frozen=True)
class Cost:
    """Of one model: numbers that are trained, bytes of an upload in each form, operations of a row's gradient."""

    name: str
    parameters: int
    plain: int
    half: int
    packed: int
    flops: float

    @property
    def visit(self) -> float:
        """Seconds of a visit on one core."""
        return ROWS * self.flops / SPEED

    def cores(self, link: float, sent: int) -> float:
        """Cores beyond which a round waits for the link: uploads come one after another, visits side by side."""
        return self.visit * link / sent


def cost(name: str, shape: tuple[int, ...] | None = None, classes: int | None = None) -> Cost:
    """The costs of a model of the catalogue, for the data it is shown with unless others are named."""
    entry = MODELS[name]
    shape, classes = shape or entry.shape, classes or entry.classes
    with torch.device("meta"):
        module = build(name, shape, classes)
    count = sum(p.numel() for p in module.parameters() if p.requires_grad)
    theta = {"mix/theta": torch.zeros(count, device="meta")}
    half, packed = (num_bytes(Compress(form).packed(theta)) for form in ("half", "bytes"))
    return Cost(name, count, num_bytes(theta), half, packed, operations(module, shape))


def operations(module: nn.Module, shape: tuple[int, ...], rows: int = 2) -> float:
    """Operations of the gradient of one row, forwards and backwards."""
    tokens = any(isinstance(part, nn.Embedding) for part in module.modules())
    kind = torch.int64 if tokens else torch.float32
    x = torch.zeros((rows, *shape), dtype=kind, device="meta")
    with FlopCounterMode(display=False) as counter:
        module.train()(x).sum().backward()
    return counter.get_total_flops() / rows


def tables(costs: list[Cost]) -> str:
    """Both tables, in markdown."""
    first = "| model | parameters | upload, MB | half | bytes | MFLOP a row | visit on a core, s |"
    lines = [first, "|---|---|---|---|---|---|---|"]
    for c in costs:
        sizes = " | ".join(f"{part / 1e6:.3g}" for part in (c.plain, c.half, c.packed))
        lines.append(f"| {c.name} | {c.parameters:,} | {sizes} | {c.flops / 1e6:.4g} | {c.visit:.3g} |")
    heads = " | ".join(f"{name} Gbit/s" for name in LINKS)
    second = f"| model | {heads} | {heads.replace('Gbit/s', 'Gbit/s, bytes')} | uploads of a cohort of {COHORT:,}, GB |"
    lines += ["", second, "|---" * 8 + "|"]
    for c in costs:
        cells = [_cores(c.cores(link, sent)) for sent in (c.plain, c.packed) for link in LINKS.values()]
        whole = COHORT * c.plain
        told = f"{whole / 1e9:.3g}" + (f" (at most {math.floor(MEMORY / c.plain):,} clients)" if whole > MEMORY else "")
        lines.append(f"| {c.name} | {' | '.join(cells)} | {told} |")
    return "\n".join(lines)


def _cores(count: float) -> str:
    return f"{count:,.0f}" if count >= 1 else f"{count:.2f}"


def written(text: str, made: str) -> str:
    """The page with the tables in their place."""
    head, _, rest = text.partition("<!-- tables -->\n")
    return f"{head}<!-- tables -->\n{made}\n<!-- end -->\n{rest.partition('<!-- end -->' + chr(10))[2]}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scale.md")
    found = tables([cost(name) for name in MODELS])
    print(found)
    if parser.parse_args().write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
