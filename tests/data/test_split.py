"""The local split against hand-computed cases and a slow largest-remainder rule."""

from collections import Counter
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.data import Ragged, split_client, split_clients


def labels_of(counts: dict[int, int]) -> torch.Tensor:
    return torch.tensor([label for label, count in counts.items() for _ in range(count)])


def test_owners_of_rows():
    held = Ragged.of([torch.tensor([5, 2]), torch.tensor([]), torch.tensor([9])])
    assert held.owners.tolist() == [0, 0, 2] and held.owners is held.owners
    assert Ragged.of([]).owners.tolist() == [] and Ragged.of([torch.tensor([])]).owners.dtype == torch.int64


def test_by_hand():
    # 20 rows, 4 to test. Ideal: 10 -> 2, 5 -> 1, 3 -> 0.6, 2 -> 0.4, so the fourth row comes from the class of three.
    labels = labels_of({0: 10, 1: 5, 2: 3, 3: 2})
    train, valid, test = split_client(labels, 0.2, 0.0, key=1)
    assert Counter(labels[test].tolist()) == {0: 2, 1: 1, 2: 1}
    assert len(valid) == 0
    assert sorted(torch.cat([train, test]).tolist()) == list(range(20))


def test_by_hand_with_validation():
    # After the test rows 8, 4, 2, 2 are left; 10 % of 20 is 2 rows: ideal 1, 0.5, 0.25, 0.25.
    labels = labels_of({0: 10, 1: 5, 2: 3, 3: 2})
    train, valid, test = split_client(labels, 0.2, 0.1, key=1)
    assert Counter(labels[test].tolist()) == {0: 2, 1: 1, 2: 1}
    assert Counter(labels[valid].tolist()) == {0: 1, 1: 1}
    assert sorted(torch.cat([train, valid, test]).tolist()) == list(range(20))


def test_a_single_row_of_a_class_stays_in_training_where_another_can_go():
    # ideal 1.2, 0.2, 0.2, ...: the remainders tie, and the larger class gives the row
    labels = labels_of({0: 6, 1: 1, 2: 1, 3: 1, 4: 1})
    for seed in range(20):
        _, _, test = split_client(labels, 0.2, 0.0, rng.key(seed, "split"))
        assert labels[test].tolist() == [0, 0]


def test_ties_between_equal_classes_are_broken_by_lot():
    labels = torch.arange(10)
    seen = Counter(
        label for seed in range(200) for label in split_client(labels, 0.2, 0.0, rng.key(seed, "split"))[2].tolist()
    )
    assert sum(seen.values()) == 400
    assert all(15 < seen[label] < 70 for label in range(10))


@pytest.mark.parametrize(
    "rows, test, validation, expected",
    [
        (1, 0.2, 0.2, (1, 0, 0)),
        (2, 0.2, 0.0, (1, 0, 1)),
        (2, 0.2, 0.2, (1, 0, 1)),
        (3, 0.2, 0.2, (1, 1, 1)),
        (5, 0.2, 0.0, (4, 0, 1)),
        (8, 0.2, 0.0, (6, 0, 2)),
        (7, 0.2, 0.0, (6, 0, 1)),
        (2, 0.9, 0.0, (1, 0, 1)),
        (10, 0.15, 0.0, (8, 0, 2)),
        (10, 0.0, 0.3, (7, 3, 0)),
        (10, 0.0, 0.0, (10, 0, 0)),
        (1200, 0.2, 0.0, (960, 0, 240)),
    ],
)
def test_sizes(rows, test, validation, expected):
    parts = split_client(torch.zeros(rows, dtype=torch.int64), test, validation, key=0)
    assert tuple(len(part) for part in parts) == expected


def slow_quotas(counts: Counter, wanted: int) -> list[tuple[Fraction, int]]:
    """For each class its ideal share; the largest-remainder rule gives floor or floor plus one."""
    total = sum(counts.values())
    return {label: Fraction(wanted * count, total) for label, count in counts.items()}


@settings(max_examples=60, deadline=None)
@given(
    clients=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=40), min_size=1, max_size=5),
    seed=st.integers(0, 2**40),
)
def test_many_clients_equal_one_by_one_and_the_rule_holds(clients, seed):
    labels = torch.tensor([label for client in clients for label in client])
    held = Ragged.of(torch.split(torch.arange(len(labels)), [len(client) for client in clients]))
    keys = [rng.key(seed, "split", i) for i in range(len(clients))]
    parts = split_clients(held, labels, 0.2, 0.1, rng.as_tensor(keys))
    for i, client in enumerate(clients):
        alone = split_client(torch.tensor(client), 0.2, 0.1, keys[i])
        for part, own in zip(parts, alone, strict=True):
            assert torch.equal(part[i] - held.offsets[i], own)
        assert sorted(torch.cat(alone).tolist()) == list(range(len(client)))
        counts = Counter(client)
        tested = Counter(torch.tensor(client)[alone[2]].tolist())
        ideal = slow_quotas(counts, len(alone[2]))
        lowest_raised = min((q - int(q) for c, q in ideal.items() if tested[c] > int(q)), default=1)
        highest_kept = max((q - int(q) for c, q in ideal.items() if tested[c] == int(q)), default=0)
        assert all(int(q) <= tested[c] <= int(q) + 1 for c, q in ideal.items())
        assert lowest_raised >= highest_kept


def test_the_key_decides_which_rows():
    labels = torch.zeros(50, dtype=torch.int64)
    first, again, other = (split_client(labels, 0.2, 0.0, key)[2] for key in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    "test, validation, message",
    [
        (1.0, 0.0, "split: test must be at least 0 and below 1, got 1.0"),
        (-0.1, 0.0, "split: test must be at least 0 and below 1, got -0.1"),
        (0.5, 0.5, "split: test and validation must leave training rows, got 0.5 and 0.5"),
        (0.2, 1.2, "split: validation must be at least 0 and below 1, got 1.2"),
    ],
)
def test_wrong_fractions(test, validation, message):
    with pytest.raises(FedchordError) as error:
        split_client(torch.zeros(5, dtype=torch.int64), test, validation, 0)
    assert str(error.value) == message
