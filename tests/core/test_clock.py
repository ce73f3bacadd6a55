"""The clock that tells where time goes: inner work counts once, and nothing is wrapped where nobody asks."""

from __future__ import annotations

import pytest

from fedchord.core import clock
from fedchord.core.clock import DATA, MODEL, OTHER, UPDATE


def ticking(monkeypatch, *times: float) -> None:
    """Let the clock read these times one after another."""
    left = iter(times)
    monkeypatch.setattr(clock, "perf_counter", lambda: next(left))


def test_where_nobody_asks_nothing_is_wrapped():
    items = iter([1])
    assert clock.running() is None
    assert clock.timed(DATA, len) is len and clock.over(DATA, items) is items
    with clock.span(DATA):
        pass


def test_work_within_other_work_counts_as_the_inner_kind(monkeypatch):
    with clock.watch() as seen:
        ticking(monkeypatch, 10, 11, 12, 15, 19, 30)
        update = clock.timed(UPDATE, lambda: None)  # 12 to 15

        def model() -> None:  # 11 to 19
            update()

        with clock.span(OTHER):  # 10 to 30
            clock.timed(MODEL, model)()
    assert {kind: value for kind, value in seen.seconds.items() if value} == {UPDATE: 3, MODEL: 5, OTHER: 12}
    assert seen.spans == [(UPDATE, 12, 15), (MODEL, 11, 19), (OTHER, 10, 30)]
    assert clock.running() is None


def test_an_iterator_counts_what_it_takes_to_get_its_items(monkeypatch):
    with clock.watch() as seen:
        ticking(monkeypatch, 0, 1, 5, 7, 20, 20.5)
        assert list(clock.over(DATA, iter("ab"))) == ["a", "b"]
    assert seen.seconds[DATA] == 1 + 2 + 0.5


def test_what_fails_is_counted_and_goes_on():
    with clock.watch() as seen:
        with pytest.raises(ZeroDivisionError):
            clock.timed(MODEL, lambda: 1 / 0)()
        with clock.span(DATA):
            pass
    assert [kind for kind, _, _ in seen.spans] == [MODEL, DATA]


def test_spans_are_limited_and_sums_are_not(monkeypatch):
    monkeypatch.setattr(clock, "MOST_SPANS", 2)
    with clock.watch() as seen:
        ticking(monkeypatch, *range(6))
        for _ in range(3):
            with clock.span(DATA):
                pass
        seen.add(0, ({**seen.seconds, MODEL: 4.0}, [(MODEL, 0, 4)] * 3, 1))
    assert (len(seen.spans), seen.left_out, seen.seconds[DATA]) == (2, 1, 3)
    assert (len(seen.others[0].spans), seen.others[0].left_out, seen.others[0].seconds[MODEL]) == (2, 2, 4)
