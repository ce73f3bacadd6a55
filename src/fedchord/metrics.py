"""How good a model is on each client, and how that spreads over the clients.

A metric takes scores (n, L), the logits of n samples for L classes, and n labels. Scores of one column (n, 1) mean a
binary task with a sigmoid: they are read as the two logits (0, s), whose softmax is (1 - sigmoid(s), sigmoid(s)), so
every formula below covers them. A metric of a client without samples is NaN (undefined).

Where labels are floats they are numbers to predict, and scores of one column are the predictions (`regression`).

A model that has diverged is not flattered: a sample with a NaN score is a wrong answer with infinite loss, and leaves
AUROC, ECE and MCE undefined. All sums are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import torch
from torch import Tensor

from fedchord import confusion, regression
from fedchord.check import fail, one_of, require, unknown, whole
from fedchord.tensors import owners

BINS = 15
NUMBERS = "numbers to predict"
STATISTICS = ("mean", "worst10", "best10", "gini", "gap")
"""What `over_clients` computes."""
_BLOCK = 1 << 18  # scores converted to float64 at a time, so that memory does not grow with samples x classes
_MISS = torch.iinfo(torch.int64).max


@dataclass(frozen=True)
class Reliability:
    """The reliability diagram: samples, mean accuracy and mean confidence of each bin (NaN in an empty bin)."""

    count: Tensor
    accuracy: Tensor
    confidence: Tensor


def top1(scores: Tensor, labels: Tensor) -> float:
    """The share of samples whose label has the highest score; of equal scores the lowest class counts as highest."""
    return _single("top1", scores, labels)


def top5(scores: Tensor, labels: Tensor) -> float:
    """The share of samples whose label is among the five highest scores (ties as in `top1`).

    With five classes or fewer it is 1 by definition.
    """
    return _single("top5", scores, labels)


def loss(scores: Tensor, labels: Tensor) -> float:
    """The mean cross-entropy, (1/n) sum_i log sum_j exp(s_ij) - s_i,y_i; for one column it is binary cross-entropy."""
    return _single("loss", scores, labels)


def auroc(scores: Tensor, labels: Tensor) -> float:
    """The area under the ROC curve: how likely a positive sample outscores a negative one, ties counting one half.

    Two classes: class 1 against class 0 by s_1 - s_0, which orders samples as the softmax probability of class 1 does
    but never saturates. More classes: each class present among the labels against the rest by its log-probability, then
    the plain mean over those classes (macro one-vs-rest). NaN if only one class is present. The area is the
    Mann-Whitney statistic (R - P(P+1)/2) / (PN), with R the rank sum of P positives among N negatives
    (Hanley and McNeil, 1982).
    """
    return _single("auroc", scores, labels)


def ece(scores: Tensor, labels: Tensor) -> float:
    """The expected calibration error, sum_b (|B_b|/n) |acc(B_b) - conf(B_b)| (thesis 2.4; Guo et al., 2017).

    The confidence of a sample is its highest probability; the bins B_b are 15 of equal width, ((b-1)/15, b/15], over
    the whole test set of a client (departs from the thesis code, which averages the error of mini-batches). A
    confidence on an edge belongs to the lower bin, as in Guo et al.; torchmetrics puts it in the upper one.
    """
    return _single("ece", scores, labels)


def mce(scores: Tensor, labels: Tensor) -> float:
    """The maximum calibration error, max_b |acc(B_b) - conf(B_b)| over the bins of `ece` that hold samples."""
    return _single("mce", scores, labels)


Metric = Callable[[Tensor, Tensor], float]
"""A function of scores (n, L) and n labels."""


METRICS: dict[str, Metric] = {
    "top1": top1,
    "top5": top5,
    "loss": loss,
    "auroc": auroc,
    "ece": ece,
    "mce": mce,
    **{
        name: partial(lambda name, scores, labels: _single(name, scores, labels), name)
        for name in (*confusion.FORMULAS, *regression.FORMULAS)
    },
}
HIGHER_IS_BETTER: set[str] = {"top1", "top5", "auroc", *confusion.FORMULAS, "r2"}


def find(name: str) -> Metric:
    """A metric by its name."""
    if name not in METRICS:
        raise unknown("metric", name, METRICS)
    return METRICS[name]


def register(name: str, metric: Metric, higher_is_better: bool = True) -> None:
    """Make a metric of your own known by a name, for this process: it is asked about each client's samples in turn.

    It receives scores (n, L), also where the task is binary with one logit s (0 and s), and n labels. NaN: undefined.
    """
    good = isinstance(name, str) and bool(name) and callable(metric)
    require(good, "metrics", f"a metric of your own is a name and a function, got {name!r} and {metric!r}")
    require(name not in OURS, "metrics", f"{name} is a metric already; choose another name")
    METRICS[name], _FORMULAS[name] = metric, lambda samples: _one_by_one(name, metric, samples)
    (HIGHER_IS_BETTER.add if higher_is_better else HIGHER_IS_BETTER.discard)(name)


def _one_by_one(name: str, metric: Metric, samples: _Samples) -> Tensor:
    values = torch.full((len(samples.sizes),), torch.nan, dtype=torch.float64)
    ends = samples.offsets.tolist()
    for client, (start, stop) in enumerate(pairwise(ends)):
        if start < stop:
            value = metric(samples.scores[start:stop], samples.labels[start:stop])
            one = isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)
            require(one, name, f"a metric must give one number, got {value!r}")
            values[client] = float(value)
    return values


def by_client(metric_names: Iterable[str], scores: Tensor, labels: Tensor, offsets: Tensor) -> dict[str, Tensor]:
    """Metrics of K clients at once: one float64 vector (K,) per name, NaN where undefined.

    The clients' samples lie one after another; client k has rows offsets[k] to offsets[k+1] - 1.
    """
    names = list(metric_names)
    for name in names:
        find(name)
    if labels.is_floating_point():
        return _numbers(names, scores, labels, offsets)
    check_kind(names, numbers=False)
    samples = _samples(scores, labels, offsets)
    return {name: _FORMULAS[name](samples) for name in names}


def check_kind(names: Iterable[str], numbers: bool) -> None:
    """Refuse metrics of classes where numbers are predicted, and the other way round; your own fit both."""
    for name in names:
        if numbers:
            require(
                name in regression.FORMULAS or name not in OURS - {"loss"}, name, f"is for classes, not for {NUMBERS}"
            )
        else:
            require(name not in regression.FORMULAS, name, f"is for {NUMBERS}, not for classes")


def _numbers(names: Sequence[str], scores: Tensor, labels: Tensor, offsets: Tensor) -> dict[str, Tensor]:
    """Metrics of predicted numbers; a metric of your own is asked about each client's samples in turn."""
    fits = scores.shape == (len(labels), 1) and labels.ndim == 1
    require(fits, "metrics", f"predictions must have shape ({len(labels)}, 1), got {tuple(scores.shape)}")
    check_kind(names, numbers=True)
    require("loss" not in names, "metrics", "the loss of predicted numbers is told by their objective alone")
    numbers = regression.Numbers(scores.detach()[:, 0], labels, offsets)
    own = _Samples(scores.detach(), labels, offsets)
    return {
        name: regression.FORMULAS[name](numbers)
        if name in regression.FORMULAS
        else _one_by_one(name, METRICS[name], own)
        for name in names
    }


