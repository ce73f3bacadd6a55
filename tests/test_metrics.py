"""Metrics against scikit-learn, torchmetrics, double loops and sums done by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    balanced_accuracy_score,
    cohen_kappa_score,
    f1_score,
    log_loss,
    precision_score,
    recall_score,
    roc_auc_score,
    top_k_accuracy_score,
)
from torch import Tensor
from torchmetrics.functional.classification import multiclass_calibration_error

from fedchord import metrics, regression
from fedchord.check import FedchordError

NAN, INF = math.nan, math.inf
CLASSED = {name: metric for name, metric in metrics.METRICS.items() if name not in regression.FORMULAS}
SHAPES = [(60, 2), (200, 3), (150, 10), (40, 7)]


def draw(n: int, classes: int, seed: int = 0, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    """Scores and labels that agree more often than by chance."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (n,), generator=generator)
    scores = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return scores + torch.nn.functional.one_hot(labels, classes), labels


def probabilities(scores: Tensor) -> np.ndarray:
    return scores.double().softmax(1).numpy()


def macro_auroc(scores: Tensor, labels: Tensor) -> float:
    """The mean over present classes of sklearn's binary AUROC; NaN for one class."""
    p, y = probabilities(scores), labels.numpy()
    present = np.unique(y)
    return float(np.mean([roc_auc_score(y == c, p[:, c]) for c in present])) if len(present) > 1 else NAN


def calibration(scores: Tensor, labels: Tensor, bins: int = 15) -> tuple[float, float]:
    """ECE and MCE by a plain loop over right-closed bins."""
    p = probabilities(scores)
    confidence, right = p.max(1), p.argmax(1) == labels.numpy()
    gaps, total = [0.0], 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            gaps.append(abs(right[inside].mean() - confidence[inside].mean()))
            total += inside.mean() * gaps[-1]
    return total, max(gaps)


# ---------------------------------------------------------------------------------------------- one client


@pytest.mark.parametrize(("n", "classes"), SHAPES)
def test_top1_and_loss_match_sklearn(n: int, classes: int) -> None:
    scores, labels = draw(n, classes)
    assert metrics.top1(scores, labels) == pytest.approx(float((scores.argmax(1) == labels).double().mean()))
    expected = log_loss(labels.numpy(), probabilities(scores), labels=range(classes))
    assert metrics.loss(scores, labels) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("classes", [6, 7, 10, 40])
def test_top5_matches_sklearn(classes: int) -> None:
    scores, labels = draw(100, classes)
    expected = top_k_accuracy_score(labels.numpy(), scores.numpy(), k=5, labels=range(classes))
    assert metrics.top5(scores, labels) == pytest.approx(float(expected))


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_top5_of_at_most_five_classes_is_one(classes: int) -> None:
    scores, _ = draw(20, classes)
    assert metrics.top5(scores, torch.ones(20, dtype=torch.int64) if classes > 1 else torch.arange(20) % 2) == 1.0


def test_equal_scores_predict_the_lowest_class() -> None:
    scores = torch.zeros(8, 8)
    assert metrics.top1(scores, torch.arange(8)) == 1 / 8  # only label 0
    assert metrics.top5(scores, torch.arange(8)) == 5 / 8  # labels 0 to 4
    assert metrics.loss(scores, torch.arange(8)) == pytest.approx(math.log(8))


def test_loss_of_far_apart_scores_stays_exact() -> None:
    scores, labels = torch.tensor([[1e4, 0.0], [0.0, 1e4]]), torch.tensor([0, 0])
    assert metrics.loss(scores, labels) == pytest.approx(5e3)


@pytest.mark.parametrize(("n", "classes"), SHAPES)
def test_auroc_matches_sklearn(n: int, classes: int) -> None:
    scores, labels = draw(n, classes)
    assert metrics.auroc(scores, labels) == pytest.approx(macro_auroc(scores, labels), abs=1e-12)


def test_auroc_of_all_classes_is_sklearns_one_vs_rest() -> None:
    scores, labels = draw(200, 5)
    expected = roc_auc_score(labels.numpy(), probabilities(scores), multi_class="ovr", average="macro")
    assert metrics.auroc(scores, labels) == pytest.approx(float(expected), abs=1e-12)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=30))
