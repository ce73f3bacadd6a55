"""Other devices than the CPU, on tensors without memory (`meta`): whatever looks at a value, or brings a tensor to the
CPU on the way, fails there, and so does an operation whose tensors lie on two devices. What goes to the device is
counted."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from fedchord import catalog
from fedchord.core import fused
from fedchord.core.round import Results, advance, open_round, open_run
from fedchord.core.rules import ClientRule, Mix
from fedchord.engine.work import Work
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts
from fedchord.models import TwoNN

META = torch.device("meta")


@pytest.fixture(autouse=True)
def standing_in(monkeypatch):
    """torch has no shape rule for its fused steps."""
    monkeypatch.setattr(fused, "sgd", fused._sgd)


def visited(*settings: str, clients: int = 5):
    """A client's visit on the other device: the work, the state there, what was uploaded and what is kept."""
    parts = Parts.build(RunConfig.from_pairs(["data=digits", f"clients={clients}", *settings]))
    plan = parts.config.plan()
    state = open_run(parts.algorithm, parts.task, clients, plan)
    info, ids = open_round(state, plan, parts.work.training)
    work = replace(parts.work, federation=parts.federation.to(META), task=parts.task.to(META))
    state = state.to(META)
    upload, own, _ = work.run(ids[0], state.broadcast, None, info)
    return work, state, info, upload, own


@pytest.mark.parametrize("method", sorted(catalog.METHODS))
def test_a_step_of_every_method_stays_on_its_device(method):
    work, state, info, upload, own = visited(f"method={method}")
    parts = (upload.mix, upload.carry, upload.mean, own)
    assert all(tensor.device.type == "meta" for part in parts for tensor in part.values())
    if work.algorithm.outcome == "samples":  # the server looks once a round whether its samples are finite
        return
    stacked = [{name: torch.stack([tensor] * 3) for name, tensor in part.items()} for part in parts[:3]]
    results = Results(torch.arange(3), torch.ones(3), stacked[0], stacked[1], stacked[2])
    third = torch.full((3,), 1 / 3, dtype=torch.float64)
    broadcast, _ = advance(work.algorithm, work.task, state, results, Mix(third, third), info)
    assert all(tensor.device.type == "meta" for tensor in broadcast.values())


@pytest.mark.parametrize("model", ["logreg", "twocnn", "smallconv", "resnet10:8"])
def test_every_kind_of_model_stays_on_its_device(model):
    _, _, _, upload, _ = visited(f"model={model}", "momentum=0.9", "weight_decay=0.01", "clip=1.0")
    assert upload.mix["theta"].device.type == "meta"


LOOKS = {
    "item": lambda tensor: tensor.norm().item(),
    "cpu": lambda tensor: tensor.cpu(),
    "to": lambda tensor: tensor.to("cpu"),
    "numpy": lambda tensor: tensor.detach().numpy(),
    "tolist": lambda tensor: tensor.tolist(),
    "float": lambda tensor: float(tensor.sum()),
    "bool": lambda tensor: bool((tensor > 0).all()),
    "nonzero": lambda tensor: tensor.nonzero(),
    "masked": lambda tensor: tensor[tensor > 0],
    "format": lambda tensor: f"{tensor.sum():.3f}",
}


def look_at_slopes(monkeypatch, look):
    plain = ClientRule.direction

    def curious(self, trained, visit, batch, key):
        slope = plain(self, trained, visit, batch, key)
        look(slope["theta"] if torch.is_tensor(slope["theta"]) else slope["theta"][0])
        return slope

    monkeypatch.setattr(ClientRule, "direction", curious)


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_a_value_in_a_step_is_noticed(monkeypatch, look):
    """A negative control of the tests above: whatever brings a value to the CPU is an error there."""
    look_at_slopes(monkeypatch, LOOKS[look])
    with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
        visited("method=fedavg", "model=smallconv")


def test_a_look_in_a_model_and_at_the_end_of_a_visit_is_noticed(monkeypatch):
    forward, finish = TwoNN.forward, ClientRule.finish
    with monkeypatch.context() as patch:
        patch.setattr(TwoNN, "forward", lambda self, x: forward(self, x) / x.max().item())
        with pytest.raises((RuntimeError, NotImplementedError)):
            visited("method=fedprox", "model=twonn")
    with monkeypatch.context() as patch:
        patch.setattr(ClientRule, "finish", lambda *given: (given[1]["theta"].tolist(), finish(*given))[1])
        with pytest.raises((RuntimeError, NotImplementedError)):
            visited("method=fedavg")


# -- the other way, to the device: no error, so it is counted ----------------------------------------------------------


class Crossings(TorchDispatchMode):
    """Counts operations that see two devices, by the file of ours that asked for them."""

    def __init__(self) -> None:
        super().__init__()
        self.places: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        tensors = [t for t in tree_flatten((args, kwargs, found))[0] if isinstance(t, torch.Tensor)]
        if len({tensor.device for tensor in tensors}) > 1:
            frame = sys._getframe()
            while frame is not None and not frame.f_globals.get("__name__", "").startswith("fedchord."):
                frame = frame.f_back
            self.places["elsewhere" if frame is None else frame.f_globals["__name__"]] += 1
        return found


def crossings(batch: int, *settings: str) -> Counter[str]:
    """The crossings of a visit of one epoch over about 28 rows, by place."""
    mode = Crossings()
    run = Work.run

    def watched(self, *given, **more):
        with mode:
            return run(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Work, "run", watched)
        visited(f"batch={batch}", *settings, clients=50)
    return mode.places


def by_rule(outcome: str) -> list[str]:
    """A method for every client rule."""
    made = {name: catalog.build(name) for name in sorted(catalog.METHODS)}
    return list({type(a.client): name for name, a in made.items() if a.outcome == outcome}.values())


@pytest.mark.parametrize("method", by_rule("model"))
def test_nothing_goes_to_the_device_in_a_step(method):
    """Row numbers go there once in an epoch, whole; so there are as many crossings in 3 steps as in 6."""
    few, many = crossings(10, f"method={method}"), crossings(5, f"method={method}")
    assert few == many and 0 < few.total() < 20


@pytest.mark.parametrize("method", ["fedcvae", "fedevg"])
def test_random_numbers_alone_go_to_the_device_in_a_step_of_a_generative_rule(method):
    """They are drawn on the CPU, so that every device has the same."""
    found = crossings(14, f"method={method}")
    assert found.keys() <= {f"fedchord.{name}" for name in ("clients.energy", "core.task", "data.federation", "rng")}
    assert found["fedchord.rng"] > 1


def test_a_number_made_on_the_cpu_in_every_step_is_noticed(monkeypatch):
    """A negative control of the count."""
    look_at_slopes(monkeypatch, lambda tensor: tensor * torch.ones(1).to(tensor.device))
    few, many = (crossings(batch, "method=fedavg", "model=smallconv") for batch in (10, 5))
    assert many.total() - few.total() == 3