def reliability(scores: Tensor, labels: Tensor, bins: int = BINS) -> Reliability:
    """The bins of `ece` one by one, for a reliability diagram."""
    whole("reliability", "bins", bins, low=1)
    samples = _samples(scores, labels, torch.tensor([0, len(scores)]))
    count, right, confidence = (table[0] for table in _bins(samples, bins))
    return Reliability(count, right / count, confidence / count)


@dataclass(frozen=True)
class _Samples:
    """The samples of K clients with at least two columns of scores; what several metrics share is computed once."""

    scores: Tensor
    labels: Tensor
    offsets: Tensor

    @cached_property
    def sizes(self) -> Tensor:
        return self.offsets.diff()

    @cached_property
    def owner(self) -> Tensor:
        """The client of each sample."""
        return owners(self.sizes)

    @cached_property
    def rank(self) -> Tensor:
        """How many classes come before the label (0: the label is the prediction)."""
        return self._rowwise(_rank)

    @cached_property
    def _softmax(self) -> Tensor:
        return self._rowwise(_softmax).t().contiguous()

    @property
    def log_total(self) -> Tensor:
        """log sum_j exp(s_ij)."""
        return self._softmax[0]

    @property
    def loss(self) -> Tensor:
        return self._softmax[1]

    @property
    def confidence(self) -> Tensor:
        return self._softmax[2]

    @cached_property
    def counts(self) -> confusion.Counts:
        """How often each class was asked and answered; of equal scores the lowest class is the answer."""
        answers = self._rowwise(lambda scores, _: scores.argmax(1).masked_fill(scores.isnan().any(1), -1))
        return confusion.Counts.of(self.owner, self.labels, answers, len(self.sizes), self.scores.shape[1])

    def sum(self, values: Tensor) -> Tensor:
        """The sum over each client's samples. (Not by differences of a running sum: they would lose digits.)"""
        return torch.bincount(self.owner, values.double(), minlength=len(self.sizes)).double()

    def mean(self, values: Tensor) -> Tensor:
        return self.sum(values) / self.sizes

    def _rowwise(self, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        rows = max(1, _BLOCK // self.scores.shape[1])
        blocks = zip(self.scores.split(rows), self.labels.split(rows), strict=True)
        return torch.cat([function(scores, labels) for scores, labels in blocks])


def _samples(scores: Tensor, labels: Tensor, offsets: Tensor) -> _Samples:
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise fail("metrics", f"scores must have shape (samples, classes), got {tuple(scores.shape)}")
    n = len(scores)
    require(not labels.is_complex(), "metrics", f"labels must be whole numbers, got {labels.dtype}")
    require(labels.shape == (n,), "metrics", f"labels must have shape ({n},), got {tuple(labels.shape)}")
    scores = scores.detach()
    if scores.shape[1] == 1:
        scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
    labels = labels.to(scores.device, torch.int64)
    if n:
        low, high, last = int(labels.min()), int(labels.max()), scores.shape[1] - 1
        wrong = low if low < 0 else high
        require(0 <= wrong <= last, "metrics", f"labels must be between 0 and {last}, got {wrong}")
    offsets = offsets.to(scores.device, torch.int64)
    rising = offsets.ndim == 1 and len(offsets) > 0 and bool((offsets.diff() >= 0).all())
    ends = (int(offsets[0]), int(offsets[-1])) if rising else None
    require(ends == (0, n), "metrics", f"offsets must rise from 0 to the number of samples {n}")
    return _Samples(scores, labels, offsets)


def _rank(scores: Tensor, labels: Tensor) -> Tensor:
    own = scores.gather(1, labels[:, None])
    earlier = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]
    rank = ((scores > own) | ((scores == own) & earlier)).sum(1)
    return rank.masked_fill(scores.isnan().any(1), _MISS)


def _softmax(scores: Tensor, labels: Tensor) -> Tensor:
    """Three columns: log sum_j exp(s_j), the cross-entropy and the highest probability 1 / sum_j exp(s_j - max s).

    In this form L equal scores have a confidence of exactly 1/L, which matters where 1/L is the edge of a bin.
    """
    scores = scores.double()
    highest = scores.amax(1)
    total = (scores - highest[:, None]).exp_().sum(1)
    loss = total.log() + (highest - scores.gather(1, labels[:, None])[:, 0])
    return torch.stack([highest + total.log(), loss.masked_fill(loss.isnan(), torch.inf), 1 / total], dim=1)


def _bins(samples: _Samples, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """How many samples, how many right ones and how much confidence lie in each (client, bin)."""
    edges = torch.arange(1, bins + 1, dtype=torch.float64, device=samples.scores.device) / bins
    bin_of = torch.bucketize(samples.confidence, edges).clamp_max(bins - 1)  # a NaN lands behind the last edge
    clients = len(samples.sizes)

    def collect(values: Tensor) -> Tensor:
        cells = torch.bincount(samples.owner * bins + bin_of, values.double(), minlength=clients * bins)
        return cells.double().reshape(clients, bins)

    right = samples.rank == 0
    return collect(torch.ones_like(right)), collect(right), collect(samples.confidence)


def _ece(samples: _Samples) -> Tensor:
    # (|B|/n) |right/|B| - confidence/|B|| is |right - confidence| / n
    _, right, confidence = _bins(samples, BINS)
    return (right - confidence).abs().sum(1) / samples.sizes


def _mce(samples: _Samples) -> Tensor:
    count, right, confidence = _bins(samples, BINS)
    worst = ((right - confidence).abs() / count.clamp_min(1)).amax(1)
    return worst.masked_fill(samples.sizes == 0, torch.nan)


def _auroc(samples: _Samples) -> Tensor:
    scores, labels = samples.scores, samples.labels
    if scores.shape[1] == 2:
        difference = scores[:, 1].double() - scores[:, 0].double()
        return _area(samples, difference, labels == 1)
    areas = torch.zeros_like(samples.sizes, dtype=torch.float64)
    classes = torch.zeros_like(areas)
    for c in labels.unique().tolist():
        positive = labels == c
        area = _area(samples, scores[:, c].double() - samples.log_total, positive)
        present = samples.sum(positive) > 0
        areas += area.masked_fill(~present, 0.0)
        classes += present
    return areas / classes


def _area(samples: _Samples, score: Tensor, positive: Tensor) -> Tensor:
    """The Mann-Whitney statistic of every client: one sort by (client, score), tied samples share their mean rank."""
    order = score.argsort(stable=True)
    order = order[samples.owner[order].argsort(stable=True)]
    score, positive = score[order], positive[order]
    differs = (score[1:] != score[:-1]) | samples.owner.diff().bool()  # the owners stay as they were: sorted
    group = torch.cat([torch.zeros_like(order[:1]), differs.cumsum(0)])
    sizes = torch.bincount(group)
    before = (sizes.cumsum(0) - sizes)[group] - samples.offsets[samples.owner]
    mean_rank = before + (sizes[group] + 1) / 2
    positives = samples.sum(positive)
    pairs = positives * (samples.sizes - positives)
    area = (samples.sum(mean_rank * positive) - positives * (positives + 1) / 2) / pairs
    return area.masked_fill(samples.sum(score.isnan()) > 0, torch.nan)


def _answered(name: str, samples: _Samples) -> Tensor:
    return confusion.measured(name, samples.counts)


_FORMULAS: dict[str, Callable[[_Samples], Tensor]] = {
    "top1": lambda samples: samples.mean(samples.rank < 1),
    "top5": lambda samples: samples.mean(samples.rank < 5),
    "loss": lambda samples: samples.mean(samples.loss),
    "auroc": _auroc,
    "ece": _ece,
    "mce": _mce,
    **{name: partial(_answered, name) for name in confusion.FORMULAS},
}
OURS = frozenset(METRICS)
"""The metrics that come with fedchord."""


def _single(name: str, scores: Tensor, labels: Tensor) -> float:
    return float(by_client([name], scores, labels, torch.tensor([0, len(scores)]))[name])


def summarise(values: Tensor, weights: Tensor | None = None, higher_is_better: bool = True) -> dict[str, float]:
    """How a metric x_1..x_K spreads over clients (thesis 3.6). Undefined clients (NaN) are skipped, and counted.

    - mean, std: over clients, each counting the same; the std divides by K.
    - worst10, best10: the mean of the worst and best max(1, floor(K/10)) clients; the worst are the lowest values, or
      the highest if lower is better (`higher_is_better=name in HIGHER_IS_BETTER`).
    - gap: the parity gap |best10 - worst10|.
    - gini: see `gini`.
    - weighted: the mean weighted by `weights` (the clients' test sizes); NaN without them.
    - clients, undefined: how many were counted, how many skipped.

    An infinite value (the loss of a diverged model) counts as a value: the mean is then infinite and std and Gini are
    NaN, since leaving it out would flatter the method.
    """
    require(values.ndim == 1, "summarise", f"values must have shape (clients,), got {tuple(values.shape)}")
    defined = ~values.isnan()
    x = values[defined].double()
    clients = len(x)
    counts = {"clients": clients, "undefined": len(values) - clients}
    if not clients:
        return dict.fromkeys(("mean", "std", "worst10", "best10", "gap", "gini", "weighted"), torch.nan) | counts
    worst, best = tenths(x, higher_is_better)
    return {
        "mean": float(x.mean()),
        "std": float(x.std(correction=0)),
        "worst10": float(worst),
        "best10": float(best),
        "gap": float((best - worst).abs()),
        "gini": gini(x),
        "weighted": torch.nan if weights is None else _weighted_mean(values, weights, defined),
        **counts,
    }


def _weighted_mean(values: Tensor, weights: Tensor, defined: Tensor) -> float:
    shapes = f"{tuple(values.shape)}, got {tuple(weights.shape)}"
    require(weights.shape == values.shape, "summarise", f"weights must have the shape of values {shapes}")
    require(bool((weights >= 0).all()), "summarise", "weights must be at least 0")
    w = weights[defined].to(values.device, torch.float64)
    return float((w * values[defined].double()).sum() / w.sum())


def over_clients(values: Tensor, statistic: str, higher_is_better: bool = True) -> Tensor:
    """One of `STATISTICS` over clients (the last dimension) of many evaluations, as `summarise` has it for one; for
    clients that all have a value."""
    one_of("over_clients", "statistic", statistic, STATISTICS)
    filled = values.ndim == 2 and values.shape[1] > 0
    require(filled, "over_clients", f"values must have shape (rows, clients), got {tuple(values.shape)}")
    if statistic == "mean":
        return values.double().mean(-1)
    if statistic == "gini":
        return ginis(values)
    worst, best = tenths(values.double(), higher_is_better)
    return {"worst10": worst, "best10": best, "gap": (best - worst).abs()}[statistic]


def tenths(values: Tensor, higher_is_better: bool = True) -> tuple[Tensor, Tensor]:
    """The means of the worst and of the best max(1, floor(K/10)) clients (the last dimension)."""
    few, ordered = max(1, values.shape[-1] // 10), values.sort(-1).values
    low, high = ordered[..., :few].mean(-1), ordered[..., -few:].mean(-1)
    return (low, high) if higher_is_better else (high, low)


def gini(x: Tensor) -> float:
    """The Gini coefficient of values of at least 0: 0 if all are equal, (K-1)/K if one client has everything.

    sum_ij |x_i - x_j| / (2 K^2 mean(x)) (thesis 3.6), computed in sorted order as
    sum_i (2i - K - 1) x_(i) / (K sum_i x_i). It is 0 if all values are 0, and NaN if one is negative or not finite.
    """
    return float(ginis(x)) if len(x) else torch.nan


def ginis(values: Tensor) -> Tensor:
    """The Gini coefficient over the last dimension."""
    x = values.double()
    k, highest = x.shape[-1], x.amax(-1, keepdim=True)
    # scale-free, and exactly 1 if all are equal; where all are 0 the numerator is 0 as well
    shares = x.sort(-1).values / torch.where(highest == 0, 1, highest)
    ranks = 2 * torch.arange(1, k + 1, dtype=torch.float64, device=x.device) - k - 1
    total = shares.sum(-1)
    found = ((ranks * shares).sum(-1) / (k * torch.where(total == 0, 1, total))).clamp_min(0)
    return found.masked_fill(~((x >= 0) & x.isfinite()).all(-1), torch.nan)


def over_seeds(values: Sequence[float]) -> tuple[float, float]:
    """The mean over seeds and the standard deviation with K - 1 (NaN for one seed); a NaN seed makes both NaN."""
    require(len(values) > 0, "over_seeds", "needs at least one value")
    x = torch.tensor(values, dtype=torch.float64)
    return float(x.mean()), float(x.std(correction=1)) if len(x) > 1 else torch.nan
