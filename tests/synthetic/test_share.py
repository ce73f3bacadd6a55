"""A synthetic set as training rows of clients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedchord.check import FedchordError
from fedchord.data.augment import Pictures
from fedchord.data.federation import Federation, Ragged
from fedchord.synthetic.set import SyntheticSet
from fedchord.synthetic.share import share

MADE = SyntheticSet(torch.linspace(0, 1, 6).reshape(6, 1), torch.arange(3).repeat_interleave(2), 0.0, 1.0, 3)


def federation(dtype: torch.dtype = torch.float32) -> Federation:
    """Client 0 has classes 0, 0, 0, 1; client 1 has 1, 2; client 2 has 0, 1, 1, 2, 2."""
    y = torch.tensor([0, 0, 0, 1, 1, 2, 0, 1, 1, 2, 2, 0])
    x = torch.linspace(0, 1, 12).reshape(12, 1)
    x = (x * 255).to(torch.uint8) if dtype == torch.uint8 else x
    train = Ragged.of([torch.arange(0, 4), torch.arange(4, 6), torch.arange(6, 11)])
    test = Ragged.of([torch.tensor([11]), torch.zeros(0).long(), torch.zeros(0).long()])
    return Federation("toy", {"x": x, "y": y}, 3, train, Ragged.of([torch.zeros(0).long()] * 3), test, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({"add": "all"}, [[0, 1, 2]] * 3),
        ({"add": "poor"}, [[], [0, 1, 2], []]),  # the median has 4 rows
        ({"add": "poor", "least": 5}, [[0, 1, 2], [0, 1, 2], []]),
        ({"add": "missing"}, [[1, 2], [0, 1, 2], [0]]),  # fewer than 2 rows of a class
        ({"add": "missing", "least": 1}, [[2], [0], []]),
    ],
)
def test_who_gets_which_rows(options, added):
    before = federation()
    after = share(before, MADE, **options)
    for client, classes in enumerate(added):
        own, now = before.train[client], after.train[client]
        assert torch.equal(now[: len(own)], own)
        labels = after.columns["y"][now[len(own) :]].tolist()
        assert labels == [label for label in classes for _ in range(2)]
        x = after.batch(now[len(own) :])["x"]
        assert torch.equal(x, MADE.x[[row for label in classes for row in (2 * label, 2 * label + 1)]])
    assert after.test is before.test and len(before.columns["y"]) == 12
    assert f"{sum(map(bool, added))} of 3 clients" in after.notes[-1]


def test_bytes_stay_bytes():
    after = share(federation(torch.uint8), MADE)
    assert after.columns["x"].dtype == torch.uint8
    assert torch.allclose(after.batch(after.train[1][2:])["x"], MADE.x, atol=0.5 / 255)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"add": "rich"}, "add must be one of all, poor, missing, got 'rich'"),
        ({}, {"add": "poor", "least": 1}, "no client is to get a row"),
        ({}, {"add": "poor", "least": 0}, "least must be a whole number of at least 1"),
        ({"classes": 4}, {}, "the set has 3 classes, toy has 4"),
        ({"columns": {"x": torch.rand(12, 2), "y": federation().columns["y"]}}, {}, r"samples have shape \(1,\)"),
        ({"columns": {**federation().columns, "mask": torch.ones(12)}}, {}, "has columns that the set has not"),
    ],
)
def test_what_does_not_fit_is_refused(change, options, message):
    with pytest.raises(FedchordError, match=message):
        share(replace(federation(), **change), MADE, **options)


def test_a_set_in_another_range_is_refused():
    wide = SyntheticSet(2 * MADE.x - 1, MADE.y, -1.0, 1.0, 3)
    with pytest.raises(FedchordError, match="both sets must be in the same range, got the lower ends -1 and 0"):
        share(federation(torch.uint8), wide)
    assert torch.equal(share(federation(), wide).columns["x"][-6:], wide.x)  # numbers: in the units of the rows


def test_float_pictures_are_compared_up_to_a_tenth_of_their_range():
    base = federation()
    pictures = replace(base, columns=base.columns | {"x": base.columns["x"].reshape(12, 1, 1, 1)})
    x = 0.9 * MADE.x.reshape(6, 1, 1, 1)
    share(pictures, SyntheticSet(x, MADE.y, -0.05, 0.95, 3))  # the rows lie in [0, 0.909]
    with pytest.raises(FedchordError, match=r"both sets must be in the same range, got the upper ends 2 and 0\.9"):
        share(pictures, SyntheticSet(x, MADE.y, 0.0, 2.0, 3))


def test_pictures_that_are_scaled_for_the_model_are_stored_as_before():
    base = federation()
    for dtype in (torch.uint8, torch.float32):
        x = federation(dtype).columns["x"].reshape(12, 1, 1, 1)
        shown = replace(base, columns=base.columns | {"x": x}, pictures=Pictures(0, (0.5,), (0.25,)))
        low, high = shown.inputs.low, shown.inputs.high
        made = SyntheticSet(-2 + 4 * MADE.x.reshape(6, 1, 1, 1), MADE.y, low, high, 3)
        after = share(shown, made)
        assert torch.allclose(after.batch(after.train[1][2:])["x"], made.x, atol=2 / 255 + 1e-6)
