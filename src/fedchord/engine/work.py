"""What stays the same over a run, and what one client does with it: its round, and its training before use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedchord import check, rng
from fedchord.core.local import Begun, Guard, Watch, begin_round, local_round, train
from fedchord.core.objective import Batch
from fedchord.core.round import Plan, Results, advance, check_mix, open_round
from fedchord.core.rules import Algorithm, Cohort, Mix, Phase, RoundInfo, ServerState, Upload, Visit
from fedchord.core.stream import ClientStream, Stream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.compress import Compress, Packing, divided
from fedchord.privacy.rows import Hiding, PoissonStream, counted
from fedchord.tensors import Tensors


@dataclass(frozen=True)
class Work:
    """Everything a local round needs that stays the same over the run: what worker processes are forked with.

    `training` are the settings the client rule runs with (`ClientRule.local`).
    """

    algorithm: Algorithm
    task: Task
    federation: Federation
    training: Training
    seed: int
    guards: tuple[Guard, ...] = ()
    """What every client does to its upload before it leaves."""
    central: bool = False
    """Whether whoever takes part trains on the training rows of all clients: a control, no federation."""
    hiding: Hiding | None = None
    """How rows are hidden, by noise in every gradient; the task is then a `RowTask`."""
    compress: Compress | None = None
    """How uploads are packed, before the guards see them."""

    @staticmethod
    def of(
        algorithm: Algorithm,
        task: Task,
        federation: Federation,
        training: Training | None = None,
        seed: int = 0,
        device: str = "auto",
        guards: tuple[Guard, ...] = (),
        central: bool = False,
        hiding: Hiding | None = None,
        compress: Compress | None = None,
    ) -> Work:
        """The work of a run: data and task on the device, the training settings as the client rule needs them."""
        chosen = pick_device(device)
        used = algorithm.client.local(training or Training())
        return Work(algorithm, task.to(chosen), federation.to(chosen), used, seed, guards, central, hiding, compress)

    @property
    def needs_loss(self) -> bool:
        """Whether the mixing rule asks for losses."""
        return "loss" in self.algorithm.mixing.needs

    def stream(self, client: int, round: int, central: bool = False) -> ClientStream:
        """A client's training examples in a round, or those of all clients."""
        key, rows = rng.key(self.seed, "batches", client, round), self.federation.train.rows if central else None
        given = (self.federation, client, self.training.batch, key, self.task.least_batch, rows)
        return ClientStream(*given) if self.hiding is None else PoissonStream(*given, secret=self.hiding.secret)

    def own(self, client: int, kept: Tensors | None, shared: Tensors) -> Tensors:
        """What the client keeps, or, where it keeps nothing, what it starts with."""
        own, lost = divided(kept or {})
        if not own:
            own = self.algorithm.client.init(self.task, shared, rng.key(self.seed, "own", client))
        if self.compress and not lost:
            lost = self.compress.first(self.algorithm, shared)
        return own | lost

    def run(
        self,
        client: int,
        shared: Tensors,
        kept: Tensors | None,
        info: RoundInfo,
        limit: int | None = None,
        begun: Begun | None = None,
    ) -> tuple[Upload, Tensors, Tensor | None]:
        """One client's local round, or what is left of one that `begin` began; `limit` cuts each phase after so many
        steps, for trials."""
        stream, before = self.stream(client, info.round, self.central), getattr(self.task, "asked", 0)
        examples = stream if limit is None else Shortened(stream, limit)
        own, key = self.own(client, kept, shared), rng.key(self.seed, "local", client, info.round)
        done = self.local(self.task, shared, own, examples, info, client, key, begun)
        if isinstance(stream, PoissonStream):
            counted(self.algorithm.client, self.task, before, stream)
        return done

    def steps(self, client: int, shared: Tensors, kept: Tensors | None, info: RoundInfo) -> int:
        """How many steps a client's local round has; 0 where it cannot be made in two pieces."""
        if self.hiding is not None:
            return 0
        stream, own = self.stream(client, info.round, self.central), divided(self.own(client, kept, shared))[0]
        visit = Visit(self.task, shared, own, info, client, stream.size)
        return sum(stream.steps(phase) for phase in self.algorithm.client.phases(visit))

    def begin(
        self, client: int, shared: Tensors, kept: Tensors | None, info: RoundInfo, steps: int
    ) -> tuple[Begun, Tensor | None]:
        """The first steps of a client's local round, which `run` goes on with, and the loss of what it received."""
        own, _ = divided(self.own(client, kept, shared))
        return begin_round(
            self.algorithm.client,
            self.task,
            self.training,
            shared,
            own,
            self.stream(client, info.round, self.central),
            info,
            client,
            rng.key(self.seed, "local", client, info.round),
            steps,
            self.needs_loss,
        )

    def local(
        self,
        task: Task,
        shared: Tensors,
        own: Tensors,
        stream: Stream,
        info: RoundInfo,
        client: int | Tensor,
        key: rng.Key,
        begun: Begun | None = None,
    ) -> tuple[Upload, Tensors, Tensor | None]:
        """A local round by a task, which may be vectorised; the upload leaves packed where that is asked for."""
        rules, lost = divided(own)
        packing = self.compress and Packing(self.compress, lost)
        upload, kept, loss = local_round(
            self.algorithm.client,
            task,
            self.training,
            shared,
            rules,
            stream,
            info,
            client,
            key,
            self.needs_loss,
            (packing, *self.guards) if packing else self.guards,
            begun,
        )
        return upload, kept | packing.lost if packing else kept, loss

    def tuning(self, client: int, sampled: bool, state: ServerState) -> tuple[Visit, tuple[Phase, ...]]:
        """The training a client's rule asks for before deployment, and the visit it is asked with."""
        before = max(state.round - 1, 0)
        rate, epochs = self.training.rate(before), self.training.epochs
        info = RoundInfo(before, max(state.round, 1), self.federation.num_clients, 1, rate, epochs, key=0)
        size = len(self.federation.train[client])
        visit = Visit(self.task, state.broadcast, {}, info, client, size, sampled=sampled)
        return visit, self.algorithm.client.tuning(visit)

    def tune(self, client: int, kept: Tensors | None, state: ServerState, watch: Watch | None = None) -> Tensors | None:
        """What a client deploys from: what it keeps (None: it never took part), or what the training its rule asks for
        before deployment gives; `watch` looks on."""
        visit, phases = self.tuning(client, kept is not None, state)
        if not phases:
            return kept and divided(kept)[0]
        visit = replace(visit, own=divided(self.own(client, kept, state.broadcast))[0], phase=phases[0])
        key = rng.key(self.seed, "tune", client, state.round)
        return train(self.algorithm.client, self.training, visit, self.stream(client, state.round), phases, key, watch)

    def rehearse(self, state: ServerState, plan: Plan) -> None:
        """A round without a step of training: what does not fit is told before it begins.

        The weights of a cohort with equal losses and updates, one client's upload, and the server's step with it.
        """
        info, ids = open_round(state, plan, self.training)
        self._rehearse(state, info, ids)

    def asks_rounds(self, state: ServerState, plan: Plan) -> bool:
        """Whether a rule asks how many rounds there are in all, in a rehearsal of the next round with one step."""
        info, ids = open_round(state, plan, self.training)
        watched = Watched(**vars(info))
        self._rehearse(state, watched, ids, steps=1)
        return watched.asked()

    def _rehearse(self, state: ServerState, info: RoundInfo, ids: list[int], steps: int = 0) -> None:
        rule = self.algorithm.client
        self._rehearse_weights(state, info, ids)
        upload, _, _ = self.run(ids[0], state.broadcast, None, info, limit=steps)
        for way, sent in (("mix", upload.mix), ("mean", upload.mean)):
            said = {name for name, manner in rule.sends.items() if manner == way}
            for name in sorted(said ^ set(sent)):
                what = "does not send" if name in said else "sends"
                but = "names it" if name in said else "does not name it"
                raise check.fail(type(rule).__name__, f"finish {what} {name} by {way}, and `sends` {but}")
        mix, carry, mean = (
            {name: tensor.unsqueeze(0) for name, tensor in part.items()}
            for part in (upload.mix, upload.carry, upload.mean)
        )
        one = torch.ones(1)
        results = Results(torch.zeros(1, dtype=torch.int64), one, mix, carry, mean)
        advance(self.algorithm, self.task, state, results, Mix(one, one), info)

    def _rehearse_weights(self, state: ServerState, info: RoundInfo, ids: list[int]) -> None:
        needs, one = self.algorithm.mixing.needs, torch.ones(len(ids), dtype=torch.float64)
        cohort = Cohort(
            torch.tensor(ids),
            self.federation.train.sizes[ids],
            losses=one if "loss" in needs else None,
            norms=one if "norm" in needs else None,
            gram=torch.eye(len(ids), dtype=torch.float64) if "gram" in needs else None,
        )
        mix, _ = self.algorithm.mixing.weigh(state.mixing, cohort, info)
        check_mix(self.algorithm, mix, len(ids))


