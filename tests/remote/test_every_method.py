"""Every method of the catalogue, with its clients in nodes of their own: the simulator's bits."""

from __future__ import annotations

import pytest
import torch
from helpers.alone import each_alone, everyone_alone
from helpers.remote import QUICK, assert_same_memory, assert_same_state, direct, plan_of, simulated

from fedchord import catalog
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.sweep import sweep
from fedchord.remote.asking import Service
from fedchord.remote.serve import serve
from fedchord.synthetic.judge import judge


@pytest.mark.parametrize("name", sorted(set(catalog.METHODS) - {"aaggff-p"}))
def test_every_method_ends_with_the_bits_of_the_simulator(name, tmp_path):
    samples = catalog.build(name).outcome == "samples"
    plan = plan_of(name, **({"judge__steps": 5} if samples else {}))
    transport = direct(plan, tmp_path)
    run = serve(plan, transport, service=QUICK)
    run.finish()
    last = simulated(plan)
    assert_same_state(run.fitted.state, last.state)
    assert_same_memory(transport.nodes, last)
    fitted = Fitted.of(last)
    if samples:
        known, _ = judge(fitted, plan.config.judged_by(), ask=everyone_alone)
    else:
        known = each_alone(fitted)
    assert run.evaluation.clients == known.clients
    for metric, values in known.per_client.items():
        assert torch.equal(run.evaluation.per_client[metric], values.double()), metric
        mine, theirs = run.evaluation.metrics[metric], known.metrics[metric]
        assert {c: v for c, v in mine.items() if c != "pooled"} == {c: v for c, v in theirs.items() if c != "pooled"}
    if not samples:
        line = sweep(fitted)
        told = run.summary["sweep"]
        assert (line is None) == (told is None)
        if line is not None:
            assert told["per_client"] == [row.tolist() for row in line.test]


@pytest.mark.parametrize(("name", "phases"), [("fedavg-ft", 1), ("superfed-mm", 1), ("aaggff-d", 2)])
def test_the_mean_of_the_last_models_is_that_of_the_simulator(name, phases, tmp_path):
    """Also after the server was restarted in the middle of the rounds whose models are averaged."""
    plan, out = plan_of(name, average=0.7, rounds=4), tmp_path / "out"
    service = Service(5.0, wait=0.0, phases=phases)
    first = iter(serve(plan, direct(plan, tmp_path / "nodes"), out, service=service))
    for _ in range(3):
        next(first)
    first.close()
    run = serve(plan, direct(plan, tmp_path / "nodes"), out, service=service, resume=True)
    run.finish()
    last = simulated(plan, average=0.7)
    fitted = Fitted.of(last)
    if phases == 1:  # in two, sums are of products that are rounded elsewhere
        assert_same_state(run.fitted.state, fitted.state)
        known = each_alone(fitted).per_client
        assert all(torch.equal(run.evaluation.per_client[metric], values.double()) for metric, values in known.items())
    mean = run.fitted.state.broadcast["theta"]
    assert torch.allclose(mean, fitted.state.broadcast["theta"], atol=1e-6)
    assert not torch.allclose(mean, last.state.broadcast["theta"], atol=1e-4)  # it is not the last model
    assert {"kind": "average", "rounds": 2} in run.summary["protocol"]["notes"]
