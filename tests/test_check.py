import math

import pytest

from fedchord import check
from fedchord.check import FedchordError


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: check.between("SuPerFed", "warmup", 40, 0, 1), "SuPerFed: warmup must be between 0 and 1, got 40"),
        (lambda: check.whole("run", "rounds", 0, 1), "run: rounds must be a whole number of at least 1, got 0"),
        (lambda: check.whole("run", "rounds", True), "run: rounds must be a whole number of at least 0, got True"),
        (lambda: check.positive("A", "lr", 0), "A: lr must be above 0, got 0"),
        (lambda: check.number("A", "lr", math.nan), "A: lr must be a finite number, got nan"),
        (lambda: check.number("A", "lr", "x"), "A: lr must be a finite number, got 'x'"),
        (lambda: check.below("A", "b", 1, 1), "A: b must be at least 0 and below 1, got 1"),
        (lambda: check.at_least("A", "mu", -1, 0), "A: mu must be at least 0, got -1"),
        (lambda: check.one_of("A", "kind", "z", ("x", "y")), "A: kind must be one of x, y, got 'z'"),
        (lambda: check.whole("A", "x", 11, 0, 10), "A: x must be at most 10, got 11"),
    ],
)
def test_wording(call, line):
    with pytest.raises(FedchordError) as error:
        call()
    assert str(error.value) == line


def test_good_values_pass_through():
    assert check.between("A", "x", 1, 0, 1) == 1.0
    assert check.whole("A", "x", 3) == 3
    assert check.one_of("A", "x", "y", ("x", "y")) == "y"


def test_unknown_names_the_nearest_match():
    line = str(check.unknown("method", "fedporx", ["fedavg", "fedprox"]))
    assert line == "unknown method 'fedporx'; did you mean 'fedprox'? (known: fedavg, fedprox)"
    assert "did you mean" not in str(check.unknown("method", "zzzzzz", ["fedavg"]))
    assert "did you mean 'SuPerFed'" in str(check.unknown("label", "superfd", ["FedAvg", "SuPerFed"]))
    assert "did you mean 'fedavg'" in str(check.unknown("method", "FedAvg", ["fedavg"]))
