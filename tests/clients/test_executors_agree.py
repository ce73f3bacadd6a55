"""Every personal method, also with BatchNorm and away from its defaults, in every executor."""

from __future__ import annotations

import pytest
from helpers import oracle
from helpers.oracle import DENSE, SETTINGS, assert_same

from fedchord.check import FedchordError

VARIANTS = {
    "lg-fedavg": {"head": "hidden1,head"},
    "fedper": {"head": "hidden2,head"},
    "fedrep": {"head_epochs": 1, "body_epochs": 2},
    "apfl": {"adaptive": True, "alpha_lr": 0.2},
    "pfedme": {"beta": 0.5, "inner_lr": 0.05, "lam": 2.0},
    "ditto": {"own_epochs": 1, "lam": 0.5},
    "fedavg-ft": {"form": "last"},
    "superfed-mm": {"start_round": 1, "mu": 0.0, "nu": 3.0},
    "superfed-lm": {"start_round": 0, "mu": 0.3},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_serial_and_processes_agree_with_batchnorm(name):
    setting, algorithm = SETTINGS["batchnorm"], oracle.build(name)
    runs = [oracle.last(algorithm, setting, executor=e, workers=2) for e in ("serial", "processes")]
    assert_same(*runs, tolerance=0.0)
    holder = runs[0].memory.get(runs[0].memory.clients()[0]) if name == "lg-fedavg" else runs[0].state.broadcast
    assert holder["buffers"].numel() == 11  # LG-FedAvg keeps the body, and with it the statistics


@pytest.mark.parametrize("name", VARIANTS)
def test_all_executors_agree_away_from_the_defaults(name):
    algorithm = oracle.build(name, **VARIANTS[name])
    serial = oracle.last(algorithm, DENSE)
    assert_same(serial, oracle.last(algorithm, DENSE, executor="processes", workers=2), tolerance=0.0)
    assert_same(serial, oracle.last(algorithm, DENSE, executor="vectorised"), tolerance=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
def test_batchnorm_cannot_be_vectorised_and_advice_is_given(name):
    with pytest.raises(FedchordError, match=r"norm \(BatchNorm1d\).*GroupNorm has none") as error:
        oracle.last(name, SETTINGS["batchnorm"], executor="vectorised")
    assert "\n" not in str(error.value)