def test_auroc_with_ties_is_the_share_of_ordered_pairs(rows: list[tuple[int, bool]]) -> None:
    scores = torch.tensor([[float(s)] for s, _ in rows])
    labels = torch.tensor([int(y) for _, y in rows])
    pairs = [(p > q) + 0.5 * (p == q) for p, y in rows if y for q, z in rows if not z]
    expected = sum(pairs) / len(pairs) if pairs else NAN
    assert metrics.auroc(scores, labels) == pytest.approx(expected, nan_ok=True)


def test_auroc_does_not_saturate() -> None:
    scores = torch.tensor([[0.0, 200.0], [0.0, 100.0]])  # both have probability 1.0 in float64
    assert metrics.auroc(scores, torch.tensor([1, 0])) == 1.0
    assert metrics.auroc(scores, torch.tensor([0, 1])) == 0.0


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_auroc_of_one_class_is_undefined(classes: int) -> None:
    scores, _ = draw(9, classes)
    assert math.isnan(metrics.auroc(scores, torch.ones(9, dtype=torch.int64)))


# ---------------------------------------------------------------------------------------------- calibration


@pytest.mark.parametrize(("n", "classes"), SHAPES)
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_calibration_matches_torchmetrics_and_a_loop(n: int, classes: int, scale: float) -> None:
    scores, labels = draw(n, classes, scale=scale)
    ece, mce = metrics.ece(scores, labels), metrics.mce(scores, labels)
    assert (ece, mce) == pytest.approx(calibration(scores, labels), abs=1e-12)
    p = scores.softmax(1)  # no confidence lies on an edge, where the two conventions part; torchmetrics is float32
    assert ece == pytest.approx(float(multiclass_calibration_error(p, labels, classes, 15, norm="l1")), abs=1e-6)
    assert mce == pytest.approx(float(multiclass_calibration_error(p, labels, classes, 15, norm="max")), abs=1e-6)


def test_equal_scores_of_five_classes_lie_on_an_edge() -> None:
    """Their confidence 1/5 is the edge 3/15: the third bin, (2/15, 3/15], in any precision."""
    for dtype in (torch.float32, torch.float64):
        count = metrics.reliability(torch.full((2, 5), 0.7, dtype=dtype), torch.tensor([0, 1])).count
        assert count.tolist() == [0, 0, 2] + [0] * 12


def test_confidence_on_an_edge_belongs_to_the_lower_bin() -> None:
    """Confidences 0.5 and 0.6 in four bins: (.25, .5] and (.5, .75] here, both in [.5, .75) in torchmetrics."""
    p = torch.tensor([[0.5, 0.5], [0.4, 0.6]], dtype=torch.float64)
    scores, labels = p.log(), torch.tensor([0, 0])  # right at 0.5, wrong at 0.6
    diagram = metrics.reliability(scores, labels, bins=4)
    assert diagram.count.tolist() == [0, 1, 1, 0]
    assert diagram.accuracy.tolist() == pytest.approx([NAN, 1.0, 0.0, NAN], nan_ok=True)
    oracle = float(multiclass_calibration_error(p, labels, 2, 4, norm="l1"))
    assert oracle == pytest.approx(abs(1 - (0.5 + 0.6)) / 2)  # the two errors cancel in their common bin
    assert calibration(scores, labels, bins=4)[0] == pytest.approx((0.5 + 0.6) / 2)


def test_certain_predictions_share_the_last_bin() -> None:
    """A confidence of exactly 1 lies in (14/15, 1]; torchmetrics gives it a bin of its own."""
    scores, labels = torch.tensor([[800.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 1])
    below = 1 / (1 + math.exp(-3))
    assert metrics.reliability(scores, labels).count[14] == 2
    assert metrics.mce(scores, labels) == pytest.approx(abs(1 - (1 + below)) / 2)
    p = scores.double().softmax(1)
    assert float(multiclass_calibration_error(p, labels, 2, 15, norm="max")) == pytest.approx(below)


def test_reliability_by_hand() -> None:
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.45, 0.55]], dtype=torch.float64)
    diagram = metrics.reliability(p.log(), torch.tensor([0, 1, 1, 1]), bins=4)  # bins (.5, .75] and (.75, 1]
    assert diagram.count.tolist() == [0, 0, 2, 2]
    assert diagram.accuracy.tolist() == pytest.approx([NAN, NAN, 1.0, 0.5], nan_ok=True)
    assert diagram.confidence.tolist() == pytest.approx([NAN, NAN, 0.625, 0.85], nan_ok=True)


