"""Partitions against brute force, exact moments and their stated guarantees."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.data.dirichlet import cut, donations, fill, log_dirichlet, normalise, top_up
from fedchord.data.partition import (
    PARTITIONS,
    ClassDirichlet,
    Dirichlet,
    Iid,
    Natural,
    Pathological,
    make_partition,
)
from fedchord.data.ragged import Ragged


def mnist_like(rows: int = 60000, classes: int = 10) -> torch.Tensor:
    return torch.arange(rows) * 7 % classes


def shares(parts: list[torch.Tensor], labels: torch.Tensor, classes: int) -> np.ndarray:
    counts = np.stack([np.bincount(labels[part].numpy(), minlength=classes) for part in parts])
    return counts / counts.sum(axis=1, keepdims=True)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([Iid(), Pathological(), Pathological(3), Dirichlet(0.05, 1), ClassDirichlet(0.05, 2)]),
    labels=st.lists(st.integers(0, 4), min_size=40, max_size=120),
    num_clients=st.integers(1, 13),
    seed=st.integers(0, 2**63),
)
def test_every_row_goes_to_exactly_one_client(kind, labels, num_clients, seed):
    parts = kind.assign(torch.tensor(labels), num_clients, 7, rng.key(seed, "partition"), None)
    assert len(parts) == num_clients
    assert sorted(torch.cat(list(parts)).tolist()) == list(range(len(labels)))
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)
    sizes = [len(part) for part in parts]
    if isinstance(kind, ClassDirichlet):
        assert min(sizes) >= 2
    else:
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("kind", [Iid(), Pathological(), Dirichlet(0.3), ClassDirichlet(0.3)])
def test_the_key_decides(kind):
    labels = mnist_like(500)
    first, again, other = (kind.assign(labels, 8, 10, key, None) for key in (11, 11, 12))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_iid_clients_look_like_the_whole():
    labels = mnist_like(20000)
    spread = shares(Iid().assign(labels, 20, 10, 5, None), labels, 10).std(axis=0)
    # drawing 1000 of 20000 without replacement: sd = sqrt(p (1 - p) / 1000 * (1 - 1/20))
    assert spread.mean() == pytest.approx(math.sqrt(0.09 / 1000 * 0.95), rel=0.25)


@pytest.mark.parametrize("shards, num_clients", [(2, 10), (3, 4)])
def test_pathological_equals_brute_force_shards(shards, num_clients):
    labels = torch.tensor([3, 1, 2, 0, 1, 3] * 40)
    order = sorted(range(240), key=lambda row: (labels[row].item(), row))
    length = 240 // (shards * num_clients)
    expected = {frozenset(order[start : start + length]) for start in range(0, 240, length)}
    parts = Pathological(shards).assign(labels, num_clients, 4, 9, None)
    for part in map(set, (p.tolist() for p in parts)):
        mine = {shard for shard in expected if shard <= part}
        assert len(mine) == shards
        assert part == set().union(*mine)
        expected -= mine
    assert not expected


def test_pathological_uneven_shards_are_runs_of_the_sorted_rows():
    labels = mnist_like(1003)
    place = {row: i for i, row in enumerate(sorted(range(1003), key=lambda r: (labels[r].item(), r)))}
    for part in Pathological().assign(labels, 30, 10, 1, None):
        places = sorted(place[row] for row in part.tolist())
        runs = 1 + sum(b != a + 1 for a, b in itertools.pairwise(places))
        assert runs <= 2
        assert len(part) in (33, 34)


def test_pathological_clients_have_two_classes_mostly_and_shards_are_dealt_evenly():
    labels = mnist_like()
    held = [len(set(labels[part].tolist())) for part in Pathological().assign(labels, 100, 10, 3, None)]
    assert max(held) <= 2  # 300 divides 6000, so no shard straddles two classes
    assert sum(count == 2 for count in held) > 75  # a pair of the same class has the chance 19/199
    small = torch.arange(8)
    first = Counter(
        next(i for i, part in enumerate(Pathological().assign(small, 4, 8, rng.key(s, "p"), None)) if 0 in part)
        for s in range(300)
    )
    assert all(abs(first[client] - 75) < 4.5 * math.sqrt(300 * 0.25 * 0.75) for client in range(4))


def test_log_dirichlet_has_the_moments_of_the_dirichlet():
    concentration = np.array([1.5, 0.0, 0.9, 0.02])
    q = normalise(log_dirichlet(concentration, 20000, np.random.default_rng(0)))
    total = concentration.sum()
    mean = concentration / total
    variance = mean * (1 - mean) / (total + 1)
    assert np.all(np.abs(q.mean(axis=0) - mean) <= 4.5 * np.sqrt(variance / 20000))
    np.testing.assert_allclose(q.var(axis=0), variance, rtol=0.1)
    assert np.all(q[:, 1] == 0)


@pytest.mark.parametrize("alpha", [1e-3, 1e-8, 1e-320])
def test_log_dirichlet_at_tiny_alpha_is_one_hot_with_the_chances_of_the_prior(alpha):
    prior = np.array([0.2, 0.5, 0.3])
    q = normalise(log_dirichlet(alpha * prior, 4000, np.random.default_rng(1)))
    assert np.all(np.isfinite(q))
    assert np.median(q.max(axis=1)) > 0.999
    if alpha > 1e-300:
        chosen = np.bincount(q.argmax(axis=1), minlength=3) / 4000
        assert np.all(np.abs(chosen - prior) < 4.5 * np.sqrt(prior * (1 - prior) / 4000))


def chances_row_by_row(q: list[list[float]], supply: list[int], quota: int) -> dict[tuple[int, int], float]:
    """The exact law of what two clients hold of class 0 if rows are drawn one by one, clients in random order."""
    found: Counter[tuple[int, int]] = Counter()

    def draw(order, held, left, chance):
        client = next((c for c in order if sum(held[c]) < quota), None)
        if client is None:
            found[held[0][0], held[1][0]] += chance
            return
        weights = [q[client][c] if left[c] else 0.0 for c in range(2)]
        for c in range(2):
            if weights[c]:
                more = [list(row) for row in held]
                more[client][c] += 1
                rest = [left[k] - (k == c) for k in range(2)]
                draw(order, more, rest, chance * weights[c] / sum(weights))

    for order in ((0, 1), (1, 0)):
        draw(order, [[0, 0], [0, 0]], supply, 0.5)
    return found


def test_fill_has_the_law_of_drawing_row_by_row():
    q = [[0.8, 0.2], [0.6, 0.4]]
    exact = chances_row_by_row(q, [3, 3], 3)
    assert sum(exact.values()) == pytest.approx(1)
    generator, runs = np.random.default_rng(2), 6000
    seen = Counter(
        tuple(int(n) for n in fill(np.log(q), np.array([3, 3]), np.array([3, 3]), generator)[:, 0]) for _ in range(runs)
    )
    assert set(seen) == set(exact)
    for outcome, chance in exact.items():
        assert abs(seen[outcome] - runs * chance) < 4.5 * math.sqrt(runs * chance * (1 - chance))


def test_fill_takes_the_next_likely_class_when_one_is_exhausted():
    # exp(-5000) and exp(-9000) are zero as floats: only logarithms can tell them apart
    logs = np.array([[0.0, -9000.0, -5000.0]] * 2)
    held = fill(logs, np.array([3, 2, 3]), np.array([4, 4]), np.random.default_rng(0))
    assert sorted(map(tuple, held.tolist())) == [(0, 2, 2), (3, 0, 1)]


def test_dirichlet_near_the_prior_at_large_alpha_and_one_hot_at_small_alpha():
    labels = torch.cat([mnist_like(30000), torch.zeros(30000, dtype=torch.int64)])
    prior = np.bincount(labels.numpy()) / 60000
    distance = {}
    for alpha in (0.01, 1.0, 100.0):
        held = shares(Dirichlet(alpha).assign(labels, 100, 10, 4, None), labels, 10)
        distance[alpha] = 0.5 * np.abs(held - prior).sum(axis=1).mean()
        if alpha == 0.01:
            assert np.median(held.max(axis=1)) > 0.97
    assert distance[100.0] < 0.08 < 0.2 < distance[1.0] < distance[0.01]


@pytest.mark.parametrize("kind", [Dirichlet(0.01), ClassDirichlet(0.01), Dirichlet(1e-9), ClassDirichlet(1e-9)])
@pytest.mark.parametrize("rows, classes, num_clients", [(60000, 10, 100), (60000, 10, 1000), (12000, 200, 1000)])
def test_the_settings_of_the_thesis_are_built(kind, rows, classes, num_clients):
    labels = mnist_like(rows, classes)
    parts = kind.assign(labels, num_clients, classes, 8, None)
    assert min(len(part) for part in parts) >= 10
    assert torch.equal(torch.cat(list(parts)).sort().values, torch.arange(rows))
    largest = shares(parts, labels, classes).max(axis=1)
    assert np.median(largest) > (0.9 if classes == 10 else 0.3)


def test_class_dirichlet_cuts_shares_and_keeps_the_sums():
    counts = cut(np.array([[0.25, 0.25, 0.5], [1e-9, 0.5, 0.5 - 1e-9]]), np.array([8, 5]))
    assert counts.tolist() == [[2, 2, 4], [0, 3, 2]]


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=8), minimum=st.integers(0, 4))
def test_donations_equal_taking_single_rows_from_the_largest(sizes, minimum):
    total = sum(max(minimum - size, 0) for size in sizes)
    if sum(sizes) < minimum * len(sizes):
        return
    slow = list(sizes)
    for _ in range(total):
        slow[slow.index(max(slow))] -= 1
    gives = donations(np.array(sizes), total)
    assert gives.sum() == total
    assert sorted(np.array(sizes) - gives) == sorted(slow)


def test_top_up_moves_no_more_rows_than_needed():
    owner = np.array([0] * 20 + [1] * 3 + [3] * 7)
    labels = np.array([0, 1] * 15)
    after = top_up(owner, labels, 4, 5, np.random.default_rng(0))
    assert np.bincount(after).tolist() == [13, 5, 5, 7]
    assert set(owner[owner != after]) == {0}
    assert (owner != after).sum() == 7
    assert labels[(after == 1) & (owner == 0)].max() <= labels[after == 2].min()  # dealt class by class


def test_natural_takes_all_groups_or_a_random_few():
    groups = torch.tensor([4, 1, 1, 4, 0, 1])
    labels = torch.zeros(6, dtype=torch.int64)
    assert [p.tolist() for p in Natural().assign(labels, 99, 1, 0, groups)] == [[4], [1, 2, 5], [0, 3]]
    assert [p.tolist() for p in Natural(2).assign(labels, 99, 1, 0, groups)] == [[1, 2, 5], [0, 3]]
    picked = Counter(
        tuple(part[0].item() for part in Natural().assign(labels, 2, 1, rng.key(seed, "n"), groups))
        for seed in range(300)
    )
    assert set(picked) == {(4, 1), (4, 0), (1, 0)}
    assert min(picked.values()) > 60


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Pathological(0), "Pathological: shards must be a whole number of at least 1, got 0"),
        (lambda: Dirichlet(0), "Dirichlet: alpha must be above 0, got 0"),
        (lambda: Dirichlet(math.nan), "Dirichlet: alpha must be a finite number, got nan"),
        (lambda: Dirichlet(1.0, 2.5), "Dirichlet: minimum must be a whole number of at least 1, got 2.5"),
        (lambda: ClassDirichlet(-1.0), "ClassDirichlet: alpha must be above 0, got -1.0"),
        (lambda: Natural(0), "Natural: minimum must be a whole number of at least 1, got 0"),
        (lambda: make_partition("dirichlet"), "dirichlet: alpha is needed"),
        (lambda: make_partition("iid", alpha=1.0), "iid: takes no parameters, got alpha"),
        (
            lambda: make_partition("dirichlet", alhpa=1.0),
            "unknown parameter of dirichlet 'alhpa'; did you mean 'alpha'? (known: alpha, minimum)",
        ),
        (
            lambda: make_partition("diriclet"),
            "unknown partition 'diriclet'; did you mean 'dirichlet'? "
            "(known: dirichlet, dirichlet-classes, iid, natural, pathological)",
        ),
    ],
)
def test_wrong_parameters(make, message):
    with pytest.raises(FedchordError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize(
    "kind, num_clients, message",
    [
        (Iid(), 70000, "Iid: 70000 clients need at least 70000 rows, got 60000"),
        (Pathological(), 70000, "Pathological: 70000 clients need at least 140000 rows, got 60000"),
        (Dirichlet(1.0), 6001, "Dirichlet: 6001 clients need at least 60010 rows, got 60000"),
        (ClassDirichlet(1.0, 7), 10000, "ClassDirichlet: 10000 clients need at least 70000 rows, got 60000"),
        (Iid(), 0, "Iid: num_clients must be a whole number of at least 1, got 0"),
        (Natural(), 3, "Natural: the data have no client key to split by; name another split, such as split=iid"),
    ],
)
def test_more_clients_than_the_data_can_serve(kind, num_clients, message):
    with pytest.raises(FedchordError) as error:
        kind.assign(mnist_like(), num_clients, 10, 0, None)
    assert str(error.value) == message


def test_natural_with_nothing_left():
    with pytest.raises(FedchordError, match=r"^Natural: no client has at least 3 rows$"):
        Natural(3).assign(torch.zeros(2, dtype=torch.int64), 1, 1, 0, torch.tensor([0, 1]))


def test_every_partition_has_a_name():
    made = [make_partition(name, **({"alpha": 0.5} if "dirichlet" in name else {})) for name in PARTITIONS]
    assert made == [Iid(), Pathological(2), Dirichlet(0.5, 10), ClassDirichlet(0.5, 10), Natural()]


def test_lists_of_rows_are_the_same_however_they_are_made():
    lists = [torch.tensor([4, 1]), torch.tensor([], dtype=torch.int64), torch.tensor([7])]
    one, other = Ragged.of(lists), Ragged.cut(torch.tensor([4, 1, 7]), torch.tensor([2, 0, 1]))
    assert [part.tolist() for part in one] == [part.tolist() for part in other] == [[4, 1], [], [7]]
    assert torch.equal(one.offsets, other.offsets) and Ragged.of(one) is one and len(Ragged.of([])) == 0
