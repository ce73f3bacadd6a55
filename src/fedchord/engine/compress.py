"""Uploads in fewer bytes: half precision, or 8 bits, and what is lost by it is sent later.

Of the update u of an entry a client sends s, and keeps what is missing, e (error feedback):

    x = u + e,   s = Q(x),   e' = x - s,

so that all it ever sent is the sum of its updates less the last e. Q rounds to the nearest number of the form, ties to
even: what is rounded away comes later, so that rounding need not be unbiased, and nothing is drawn. What a server
computes with is s, in float32, to the same bits whether it came over a network or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedchord import check
from fedchord.core.round import Results
from fedchord.core.rules import Algorithm, Upload, Visit
from fedchord.tensors import Tensors, num_bytes

HALF, BYTES = "half", "bytes"
FORMS = (HALF, BYTES)
LOST = "lost."
"""How the names begin under which a client keeps what was lost."""
SCALE = "scale/"
"""How the names begin under which the exponents of an entry travel."""
SUMMED = ("mix/", "mean/")
BLOCK = 64
"""Numbers that share an exponent."""
LOWEST, NONE = -126, 127
"""The smallest exponent, and the one of a block that holds a number which is not finite."""
LARGEST = torch.finfo(torch.float16).max


def to_half(x: Tensor) -> Tensor:
    """The nearest float16; what is too large for it becomes the largest, what is not finite stays so."""
    return torch.where(x.isfinite(), x.clamp(-LARGEST, LARGEST), x).half()


def to_bytes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers q from -127 to 127 and an exponent e for every block of 64, so that x is about q 2^e.

    e is the smallest for which no q is above 127. Powers of two make q 2^e exact in float32, and Q(Q(x)) = Q(x): what
    was rounded can be packed again wherever it is, without a loss.
    """
    flat = x.reshape(-1).float()
    rows = pad(flat, (0, -len(flat) % BLOCK)).reshape(-1, BLOCK)
    bits = rows.abs().amax(1).view(torch.int32)  # 1.f 2^(field - 127) is at most 127 2^(field - 133) if f <= 63 / 64
    field, above = bits >> 23, (bits & 0x7FFFFF) > 0x7E0000
    exponents = torch.where(field == 255, NONE, (field - 133 + above).clamp(LOWEST))
    numbers = torch.round(rows * _power(-exponents).unsqueeze(1)).nan_to_num(0.0).clamp(-127, 127)
    return numbers.reshape(-1)[: len(flat)].to(torch.int8), exponents.to(torch.int8)


def from_bytes(numbers: Tensor, exponents: Tensor) -> Tensor:
    """q 2^e in float32."""
    powers = torch.where(exponents == NONE, torch.nan, _power(exponents.int()))
    rows = pad(numbers, (0, -len(numbers) % BLOCK)).reshape(-1, BLOCK)
    return (rows * powers.unsqueeze(1)).reshape(-1)[: len(numbers)]


def _power(exponents: Tensor) -> Tensor:
    """2^e for whole e from -126 to 127, by the bits of a float32."""
    return ((exponents + 127) << 23).view(torch.float32)