def test_perfectly_calibrated_bins_have_no_error() -> None:
    p = torch.tensor([[0.75, 0.25]] * 4, dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1])
    assert metrics.ece(p.log(), labels) == pytest.approx(0, abs=1e-15)
    assert metrics.mce(p.log(), labels) == pytest.approx(0, abs=1e-15)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 10**6), st.floats(0, 50))
@settings(max_examples=60)
def test_calibration_bounds_and_order(n: int, classes: int, seed: int, scale: float) -> None:
    scores, labels = draw(n, classes, seed, scale)
    ece, mce = metrics.ece(scores, labels), metrics.mce(scores, labels)
    assert -1e-12 <= ece <= mce + 1e-12 <= 1 + 2e-12
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    for name, metric in CLASSED.items():
        shuffled = metric(scores[order], labels[order])
        assert shuffled == pytest.approx(metric(scores, labels), abs=1e-12, nan_ok=True), name


# ---------------------------------------------------------------------------------------------- one logit


def test_one_logit_is_a_sigmoid() -> None:
    scores, labels = torch.tensor([[2.0], [-1.0], [0.5], [0.0]], dtype=torch.float64), torch.tensor([1, 0, 0, 0])
    p = scores[:, 0].sigmoid()
    assert metrics.top1(scores, labels) == 0.75  # 0 is not above the threshold: class 0
    bce = torch.nn.functional.binary_cross_entropy(p, labels.double())
    assert metrics.loss(scores, labels) == pytest.approx(float(bce))
    assert metrics.auroc(scores, labels) == 1.0
    confidence = torch.maximum(p, 1 - p)
    edges = torch.arange(1, 16) / 15
    assert metrics.reliability(scores, labels).count.nonzero().flatten().tolist() == sorted(
        {int(torch.searchsorted(edges, c)) for c in confidence}
    )


@given(st.integers(0, 40), st.integers(0, 10**6))
@settings(max_examples=25)
def test_one_logit_equals_two(n: int, seed: int) -> None:
    scores, labels = draw(n, 2, seed)
    one = scores[:, 1:] - scores[:, :1]
    for name, metric in CLASSED.items():
        assert metric(one, labels) == pytest.approx(metric(scores, labels), abs=1e-12, nan_ok=True), name


# ---------------------------------------------------------------------------------------------- many clients


