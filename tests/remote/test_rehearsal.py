"""A plan is played before anyone deploys it: on made-up rows of the right kind, in any weather."""

from __future__ import annotations

import re

import pytest
import tomli_w
import torch
from helpers.remote import FEDERATION, plan_of

from fedchord.cli.root import main
from fedchord.data import from_arrays, outline
from fedchord.data.build import federate
from fedchord.data.partition import Natural
from fedchord.engine.attendance import Terms
from fedchord.engine.weather import Weather
from fedchord.remote.plan import Plan, facts
from fedchord.remote.rehearsal import made_up, rehearse


def test_made_up_rows_are_of_the_kind_that_the_outline_tells():
    known = facts(FEDERATION)
    rows = made_up(known, 3)
    for part in ("train", "validation", "test"):
        assert rows.part(part).sizes.tolist() == FEDERATION.part(part).sizes.tolist()
    every = torch.cat([rows.part(part).rows for part in ("train", "validation", "test")])
    assert sorted(every.tolist()) == list(range(len(rows.columns["y"])))
    assert rows.columns["x"].dtype == torch.uint8 and rows.columns["x"].shape[1:] == (1, 8, 8)
    assert set(rows.columns["y"].tolist()) == {0, 1, 2}
    assert not torch.equal(rows.columns["x"][:50], FEDERATION.columns["x"][:50])


@pytest.mark.parametrize("name", ["scaffold", "fedevg", "aaggff-p"])
def test_methods_are_rehearsed(name):
    plan = plan_of(name, **({"judge__steps": 2} if name == "fedevg" else {}))
    found = rehearse(plan, rounds=2)
    assert [done.round for done in found.rounds] == [1, 2] and found.missing == {} and not found.problem


def test_numbers_to_predict_are_rehearsed():
    draw = torch.Generator().manual_seed(1)
    data = from_arrays(torch.randn(40, 3, generator=draw), torch.randn(40, generator=draw), [0] * 18 + [1] * 22)
    plan = Plan.of({"rounds": 2, "cohort": "all", "loss": "absolute"}, federate(data, Natural()))
    assert len(rehearse(plan).rounds) == 2


def test_bad_weather_ends_a_plan_that_needs_everyone():
    found = rehearse(plan_of("aaggff-s"), weather=Weather(lost="1:2", terms=Terms(2, 0.5)))
    assert len(found.rounds) == 1
    assert found.problem == "round 2: only 3 of 4 clients answered, 4 are needed (client 1 lost)"


def test_the_command(tmp_path, capsys):
    names = [f"party{i}" for i in range(4)]
    fed = {"name": "toy", "clients": names, "plan": {"method": "fedavg", "model": "twonn", "rounds": 4, "cohort": 3}}
    (tmp_path / "fed.toml").write_text(tomli_w.dumps(fed))
    outline.save(facts(FEDERATION), tmp_path / "data.safetensors")
    with pytest.raises(SystemExit) as ended:
        main(["rehearse", str(tmp_path / "fed.toml"), "weather.lost=0.4", "--rounds", "3"])
    text = capsys.readouterr().out
    assert ended.value.code == 0, text
    assert text.startswith("toy: fedavg, 4 clients, 4 rounds; made-up rows\n")
    assert len(re.findall(r"^round \d: \d of 3 answered", text, re.M)) == 3 and "all 3 rounds were done" in text
    size = 64 * 200 + 200 + 200 * 200 + 200 + 200 * 3 + 3
    assert f"and sends {4 * size:,}" in text
    assert sorted(part.name for part in tmp_path.iterdir()) == ["data.safetensors", "fed.toml"]
    with pytest.raises(SystemExit) as ended:
        main(["rehearse", str(tmp_path / "fed.toml"), "rounds=3"])
    assert ended.value.code == 2
    assert (
        "rehearse: takes weather.away, weather.lost, attack, attack.share, attack.scale, got rounds"
        in capsys.readouterr().err
    )
