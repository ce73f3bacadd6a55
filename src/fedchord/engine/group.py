"""The processes of a torchrun job, which all run the same program, and what they tell each other.

By torch.distributed with gloo; where there is one process only, nothing is sent and torch.distributed is not touched.
"""

from __future__ import annotations

import atexit
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from fedchord.check import FedchordError, fail, require

Found = TypeVar("Found")
OWNER = "executor"
RANKS = "ranks"
COMMAND = "torchrun --nproc-per-node 2 -m fedchord run ... executor=ranks"


class Lost(FedchordError):
    """Another process of the job is gone, or does not answer."""


@dataclass(frozen=True)
class Group:
    """This process's number, from 0, and how many there are. All of them call every method, in the same order."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def gather(self, here: Found) -> list[Found]:
        """What every process has, by rank."""
        if self.size == 1:
            return [here]
        found: list[Any] = [None] * self.size
        with _answered():
            torch.distributed.all_gather_object(found, here)
        return found

    def share(self, here: Found) -> Found:
        """What the first process has."""
        if self.size == 1:
            return here
        held: list[Any] = [here]
        with _answered():
            torch.distributed.broadcast_object_list(held, 0)
        return cast(Found, held[0])

    def to_first(self, here: Found) -> list[Found]:
        """What every process has, at the first one; nothing elsewhere."""
        if self.size == 1:
            return [here]
        found: list[Any] = [None] * self.size
        with _answered():
            torch.distributed.gather_object(here, found if self.first else None, 0)
        return found if self.first else []

    def hand_out(self, parts: list[Found]) -> Found:
        """To every process its part of what the first one has."""
        if self.size == 1:
            return parts[0]
        held: list[Any] = [None]
        with _answered():
            torch.distributed.scatter_object_list(held, parts if self.first else None, 0)
        return cast(Found, held[0])

    def spread(self, tensor: Tensor, source: int) -> None:
        """Give a contiguous tensor of one process to all, in place and to the bit."""
        if self.size > 1 and tensor.numel():
            with _answered():
                torch.distributed.broadcast(tensor.view(-1).view(torch.uint8), source)

    def any(self, flag: bool) -> bool:
        """Whether it holds anywhere."""
        return any(self.gather(flag))

    def together(self, function: Callable[[], Found]) -> Found:
        """Do something everywhere; what goes wrong anywhere is raised by all."""
        made, problem = attempted(function)
        self.agree(problem)
        return cast(Found, made)

    def agree(self, problem: Exception | None, mark: object = None) -> None:
        """Raise what went wrong anywhere; and say so where the processes no longer do the same (`mark` differs)."""
        found = self.gather((problem, mark))
        for wrong, _ in found:
            if wrong is not None:
                raise wrong
        if any(told != mark for _, told in found):
            raise fail(OWNER, "the processes of ranks no longer agree; machines, versions or programs must differ")


ALONE = Group()


def attempted(function: Callable[[], Found], what: str = "a process") -> tuple[Found | None, Exception | None]:
    """What a function gives, or what went wrong, as it can be sent."""
    try:
        return function(), None
    except FedchordError as error:
        return None, error
    except Exception:
        return None, RuntimeError(f"{what} failed:\n{traceback.format_exc()}")


@contextmanager
def _answered() -> Iterator[None]:
    """A process that is gone is told in one line."""
    try:
        yield
    except RuntimeError as error:
        reason = (
            re.sub(r"^\[[^]]*\] *", "", str(error).strip()).partition(". ")[0].partition("\n")[0]
        )  # less gloo's file
        raise Lost(f"{OWNER}: ranks lost a process of the job ({reason[:120]})") from None


def started() -> int:
    """How many processes torchrun has started with this one; 0 where it did not start it."""
    known = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    return int(os.environ["WORLD_SIZE"]) if known else 0


def group_of(executor: object) -> Group:
    """The group of a run by its executor: that of torchrun's job for ranks, else this process alone."""
    return _joined() if executor == RANKS else ALONE


@cache
def _joined() -> Group:
    told = f"ranks needs torchrun, which starts the processes: {COMMAND}; or choose another executor"
    require(started() > 0, OWNER, told)
    if started() == 1:
        return ALONE
    require(torch.distributed.is_available(), OWNER, "this build of torch has no torch.distributed, which ranks needs")
    if not torch.distributed.is_initialized():
        with _answered():
            torch.distributed.init_process_group("gloo")
        atexit.register(_left)
    return Group(torch.distributed.get_rank(), torch.distributed.get_world_size())


def _left() -> None:
    """Close the connections before the interpreter goes: left to its end, their threads sometimes abort the process."""
    if torch.distributed.is_initialized():
        with suppress(RuntimeError):
            torch.distributed.destroy_process_group()
