"""The demo in small: what it measures, prints and draws; that its sentences follow the numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedchord.cli import demo
from fedchord.engine.simulate import simulate
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.progress import Silent

SMALL = {"rounds": 4, "model": "logreg", "executor": "serial", "cohort": 10}


def score(method: str, seed: int, own: float, everyone: float, worst: float) -> demo.Score:
    last = {"mean": own, "worst10": worst, "gini": 0.1, "everyone": everyone}
    return demo.Score(method, seed, (2, 4), (own, own), (everyone, everyone), (own, worst), last)


def test_it_prints_measures_and_draws(tmp_path, capsys):
    scores = demo.run_demo(tmp_path, ["local", "fedavg"], [0, 1], Silent(), **SMALL)
    printed = capsys.readouterr().out
    assert [len(found) for found in scores.values()] == [2, 2]
    assert scores["fedavg"][0].rounds == (2, 4)
    assert len(scores["fedavg"][0].clients) == 20
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "worst 10 %" in printed and "Gini" in printed and "all rows" in printed
    assert "clients=20 model=logreg rounds=4 cohort=10 epochs=2 batch=10 lr=0.1" in printed
    assert "seeds 0, 1" in printed
    assert "fedavg: Plain(), BySize(), Step(lr=1.0)" in printed
    assert "\x1b" not in printed
    alone, shared = scores["local"][0], scores["fedavg"][0]
    assert alone.own[-1] > alone.everyone[-1]  # two classes are easier than ten
    assert shared.everyone[-1] == pytest.approx(shared.last["pooled"])  # one model: all rows is the pooled accuracy


def test_all_rows_is_every_clients_model_on_every_row():
    """Against a plain loop over clients and their models."""
    config = demo.configure("local", demo.SETTINGS | SMALL | {"rounds": 2})
    parts = demo.Parts.build(config)
    plan = config.plan()
    *_, result = simulate(
        parts.algorithm,
        parts.task,
        parts.federation,
        rounds=2,
        cohort=plan.cohort,
        executor="serial",
    )
    x, y = (parts.federation.columns[name][parts.federation.test.rows] for name in "xy")
    found = []
    for client in range(20):
        own = result.memory.get(client) or result.state.broadcast
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        state = parts.task.state_dict(own["theta"], own["buffers"])
        model.load_state_dict({f"1.{name.removeprefix('head.')}": tensor for name, tensor in state.items()})
        with torch.no_grad():
            found.append(float((model(x).argmax(1) == y).double().mean()))
    assert demo.on_all_rows(Fitted.of(result)) == pytest.approx(sum(found) / 20)


def test_the_sentences_follow_the_numbers():
    usual = {
        "local": [score("local", s, 0.99, 0.2, 0.9) for s in (0, 1)],
        "fedavg": [score("fedavg", s, 0.85, 0.85, 0.5) for s in (0, 1)],
        "fedadam": [score("fedadam", s, 0.95, 0.95, 0.8) for s in (0, 1)],
    }
    first, second = demo.findings(usual)
    assert first == (
        "A client that learns alone is right on 99.0 % of its own test rows but only on 20.0 % of everyone's; "
        "the best shared model, fedadam's, is right on 95.0 % of a client's own and 95.0 % of everyone's."
    )
    assert second == (
        "Between fedadam and the last shared model, fedavg's with 85.0 %, lie 10.0 points, more than their spread over "
        "seeds together; the worst tenth of clients have 80.0 % with fedadam and 50.0 % with fedavg."
    )
    unusual = {
        "local": [score("local", s, 0.5, 0.6, 0.9) for s in (0, 1)],
        "fedavg": [score("fedavg", 0, 0.8, 0.9, 0.6), score("fedavg", 1, 0.8, 0.8, 0.6)],
        "fedadam": [score("fedadam", 0, 0.8, 0.7, 0.5), score("fedadam", 1, 0.8, 0.9, 0.5)],
    }
    first, second = demo.findings(unusual)
    assert "50.0 % of its own test rows and on 60.0 % of everyone's; the best shared model, fedavg's" in first
    assert "lie 5.0 points, not more than their spread" in second
    assert "60.0 % with fedavg and 50.0 % with fedadam" in second


def test_the_best_of_each_column_is_bold():
    scores = {
        "local": [score("local", 0, 0.99, 0.2, 0.9)],
        "fedavg": [score("fedavg", 0, 0.85, 0.85, 0.5)],
    }
    rows, bold = demo.cells(scores)
    assert rows[0] == ["local", "99.0 (nan)", "90.0 (nan)", "0.100 (nan)", "20.0 (nan)"]
    assert bold == [(0, 1), (0, 2), (0, 3), (1, 3), (1, 4)]


def test_the_real_demo_has_the_same_budget_for_all():
    configs = [demo.configure(method, demo.SETTINGS) for method in demo.METHODS]
    assert [config.method for config in configs] == ["local", "fedavg", "fedprox", "scaffold", "fedadam"]
    assert len({(config.training(), config.plan(), config.clients, config.data) for config in configs}) == 1
    assert len(demo.SEEDS) == 3
