"""The ledger of sums against a plain dictionary."""

from __future__ import annotations

import random
import tracemalloc

import torch

from fedchord.engine.memory import load_tensors, save_tensors
from fedchord.mixing.online import ledger


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
    read, c = ledger.add(load_tensors(tmp_path / "x"), [9, 7], [1.0, 1.0])
    assert read == [1.25, 2.5] and plain(ledger.written(c)) == {2: 2.0, 7: 2.5, 9: 1.25}


def everything(state: dict[str, torch.Tensor]) -> dict[str, tuple[bytes, dict[str, object]]]:
    """A ledger with whatever hangs on its tensors."""
    return {name: (tensor.numpy().tobytes(), dict(tensor.__dict__)) for name, tensor in state.items()}


def test_no_table_loses_what_hangs_on_it():
    _, kept = ledger.add(ledger.empty(), [7, 2], [1.0, 2.0])
    before = everything(kept)
    ledger.add(kept, [7, 9], [0.5, 0.25])
    ledger.sums(kept, [7])
    assert everything(kept) == before


def test_lines_that_part_again_and_again_are_all_right():
    """A tree of ledgers: each grows from one drawn among all so far, over merges; oracle: a dictionary for each."""
    draw, tree = random.Random(5), [(ledger.empty(), {})]
    for step in range(600):
        kept, known = tree[-1] if step % 3 else draw.choice(tree)
        clients = draw.sample(range(300), draw.randint(1, 20))
        changes = [draw.gauss(0, 1) for _ in clients]
        assert ledger.sums(kept, clients) == [known.get(client, 0.0) for client in clients]
        after, new = ledger.add(kept, clients, changes)
        total = known | {client: known.get(client, 0.0) + by for client, by in zip(clients, changes, strict=True)}
        assert after == [total[client] for client in clients]
        tree.append((new, total))
    assert any(state["seen"].numel() for state, _ in tree)
    for state, total in draw.sample(tree, 100):
        assert plain(ledger.written(state)) == total


def test_a_second_use_costs_what_the_first_one_costs():
    """With 200,000 clients seen the tables are searched where they are; an index of them would take megabytes."""
    count = 200_000
    big = {"seen": torch.stack([torch.arange(count), torch.ones(count)]).double(), "late": ledger.empty()["late"]}

    def use() -> int:
        tracemalloc.start()
        assert ledger.add(big, [count - 1, count, 3], [1.0, 1.0, 1.0])[0] == [2.0, 1.0, 2.0]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    use()  # what is imported or made once
    assert use() < 50_000
