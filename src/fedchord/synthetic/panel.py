"""A panel of judges: the fixed recipe with several classifiers, each drawn anew several times, on one synthetic set.

What a judge found is kept beside the set (`judges.json`), with the digest of the set, and is not measured again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedchord import check, rng
from fedchord.data.federation import Federation
from fedchord.evaluation.evaluate import everyone
from fedchord.files import write_text
from fedchord.safe import json_of
from fedchord.synthetic.learn import Judge, Learnt, learn
from fedchord.synthetic.quality import pick
from fedchord.synthetic.set import SET, SyntheticSet, load_set
from fedchord.synthetic.utility import official

FILE = "judges.json"
PICTURES, OTHERS = ("smallconv", "twonn", "leafconv"), ("twonn", "logreg")
"""The usual judges: of pictures of 16 pixels or more, and of smaller ones and vectors."""
ROWS = ("official", "validation", "test")
METRICS = ("top1", "balanced-accuracy")
"""What a judge's answers are measured by: the share of rows, or the mean over classes of the share of their rows, which
is not raised by naming the most frequent class."""


@dataclass(frozen=True)
class Panel:
    """Which classifiers judge, how often each is drawn, by which metric, and on which rows: the official test rows, or
    the clients' validation or test rows (mean over clients)."""

    classifiers: tuple[str, ...] = PICTURES
    seeds: int = 3
    rows: str = "official"
    metric: str = METRICS[0]

    def __post_init__(self) -> None:
        check.require(len(self.classifiers) > 0, "judges", "name at least one classifier")
        once = len(set(self.classifiers)) == len(self.classifiers)
        check.require(once, "judges", f"every classifier is named once, got {', '.join(self.classifiers)}")
        for name in self.classifiers:
            Judge(name)
        check.whole("judges", "seeds", self.seeds, 1)
        check.one_of("judges", "rows", self.rows, ROWS)
        check.one_of("judges", "metric", self.metric, METRICS)

    def judges(self) -> Iterator[tuple[str, int]]:
        """Classifier and seed of every judge."""
        for classifier in self.classifiers:
            for seed in range(self.seeds):
                yield classifier, seed


def usual(shape: tuple[int, ...]) -> tuple[str, ...]:
    """The classifiers unless they are named."""
    return PICTURES if len(shape) == 3 and min(shape[1:]) >= 16 else OTHERS


Verdicts = dict[str, list[float]]
"""The accuracies that a classifier reaches, one for each of its draws, by its name."""


def verdicts(panel: Panel, made: SyntheticSet, federation: Federation, known: dict[str, float]) -> Verdicts:
    """What every judge finds; those in `known` are taken from there, the others are added to it, by every metric."""
    found: Verdicts = {}
    for classifier, seed in panel.judges():
        name = f"{panel.rows} {classifier} {seed}"
        if _by(panel.metric, name) not in known:
            learnt = learn(Judge(classifier), made.batch, made.classes, rng.key(seed, "judge"))
            known |= {_by(metric, name): value for metric, value in measured(learnt, federation, panel.rows).items()}
        found.setdefault(classifier, []).append(known[_by(panel.metric, name)])
    return found


def _by(metric: str, name: str) -> str:
    """The name under which a judge's verdict by a metric is kept."""
    return name if metric == METRICS[0] else f"{name} {metric}"


def measured(learnt: Learnt, federation: Federation, rows: str) -> dict[str, float]:
    """The accuracies of a classifier on the official test rows, or the clients' means."""
    if rows != "official":
        found = everyone(learnt.task, federation, learnt.model, rows, METRICS)[0]
        return {metric: found[metric]["mean"] for metric in METRICS}
    whole = official(learnt, federation, METRICS)
    if whole is None:
        raise check.fail("judges", f"{federation.name} has no official test rows; use --rows test")
    return whole


def judge_folder(panel: Panel, folder: Path, federation: Federation, real: int | None = None) -> Verdicts:
    """The verdicts on the set of a run, or, with the seed `real`, on as many real training rows drawn by it."""
    made, mark = load_set(folder), _mark(folder)
    if real is not None:
        rows = pick(federation, made.spc, rng.key(real, "upper"))
        made = SyntheticSet(rows.x, rows.y, rows.low, rows.high, made.classes, "real rows")
        mark = _real(made, real)
    kept = read_verdicts(folder / FILE)
    known = kept.setdefault(mark, {})
    before = len(known)
    try:
        return verdicts(panel, made, federation, known)
    finally:
        if len(known) > before:
            kept[mark] = {name: value for name, value in known.items() if value == value}  # all but undefined ones
            write_text(folder / FILE, json.dumps(kept, indent=1) + "\n")


def kept_verdicts(folder: Path, real: int | None = None) -> dict[str, float]:
    """What was found of the set that a run's folder holds now, by rows, classifier and seed; with the seed `real`, of
    as many real rows; nothing where none was."""
    if not (folder / SET).is_file():
        return {}
    mark = _mark(folder) if real is None else _real(load_set(folder), real)
    return read_verdicts(folder / FILE).get(mark, {})


def _real(made: SyntheticSet, seed: int) -> str:
    """As many real rows as a set has, drawn by a seed."""
    return f"{made.spc} real {seed}"


def _mark(folder: Path) -> str:
    """The digest of the set of a run."""
    return hashlib.sha256((folder / SET).read_bytes()).hexdigest()[:16]


def read_verdicts(file: Path) -> dict[str, dict[str, float]]:
    """What was found before, by set and judge; a damaged file counts as none."""
    try:
        kept = json_of(file.read_text(encoding="utf-8"))
        return {
            str(mark): {str(judge): check.between(FILE, judge, value, 0, 1) for judge, value in found.items()}
            for mark, found in kept.items()
        }
    except (OSError, ValueError, AttributeError):
        return {}


def overall(found: Verdicts) -> float:
    """The mean over classifiers of the means over their draws."""
    means: Sequence[float] = [sum(values) / len(values) for values in found.values()]
    return sum(means) / len(means)
