"""What happens to a round when replies get lost, servers restart or are set back, and nodes come and go."""

from __future__ import annotations

import json
import shutil

import pytest
from helpers.remote import (
    FEDERATION,
    OPEN,
    QUICK,
    assert_same_memory,
    assert_same_state,
    direct,
    plan_of,
    simulated,
)

from fedchord.check import FedchordError
from fedchord.engine.attendance import Terms, TooFew
from fedchord.engine.weather import Weather
from fedchord.experiments import reading
from fedchord.remote.asking import Service
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.serve import serve
from fedchord.remote.transport import Answers

PERSONAL = ("scaffold", "superfed-mm", "fedper")


class Deaf(Direct):
    """A transport that loses the first reply of every client in every round, after the node has trained."""

    def __init__(self, nodes):
        super().__init__(nodes)
        self.asked = set()

    def ask(self, kind, parcels, seconds):
        found = super().ask(kind, parcels, seconds)
        new = {c for c, p in parcels.items() if kind == "train" and (c, p.facts["round"]) not in self.asked}
        self.asked |= {(c, parcels[c].facts["round"]) for c in new}
        return Answers({c: p for c, p in found.parcels.items() if c not in new}, dict.fromkeys(new, "lost"))


@pytest.mark.parametrize("name", PERSONAL)
def test_a_lost_reply_is_trained_again_to_the_same_bits(name, tmp_path):
    plan = plan_of(name)
    transport = Deaf(nodes_of(plan, FEDERATION, tmp_path, limits=OPEN))
    run = serve(plan, transport, service=QUICK)
    run.finish()
    last = simulated(plan)
    assert len(transport.asked) == 6  # two clients in three rounds, each asked twice
    assert_same_state(run.fitted.state, last.state)
    assert_same_memory(transport.nodes, last)


@pytest.mark.parametrize("name", PERSONAL)
def test_a_server_that_restarts_goes_on_to_the_same_bits(name, tmp_path):
    plan, out = plan_of(name), tmp_path / "out"
    transport = direct(plan, tmp_path / "nodes")
    first = iter(serve(plan, transport, out, service=QUICK))
    next(first)
    first.close()
    assert reading.read_config(out).config["made"] == "served"
    again = serve(plan, direct(plan, tmp_path / "nodes"), out, service=QUICK, resume=True)  # the nodes are new as well
    again.finish()
    last = simulated(plan)
    assert_same_state(again.fitted.state, last.state)
    assert [line["round"] for line in reading.rounds(reading.read(out))] == [1, 2, 3]


def test_a_server_that_is_set_back_ends_with_the_same_bits(tmp_path):
    """Two rounds more than its checkpoint were done: the nodes are ahead of it, and start from what it counts."""
    plan, out, nodes = plan_of("superfed-mm", cohort="all", rounds=4), tmp_path / "out", tmp_path / "nodes"
    first = iter(serve(plan, direct(plan, nodes), out, service=QUICK))
    next(first)
    shutil.copytree(out, tmp_path / "old")
    next(first)
    next(first)
    first.close()
    back = serve(plan, direct(plan, nodes), tmp_path / "old", service=QUICK, resume=True)
    back.finish()
    last = simulated(plan)
    assert_same_state(back.fitted.state, last.state)
    assert_same_memory(direct(plan, nodes).nodes, last)


def test_set_back_beyond_the_versions_is_refused_in_words(tmp_path):
    plan, out, nodes = plan_of("scaffold", cohort="all", rounds=6), tmp_path / "out", tmp_path / "nodes"
    rounds = iter(serve(plan, direct(plan, nodes), out, service=QUICK))
    next(rounds)
    shutil.copytree(out, tmp_path / "old")
    for _ in range(4):
        next(rounds)
    rounds.close()
    back = serve(plan, direct(plan, nodes), tmp_path / "old", service=QUICK, resume=True)
    with pytest.raises(TooFew, match=r"round 2: only 0 of 4 clients answered, 2 are needed") as error:
        back.finish()
    assert "the client's memory after round 1 is gone (kept: after rounds 3, 4, 5)" in str(error.value)


def test_a_server_whose_nodes_do_not_come_ends_in_one_line():
    with pytest.raises(TooFew, match=r"^round 1: only 0 of 2 clients answered, 1 are needed"):
        serve(plan_of("uniform"), Direct({}), service=QUICK).finish()


def test_nodes_come_and_go(tmp_path):
    """Who is not there is not drawn; who comes, or comes back, takes part in the next round."""
    plan = plan_of("scaffold", cohort="all", rounds=4)
    nodes = nodes_of(plan, FEDERATION, tmp_path, limits=OPEN)
    transport = Direct({client: nodes[client] for client in (0, 1)})
    cohorts, run = [], serve(plan, transport, service=QUICK)
    for done in run:
        cohorts.append(done.cohort)
        transport.nodes = {
            1: {client: nodes[client] for client in (0, 1, 2)},
            2: {client: nodes[client] for client in (1, 3)},
            3: nodes,
        }.get(done.round, nodes)
    assert cohorts == [(0, 1), (0, 1, 2), (1, 3), (0, 1, 2, 3)]
    away = Weather(away="2:1,3:1-2,0:3,2:3")
    last = simulated(plan, weather=away)
    assert last.state.visits.tolist() == [3, 4, 2, 2] and last.state.counted.tolist() == [3, 3, 3, 3]
    assert_same_state(run.fitted.state, last.state)
    assert_same_memory(nodes, last)


