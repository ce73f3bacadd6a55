"""Numbers by client: like a vector that is copied at every change, without the copying."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedchord.core.per_client import PIECE, PerClient


@given(
    count=st.integers(1, 3 * PIECE),
    rounds=st.lists(st.lists(st.integers(0, 3 * PIECE), max_size=5, unique=True), max_size=4),
)
def test_it_is_a_vector_that_is_copied_at_every_change(count, rounds):
    visits, counted = PerClient.filled(count, 0, torch.int32), PerClient.filled(count, -1, torch.int64)
    plain, last, seen = torch.zeros(count, dtype=torch.int32), torch.full((count,), -1), []
    for number, ids in enumerate(rounds):
        ids = [client for client in ids if client < count]
        seen.append((visits, visits.tolist()))
        visits, counted = visits.added(ids, 1), counted.replaced(ids, number)
        plain[ids] += 1
        last[ids] = number
        assert torch.equal(visits.tensor(), plain) and torch.equal(counted.tensor(), last)
        assert [visits[client] for client in ids] == plain[ids].tolist()
    assert all(before.tolist() == values for before, values in seen)  # nothing was changed in place
    assert torch.equal(PerClient.of(plain).tensor(), plain) and len(visits) == count


def test_a_change_copies_the_pieces_it_touches_alone():
    before = PerClient.filled(5 * PIECE, 0, torch.int32)
    after = before.added([1, 2, 3 * PIECE], 1)
    assert len({id(piece) for piece in before._pieces}) == 1  # of a million that nobody visited there is one
    same = [new is old for new, old in zip(after._pieces, before._pieces, strict=True)]
    assert same == [False, True, True, False, True]


def test_there_are_no_other_clients():
    for client in (-1, 3):
        with pytest.raises(IndexError, match=f"no client {client} of 3"):
            PerClient.filled(3, 0, torch.int32)[client]
    assert PerClient.filled(0, 0, torch.int32).tolist() == []
