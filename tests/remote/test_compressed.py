"""Uploads that travel in few bytes: the simulator's bits, parcels that are really smaller, nothing else is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.remote import FEDERATION, QUICK, SECRET, assert_same_memory, assert_same_state, direct, plan_of, simulated

from fedchord.attacks.attack import Attack
from fedchord.check import FedchordError
from fedchord.remote import wire
from fedchord.remote.asking import Service
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.hostile import Hostile
from fedchord.remote.limits import Limits
from fedchord.remote.serve import serve


class Weighing(Direct):
    """Nodes in this process, whose answers to "train" are weighed as bytes on a wire."""

    def __init__(self, nodes) -> None:
        super().__init__(nodes)
        self.weights, self.spoil = [], None

    def ask(self, kind, parcels, seconds):
        found = super().ask(kind, parcels, seconds)
        if kind != "train":
            return found
        changed = {client: self.spoil(parcel) if self.spoil else parcel for client, parcel in found.parcels.items()}
        carried = {client: wire.encode(parcel) for client, parcel in changed.items()}
        self.weights += [len(tensors) for tensors, _ in carried.values()]
        return replace(found, parcels={client: wire.decode(*parts) for client, parts in carried.items()})


@pytest.mark.parametrize(("name", "form"), [("fedavg", "half"), ("scaffold", "bytes"), ("superfed-mm", "bytes")])
def test_packed_uploads_end_with_the_bits_of_the_simulator(name, form, tmp_path):
    sizes = {}
    for packed in (form, None):
        plan = plan_of(name, **({"compress": packed} if packed else {}))
        nodes = direct(plan, tmp_path / str(packed)).nodes
        transport = Weighing(nodes)
        served = serve(plan, transport, service=QUICK)
        served.finish()
        last = simulated(plan, compress=packed)
        assert_same_state(served.fitted.state, last.state)
        assert_same_memory(nodes, last)
        assert last.bytes_up == next(reversed(served._lines))["bytes_up"]
        sizes[packed] = sum(transport.weights)
        told = sum(line["bytes_up"] for line in served._lines)
        assert 0 < sizes[packed] - told < 600 * len(transport.weights)  # names, shapes and logs
    numbers = (sizes[None] - sizes[form]) / sizes[None]
    assert numbers > (0.48 if form == "half" else 0.7)


def test_a_node_says_what_would_leave(tmp_path):
    node = direct(plan_of(compress="bytes"), tmp_path).nodes[0]
    leaving = node.leaving()["train"]
    assert leaving["mix/theta"].dtype == torch.int8 and leaving["scale/mix/theta"].dtype == torch.int8
    count = leaving["mix/theta"].numel()
    assert leaving["scale/mix/theta"].numel() == -(-count // 64)


def whole(parcel):
    """As if it had not been packed."""
    return replace(parcel, tensors={"mix/theta": torch.zeros(parcel.tensors["mix/theta"].shape)})


def unscaled(parcel):
    return replace(parcel, tensors={n: t for n, t in parcel.tensors.items() if not n.startswith("scale/")})


def short(parcel):
    return replace(parcel, tensors=parcel.tensors | {"scale/mix/theta": torch.zeros(1, dtype=torch.int8)})


@pytest.mark.parametrize("spoil", [whole, unscaled, short])
def test_answers_that_are_not_packed_as_planned_are_not_taken(spoil, tmp_path):
    plan, said = plan_of(compress="bytes"), []
    transport = Weighing(direct(plan, tmp_path).nodes)
    transport.spoil = spoil
    with pytest.raises(FedchordError, match="needed"):
        serve(plan, transport, service=QUICK, report=said.append).finish()
    assert any("garbage" in line for line in said)


def test_an_exponent_beyond_all_numbers_is_left_out_as_not_finite(tmp_path):
    plan = plan_of(compress="bytes", cohort="all")
    nodes = direct(plan, tmp_path).nodes
    transport = Weighing(nodes)

    def blown(parcel):
        scale = parcel.tensors["scale/mix/theta"]
        first = parcel.facts["round"] == 0 and len(transport.weights) == 0 and not blown.done
        blown.done = True
        return (
            replace(parcel, tensors=parcel.tensors | {"scale/mix/theta": torch.full_like(scale, 127)})
            if first
            else parcel
        )

    blown.done = False
    transport.spoil = blown
    run = serve(plan, transport, service=QUICK)
    first = next(iter(run))
    assert len(first.missing) == 1 and "not finite" in next(iter(first.missing.values()))


def test_what_does_not_go_with_it_is_refused_in_one_line(tmp_path):
    plan = plan_of(compress="half")
    with pytest.raises(FedchordError, match="limits: clip is of updates as they are, and compress rounds them"):
        nodes_of(plan, FEDERATION, tmp_path, SECRET, Limits(clip=1.0))
    with pytest.raises(FedchordError, match="serve: phases=2 lets clients weigh updates, which compress has rounded"):
        serve(plan, direct(plan, tmp_path), service=Service(5.0, wait=0.0, phases=2)).finish()
    with pytest.raises(FedchordError, match="rehearse: attack=scaled changes uploads as they are; leave compress out"):
        Hostile({}, plan, Attack("scaled", 0.5))
    Hostile({}, plan, Attack("label-flip", 0.5))
