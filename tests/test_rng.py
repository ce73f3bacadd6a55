import collections
import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from scipy import stats

from fedchord import rng


def test_bits_are_the_published_splitmix64_sequence():
    # outputs of the reference generator seeded with 0 and with 1234567
    for seed, expected in [
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]),
    ]:
        assert [value % 2**64 for value in rng.bits(seed, 3).tolist()] == expected


def test_keys_are_the_same_as_numbers_and_as_tensors():
    keys = [rng.key(5, "local", client, 3) for client in range(4)]
    as_tensor = rng.as_tensor(keys)
    folded = torch.func.vmap(lambda k: rng.fold(k, 7))(as_tensor)
    assert folded.tolist() == rng.as_tensor([rng.fold(k, 7) for k in keys]).tolist()
    drawn = torch.func.vmap(lambda k: rng.uniform(k, 5))(as_tensor)
    assert torch.equal(drawn, torch.stack([rng.uniform(k, 5) for k in keys]))
    orders = torch.func.vmap(lambda k: rng.permutation(k, 9))(as_tensor)
    assert torch.equal(orders, torch.stack([rng.permutation(k, 9) for k in keys]))
    noise = torch.func.vmap(lambda k: rng.normal(k, (3,)))(as_tensor)
    assert torch.allclose(noise, torch.stack([rng.normal(k, (3,)) for k in keys]), atol=1e-6)


def test_keys_differ_by_every_part():
    seen = [
        rng.key(seed, purpose, client, round)
        for seed, purpose, client, round in itertools.product(range(3), ("a", "b"), range(5), range(5))
    ]
    assert len(set(seen)) == len(seen)
    assert rng.key(0, "a", 1, 2) != rng.key(0, "a", 2, 1)


def test_uniform_and_normal_have_their_distributions():
    assert stats.kstest(rng.uniform(3, 20_000).numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(rng.normal(4, (20_001,)).numpy(), "norm").pvalue > 1e-3
    pairs = rng.normal(5, (2, 20_000))
    assert abs(float((pairs[0] * pairs[1]).mean())) < 0.03
    assert float(rng.uniform(1, 100_000).max()) < 1.0


def test_permutation_is_a_permutation_and_fair():
    assert sorted(rng.permutation(9, 100).tolist()) == list(range(100))
    counts = collections.Counter(tuple(rng.permutation(rng.key(0, "p", i), 3).tolist()) for i in range(6000))
    assert len(counts) == 6
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_choose_takes_every_subset_equally_often():
    counts = collections.Counter(tuple(rng.choose(rng.key(0, "c", i), 5, 2)) for i in range(10_000))
    assert set(counts) == set(itertools.combinations(range(5), 2))
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize(("population", "size"), [(1, 1), (7, 7), (1_500_000, 10)])
def test_choose_sizes(population, size):
    chosen = rng.choose(11, population, size)
    assert len(set(chosen)) == size and chosen == sorted(chosen) and chosen[0] >= 0 and chosen[-1] < population


def test_seeded_restores_the_global_generator():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with rng.seeded(rng.key(0, "x")):
        first = torch.rand(2)
    assert torch.equal(torch.rand(3), expected)
    with rng.seeded(rng.key(0, "x")):
        assert torch.equal(torch.rand(2), first)


def test_generator_is_a_function_of_the_key():
    assert rng.generator(5).random() == rng.generator(5).random() != rng.generator(6).random()


def test_long_draws_are_the_same_as_numbers_and_as_tensors():
    for n in (4095, 4096, 4097, 10_000):
        assert torch.equal(rng.bits(77, n), rng.bits(torch.tensor(77), n))


def test_threads_that_draw_from_the_global_generator_wait_for_each_other():
    """Twelve runs of a module that draws, in six threads: each has the numbers of its own key."""

    def drawn(key: int) -> torch.Tensor:
        found = []
        with rng.seeded(key):
            for _ in range(50):
                found.append(torch.rand(20))
                time.sleep(0)  # another thread may go on here
        return torch.cat(found)

    before = torch.get_rng_state()
    alone = [drawn(key) for key in range(12)]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(drawn, range(12)))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    assert torch.equal(before, torch.get_rng_state())
