"""Label noise against its transition matrix."""

import math

import pytest
import torch

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.data import corrupt, transition


def test_transition_matrices_by_hand():
    pair = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.6, 0.4], [0.4, 0.0, 0.6]], dtype=torch.float64)
    symmetric = torch.tensor([[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]], dtype=torch.float64)
    torch.testing.assert_close(transition("pair", 0.4, 3), pair)
    torch.testing.assert_close(transition("symmetric", 0.6, 3), symmetric)


@pytest.mark.parametrize("kind", ["pair", "symmetric"])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("classes", [2, 10])
def test_rows_sum_to_one_and_keep_one_minus_rate(kind, rate, classes):
    matrix = transition(kind, rate, classes)
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(classes, dtype=torch.float64))
    torch.testing.assert_close(matrix.diagonal(), torch.full((classes,), 1 - rate, dtype=torch.float64))
    assert bool((matrix >= 0).all())


@pytest.mark.parametrize("kind, rate", [("pair", 0.1), ("pair", 0.4), ("symmetric", 0.2), ("symmetric", 0.6)])
def test_drawn_labels_follow_the_matrix(kind, rate):
    classes, each = 5, 8000
    labels = torch.arange(classes).repeat(each)
    before = labels.clone()
    noisy = corrupt(labels, kind, rate, classes, rng.key(3, "noise"))
    assert torch.equal(labels, before)
    found = torch.bincount(labels * classes + noisy, minlength=classes**2).reshape(classes, classes)
    for got, chance in zip(found.flatten().tolist(), transition(kind, rate, classes).flatten().tolist(), strict=True):
        assert abs(got - each * chance) <= 4.5 * math.sqrt(each * chance * (1 - chance))


def test_extreme_rates():
    labels = torch.arange(10).repeat(50)
    assert torch.equal(corrupt(labels, "symmetric", 0.0, 10, 1), labels)
    assert torch.equal(corrupt(labels, "pair", 1.0, 10, 1), (labels + 1) % 10)
    assert bool((corrupt(labels, "symmetric", 1.0, 10, 1) != labels).all())


def test_the_key_decides():
    labels = torch.arange(10).repeat(50)
    first, again, other = (corrupt(labels, "symmetric", 0.5, 10, key) for key in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    "kind, rate, classes, message",
    [
        ("pairs", 0.1, 3, "noise: kind must be one of pair, symmetric, got 'pairs'"),
        ("pair", 1.5, 3, "noise: rate must be between 0 and 1, got 1.5"),
        ("pair", 0.1, 1, "noise: label noise needs at least 2 classes, got 1"),
    ],
)
def test_wrong_arguments(kind, rate, classes, message):
    for call in (
        lambda: transition(kind, rate, classes),
        lambda: corrupt(torch.zeros(2).long(), kind, rate, classes, 0),
    ):
        with pytest.raises(FedchordError) as error:
            call()
        assert str(error.value) == message
