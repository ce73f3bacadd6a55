"""What every entry of the catalogue must do. A new method is tested by being listed."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import fedchord
from fedchord import catalog
from fedchord.clients.plain import Plain
from fedchord.core.rules import Algorithm, ClientRule, MixingRule
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data import Iid, federate, load
from fedchord.engine.simulate import simulate
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.mixing.liars import Liars
from fedchord.mixing.static import BySize
from fedchord.models import TwoNN
from fedchord.servers.step import Step
from fedchord.testing import Contract, Named
from fedchord.testing.contract import assert_same

METHODS = sorted(catalog.METHODS)


class TestCatalogue(Contract):
    """The contract, for every method by name."""

    @pytest.fixture(autouse=True, params=METHODS)
    def named(self, request):
        self.name = request.param

    test_clients_apart_agree_bit_for_bit = None  # with evaluation and sweep: tests/remote/test_every_method.py

    def algorithm(self) -> Algorithm:
        return Named(self.name).algorithm()


class Composed(Contract):
    """The contract of one algorithm."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.made = algorithm

    def algorithm(self) -> Algorithm:
        return self.made


@dataclasses.dataclass
class Loose(ClientRule):
    """A rule that can be changed."""

    strength: float = 0.1


@dataclasses.dataclass(frozen=True)
class Global(ClientRule):
    """A rule that draws from torch's own generator."""

    def finish(self, trained, visit):
        upload, kept = Plain().finish(trained, visit)
        noise = torch.rand(())
        return dataclasses.replace(upload, mix={"theta": upload.mix["theta"] + noise}), kept


@dataclasses.dataclass(frozen=True)
class Hasty(ClientRule):
    """A rule whose steps are shorter the more rounds there are, and does not say so."""

    def finish(self, trained, visit):
        upload, kept = Plain().finish(trained, visit)
        return dataclasses.replace(upload, mix={"theta": upload.mix["theta"] * (1 - visit.info.progress)}), kept


@dataclasses.dataclass(frozen=True)
class Remembering(ClientRule):
    """A rule that keeps a client's visits in a place of its own instead of in the client's memory."""

    VISITS: ClassVar[dict[int, int]] = {}

    def finish(self, trained, visit):
        upload, kept = Plain().finish(trained, visit)
        self.VISITS[visit.client] = self.VISITS.get(visit.client, 0) + 1
        return dataclasses.replace(upload, mix={"theta": upload.mix["theta"] / self.VISITS[visit.client]}), kept


@pytest.mark.parametrize("name", ["superfed-mm", "aaggff-p"])
def test_clients_apart_are_part_of_the_contract(name, tmp_path):
    Composed(catalog.build(name)).test_clients_apart_agree_bit_for_bit(tmp_path)


def test_a_rule_that_breaks_the_contract_is_found(tmp_path):
    with pytest.raises(AssertionError, match="broadcast theta"):
        Composed(Algorithm(Remembering(), BySize(), Step())).test_clients_apart_agree_bit_for_bit(tmp_path)
    with pytest.raises(AssertionError, match=r"Loose.strength can be changed: make the dataclass frozen"):
        Composed(Algorithm(Loose(), BySize(), Step())).test_rules_are_frozen_records()
    with pytest.raises(AssertionError):
        Composed(Algorithm(Global(), BySize(), Step())).test_serial_and_processes_agree_bit_for_bit()
    with pytest.raises(AssertionError):
        Composed(Algorithm(Hasty(), BySize(), Step())).test_a_longer_run_begins_as_a_shorter_one()


@pytest.mark.parametrize("name", METHODS)
def test_who_asks_for_the_number_of_rounds_says_so(name):
    """`horizon` is there where the second of two rounds differs from the second of five, and nowhere else."""
    composed = Composed(catalog.build(name))
    assert bool(composed.made.horizon) == (name.startswith(("superfed", "fedevg")))
    if composed.made.horizon:
        with pytest.raises(AssertionError):
            assert_same(composed.run(rounds=2), composed._second(5))


def test_a_horizon_that_is_fixed_is_none():
    late, early, never = {"start_round": 1}, {"warmup": 0}, {"warmup": 1}
    level = {"beta_end": 0.1, "repel_end": 0.15}
    cases = [("superfed-mm", late), ("superfed-lm", early), ("superfed-mm", never), ("superfed-stateless", late)]
    for name, fixed in [*cases, ("fedevg", level)]:
        composed = Composed(catalog.build(name, fixed))
        assert composed.made.horizon == "", (name, fixed)
        composed.test_a_longer_run_begins_as_a_shorter_one()
    told = catalog.build("superfed-mm").horizon
    assert told == "starts to mix at a share of all rounds (method.warmup)"
    lower = "lowers its steps until the last round (method.beta_end, method.repel_end)"
    assert catalog.build("fedevg").horizon == lower
    assert catalog.build("fedevg-thesis").horizon == "lowers its steps until the last round (method.beta_end)"
    lying = Liars(Asking())
    assert Algorithm(Plain(), lying, Step()).horizon == "counts down"


@dataclasses.dataclass(frozen=True)
class Asking(MixingRule):
    """A mixing rule that asks for the number of all rounds, and says so."""

    needs: ClassVar[frozenset[str]] = frozenset({"loss"})
    horizon: ClassVar[str] = "counts down"


@pytest.mark.parametrize("name", METHODS)
def test_learns_something(name):
    """On real digits a short run brings the deployed models well above guessing (0.1)."""
    if catalog.build(name).outcome == "samples":
        pytest.skip("the outcome is a data set")
    digits = federate(load("digits"), Iid(), 5, seed=1)
    training = Training(epochs=3, batch=10, lr=0.1)
    settings = {"rounds": 12, "seed": 1, "training": training, "executor": "serial"}
    *_, last = simulate(catalog.build(name), Task(lambda: TwoNN(64, 30, 10)), digits, **settings)
    assert evaluate(Fitted.of(last)).mean("top1") > 0.5


@pytest.mark.parametrize("mixing", sorted(catalog.MIXINGS))
@pytest.mark.parametrize("server", sorted(catalog.SERVERS))
def test_every_composition_runs(mixing, server):
    algorithm = catalog.build("fedprox", mixing=mixing, server=server)
    assert torch.isfinite(Composed(algorithm).run(rounds=2).state.broadcast["theta"]).all()


# -- what rules leave to the engine -------------------------------------------------------------------------------

INNER = {"traced", "dense", "scratch", "grad_parts"}
"""How a task computes; of the client side, kernels alone may ask."""
CLIENTS = sorted(Path(fedchord.__file__).parent.joinpath("clients").glob("*.py"))


def inner(path: Path) -> list[str]:
    """The attributes and names by which a file reaches for how a task computes."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        named = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
        if isinstance(node, ast.Attribute | ast.Constant) and isinstance(named, str) and named in INNER:
            found.append(f"{path.name}:{node.lineno} {named}")
    return found


def test_a_rule_does_not_know_how_its_task_computes():
    """Every client rule of the catalogue stands in a file that never reads how its task is computed."""
    files = {path.stem for path in CLIENTS if not path.stem.endswith("_kernel")}
    homes = {type(catalog.build(name).client).__module__.rpartition(".")[2] for name in METHODS}
    assert homes <= files
    assert [line for path in CLIENTS if path.stem in files for line in inner(path)] == []
    assert any(inner(path) for path in CLIENTS if path.stem not in files)  # the search finds what there is
