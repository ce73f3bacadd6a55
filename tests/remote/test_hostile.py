"""Hostile nodes in this process: the bits of a simulation in the same attack, behind the same defence."""

from __future__ import annotations

import json

import pytest
import torch
from helpers.remote import OPEN, QUICK, SECRET, assert_same_memory, assert_same_state, pictures, plan_of

from fedchord.attacks.attack import Attack
from fedchord.check import FedchordError
from fedchord.engine.simulate import simulate
from fedchord.remote.asking import Service
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.hostile import Hostile, HostileNode
from fedchord.remote.rehearsal import rehearse
from fedchord.remote.serve import serve


def served(plan, attack, folder, out=None):
    rows = attack.poisoned(pictures(), plan.course.seed)
    transport = Hostile(nodes_of(plan, rows, folder, SECRET, OPEN), plan, attack)
    return serve(plan, transport, out, service=QUICK), transport


def simulated(plan, attack):
    config = plan.config
    return list(
        simulate(
            config.algorithm(), plan.work().task, pictures(), rounds=config.rounds, cohort=plan.course.cohort,
            seed=config.seed, training=config.training(), executor="serial", attack=attack, defence=config.defence(),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "attack", "settings"),
    [
        ("fedavg", Attack("sign-flip", 0.5), {"bound": "median"}),
        ("scaffold", Attack("noise", 0.5), {"combine": "trimmed", "combine__trim": 0.3}),
        ("superfed-mm", Attack("little", 0.5), {"mixing": "geometric-median", "cohort": "all"}),
        ("fedavg", Attack("little", 0.5), {"mixing": "krum", "mixing__hostile": 0.0, "cohort": "all"}),
        ("aaggff-d", Attack("lying", 0.25), {"method__cap": 1.5}),
        ("fedavg", Attack("label-flip", 0.5), {"combine": "median"}),
        ("fedevg", Attack("scaled", 0.25), {"bound": "median", "judge__steps": 5}),
    ],
)
def test_a_served_run_in_an_attack_has_the_bits_of_the_simulation(method, attack, settings, tmp_path):
    plan = plan_of(method, rounds=2, **settings)
    run, transport = served(plan, attack, tmp_path)
    run.finish()
    known = simulated(plan, attack)[-1]
    assert_same_state(run.fitted.state, known.state)
    assert_same_memory(transport.nodes, known)
    honest = simulated(plan, Attack(attack.name, 0.0))[-1]
    name = "x" if method == "fedevg" else "theta"
    assert not torch.equal(honest.state.broadcast[name], known.state.broadcast[name])  # the attack was played


def test_an_update_that_explodes_is_left_out_and_counted_at_the_server(tmp_path):
    plan, attack = plan_of("superfed-mm"), Attack("scaled", 0.25, 1e12)
    run, transport = served(plan, attack, tmp_path / "nodes", tmp_path / "run")
    summary = run.finish()
    (wrong,) = attack.hostile(plan.course.seed, plan.clients)
    known = simulated(plan, attack)
    assert_same_state(run.fitted.state, known[-1].state)
    assert_same_memory(transport.nodes, known[-1])
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    told = [line.get("missing", {}) for line in lines]
    assert told == [{str(c): cause for c, cause in done.missing.items()} for done in known]
    asked = sum(bool(part) for part in told)
    assert asked and summary["missing"] == {"exploded": asked}
    assert all(set(part) <= {str(wrong)} for part in told)


def test_what_looks_at_single_updates_is_refused_where_only_sums_are_seen(tmp_path):
    plan = plan_of("fedavg", bound=1.0, combine="median")
    with pytest.raises(FedchordError) as caught:
        serve(
            plan, Hostile(nodes_of(plan, pictures(), tmp_path), plan, Attack("noise", 0.5)), service=Service(phases=2)
        )
    told = "serve: phases=2 is for sums of updates, and bound and combine must see single ones; use phases=1"
    assert str(caught.value) == told
    plan = plan_of("fedavg")
    transport = Hostile(nodes_of(plan, pictures(), tmp_path / "b"), plan, Attack("noise", 0.5))
    with pytest.raises(FedchordError, match="rehearse: attacks are played in one phase; set phases=1"):
        serve(plan, transport, service=Service(wait=0.0, phases=2)).finish()


def test_a_rehearsal_plays_an_attack():
    plan = plan_of("fedavg")
    usual, bad = rehearse(plan, rounds=1), rehearse(plan, rounds=1, attack=Attack("scaled", 0.5))
    assert not torch.equal(*(found.rounds[0].state.broadcast["theta"] for found in (usual, bad)))
    found = rehearse(plan, attack=Attack("scaled", 0.5, 1e12))
    assert set(found.missing) == {"exploded"} or "updates can be used" in found.problem


def test_private_reports_cannot_be_lied_about_here(tmp_path):
    plan = plan_of("aaggff-p")
    with pytest.raises(FedchordError, match="attack=lying cannot be played where clients add noise to their reports"):
        Hostile(nodes_of(plan, pictures(), tmp_path, SECRET), plan, Attack("lying", 0.5))


@pytest.mark.parametrize(("name", "method"), [("sign-flip", "scaffold"), ("noise", "fedavg"), ("lying", "term")])
def test_a_node_that_is_hostile_by_itself_sends_what_the_simulated_one_does(name, method, tmp_path):
    """As a party of its own would: it is given no other's answers, and the transport does not know of it."""
    plan, attack = plan_of(method, rounds=2, cohort="all"), Attack(name, 0.25, 3.0)
    nodes = nodes_of(plan, pictures(), tmp_path, SECRET, OPEN)
    (wrong,) = attack.hostile(plan.course.seed, plan.clients)
    run = serve(plan, Direct({**nodes, wrong: HostileNode(nodes[wrong], attack)}), service=QUICK)
    run.finish()
    known = simulated(plan, attack)[-1]
    assert_same_state(run.fitted.state, known.state)
    assert_same_memory(nodes, known)


def test_a_node_alone_cannot_play_what_needs_several(tmp_path):
    node = nodes_of(plan_of("fedavg"), pictures(), tmp_path, SECRET, OPEN)[0]
    with pytest.raises(FedchordError, match="rehearse: attack=little needs all hostile clients in one place"):
        HostileNode(node, Attack("little", 0.25))