@pytest.mark.parametrize("classes", [2, 3, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_by_client_equals_a_loop_of_oracles(classes: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_BLOCK", 50)  # several blocks, cutting through clients
    sizes = [30, 0, 1, 17, 50, 2, 0]
    scores, labels = draw(sum(sizes), classes, seed=3)
    scores = scores.to(dtype)
    labels[31:48] = 1  # the fourth client has one class
    offsets = torch.tensor([0, *np.cumsum(sizes).tolist()])
    got = metrics.by_client(CLASSED, scores, labels, offsets)
    assert all(vector.dtype == torch.float64 and vector.shape == (7,) for vector in got.values())
    for k, size in enumerate(sizes):
        s, y = scores[offsets[k] : offsets[k + 1]], labels[offsets[k] : offsets[k + 1]]
        want = dict.fromkeys(CLASSED, NAN)
        if size:
            want["top1"] = float((s.argmax(1) == y).double().mean())
            want["top5"] = float((s.topk(min(5, classes)).indices == y[:, None]).any(1).double().mean())
            want["loss"] = float(log_loss(y.numpy(), probabilities(s), labels=range(classes)))
            want["ece"], want["mce"] = calibration(s, y)
            want["auroc"] = macro_auroc(s, y)
            want |= {name: answers_by_sklearn(name, s, y) for name in ANSWERS}
        for name, vector in got.items():
            assert float(vector[k]) == pytest.approx(want[name], abs=1e-9, nan_ok=True), (name, k)
            assert metrics.METRICS[name](s, y) == pytest.approx(float(vector[k]), abs=1e-12, nan_ok=True)


def test_by_client_leaves_its_inputs_alone() -> None:
    scores, labels = draw(20, 4)
    offsets = torch.tensor([0, 5, 20])
    before = (scores.clone(), labels.clone(), offsets.clone())
    metrics.by_client(CLASSED, scores.requires_grad_(), labels, offsets)
    assert all(torch.equal(a, b) for a, b in zip(before, (scores, labels, offsets), strict=True))


def test_a_diverged_model_is_not_flattered_and_stays_with_its_client() -> None:
    scores, labels = draw(20, 3)
    clean = metrics.by_client(CLASSED, scores, labels, torch.tensor([0, 10, 20]))
    scores[0, 1] = NAN
    got = metrics.by_client(CLASSED, scores, labels, torch.tensor([0, 10, 20]))
    assert got["top1"][0] <= 0.9
    assert got["top5"][0] == 0.9
    assert got["loss"][0] == INF
    assert all(math.isnan(got[name][0]) for name in ("auroc", "ece", "mce"))
    assert all(got[name][1] == clean[name][1] for name in got)


def test_all_nan_scores_are_all_wrong() -> None:
    scores, labels = torch.full((4, 1), NAN), torch.tensor([0, 1, 0, 1])
    assert metrics.top1(scores, labels) == 0
    assert metrics.loss(scores, labels) == INF
    assert math.isnan(metrics.auroc(scores, labels))


def test_half_precision_scores_are_summed_in_double() -> None:
    scores, labels = draw(500, 4)
    rounded = scores.to(torch.bfloat16)
    assert metrics.loss(rounded, labels) == pytest.approx(metrics.loss(rounded.double(), labels), rel=1e-12)


@pytest.mark.parametrize(
    ("scores", "labels", "offsets", "message"),
    [
        (torch.zeros(3), torch.zeros(3).long(), [0, 3], r"scores must have shape \(samples, classes\), got \(3,\)"),
        (torch.zeros(3, 0), torch.zeros(3).long(), [0, 3], "scores must have shape"),
        (torch.zeros(3, 2), torch.zeros(2).long(), [0, 3], r"labels must have shape \(3,\), got \(2,\)"),
        (torch.zeros(3, 2), torch.zeros(3), [0, 3], r"predictions must have shape \(3, 1\), got \(3, 2\)"),
        (torch.zeros(3, 2), torch.tensor([0, 1, 2]), [0, 3], "labels must be between 0 and 1, got 2"),
        (torch.zeros(3, 2), torch.tensor([0, -1, 1]), [0, 3], "labels must be between 0 and 1, got -1"),
        (torch.zeros(3, 1), torch.tensor([0, 1, 2]), [0, 3], "labels must be between 0 and 1, got 2"),
        (torch.zeros(3, 2), torch.zeros(3).long(), [0, 2], "offsets must rise from 0 to the number of samples 3"),
        (torch.zeros(3, 2), torch.zeros(3).long(), [1, 3], "offsets must rise from 0"),
        (torch.zeros(3, 2), torch.zeros(3).long(), [0, 2, 1, 3], "offsets must rise from 0"),
        (torch.zeros(3, 2), torch.zeros(3).long(), [], "offsets must rise from 0"),
    ],
)
def test_wrong_input_is_told(scores: Tensor, labels: Tensor, offsets: list[int], message: str) -> None:
    with pytest.raises(FedchordError, match=message):
        metrics.by_client(["top1"], scores, labels, torch.tensor(offsets, dtype=torch.int64))


def test_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(FedchordError, match="unknown metric 'top-1'; did you mean 'top1'"):
        metrics.by_client(["top-1"], *draw(3, 2), torch.tensor([0, 3]))
    with pytest.raises(FedchordError, match="did you mean 'auroc'"):
        metrics.find("auc_roc")
    assert metrics.find("ece") is metrics.ece
    assert set(metrics.METRICS) > metrics.HIGHER_IS_BETTER


# ---------------------------------------------------------------------------------------------- over clients


def brute_gini(x: list[float]) -> float:
    return sum(abs(a - b) for a in x for b in x) / (2 * len(x) ** 2 * (sum(x) / len(x)))


positive = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40)


@given(positive)
def test_gini_is_the_double_sum(x: list[float]) -> None:
    assert metrics.gini(torch.tensor(x, dtype=torch.float64)) == pytest.approx(brute_gini(x), abs=1e-12)


@given(positive, st.sampled_from([1e-290, 0.1, 3.0, 1e290]))
def test_gini_is_scale_invariant_and_below_one(x: list[float], scale: float) -> None:
    tensor = torch.tensor(x, dtype=torch.float64)
    value = metrics.gini(tensor)
    assert 0 <= value <= (len(x) - 1) / len(x) + 1e-12
    assert metrics.gini(tensor * scale) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 7, 100])
