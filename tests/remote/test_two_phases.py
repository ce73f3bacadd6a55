"""Losses first, then weights, then sums of what clients have weighed themselves."""

from __future__ import annotations

import pytest
import torch
from helpers.remote import FEDERATION, OPEN, QUICK, SECRET, direct, plan_of, simulated, states

from fedchord.check import FedchordError
from fedchord.engine.weather import Weather
from fedchord.remote.asking import Service
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.serve import serve
from fedchord.remote.transport import Answers

TWO = Service(5.0, wait=0.0, phases=2)


@pytest.mark.parametrize("name", ["aaggff-s", "aaggff-d", "fedavg", "scaffold", "superfed-mm"])
def test_two_phases_end_as_one(name, tmp_path):
    """To rounding (c_i x_i is rounded before it is added, where a fused sum would not), in practice to the bit."""
    plan = plan_of(name)
    transport = direct(plan, tmp_path)
    run = serve(plan, transport, service=TWO)
    shares = [done.shares for done in run]
    last = simulated(plan)
    known, found = states(last.state), states(run.fitted.state)
    assert known.keys() == found.keys()
    for entry, tensor in known.items():
        assert torch.allclose(found[entry].double(), tensor.double(), rtol=0, atol=1e-7), entry
    assert torch.allclose(shares[-1], last.shares, atol=1e-6)


class Listening(Direct):
    """Writes down what is asked and what comes back."""

    def __init__(self, nodes):
        super().__init__(nodes)
        self.heard = []

    def ask(self, kind, parcels, seconds):
        found = super().ask(kind, parcels, seconds)
        self.heard.append((kind, parcels, found))
        return found


def test_what_is_sent_in_each_phase(tmp_path):
    plan = plan_of("aaggff-s", rounds=1)
    transport = Listening(nodes_of(plan, FEDERATION, tmp_path / "two", SECRET, OPEN))
    (done,) = serve(plan, transport, service=TWO)
    first, second = transport.heard[:2]
    assert first[0] == "loss" and all(set(p.tensors) == {"loss"} for p in first[2].parcels.values())
    assert second[0] == "train" and all("loss" not in p.tensors for p in second[2].parcels.values())
    plain = Listening(nodes_of(plan, FEDERATION, tmp_path / "one", SECRET, OPEN))
    list(serve(plan, plain, service=QUICK))
    for client, parcel in second[2].parcels.items():
        raw = plain.heard[0][2].parcels[client].tensors["mix/theta"]
        weight = second[1][client].facts["coefficient"]
        assert weight == float(done.shares[client])
        assert torch.allclose(parcel.tensors["mix/theta"], raw * weight, rtol=1e-6, atol=1e-9)


def test_who_is_missing_in_the_second_phase_has_no_weight(tmp_path):
    plan = plan_of("aaggff-d", cohort="all", rounds=1)

    class Leaving(Direct):
        def ask(self, kind, parcels, seconds):
            found = super().ask(kind, parcels, seconds)
            return Answers({c: p for c, p in found.parcels.items() if (kind, c) != ("train", 2)}, found.missing)

    run = serve(plan, Leaving(nodes_of(plan, FEDERATION, tmp_path, SECRET, OPEN)), service=TWO)
    (done,) = run
    assert done.cohort == (0, 1, 3) and done.missing == {2: "late"} and abs(float(done.shares.sum()) - 1) < 1e-12
    lost = simulated(plan, weather=Weather(lost="2:1"))
    assert torch.allclose(done.state.broadcast["theta"], lost.state.broadcast["theta"], atol=1e-6)
    assert torch.equal(done.shares, lost.shares)


def test_a_rule_that_compares_updates_cannot_have_two_phases(tmp_path):
    plan = plan_of("fedmgda")
    with pytest.raises(FedchordError, match="serve: phases=2 is for mixing rules that need losses at most; FedMgda"):
        serve(plan, direct(plan, tmp_path), service=TWO)
