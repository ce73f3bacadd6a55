"""Other devices than the CPU, on tensors without memory (`meta`): whatever looks at a value, or brings a tensor to the
CPU on the way, fails there, and so does an operation whose tensors lie on two devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedchord import catalog
from fedchord.core import fused
from fedchord.core.round import Results, advance, open_round, open_run
from fedchord.core.rules import ClientRule, Mix
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts

META = torch.device("meta")


@pytest.fixture(autouse=True)
def standing_in(monkeypatch):
    """torch has no shape rule for its fused steps."""
    monkeypatch.setattr(fused, "sgd", fused._sgd)


def visited(*settings: str):
    """A client's visit on the other device: the work, the state there, what was uploaded and what is kept."""
    parts = Parts.build(RunConfig.from_pairs(["data=digits", "clients=5", *settings]))
    plan = parts.config.plan()
    state = open_run(parts.algorithm, parts.task, 5, plan)
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


@pytest.mark.parametrize("look", [lambda slope: slope.norm().item(), lambda slope: slope.cpu(), bool])
def test_a_look_at_a_value_in_a_step_is_noticed(monkeypatch, look):
    plain = ClientRule.direction

    def curious(self, trained, visit, batch, key):
        slope = plain(self, trained, visit, batch, key)
        look(slope["theta"] if torch.is_tensor(slope["theta"]) else slope["theta"][0])
        return slope

    monkeypatch.setattr(ClientRule, "direction", curious)
    with pytest.raises((RuntimeError, NotImplementedError)):
        visited("method=fedavg", "model=twocnn")
