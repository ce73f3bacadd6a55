"""One client's rows alone: nobody else's are there, and every bit of that client's round is as in the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.federations import make_federation

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.core.rules import Phase
from fedchord.core.stream import ClientStream
from fedchord.data import from_arrays
from fedchord.data.alone import alone, impersonal, seated
from fedchord.data.augment import Pictures
from fedchord.data.build import federate
from fedchord.data.federation import Federation
from fedchord.data.partition import Natural
from fedchord.data.ragged import Ragged


def varied() -> Federation:
    """Three clients of pictures that are varied in training."""
    x = torch.randint(0, 256, (40, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    train = Ragged.of(torch.arange(40).split([9, 20, 11]))
    nothing = Ragged.of([torch.zeros(0, dtype=torch.int64)] * 3)
    shown = Pictures(side=8, mirror=True, shift=True)
    return Federation(
        "varied", {"x": x, "y": torch.arange(40) % 2}, 2, train, nothing, nothing, ("a", "b", "c"), pictures=shown
    )


def batches(federation: Federation, client: int):
    return list(ClientStream(federation, client, 4, rng.key(3, "batches", client, 0)).batches(0, Phase(epochs=2)))


@pytest.mark.parametrize("client", [0, 1, 2])
def test_batches_are_those_of_the_whole_pictures_varied_alike(client):
    whole = varied()
    own = alone(whole, client)
    assert own.num_clients == 3 and len(own.columns["y"]) == len(whole.train[client])
    for mine, theirs in zip(batches(own, client), batches(whole, client), strict=True):
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    if client:  # without the rows' numbers in the whole they would be varied otherwise
        other = batches(replace(own, numbers=None), client)
        assert any(not torch.equal(a["x"], b["x"]) for a, b in zip(other, batches(whole, client), strict=True))


def test_the_rows_of_others_are_not_there():
    whole = make_federation([5, 7, 3])
    own = alone(whole, 1)
    assert own.train.sizes.tolist() == [0, 7, 0] and own.test.sizes.tolist() == [0, 4, 0]
    rows = torch.cat([whole.train[1], whole.test[1]])
    assert torch.equal(own.columns["x"], whole.columns["x"][rows])
    assert torch.equal(own.columns["x"][own.test[1]], whole.columns["x"][whole.test[1]])
    with pytest.raises(FedchordError, match="there is no client 3"):
        alone(whole, 3)


def test_a_client_that_splits_and_scales_its_own_rows_finds_what_it_finds_among_all():
    draw = torch.Generator().manual_seed(2)
    x, y = torch.randn(60, 4, generator=draw), torch.arange(60) % 3
    clients = ["a"] * 17 + ["b"] * 24 + ["c"] * 19
    whole = federate(from_arrays(x, y, clients, scale="client"), Natural(), validation=0.1, seed=5)
    b = from_arrays(x[17:41], y[17:41], ["b"] * 24, classes=3, scale="client")
    own = seated(federate(b, Natural(), validation=0.1, seed=5, first=1), 1, whole.client_names)
    for part in ("train", "validation", "test"):
        mine, theirs = own.part(part)[1], whole.part(part)[1]
        assert len(theirs) > 1
        assert torch.equal(own.columns["x"][mine], whole.columns["x"][theirs])
        assert torch.equal(own.columns["y"][mine], whole.columns["y"][theirs])
    assert torch.equal(own.scaling.mean[1], whole.scaling.mean[1]) and own.scaling.mean[[0, 2]].isnan().all()
    first = federate(b, Natural(), validation=0.1, seed=5)  # as client 0 it would split otherwise
    assert not torch.equal(first.test[0], own.test[1])


def test_what_all_may_know_says_nothing_about_one_client():
    x, y = torch.randn(30, 2), torch.arange(30) % 2
    whole = federate(from_arrays(x, y, ["a"] * 10 + ["b"] * 20, scale="client"), Natural())
    known = impersonal(whole)
    assert known.scaling.mean.isnan().all() and known.scaling.std.isnan().all() and known.notes == ()
    assert torch.equal(known.scaling.pooled, whole.scaling.pooled)