def pick_device(device: str) -> torch.device:
    """The device by name; "auto" takes CUDA where it is present."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise check.fail("run", f"device must be auto, cpu or cuda, got {device!r}") from None
    check.require(
        chosen.type != "cuda" or torch.cuda.is_available(),
        "run",
        f"device {device} asked for, but no CUDA device is here",
    )
    return chosen


class Watched(RoundInfo):
    """A round that notices when it is asked how many there are in all."""

    def __getattribute__(self, name: str) -> Any:
        if name == "rounds":
            object.__getattribute__(self, "__dict__")["noticed"] = True
        return object.__getattribute__(self, name)

    def asked(self) -> bool:
        """Whether it was."""
        return "noticed" in vars(self)


class Shortened:
    """A stream that ends early: for shapes (no step at all) and for trials."""

    def __init__(self, stream: ClientStream, limit: int) -> None:
        self._stream, self._limit, self.size = stream, limit, stream.size

    def steps(self, phase: Phase) -> int:
        return min(self._limit, self._stream.steps(phase))

    def batches(self, index: int, phase: Phase) -> Iterator[Batch]:
        if self._limit:
            for _, batch in zip(range(self._limit), self._stream.batches(index, phase), strict=False):
                yield batch

    def whole(self) -> Iterator[Batch]:
        return self._stream.whole() if self._limit else iter(())
