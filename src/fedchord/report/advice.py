"""Advice from pilots: is it worth federating, should clients have their own models, do weights matter, how many rounds.

Each answer is a paired difference with an interval over seeds and clients; where it holds 0, nobody can tell.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedchord.data.describe import Differences
from fedchord.experiments.config import RunConfig
from fedchord.experiments.pilot import CENTRAL, CHOSEN, FEDAVG, JOINT, LOCAL, ONLINE, POWER, TUNED, UNIFORM, Piloted
from fedchord.metrics import HIGHER_IS_BETTER
from fedchord.report.cells import Cell, Head, Table, factor
from fedchord.report.plots import COLOURS, canvas, save
from fedchord.report.two_levels import Floats, Gain, Statistic, gain, mean, worst_tenth

RISING = 0.005
"""A metric that gains more in the last quarter of the rounds, in every seed, is still rising."""
LONGER = 5
"""How many times the rounds of the pilots a run has whose curve is still rising."""
REFERENCE = {LOCAL: CHOSEN, POWER: UNIFORM, ONLINE: UNIFORM}
"""What a pilot is compared with, where that is not FedAvg."""


@dataclass(frozen=True)
class Advice:
    """Three sentences, what a full run costs, and the command for it."""

    sentences: tuple[str, str, str]
    cost: str
    command: str
    federate: int
    own: int
    weights: int
    rising: bool


class Judged:
    """Pilots by name, with differences between them in the units of the table."""

    def __init__(self, found: Sequence[Piloted]) -> None:
        self.pilots: Mapping[str, Piloted] = {one.pilot.label: one for one in found}
        self.metric = found[0].metric
        self.times = factor(self.metric, "mean")
        self.digits = 1 if self.times == 100 else 4
        self._way = 1.0 if self.metric in HIGHER_IS_BETTER else -1.0

    def values(self, label: str) -> list[Floats]:
        """The values of all clients by seed; more is better."""
        return [self._way * values.numpy() for values in self.pilots[label].values]

    def gain(self, ours: str, theirs: str, statistic: Statistic = mean) -> Gain:
        """How much better one is than another."""
        return gain(self.values(ours), self.values(theirs), statistic, widened=True)

    def level(self, label: str, statistic: Statistic = mean) -> float:
        """A statistic over clients as it is measured, mean over seeds."""
        return self._way * float(np.mean([statistic(v[np.isfinite(v)]) for v in self.values(label)])) * self.times

    def words(self, found: Gain) -> str:
        """A difference and its interval."""
        low, high = (f"{end * self.times:.{self.digits}f}" for end in (found.low, found.high))
        return f"{found.value * self.times:+.{self.digits}f} ({low} to {high})"

    def rising(self, label: str) -> bool:
        """Whether the mean still rises in the last quarter of the rounds, in every seed."""
        gains = []
        for curve in self.pilots[label].curves:
            last = curve[-1]
            before = [value for round, value in curve if round <= 0.75 * last[0]]
            gains.append(self._way * (last[1] - before[-1]) if before else 0.0)
        return min(gains) > RISING * (1 if self.times == 100 else abs(self.level(label)))


def advise(found: Sequence[Piloted], base: RunConfig, asked: Sequence[str]) -> Advice:
    """The advice; `asked` are the settings as they were given, for the command."""
    judged = Judged(found)
    alone, bound = judged.gain(CHOSEN, LOCAL), judged.gain(CENTRAL, CHOSEN)
    tuned = judged.gain(TUNED, FEDAVG)
    weights, told, rule = _weights(judged)
    rising = judged.rising(FEDAVG)
    sentences = (_federate(judged, alone, bound), _own(judged, tuned), told)
    pairs, label = _settings(alone, tuned, rule, judged.pilots[ONLINE].pilot.config.method)
    rounds = base.rounds * (LONGER if rising else 1)
    kept = [pair for pair in asked if pair.partition("=")[0] not in ("rounds", "seed", "eval_every")]
    command = ["fedchord", "run", *kept, *pairs, f"rounds={rounds}", "seed=1", "out=runs/full"]
    seconds, sent = (getattr(judged.pilots[label], part) * rounds / base.rounds for part in ("seconds", "bytes"))
    took = sum(one.seconds * len(one.values) for one in found)
    curve = "is still rising at the end of the pilots" if rising else "is flat at the end of the pilots"
    cost = (
        f"The curve of FedAvg {curve}: {rounds} rounds, about {_time(seconds)} on this machine and "
        f"{sent / 1e6:.3g} MB sent; the pilots took {_time(took)}."
    )
    return Advice(sentences, cost, shlex.join(command), alone.sign, tuned.sign, weights, rising)


def _federate(judged: Judged, alone: Gain, bound: Gain) -> str:
    what = f"models chosen together less clients that learn alone: {judged.words(alone)}"
    first = {1: "Federating pays", -1: "Federating does not pay", 0: "Cannot tell whether federating pays"}[alone.sign]
    rest = {1: "would be better still", -1: "would be worse", 0: "may be no better"}[bound.sign]
    return f"{first} ({what}); one model of all rows in one place {rest} ({judged.words(bound)})."


def _own(judged: Judged, tuned: Gain) -> str:
    what = f"fine-tuned less FedAvg: {judged.words(tuned)}"
    words = {
        1: "Clients should have models of their own",
        -1: "Clients should share one model",
        0: "Cannot tell whether clients should have models of their own",
    }
    return f"{words[tuned.sign]} ({what})."


def _weights(judged: Judged) -> tuple[int, str, str]:
    """Whether fair weights help the worst tenth without hurting the mean, in words, and the rule that does."""
    worst = {label: judged.gain(label, UNIFORM, worst_tenth) for label in (POWER, ONLINE)}
    means = {label: judged.gain(label, UNIFORM) for label in worst}
    told = ", ".join(f"{label} {judged.words(found)}" for label, found in worst.items())
    good = [label for label, found in worst.items() if found.sign > 0 and means[label].sign >= 0]
    detail = f"worst tenth, less equal weights: {told}"
    if good:
        best = max(good, key=lambda label: worst[label].value)
        return 1, f"Weights matter: {best} helps the worst tenth ({detail}).", best
    if all(found.sign < 0 or means[label].sign < 0 for label, found in worst.items()):
        return -1, f"Weights by losses do harm ({detail}).", ""
    return 0, f"Cannot tell whether weights matter ({detail}).", ""


def _settings(alone: Gain, tuned: Gain, rule: str, online: str) -> tuple[list[str], str]:
    """The settings of the full run, and the pilot that it is like."""
    if alone.sign < 0:
        return ["method=local", "cohort=all"], LOCAL
    power = ["mixing=q-fedavg", "mixing.form=coefficients", "mixing.q=1"]
    weights = {POWER: power, ONLINE: [f"mixing={online}"]}.get(rule, [])
    if tuned.sign < 0:
        return ["method=fedavg", *weights], FEDAVG
    joint = [f"{key}={value}" for key, value in JOINT.items()]
    return ["method=fedavg-ft", *joint, *weights], CHOSEN


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def differences(found: Differences) -> list[str]:
    """How clients differ, in words."""
    rows = f"{found.smallest} to {found.largest} training rows (median {found.median})"
    lines = [f"{found.clients} clients with {rows}."]
    if found.labels is not None and found.labels_by_chance is not None:
        apart = f"{found.labels:.2f} of total variation from those of all ({found.labels_by_chance:.2f} by chance)"
        lines.append(f"Labels of a client are {apart}.")
    if found.features is not None:
        lines.append(f"Of the variance of features within classes, {found.features:.0%} lies between clients.")
    if found.noise is not None:
        lines.append(f"{found.noise:.0%} of the labels differ from most of their neighbours: wrong, or hard.")
    return lines


def tabulate(found: Sequence[Piloted]) -> Table:
    """The pilots: mean, worst tenth, and the difference to what each is compared with."""
    judged = Judged(found)
    unit = " %" if judged.times == 100 else ""
    heads = ("pilot", f"{judged.metric} mean{unit}", f"worst10{unit}", "less", "difference", "low", "high", "seconds")
    rows = []
    for one in found:
        label = one.pilot.label
        other = REFERENCE.get(label, FEDAVG)
        cells = [Cell("") for _ in range(4)]
        if label != FEDAVG:
            apart = judged.gain(label, other)
            ends = (f"{end * judged.times:+.{judged.digits + 1}f}" for end in (apart.value, apart.low, apart.high))
            cells = [Cell(other), *(Cell(end) for end in ends)]
        levels = (f"{judged.level(label, kind):.{judged.digits + 1}f}" for kind in (mean, worst_tenth))
        rows.append((Cell(label), *(Cell(level) for level in levels), *cells, Cell(f"{one.seconds:.1f}")))
    seeds, clients = len(found[0].values), len(found[0].values[0])
    notes = (
        *(f"{one.pilot.label}: {one.pilot.about}, {one.pilot.config.rounds} rounds" for one in found),
        f"measured on rows cut from the training rows of {clients} clients, {seeds} seeds; better is positive",
        "low, high: 95% percentile bootstrap, seeds and clients drawn again, widened where clients are few",
    )
    return Table(tuple(Head(name) for name in heads), tuple(rows), notes)


def draw(found: Sequence[Piloted], to: Path) -> None:
    """The differences of the means with their intervals."""
    judged = Judged(found)
    figure, axes = canvas()
    shown = [one.pilot.label for one in found if one.pilot.label != FEDAVG]
    for place, label in enumerate(reversed(shown)):
        other = REFERENCE.get(label, FEDAVG)
        apart = judged.gain(label, other)
        low, value, high = (end * judged.times for end in (apart.low, apart.value, apart.high))
        axes.plot([low, high], [place, place], color=COLOURS[0], linewidth=2)
        axes.plot([value], [place], "o", color=COLOURS[0] if apart.sign else "white", markeredgecolor=COLOURS[0])
    axes.axvline(0, color="grey", linewidth=1)
    axes.set_yticks(range(len(shown)), [f"{label} less {REFERENCE.get(label, FEDAVG)}" for label in reversed(shown)])
    unit = ", points" if judged.times == 100 else ""
    axes.set_xlabel(f"{judged.metric}, mean over clients{unit}; an open mark: cannot tell")
    save(figure, to)
