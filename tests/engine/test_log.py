"""What clients write down: means and sums over the cohort, without those that have nothing to tell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import pytest
import torch
from helpers.federations import make_federation

from fedchord.core.rules import Algorithm, ClientRule, Log
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.simulate import simulate
from fedchord.mixing.static import BySize, Uniform
from fedchord.models import TwoNN
from fedchord.servers.step import Step

FEDERATION = make_federation([13, 20, 7, 31, 10])
NAN = math.nan


@pytest.mark.parametrize(
    ("rows", "mean", "total"),
    [
        ([1.0, 2.0, 6.0], 3.0, 9.0),
        ([1.0, NAN, 6.0], 3.5, 7.0),
        ([NAN, NAN, -4.0], -4.0, -4.0),
        ([0.0, NAN, 0.0], 0.0, 0.0),
        ([NAN, NAN, NAN], NAN, NAN),
        ([1.0, math.inf, NAN], math.inf, math.inf),
    ],
)
def test_nan_is_left_out_and_nothing_but_nan_is_nan(rows, mean, total):
    log = Log(means={"a": torch.tensor(rows)}, sums={"b": torch.tensor(rows)})
    assert log.over_cohort() == pytest.approx({"a": mean, "b": total}, nan_ok=True)


def test_no_entries_are_no_numbers():
    assert Log().over_cohort() == {}


@final
@dataclass(frozen=True)
class Telling(ClientRule):
    """Plain training; even clients tell their number, nobody tells `none`, all tell their size."""

    def finish(self, trained, visit):
        upload, own = ClientRule.finish(self, trained, visit)
        number = visit.client + torch.zeros(())
        even = torch.where(number % 2 == 0, number, NAN)
        means = {"even": even, "none": torch.full((), NAN), "size": visit.size + torch.zeros(())}
        sums = {"evens": even, "nones": torch.full((), NAN), "rows": visit.size + torch.zeros(())}
        return type(upload)(upload.mix, upload.carry, log=Log(means, sums)), own


@pytest.mark.parametrize("executor", ["serial", "processes", "vectorised"])
@pytest.mark.parametrize("mixing", [BySize(), Uniform()])  # weights of the mix do not matter here
def test_logged_numbers_are_in_the_results_and_nowhere_else(executor, mixing):
    settings = {"rounds": 3, "cohort": 3, "seed": 2, "training": Training(batch=4), "executor": executor, "workers": 2}
    task, plain = Task(lambda: TwoNN(6, 5, 3)), Algorithm(ClientRule(), mixing, Step())
    silent = list(simulate(plain, task, FEDERATION, **settings))
    for result, without in zip(
        simulate(Algorithm(Telling(), mixing, Step()), task, FEDERATION, **settings), silent, strict=True
    ):
        even, sizes = [i for i in result.cohort if i % 2 == 0], [len(FEDERATION.train[i]) for i in result.cohort]
        assert even
        expected = {"even": sum(even) / len(even), "none": NAN, "size": sum(sizes) / 3}
        expected |= {"evens": sum(even), "nones": NAN, "rows": sum(sizes)}
        assert result.log == pytest.approx(expected, nan_ok=True)
        assert result.memory.clients() == [] and without.log == {}
        assert (result.bytes_up, result.bytes_down) == (without.bytes_up, without.bytes_down)
        assert torch.equal(result.state.broadcast["theta"], without.state.broadcast["theta"])