def test_a_node_that_dies_in_a_round_is_left_out_and_counted(tmp_path):
    plan, out = plan_of("fedavg", cohort="all"), tmp_path / "out"
    nodes = nodes_of(plan, FEDERATION, tmp_path / "nodes", limits=OPEN)

    class Dying(Direct):
        def ask(self, kind, parcels, seconds):
            found = super().ask(kind, parcels, seconds)
            if kind == "train" and next(iter(parcels.values())).facts["round"] == 1:
                return Answers({c: p for c, p in found.parcels.items() if c != 2}, {2: "late"})
            return found

    summary = serve(plan, Dying(nodes), out, service=QUICK).finish()
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert [line["cohort"] for line in lines] == [[0, 1, 2, 3], [0, 1, 3], [0, 1, 2, 3]]
    assert lines[1]["missing"] == {"2": "late"} and "missing" not in lines[0]
    assert summary["missing"] == {"late": 1}


@pytest.mark.parametrize("present", [0.0, 0.75, 1.0])
def test_a_round_waits_for_the_share_of_parties_that_is_asked_for(tmp_path, present):
    """A cohort of two of four clients, one of whom comes after a while: only with all of them is it the simulator's."""
    plan = plan_of("fedavg", cohort=2)
    nodes = direct(plan, tmp_path / "nodes").nodes
    late, told = nodes.pop(3), []

    class Filling(Direct):
        looks = 0

        def clients(self):
            self.looks += 1
            if self.looks == 3:
                self.nodes[3] = late
            return super().clients()

    served = serve(plan, Filling(nodes), service=Service(5.0, wait=60.0, present=present), report=told.append)
    served.finish()
    assert told == (["round 1: waiting for clients, 3 are here, 4 are needed"] if present == 1 else [])
    same = served.fitted.state.visits.tolist() == simulated(plan).state.visits.tolist()
    assert same == (present == 1)
    if same:
        assert_same_state(served.fitted.state, simulated(plan).state)


def test_a_rule_that_needs_everyone_ends_in_one_line_with_a_checkpoint(tmp_path):
    plan, out = plan_of("aaggff-s"), tmp_path / "out"
    transport = direct(plan, tmp_path / "nodes")
    told = []
    running = iter(serve(plan, transport, out, service=Service(5.0, wait=0.05), report=told.append))
    next(running)
    gone = transport.nodes.pop(1)
    told_last = (
        r"^round 2: only 3 of 4 clients answered, 4 are needed; the last checkpoint is of round 1; go on with: f"
    )
    with pytest.raises(TooFew, match=told_last):
        next(running)
    assert told == ["round 2: waiting for clients, 3 are here, 4 are needed"]
    assert (out / "checkpoints" / "round-000001").is_dir()
    transport.nodes[1] = gone
    again = serve(plan, transport, out, service=QUICK, resume=True)
    again.finish()
    assert_same_state(again.fitted.state, simulated(plan).state)


# -- weather ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weather",
    [
        Weather(away=0.3, lost=0.4, terms=Terms(attempts=2, minimum=0.3)),
        Weather(away="0:2-3,3:1", lost="1:2"),
    ],
)
@pytest.mark.parametrize("name", ["scaffold", "superfed-mm", "aaggff-d"])
def test_the_simulator_in_the_same_weather_ends_with_the_same_bits(name, weather, tmp_path):
    plan = plan_of(name, cohort=3, rounds=5)
    transport = direct(plan, tmp_path)
    service = Service(5.0, wait=0.0, terms=weather.terms)
    run = serve(plan, transport, service=service, weather=weather)
    rounds = [(done.cohort, done.missing) for done in run]
    last = simulated(plan, weather=weather)
    assert_same_state(run.fitted.state, last.state)
    assert_same_memory(transport.nodes, last)
    assert any(missing for _, missing in rounds) and any(len(cohort) < 3 for cohort, _ in rounds)
    assert last.state.visits.tensor().sum() == sum(len(cohort) for cohort, _ in rounds)


def test_weather_by_rate_is_as_bad_as_it_says():
    away, lost = Weather(away=0.25), Weather(lost=0.25)
    here = [len(away.here(1, round, 40)) for round in range(200)]
    kept = [sum(lost.keeps(1, round, attempt, 40)) for round in range(100) for attempt in range(2)]
    for found in (here, kept):  # 8000 draws of 0.75: the standard error of the share is below 0.005
        assert abs(sum(found) / 8000 - 0.75) < 0.02
    assert lost.keeps(1, 0, 0, 40) != lost.keeps(1, 0, 1, 40)


def test_a_schedule_that_nobody_can_read_is_one_line():
    with pytest.raises(FedchordError, match=r"^run: weather.away must be a share such as 0.1, or clients and rounds"):
        Weather(away="0-3")
    with pytest.raises(FedchordError, match=r"weather.lost must be between 0 and 1"):
        Weather(lost=1.5)