def test_gini_extremes(k: int) -> None:
    assert metrics.gini(torch.full((k,), 0.3)) == 0.0
    assert metrics.gini(torch.zeros(k)) == 0.0
    assert metrics.gini(torch.eye(k)[0]) == pytest.approx((k - 1) / k)


def plain_statistic(x: list[float], statistic: str, higher_is_better: bool) -> float:
    """By loops over one row."""
    if statistic == "mean":
        return math.fsum(x) / len(x)
    if statistic == "gini":
        return brute_gini(x) if any(x) else 0.0
    count = max(1, math.floor(len(x) / 10))
    ends = [math.fsum(sorted(x, reverse=down)[:count]) / count for down in (False, True)]
    worst, best = ends if higher_is_better else reversed(ends)
    return {"worst10": worst, "best10": best, "gap": abs(best - worst)}[statistic]


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("statistic", metrics.STATISTICS)
@pytest.mark.parametrize("clients", [1, 3, 10, 29, 200])
def test_many_rows_at_once_are_the_rows_one_by_one(clients: int, statistic: str, higher: bool) -> None:
    rows = np.random.default_rng(clients).gamma(2.0, size=(7, clients)).round(1)
    rows[3] = 0.0
    made = metrics.over_clients(torch.from_numpy(rows), statistic, higher)
    assert made.shape == (7,)
    for row, value in zip(rows, made, strict=True):
        assert float(value) == pytest.approx(plain_statistic(row.tolist(), statistic, higher), abs=1e-12)
        assert float(value) == pytest.approx(
            metrics.summarise(torch.from_numpy(row), None, higher)[statistic], abs=1e-12
        )


def test_a_statistic_of_nothing_or_of_no_known_name_is_refused() -> None:
    with pytest.raises(FedchordError, match=r"^over_clients: statistic must be one of mean, .*, got 'median'$"):
        metrics.over_clients(torch.ones(2, 2), "median")
    for values in (torch.ones(3), torch.ones(3, 0)):
        with pytest.raises(FedchordError, match=r"^over_clients: values must have shape \(rows, clients\), got"):
            metrics.over_clients(values, "mean")


@pytest.mark.parametrize("x", [[], [-1.0, 1.0], [-1.0, 0.0], [1.0, INF], [1.0, NAN]])
def test_gini_undefined(x: list[float]) -> None:
    assert math.isnan(metrics.gini(torch.tensor(x)))


def test_summary_by_hand() -> None:
    values = torch.tensor([0.2, NAN, 0.8, 0.5])
    got = metrics.summarise(values, weights=torch.tensor([1, 100, 1, 2]))
    assert (got.pop("clients"), got.pop("undefined")) == (3, 1)
    assert got == pytest.approx(
        {
            "mean": 0.5,
            "std": math.sqrt((0.09 + 0 + 0.09) / 3),
            "worst10": 0.2,
            "best10": 0.8,
            "gap": 0.6,
            "gini": brute_gini([0.2, 0.8, 0.5]),
            "weighted": (0.2 + 0.8 + 2 * 0.5) / 4,
        },
        rel=1e-6,
    )


