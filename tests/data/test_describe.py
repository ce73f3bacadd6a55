"""How clients differ: each number against a plain computation, or data made to have it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from fedchord import federate, load
from fedchord.data import Iid, Pathological
from fedchord.data.describe import describe, feature_skew, label_skew, odd_labels


def test_the_label_skew_is_the_mean_total_variation():
    generator = torch.Generator().manual_seed(1)
    owner = torch.randint(0, 5, (200,), generator=generator)
    labels = torch.randint(0, 4, (200,), generator=generator)
    every, total = Counter(labels.tolist()), 0.0
    for client in range(5):
        own = Counter(labels[owner == client].tolist())
        n = sum(own.values())
        total += sum(abs(own[c] / n - every[c] / 200) for c in range(4)) / 2
    assert label_skew(owner, labels, 4, 5) == pytest.approx(total / 5)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.8])
def test_the_feature_skew_is_the_share_of_variance_between_clients(share):
    """Rows of a class are drawn around a mean of their client; labels shift all of them and do not count."""
    generator = torch.Generator().manual_seed(3)
    owner = torch.arange(40).repeat_interleave(60)
    labels = torch.randint(0, 3, (2400,), generator=generator)
    means = torch.randn(40, 3, 30, generator=generator) * share**0.5
    x = means[owner, labels] + torch.randn(2400, 30, generator=generator) * (1 - share) ** 0.5 + 5 * labels[:, None]
    assert feature_skew(x.double(), labels, owner) == pytest.approx(share, abs=0.04)


def test_odd_labels_are_those_a_vote_of_neighbours_does_not_give():
    generator = torch.Generator().manual_seed(2)
    x, labels = torch.randn(300, 5, generator=generator).double(), torch.randint(0, 2, (300,), generator=generator)
    wrong = 0
    for i in range(300):
        rest = [j for j in range(300) if j != i]
        vote = KNeighborsClassifier(15).fit(x[rest].numpy(), labels[rest].numpy()).predict(x[i : i + 1].numpy())
        wrong += int(vote[0] != labels[i])
    assert odd_labels(x, labels) == pytest.approx(wrong / 300, abs=0.005)


def test_digits_are_seen_as_what_they_are():
    digits = load("digits")
    alike = describe(federate(digits, Iid(), 10))
    apart = describe(federate(digits, Pathological(shards=2), 10))
    noisy = describe(federate(digits, Iid(), 10, noise="pair", noise_rate=0.3))
    assert alike.labels < 1.3 * alike.labels_by_chance and apart.labels > 5 * apart.labels_by_chance
    assert alike.noise < 0.06 and 0.24 < noisy.noise < 0.4 and alike.features < 0.02
    sizes = federate(digits, Iid(), 10).train.sizes
    assert (alike.clients, alike.smallest, alike.largest) == (10, int(sizes.min()), int(sizes.max()))
