"""Sentences of the facts in a summary: the only place where they are worded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Fact = Mapping[str, Any]

TRAINING = ("start-round", "never-mixes")
"""Kinds of notes that say how clients really trained."""


def sentences(protocol: Fact, method: str) -> list[str]:
    """What a reader of the results should know: about the data, what the rule changed, and all else."""
    notes = protocol.get("notes") or ()
    data = [sentence(note) for note in notes if note["kind"] == "data"]
    changed = overrides(protocol.get("overrides") or ())
    return [
        *data,
        *([f"{method}: {changed}"] if changed else []),
        *(sentence(note) for note in notes if note["kind"] != "data"),
    ]


def sentence(note: Fact) -> str:
    """A note in words; a kind that this version does not know is shown as it is written."""
    kind = note["kind"]
    if kind not in KINDS:
        return ", ".join(f"{key} {value}" for key, value in note.items())
    return f"{note['method']}: {KINDS[kind](note)}" if kind in TRAINING else KINDS[kind](note)


def training(protocol: Fact) -> str:
    """How local training differed from what was asked for; empty if it did not."""
    notes = [note for note in protocol.get("notes") or () if note["kind"] in TRAINING]
    parts = [overrides(protocol.get("overrides") or ()), *(KINDS[note["kind"]](note) for note in notes)]
    return "; ".join(part for part in parts if part)


def overrides(found: Sequence[Fact]) -> str:
    """What a client rule changed in the settings of local training, those with the same new value together."""
    by_value: dict[str, list[Fact]] = {}
    for one in found:
        by_value.setdefault(_plain(one["used"]), []).append(one)
    parts = []
    for value, changed in by_value.items():
        names, before = " and ".join(one["key"] for one in changed), ", ".join(_plain(one["asked"]) for one in changed)
        parts.append(f"{names} set to {value} ({'was' if len(changed) == 1 else 'were'} {before})")
    return "; ".join(parts)


# -- one function per kind of note ---------------------------------------------------------------------------------


def data(note: Fact) -> str:
    """As the federation says it."""
    return str(note["text"])


def newcomers(note: Fact) -> str:
    """Clients that come later."""
    return f"newcomers: {note['clients']} of {note['of']} clients were kept out of training"


def central(note: Fact) -> str:
    """A control that is no federation."""
    return f"central: every round, one client trained on the {note['rows']} training rows of all"


def attack(note: Fact) -> str:
    """Who is hostile, and on whom is measured."""
    count, every = len(note["clients"]), note["of"]
    told = f"{count} of {every} clients are hostile ({note['attack']}, scale {note['scale']:g})"
    return f"attack: {told}; numbers are of the {every - count} honest clients"


def average(note: Fact) -> str:
    """What takes the place of the last model."""
    count = note["rounds"]
    which = f"the mean of the models of the last {count} rounds" if count > 1 else "the model of the last round"
    return f"average: the global model that is deployed is {which}"


def choice(note: Fact) -> str:
    """What was chosen for all clients."""
    at, epochs = note["at"], note["epochs"]
    what = [] if at is None else [f"lambda {at:g}"]
    what += [] if epochs is None else [f"{epochs} epoch{'s' * (epochs != 1)} before use"]
    most = max((effort for effort in note.get("efforts", ()) if effort is not None), default=None)
    longest = bool(epochs) and epochs == most and at != 0
    more = f"; it is the longest on offer, and choose.epochs=0,{epochs},{3 * epochs} would try more" if longest else ""
    return f"choice of all clients, by {note['rows']} rows held out of training: {' and '.join(what)}{more}"


def privacy(note: Fact) -> str:
    """What is guaranteed, under which assumptions, and what it does not cover."""
    bound = f"epsilon {note['epsilon']:.3g} at delta {note['delta']:g}" if note["epsilon"] is not None else "no bound"
    how = f"clip {note['clip']:g}, noise {note['noise']:.3g}"
    trusts = f"Trusted: {note['trusted']}. Covered: {note['covers']}"
    return f"privacy of {note['level']}: {bound} ({how}); {note['sampling']}. {trusts}"


def no_line(note: Fact) -> str:
    """A lambda sweep was asked for where there is no line."""
    return f"{note['method']} has one model: sweep.lambdas has no effect"


def unvalidated(note: Fact) -> str:
    """That no lambda is chosen on validation rows."""
    return f"validated: {why_unvalidated(note)}"


def why_unvalidated(note: Fact) -> str:
    """Why no lambda is chosen on validation rows."""
    who = f"{note['clients']} of {note['of']} clients have no validation row"
    return f"{who}, so no lambda is chosen; each needs 3 rows or more"


def few_validation_rows(note: Fact) -> str:
    """On how few rows lambda is chosen."""
    least = f"{note['smallest']} {'row' if note['smallest'] == 1 else 'rows'}"
    who = f"{note['clients']} of {note['of']} clients, the smallest has {least}"
    return f"lambda is chosen on fewer than {note['below']} validation rows of {who}"


def start_round(note: Fact) -> str:
    """Which of two keys says when mixing begins."""
    return "method.start_round counts, method.warmup does not"


def never_mixes(note: Fact) -> str:
    """What training is if mixing never begins."""
    what = f"FedProx with mu={note['mu']:g}" if note["mu"] else "FedAvg"
    return f"mixing begins after the last round, so that training is {what}"


KINDS: dict[str, Callable[[Fact], str]] = {
    "data": data,
    "newcomers": newcomers,
    "central": central,
    "attack": attack,
    "average": average,
    "choice": choice,
    "privacy": privacy,
    "no-line": no_line,
    "unvalidated": unvalidated,
    "few-validation-rows": few_validation_rows,
    "start-round": start_round,
    "never-mixes": never_mixes,
}


# -- what is measured ----------------------------------------------------------------------------------------------


def without_own_model(protocol: Fact) -> str:
    """How many clients of a personal method have no model of their own; empty where that says nothing."""
    count = protocol.get("global_model", 0)
    if not count or protocol["deploys"]["kind"] == "global":
        return ""
    return f"{count} deploy{'s' if count == 1 else ''} the global model"


def left_out(protocol: Fact) -> str:
    """How many clients an evaluation left out; empty if none."""
    count = protocol.get("left_out", 0)
    return f"{count} of these {'was' if count == 1 else 'were'} left out" if count else ""


# -- what was found ------------------------------------------------------------------------------------------------


def leaders(metric: str, mean: tuple[Sequence[str], str], worst: tuple[Sequence[str], str], higher: bool) -> str:
    """Who has the best mean and who the best worst tenth, with the number of each; those that are equal share it."""
    (first, top), (second, tenth) = mean, worst
    best = f"{_have(first)} the {'highest' if higher else 'lowest'} mean {metric} over clients ({top})"
    rest = f"the best worst tenth ({tenth})"
    return f"{best} and {rest}." if list(first) == list(second) else f"{best}, {_have(second)} {rest}."


def _have(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'}"


def decided(against: str, better: Sequence[str], worse: Sequence[str], undecided: Sequence[str]) -> str:
    """Which differences to the reference are larger than their intervals."""
    parts = [
        f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {how}"
        for names, how in ((better, "better"), (worse, "worse"))
        if names
    ]
    if undecided:
        parts.append(f"{', '.join(undecided)} cannot be told from it")
    return f"Against {against}, by 95 % intervals over clients: {'; '.join(parts)}."


def shares(low: float, high: float) -> str:
    """Between which numbers the shares of a picture lie."""
    return f"Shares lie between {low:.3g} and {high:.3g}." if low < high else f"All shares are {high:.3g}."


def band(seeds: int) -> str:
    """What line and band of a curve are."""
    return f"Mean over {seeds} seeds, band: one standard deviation." if seeds > 1 else "One seed."


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