def test_worst_and_best_tenth() -> None:
    values = torch.arange(25.0)[torch.randperm(25, generator=torch.Generator().manual_seed(1))]
    up, down = metrics.summarise(values), metrics.summarise(values, higher_is_better=False)
    assert (up["worst10"], up["best10"], up["gap"]) == (0.5, 23.5, 23.0)
    assert (down["worst10"], down["best10"], down["gap"]) == (23.5, 0.5, 23.0)
    assert math.isnan(up["weighted"])


def test_a_tenth_is_the_thesis_codes_count() -> None:
    assert all(max(1, k // 10) == max(1, int(0.1 * k)) for k in range(1, 20000))


def test_one_class_clients_are_skipped_and_counted() -> None:
    scores, _ = draw(12, 2)
    labels = torch.tensor([0, 1, 0, 1] + [1] * 4 + [0, 0, 1, 1])
    vector = metrics.by_client(["auroc"], scores, labels, torch.tensor([0, 4, 8, 12]))["auroc"]
    got = metrics.summarise(vector, weights=torch.tensor([4, 4, 4]))
    kept = [macro_auroc(scores[:4], labels[:4]), macro_auroc(scores[8:], labels[8:])]
    assert (got["clients"], got["undefined"]) == (2, 1)
    assert got["mean"] == got["weighted"] == pytest.approx(sum(kept) / 2)


def test_summary_without_any_defined_client() -> None:
    for values in (torch.tensor([NAN, NAN]), torch.tensor([])):
        got = metrics.summarise(values, weights=torch.ones(len(values)))
        assert (got.pop("clients"), got.pop("undefined")) == (0, len(values))
        assert all(math.isnan(value) for value in got.values())
    assert set(got) | {"clients", "undefined"} == set(metrics.summarise(torch.ones(1)))


def test_an_infinite_loss_counts() -> None:
    got = metrics.summarise(torch.tensor([1.0, INF]), higher_is_better=False)
    assert got["mean"] == got["worst10"] == got["gap"] == INF
    assert got["best10"] == 1.0
    assert got["clients"] == 2
    assert math.isnan(got["std"])
    assert math.isnan(got["gini"])


@given(positive, st.randoms(use_true_random=False), st.booleans())
def test_summary_ignores_the_order_of_clients_and_undefined_ones(x: list[float], random, up: bool) -> None:  # type: ignore[no-untyped-def]
    rows = [(value, float(i + 1)) for i, value in enumerate(x)] + [(NAN, 5.0)]
    got = metrics.summarise(torch.tensor(x), torch.arange(1.0, len(x) + 1), up)
    random.shuffle(rows)
    other = metrics.summarise(torch.tensor([v for v, _ in rows]), torch.tensor([w for _, w in rows]), up)
    assert other.pop("undefined") == got.pop("undefined") + 1
    assert other == pytest.approx(got, rel=1e-9, abs=1e-9)


def test_wrong_summaries_are_told() -> None:
    with pytest.raises(FedchordError, match=r"summarise: values must have shape \(clients,\), got \(2, 2\)"):
        metrics.summarise(torch.ones(2, 2))
    with pytest.raises(FedchordError, match="summarise: weights must have the shape of values"):
        metrics.summarise(torch.ones(2), torch.ones(3))
    with pytest.raises(FedchordError, match="summarise: weights must be at least 0"):
        metrics.summarise(torch.ones(2), torch.tensor([1.0, -1.0]))
    with pytest.raises(FedchordError, match="reliability: bins must be a whole number of at least 1, got 0"):
        metrics.reliability(*draw(3, 2), bins=0)


def test_over_seeds() -> None:
    assert metrics.over_seeds([1.0, 2.0, 6.0]) == pytest.approx((3.0, math.sqrt(7)))
    mean, std = metrics.over_seeds([0.25])
    assert mean == 0.25
    assert math.isnan(std)
    assert all(math.isnan(value) for value in metrics.over_seeds([1.0, NAN]))
    with pytest.raises(FedchordError, match="over_seeds: needs at least one value"):
        metrics.over_seeds([])


# ---------------------------------------------------------------------------------------------- right and wrong answers

ANSWERS = ("f1", "precision", "sensitivity", "specificity", "balanced-accuracy", "kappa")


def answers_by_sklearn(name: str, scores: Tensor, labels: Tensor) -> float:
    """A metric of one client's answers by scikit-learn; NaN for one class."""
    y, found = labels.numpy(), scores.argmax(1).numpy()
    present = np.unique(y)
    if len(present) < 2:
        return NAN
    if name == "kappa":
        return float(cohen_kappa_score(y, found))
    if name == "balanced-accuracy":
        return float(recall_score(y, found, labels=present, average="macro"))
    if name == "specificity":
        classes = present if scores.shape[1] > 2 else [1]
        return float(np.mean([recall_score(y != c, found != c) for c in classes]))
    score = {"f1": f1_score, "precision": precision_score, "sensitivity": recall_score}[name]
    if scores.shape[1] == 2:
        return float(score(y, found, zero_division=0))
    return float(score(y, found, labels=present, average="macro", zero_division=0))


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_answers_match_sklearn_client_by_client(name: str, classes: int) -> None:
    sizes = [30, 0, 1, 7, 4, 60, 2, 12]
    scores, labels = draw(sum(sizes), classes, seed=classes)
    labels[38:42] = 1  # a client of one class
    offsets = torch.tensor([0, *np.cumsum(sizes)])
    found = metrics.by_client([name], scores, labels, offsets)[name]
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    expected = [answers_by_sklearn(name, scores[a:b], labels[a:b]) for a, b in bounds]
    assert np.isnan(expected).sum() >= 3 and np.isfinite(expected).sum() >= 4
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    one = metrics.METRICS[name](scores[:30], labels[:30])
    assert one == pytest.approx(expected[0], abs=1e-12)


def test_balanced_accuracy_is_sklearns_where_all_classes_are_there() -> None:
    scores, labels = draw(200, 5)
    expected = balanced_accuracy_score(labels.numpy(), scores.argmax(1).numpy())
    assert metrics.METRICS["balanced-accuracy"](scores, labels) == pytest.approx(expected, abs=1e-12)


def test_one_column_is_a_binary_answer() -> None:
    scores, labels = torch.tensor([[2.0], [-1.0], [3.0], [0.0], [-2.0]]), torch.tensor([1, 1, 0, 1, 0])
    # answers 1 0 1 0 0 (equal scores: the lowest class): TP 1, FN 2, FP 1, TN 1
    found = {name: metrics.METRICS[name](scores, labels) for name in ANSWERS}
    by_hand = {"f1": 2 / 5, "precision": 1 / 2, "sensitivity": 1 / 3, "specificity": 1 / 2}
    by_hand |= {"balanced-accuracy": 5 / 12, "kappa": (2 / 5 - 12 / 25) / (1 - 12 / 25)}
    assert found == pytest.approx(by_hand)


def test_a_diverged_score_is_a_wrong_answer_in_every_class() -> None:
    scores, labels = torch.tensor([[NAN, 1.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 0])
    assert metrics.METRICS["specificity"](scores, labels) == 1  # it was not taken for class 1
    assert metrics.METRICS["balanced-accuracy"](scores, labels) == pytest.approx((1 / 2 + 1) / 2)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What a test makes known is forgotten after it."""
    yield
    for name in set(metrics.METRICS) - metrics.OURS:
        del metrics.METRICS[name]
        metrics.HIGHER_IS_BETTER.discard(name)


def test_a_metric_of_your_own_is_asked_about_each_client(forgotten: None) -> None:
    metrics.register("spread", lambda scores, labels: float(labels.max() - labels.min()), higher_is_better=False)
    scores, labels = draw(9, 3)
    offsets = torch.tensor([0, 4, 4, 9])
    found = metrics.by_client(["spread", "top1"], scores, labels, offsets)["spread"].tolist()
    assert found[::2] == [float(np.ptp(part)) for part in (labels[:4].numpy(), labels[4:].numpy())]
    assert math.isnan(found[1]) and "spread" not in metrics.HIGHER_IS_BETTER
    with pytest.raises(FedchordError, match="top1 is a metric already; choose another name"):
        metrics.register("top1", lambda scores, labels: 0.0)
    metrics.register("spread", lambda scores, labels: "much")
    with pytest.raises(FedchordError, match="spread: a metric must give one number, got 'much'"):
        metrics.by_client(["spread"], scores, labels, offsets)
