"""Fine-tuned FedAvg against plain torch: FedAvg, and what each client makes of it before it is used."""

from __future__ import annotations

import pytest
import torch
from helpers import oracle
from helpers.oracle import CLIENTS, COHORTS, NEVER, ROUNDS, SETTINGS

from fedchord.check import FedchordError

CASES = [("dense", "global", 1, None), ("autograd", "global", 3, None), ("batchnorm", "global", 2, None),
         ("dense", "global", 2, 0.7), ("dense", "last", 1, None), ("batchnorm", "last", 1, None)]  # fmt: skip


@pytest.mark.parametrize(("kind", "form", "tune_epochs", "tune_lr"), CASES)
def test_against_plain_torch(kind, form, tune_epochs, tune_lr):
    setting = SETTINGS[kind]
    algorithm = oracle.build("fedavg-ft", form=form, tune_epochs=tune_epochs, tune_lr=tune_lr)
    g, own = setting.first(), {}
    for t, result in enumerate(oracle.running(algorithm, setting)):
        assert result.cohort == COHORTS[t]
        trained = {i: oracle.descend(setting, g, i, t) for i in result.cohort}
        own |= trained
        g = oracle.average(list(trained.values()), oracle.by_size(result.cohort))
        assert oracle.same(result.state.broadcast, g), t
        if form == "global":
            assert result.memory.clients() == []
            continue
        assert result.memory.clients() == sorted(own)
        for i, model in own.items():
            assert result.memory.get(i).keys() == {"theta", "buffers"}
            assert oracle.same(result.memory.get(i), model), (t, i)
    if form == "last":
        models = {i: own.get(i, g) for i in CLIENTS}
    else:  # the batches of a round that does not take place, the learning rate of the last unless one is given
        settings = {"epochs": tune_epochs, "lr": tune_lr or oracle.rate(ROUNDS - 1)}
        models = {i: oracle.descend(setting, g, i, ROUNDS, **settings) for i in CLIENTS}
    oracle.check_deployed(result, models)


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("form", ["global", "last"])
def test_the_global_model_is_fedavg_bit_for_bit(kind, form):
    result, plain = (oracle.last(a, SETTINGS[kind]) for a in (oracle.build("fedavg-ft", form=form), "fedavg"))
    for name in ("theta", "buffers"):
        assert torch.equal(result.state.broadcast[name], plain.state.broadcast[name])
    assert (result.bytes_up, result.bytes_down) == (plain.bytes_up, plain.bytes_down)


def test_no_epochs_of_tuning_deploy_the_global_model():
    result, plain = oracle.last(oracle.build("fedavg-ft", tune_epochs=0)), oracle.last("fedavg")
    for metric, values in plain.evaluation.per_client.items():
        assert torch.equal(result.evaluation.per_client[metric], values)


def test_tuning_is_for_every_client_and_changes_nothing_of_the_run():
    """Also for one that was never sampled; evaluating every round does not change the rounds."""
    algorithm = oracle.build("fedavg-ft")
    result, often = oracle.last(algorithm), oracle.last(algorithm, eval_every=1)
    models = [oracle.model_of(result, i)["theta"] for i in CLIENTS]
    models.append(result.state.broadcast["theta"])
    assert all(not torch.allclose(a, b) for i, a in enumerate(models) for b in models[:i])
    assert torch.equal(result.state.broadcast["theta"], often.state.broadcast["theta"])
    assert torch.equal(result.evaluation.per_client["loss"], often.evaluation.per_client["loss"])


def test_the_last_copy_of_a_client_never_sampled_is_the_global_model():
    algorithm = oracle.build("fedavg-ft", form="last")
    result = oracle.last(algorithm)
    for i in NEVER:
        assert torch.equal(oracle.model_of(result, i)["theta"], result.state.broadcast["theta"])
    assert result.evaluation.protocol["never_sampled"] == len(NEVER)


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"form": "first"}, "FineTune: form must be one of global, last, got 'first'"),
        ({"tune_epochs": -1}, "FineTune: tune_epochs must be a whole number of at least 0, got -1"),
        ({"tune_lr": 0.0}, "FineTune: tune_lr must be above 0, got 0.0"),
        ({"tune_epochs": 0.5}, "FineTune: tune_epochs must be a whole number of at least 0, got 0.5"),
    ],
)
def test_mistakes_are_told_in_one_line(parameters, line):
    with pytest.raises(FedchordError) as error:
        oracle.build("fedavg-ft", **parameters)
    assert line in str(error.value) and "\n" not in str(error.value)
