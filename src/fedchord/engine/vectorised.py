"""Vectorised local rounds: a chunk of clients at once under `torch.func.vmap`, meant for accelerators.

Clients of a chunk are padded to the longest: a padded example weighs nothing, a padded step changes nothing. Modules
that `vmap` cannot take (or would take with other random numbers) are found before the run and named.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.spectral_norm import SpectralNorm

from fedchord import rng
from fedchord.core.objective import Batch
from fedchord.core.round import Results
from fedchord.core.rules import Log, Phase, RoundInfo, Upload, Visit
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.data.federation import Federation
from fedchord.engine.compress import divided
from fedchord.engine.executors import Arena, Found, Item, one_by_one, one_thread
from fedchord.engine.memory import ClientMemory
from fedchord.engine.work import Work
from fedchord.tensors import Tensors, stack

CHUNK = 16


Padded = tuple[Tensor, Tensor]
"""Row numbers and marks: 1 where a row is real, 0 where it is padding."""
Rows = list[Padded]
"""Padded row numbers by phase."""


class _TracedStream:
    """The examples of one client inside `vmap`: row numbers and marks, padded to the longest client of the chunk."""

    def __init__(
        self, federation: Federation, plan: Rows, whole: Padded, size: Tensor, counts: dict[Phase, Tensor]
    ) -> None:
        self._federation, self._plan, self._whole, self.size, self._counts = federation, plan, whole, size, counts

    def steps(self, phase: Phase) -> Tensor:
        return self._counts[phase]

    def batches(self, index: int, phase: Phase) -> Iterator[Batch]:
        rows, live = self._plan[index]
        for t in range(rows.shape[0]):
            yield self._gather(rows[t], live[t])

    def whole(self) -> Iterator[Batch]:
        yield self._gather(*self._whole)

    def _gather(self, rows: Tensor, live: Tensor) -> Batch:
        return self._federation.batch(rows) | {"live": live}


class Vectorised:
    """Chunks of clients under `torch.func.vmap`."""

    name = "vectorised"

    def __init__(self, work: Work, chunk: int = CHUNK) -> None:
        self.work, self._chunk = work, chunk
        self._sizes = work.federation.train.sizes
        self._arena: Arena | None = None
        self._task = traced(work.task)

    def run(self, shared: Tensors, ids: list[int], info: RoundInfo, memory: ClientMemory) -> Results:
        sizes = self._sizes[ids]
        order = torch.argsort(sizes, descending=True, stable=True).tolist()
        with one_thread():
            for start in range(0, len(order), self._chunk):
                slots = order[start : start + self._chunk]
                self._run_chunk(shared, [ids[slot] for slot in slots], slots, len(ids), info, memory)
        assert self._arena is not None
        self._arena.keep(memory, ids, info.round)
        return self._arena.results(ids, sizes, self.work.needs_loss)

    def _run_chunk(
        self, shared: Tensors, ids: list[int], slots: list[int], cohort: int, info: RoundInfo, memory: ClientMemory
    ) -> None:
        work = self.work
        owns = [work.own(client, memory.get(client), shared) for client in ids]
        visit = Visit(self._task, shared, divided(owns[0])[0], info, ids[0], int(self._sizes[ids[0]]))
        phases = work.algorithm.client.phases(visit)
        streams = [work.stream(client, info.round) for client in ids]
        plan = [_pad([list(_steps(s, i, phase, work)) for s in streams]) for i, phase in enumerate(phases)]
        whole = _pad([[work.federation.train[client]] for client in ids])
        steps = [torch.tensor([s.steps(phase) for s in streams]) for phase in phases]
        every = {name: tensor.expand(len(ids), *tensor.shape) for name, tensor in shared.items()}
        keys = rng.as_tensor([rng.key(work.seed, "local", client, info.round) for client in ids])

        def one(
            shared: Tensors,
            own: Tensors,
            plan: Rows,
            whole: Padded,
            steps: list[Tensor],
            size: Tensor,
            client: Tensor,
            key: Tensor,
        ) -> tuple[list[Tensors], Tensors, Tensor]:
            counts = dict(zip(phases, steps, strict=True))
            stream = _TracedStream(work.federation, plan, (whole[0][0], whole[1][0]), size, counts)
            upload, own, loss = work.local(self._task, shared, own, stream, info, client, key)
            loss = torch.zeros(()) if loss is None else loss
            return [upload.mix, upload.carry, upload.mean, upload.log.means, upload.log.sums], own, loss

        sizes = self._sizes[ids]
        # "same": a rule may draw weights in its hooks, seeded by a key; modules that draw are refused before.
        every_client = torch.func.vmap(one, randomness="same")
        sent, kept, losses = every_client(every, stack(owns), plan, whole, steps, sizes, torch.tensor(ids), keys)
        for index, slot in enumerate(slots):
            mix, carry, mean, means, sums, own = ({n: t[index] for n, t in part.items()} for part in (*sent, kept))
            upload = Upload(mix, carry, mean, Log(means, sums))
            if self._arena is None or self._arena.rows < cohort:
                self._arena = Arena(upload, own, cohort, shared_memory=False)
            self._arena.write(slot, upload, own, losses[index])

    def each(self, function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
        return one_by_one(function, items)

    def close(self) -> None:
        self._arena = None


def traced(task: Task) -> Task:
    """The same task, computing by `torch.func` so that it can be vectorised."""
    twin = copy.copy(task)
    twin.traced, twin.dense = True, None
    return twin


def _steps(stream: ClientStream, index: int, phase: Phase, work: Work) -> Iterator[Tensor]:
    batch = work.training.batch or max(stream.size, 1)
    for rows in stream.order(index, phase):
        yield from rows.split(batch)


def _pad(lists: list[list[Tensor]]) -> Padded:
    """Row numbers (clients, steps, batch) and marks of equal shape: 1 where a row is real, 0 where it is padding."""
    steps = max(len(batches) for batches in lists)
    width = max((len(rows) for batches in lists for rows in batches), default=0)
    rows = torch.zeros(len(lists), steps, width, dtype=torch.int64)
    live = torch.zeros(len(lists), steps, width)
    for i, batches in enumerate(lists):
        for t, part in enumerate(batches):
            rows[i, t, : len(part)] = part
            live[i, t, : len(part)] = 1
    return rows, live


_RECURRENT = (nn.RNNBase, nn.RNNCellBase)
_ATTENTION = (nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def cannot_vectorise(work: Work) -> str:
    """Why a task cannot be vectorised, naming the module; empty if it can. One real step is tried."""
    if work.central:
        return "one client has the rows of all (central), so that there is nothing to do at once"
    if work.hiding is not None:
        return "batches of rows that are hidden have random sizes"
    for name, module in work.task.named_modules():
        kind = type(module).__name__
        if isinstance(module, _RECURRENT):
            return f"{name} is a recurrent layer ({kind}), which has no batching rule"
        if isinstance(module, _ATTENTION):
            return f"{name} is an attention layer ({kind}), which has no batching rule"
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            return f"{name} ({kind}) computes statistics over a batch, which padding would change (GroupNorm has none)"
        if is_parametrized(module) or any(isinstance(h, SpectralNorm) for h in module._forward_pre_hooks.values()):
            return f"{name} has a parametrisation (such as spectral normalisation), which updates itself in place"
    if work.federation.pictures is not None and work.federation.pictures.varies:
        return "training pictures are varied at random, which only the other executors do"
    rows = work.federation.train[0][:2]
    if work.task.draws(work.federation.batch(rows)):
        return "a module draws random numbers (such as Dropout), which would differ from the other executors"
    try:
        _probe(work)
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        text = str(error).strip().splitlines()
        return f"one step failed under vmap: {text[0] if text else type(error).__name__}"
    return ""


def _probe(work: Work) -> None:
    """One gradient of two clients under vmap."""
    task = traced(work.task)
    rows = torch.stack([work.federation.train[0][:1], work.federation.train[0][:1]])

    def one(theta: Tensor, buffers: Tensor, rows: Tensor) -> Tensor:
        batch = work.federation.ready({name: column[rows] for name, column in work.federation.columns.items()})
        return task.grad(theta, buffers, batch | {"live": torch.ones(1)}, 0)[0]

    model = work.task.init(0)
    torch.func.vmap(one)(model["theta"].expand(2, -1), model["buffers"].expand(2, -1), rows)
