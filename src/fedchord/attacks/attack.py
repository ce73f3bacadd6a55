"""An attack: its name, the share of clients that are hostile, how strong it is, and who they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

import torch

from fedchord import check, rng
from fedchord.attacks.labels import flipped
from fedchord.attacks.uploads import UPLOADS
from fedchord.check import fail, require, unknown
from fedchord.core.round import Results
from fedchord.core.rules import Algorithm, Mix
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged
from fedchord.mixing.liars import lied
from fedchord.tensors import Tensors

LABELS, LOSSES = "label-flip", "lying"
ATTACKS = (*UPLOADS, LABELS, LOSSES)
SCALES = {"sign-flip": 1.0, "scaled": 10.0, "noise": 10.0, "little": 1.5, LOSSES: 10.0}
"""How strong an attack is unless it is said."""


@final
@dataclass(frozen=True)
class Attack:
    """What hostile clients do; all else of a round is as it is without them.

    With h = floor(share K) hostile clients, u the upload that the rules make of a client's rows and s = `scale`:

    - sign-flip: sends -s u;
    - scaled: sends s u, the boost by which a client puts its own model in the place of the mean;
    - noise: sends Gaussian numbers of s times the length of u, a key's own for each client and round;
    - little: all hostile clients of a cohort send mean - s std of their own honest uploads, entry by entry ("a little
      is enough", Baruch et al., 2019). They know each other's uploads and nobody else's; one alone sends its own;
    - label-flip: trains on the labels L - 1 - y of its own rows, and sends what comes of it;
    - lying: trains honestly and reports s times its loss, for rules that ask for losses.

    Uploads are what is summed or averaged; buffers, memory and log of a client are honest. Results are measured on the
    honest clients.
    """

    name: str
    share: float = 0.2
    scale: float | None = None

    def __post_init__(self) -> None:
        if self.name not in ATTACKS:
            raise unknown("attack", str(self.name), ATTACKS)
        check.below("run", "attack.share", self.share, 1)
        if self.scale is not None:
            check.positive("run", "attack.scale", self.scale)
            require(self.name in SCALES, "run", f"attack.scale is not for attack={self.name}")

    @property
    def strength(self) -> float:
        """The scale, given or usual."""
        return SCALES.get(self.name, 1.0) if self.scale is None else self.scale

    def hostile(self, seed: int, num_clients: int) -> tuple[int, ...]:
        """Who is hostile, sorted: the first clients of a random order, so that a larger share has the smaller one's."""
        return _drawn(self.share, seed, num_clients)

    def check(self, algorithm: Algorithm) -> None:
        """Refuse a method that gives the attack nothing to do."""
        mixing, sends = algorithm.mixing, algorithm.client.sends
        if self.name == LOSSES:
            asks = "loss" in mixing.needs
            require(asks, "run", f"attack={LOSSES} needs a mixing rule that asks for losses, as those of aaggff-d do")
        require(
            bool(sends), "run", f"attack={self.name} changes what clients send, and {algorithm.title} sends nothing"
        )

    # -- data ------------------------------------------------------------------------------------------------------

    def among(self, federation: Federation, seed: int) -> Federation:
        """The federation of a simulation: hostile clients have their wrong labels, and no rows that are measured."""
        hostile = self.hostile(seed, federation.num_clients)
        return measured_without(self.poisoned(federation, seed), hostile)

    def poisoned(self, federation: Federation, seed: int) -> Federation:
        """The federation with the wrong labels of the hostile clients, where the attack is one on labels."""
        return flipped(federation, self.hostile(seed, federation.num_clients)) if self.name == LABELS else federation

    # -- what is sent ----------------------------------------------------------------------------------------------

    def sent(self, results: Results, seed: int, round: int, num_clients: int) -> Results:
        """What arrives from a cohort, given what honest clients in their place would send; `round` counts from 0."""
        hostile = set(self.hostile(seed, num_clients))
        slots = [slot for slot, client in enumerate(results.ids.tolist()) if client in hostile]
        if not slots:
            return results
        if self.name == LOSSES:
            assert results.losses is not None
            return replace(results, losses=lied(results.losses, results.ids, tuple(hostile), self.strength))
        if self.name not in UPLOADS:
            return results
        ids = results.ids[slots].tolist()
        parts = {"mix": results.mix, "mean": results.mean}
        rows = {f"{way}/{name}": stack[slots] for way, part in parts.items() for name, stack in part.items()}
        changed = self.uploads(rows, ids, seed, round)
        mix, mean = (
            {name: _placed(stack, slots, changed[f"{way}/{name}"]) for name, stack in part.items()}
            for way, part in parts.items()
        )
        return replace(results, mix=mix, mean=mean)

    def told(self, mix: Mix, results: Results, seed: int, num_clients: int) -> Mix:
        """The weights with the share that hostile clients have together, for the log."""
        wrong = set(self.hostile(seed, num_clients))
        ids, shares = results.ids.tolist(), mix.shares.tolist()
        share = sum(part for client, part in zip(ids, shares, strict=True) if client in wrong)
        return replace(mix, log={**mix.log, "hostile_share": share})

    def uploads(self, rows: Tensors, ids: Sequence[int], seed: int, round: int) -> Tensors:
        """The entries that hostile clients send, given their honest ones by name, a row for each client of `ids`."""
        if self.name not in UPLOADS:
            return rows
        keys = [rng.key(seed, "attack", client, round) for client in ids]
        change = UPLOADS[self.name]
        found: Tensors = {}
        for place, name in enumerate(sorted(rows)):
            flat = rows[name].reshape(len(ids), -1)
            found[name] = change(flat, self.strength, [rng.fold(key, place) for key in keys]).reshape(rows[name].shape)
        return found


@lru_cache(maxsize=16)
def _drawn(share: float, seed: int, num_clients: int) -> tuple[int, ...]:
    count = math.floor(share * num_clients + 1e-9)
    told = f"attack.share={share:g} of {num_clients} clients is nobody; {1 / num_clients:g} is one"
    require(count > 0 or share == 0, "run", told)
    order: list[int] = rng.permutation(rng.key(seed, "hostile"), num_clients).tolist()
    return tuple(sorted(order[:count]))


def measured_without(federation: Federation, hostile: Sequence[int]) -> Federation:
    """The federation in which some clients have no validation and no test rows, so that nobody measures them."""
    if not hostile:
        return federation
    away, none = set(hostile), torch.zeros(0, dtype=torch.int64, device=federation.train.rows.device)

    def honest(part: Ragged) -> Ragged:
        return Ragged.of(none if client in away else part[client] for client in range(len(part)))

    if not len((tests := honest(federation.test)).rows) and len(federation.test.rows):
        raise fail("run", "no honest client has test rows")
    return replace(federation, test=tests, validation=honest(federation.validation))


def _placed(stack: torch.Tensor, slots: Sequence[int], rows: torch.Tensor) -> torch.Tensor:
    """A copy of a stack with other rows in some places."""
    made = stack.clone()
    made[slots] = rows.to(stack.dtype)
    return made