@final
@dataclass(frozen=True)
class Compress:
    """How uploads are packed: in `form` "half" (2 bytes a number) or "bytes" (1, and 1 for 64 of them); without
    `feedback` what is lost is lost.

    All that is mixed or averaged is packed, relative to what the client received. Buffers, losses and logs leave as
    they are.
    """

    form: str
    feedback: bool = True

    def __post_init__(self) -> None:
        check.one_of("run", "compress", self.form, FORMS)

    def check(self, algorithm: Algorithm, hidden: bool = False, combine: str = "mean") -> None:
        """Refuse a method whose uploads are no updates of a model; `hidden`: noise hides a client in their sum,
        `combine`: what the server makes of them in its place."""
        sends, asked = algorithm.client.sends, f"compress={self.form}"
        told = " and ".join(sends) or "nothing"
        updates = f"{asked} is for updates of models, and {algorithm.title} sends {told}"
        check.require("theta" in sends, "run", updates)
        clipped = f"noise hides updates that are clipped, and {asked} adds to them what was lost before"
        check.require(not hidden, "privacy", f"{clipped}; leave one of the two out")
        check.require(
            combine == "mean", "run", f"{asked} is for updates that are summed, and combine={combine} is no sum"
        )

    # -- at a client -----------------------------------------------------------------------------------------------

    def first(self, algorithm: Algorithm, shared: Tensors) -> Tensors:
        """What was lost before the first round: nothing."""
        if not self.feedback:
            return {}
        sends = algorithm.client.sends
        for name in sends:
            told = f"is for updates of what was broadcast, and {name} was not"
            check.require(name in shared, "run", f"compress={self.form} {told}")
        return {f"{LOST}{way}.{name}": torch.zeros_like(shared[name]) for name, way in sends.items()}

    def rounded(self, x: Tensor) -> Tensor:
        """Q(x): what arrives of a tensor."""
        if self.form == HALF:
            return to_half(x).to(x.dtype)
        return from_bytes(*to_bytes(x)).reshape(x.shape).to(x.dtype)

    # -- on the way ------------------------------------------------------------------------------------------------

    def packed(self, sent: Mapping[str, Tensor]) -> Tensors:
        """What travels of a client's tensors (mix/theta, ...): those that are summed or averaged in few bytes."""
        found: Tensors = {}
        for name, tensor in sent.items():
            if not name.startswith(SUMMED):
                found[name] = tensor
            elif self.form == HALF:
                found[name] = to_half(tensor)
            else:
                numbers, found[SCALE + name] = to_bytes(tensor)
                found[name] = numbers.reshape(tensor.shape)
        return found

    def unpacked(self, came: Mapping[str, Tensor]) -> Tensors:
        """What a server computes with, of what came."""
        found: Tensors = {}
        for name, tensor in came.items():
            if name.startswith(SCALE):
                continue
            if not name.startswith(SUMMED):
                found[name] = tensor
            elif self.form == HALF:
                found[name] = tensor.float()
            else:
                found[name] = from_bytes(tensor.reshape(-1), came[SCALE + name]).reshape(tensor.shape)
        return found


class Packing:
    """The guard of one visit: it rounds an upload, with what was lost before, and notes what is lost now."""

    def __init__(self, how: Compress, before: Tensors) -> None:
        self._how, self._before, self.lost = how, before, dict[str, Tensor]()

    def __call__(self, upload: Upload, visit: Visit) -> Upload:
        return replace(upload, mix=self._part("mix", upload.mix), mean=self._part("mean", upload.mean))

    def _part(self, way: str, part: Tensors) -> Tensors:
        sent: Tensors = {}
        for name, update in part.items():
            kept = f"{LOST}{way}.{name}"
            whole = update + self._before[kept] if self._how.feedback else update
            sent[name] = self._how.rounded(whole)
            if self._how.feedback:
                self.lost[kept] = whole - sent[name]
        return sent


def divided(own: Tensors) -> tuple[Tensors, Tensors]:
    """What a client keeps, as what its rule keeps and what was lost of its uploads."""
    lost = {name: tensor for name, tensor in own.items() if name.startswith(LOST)}
    return ({name: tensor for name, tensor in own.items() if name not in lost} if lost else own), lost


def bytes_up(results: Results, how: Compress | None) -> int:
    """How many bytes the uploads of a cohort are, without losses."""
    summed = {f"{way}/{name}": rows for way in ("mix", "mean") for name, rows in getattr(results, way).items()}
    if how is None:
        return num_bytes(summed) + num_bytes(results.carry)
    one = {name: rows.new_zeros(rows.shape[1:]) for name, rows in summed.items()}
    return len(results.ids) * num_bytes(how.packed(one)) + num_bytes(results.carry)


def asked(how: Compress | str | None) -> Compress | None:
    """What is asked for, by name or as it is."""
    return Compress(how) if isinstance(how, str) else how
