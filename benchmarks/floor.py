"""The arithmetic of a round: floating-point operations of its products and convolutions, and what the machine can do.

    python floor.py JOB

Counted by torch on a visit by fedchord (an LSTM as the products it is made of), scaled to the round. The peak
is that of a product of two matrices of 2048 x 2048 on all cores. Their ratio is the time below which no round can be:
it leaves out all memory traffic, activations, norms and the update.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import nullcontext
from dataclasses import replace

import torch
from ours import rounds
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from works import JOBS, Job

SIDE, TRIES = 2048, 12


class Counted(TorchDispatchMode):
    """Adds up floating-point operations by torch's own formulas. (Its counter also follows modules, by hooks that not
    every gradient goes with.)"""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        with self:  # an operation made of others is counted by these
            made = function.decompose(*args, **kwargs)
        if made is not NotImplemented:
            return made
        made = function(*args, **kwargs)
        if formula := flop_registry.get(function._overloadpacket):
            self.total += formula(*args, **kwargs, out_val=made)
        return made


def operations(job: Job) -> float:
    """Floating-point operations of a round."""
    size = {"clients": 4, "cohort": 4} if job.points else {"clients": 1, "cohort": 1, "epochs": 1}
    few = replace(job, **size)
    options = argparse.Namespace(serial=True, no_dense=False, captured=False)
    apart = torch.backends.mkldnn.flags(enabled=False) if job.tokens else nullcontext()
    with apart, Counted() as counted:
        first, second = (counted.total for _ in rounds(few, 2, options))  # a first round also tries the rules
    return (second - first) * job.samples / few.samples


def peak() -> float:
    """Floating-point operations a second on all cores, the best of several products."""
    one, other = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    best = float("inf")
    for _ in range(TRIES):
        start = time.perf_counter()
        torch.mm(one, other)
        best = min(best, time.perf_counter() - start)
    return 2 * SIDE**3 / best


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=sorted(JOBS))
    print(json.dumps({"operations": operations(JOBS[parser.parse_args().job]), "peak": peak()}))
