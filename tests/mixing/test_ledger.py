"""The ledger of sums against a plain dictionary."""

from __future__ import annotations

import random

import torch

from fedchord.engine.memory import load_tensors, save_tensors
from fedchord.mixing import ledger


def plain(table) -> dict[int, float]:
    return dict(zip(map(int, table[0]), table[1].tolist(), strict=True))


def test_sums_are_those_of_a_dictionary():
    """Over many merges; and a ledger that was given stays as it was."""
    draw, kept, known, merges = random.Random(3), ledger.empty(), {}, 0
    for _ in range(400):
        clients = draw.sample(range(2000), draw.randint(1, 12))
        changes = [draw.gauss(0, 1) for _ in clients]
        before = {name: tensor.clone() for name, tensor in kept.items()}
        after, new = ledger.add(kept, clients, changes)
        assert all(torch.equal(before[name], tensor) for name, tensor in kept.items())
        for client, change, total in zip(clients, changes, after, strict=True):
            known[client] = known.get(client, 0.0) + change
            assert total == known[client]
        merges += not new["late"].numel()
        kept = new
    assert plain(ledger.written(kept)) == known and merges > 4
    assert (kept["seen"][0].diff() > 0).all() and kept["late"].shape[1] <= max(256, 4 * 2000**0.5)


def test_a_ledger_can_be_used_twice_and_read_back(tmp_path):
    _, kept = ledger.add(ledger.empty(), [7, 2], [1.0, 2.0])
    first, a = ledger.add(kept, [7, 9], [0.5, 0.25])
    second, b = ledger.add(kept, [2, 9], [1.0, -1.0])
    assert (first, second) == ([1.5, 0.25], [3.0, -1.0])
    assert plain(ledger.written(a)) == {2: 2.0, 7: 1.5, 9: 0.25} and plain(ledger.written(b)) == {
        2: 3.0,
        7: 1.0,
        9: -1.0,
    }
    save_tensors(tmp_path / "x", a)
    again, c = ledger.add(load_tensors(tmp_path / "x"), [9, 7], [1.0, 1.0])
    assert again == [1.25, 2.5] and plain(ledger.written(c)) == {2: 2.0, 7: 2.5, 9: 1.25}
