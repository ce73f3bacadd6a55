import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from helpers.federations import make_federation

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.clients.plain import Plain
from fedchord.core.local import data_loss, local_round
from fedchord.core.rules import Algorithm, ClientRule, Log, Phase, RoundInfo
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser, Training
from fedchord.engine.simulate import simulate
from fedchord.engine.vectorised import traced
from fedchord.mixing.static import BySize
from fedchord.models import TwoNN
from fedchord.servers.step import Step

INFO = RoundInfo(round=0, rounds=4, num_clients=6, cohort=2, lr=0.1, epochs=2, key=0)


def torch_optimiser(training: Training, parameters) -> torch.optim.Optimizer:
    if training.optimiser == "adam":
        betas = (training.beta1, training.beta2)
        return torch.optim.Adam(parameters, INFO.lr, betas, training.eps, training.weight_decay)
    return torch.optim.SGD(parameters, INFO.lr, training.momentum, weight_decay=training.weight_decay)


SETTINGS = {
    "plain": Training(epochs=2, batch=4),
    "momentum": Training(epochs=2, batch=4, momentum=0.9, weight_decay=0.01),
    "clipped": Training(epochs=2, batch=4, momentum=0.5, clip=0.3),
    "adam": Training(epochs=2, batch=4, optimiser="adam", beta1=0.5, weight_decay=0.01),
    "adam clipped": Training(epochs=2, batch=4, optimiser="adam", clip=0.1),
    "whole client": Training(epochs=2, batch=0, momentum=0.9),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dense", [True, False])
def test_local_round_equals_a_plain_torch_loop(federation, name, dense):
    """Same batches through nn.Module, loss.backward() and torch.optim."""
    training = SETTINGS[name]
    torch.manual_seed(0)
    module = TwoNN(6, 5, 3)
    task = Task(module, dense=dense)
    start = task.init(0)
    stream = ClientStream(federation, 3, training.batch, key=9)
    upload, own, loss = local_round(Plain(), task, training, start, {}, stream, INFO, 3, 1, needs_loss=True)
    rows = federation.train[3]
    x, y = federation.columns["x"][rows], federation.columns["y"][rows]
    assert float(loss) == pytest.approx(float(F.cross_entropy(module(x), y).detach()), abs=1e-6)
    optimiser = torch_optimiser(training, module.parameters())
    for batch in ClientStream(federation, 3, training.batch, key=9).batches(0, Phase(epochs=2)):
        optimiser.zero_grad()
        F.cross_entropy(module(batch["x"]), batch["y"]).backward()
        if training.clip:
            torch.nn.utils.clip_grad_norm_(module.parameters(), training.clip)
        optimiser.step()
    after = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    assert torch.allclose(start["theta"] + upload.mix["theta"], after, atol=2e-6)
    assert own == {} and upload.log == Log() and upload.mean == {}


@pytest.mark.parametrize("name", SETTINGS)
def test_traced_and_fused_steps_agree(name):
    training = SETTINGS[name]
    task = Task(TwoNN(6, 5, 3))
    start, slope = task.fresh(1)["theta"], task.fresh(2)["theta"]
    ends = []
    for kind in (task, traced(task)):
        optimiser = LocalOptimiser(training, 0.1, kind)
        trained = {"theta": start.clone(), "extra": torch.zeros(1)}
        memory = optimiser.init(trained, ("theta",))
        for step in range(3):
            direction = {"theta": slope * (step + 1), "extra": torch.ones(1) * step}
            trained, memory = optimiser.step(trained, direction, memory, ("theta",))
        ends.append(trained)
    assert torch.allclose(ends[0]["theta"], ends[1]["theta"], atol=1e-6)
    assert ends[0]["extra"] == ends[1]["extra"] == 2  # carried entries are replaced
    assert not torch.allclose(ends[0]["theta"], start)


def test_learning_rate_decays_every_s_rounds():
    training = Training(lr=0.5, lr_decay=0.9, lr_step=3)
    assert [training.rate(t) for t in range(7)] == pytest.approx([0.5] * 3 + [0.45] * 3 + [0.405])


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("lr", 0.0, "Training: lr must be above 0, got 0.0"),
        ("momentum", 1.0, "Training: momentum must be at least 0 and below 1, got 1.0"),
        ("optimiser", "rmsprop", "Training: optimiser must be one of sgd, adam, got 'rmsprop'"),
        ("epochs", 1.5, "Training: epochs must be a whole number of at least 0, got 1.5"),
        ("lr_step", 0, "Training: lr_step must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_settings(field, value, line):
    with pytest.raises(FedchordError) as error:
        Training(**{field: value})
    assert str(error.value) == line


@pytest.mark.parametrize("batch", [0, 1, 4, 31, 50])
def test_every_epoch_sees_every_row_once(federation, batch):
    stream = ClientStream(federation, 3, batch, key=2)
    phase = Phase(epochs=3)
    batches = list(stream.batches(0, phase))
    assert len(batches) == stream.steps(phase) == 3 * math.ceil(31 / (batch or 31))
    rows = federation.columns["x"][federation.train[3]]
    for epoch in range(3):
        size = len(batches) // 3
        seen = torch.cat([b["x"] for b in batches[epoch * size : (epoch + 1) * size]])
        assert torch.equal(seen.sort(0).values, rows.sort(0).values)
    assert not torch.equal(batches[0]["x"], batches[len(batches) // 3]["x"]) or batch in (0, 31, 50) or len(rows) == 1


def test_orders_differ_by_epoch_phase_and_key(federation):
    def order(key: int, index: int) -> list[list[int]]:
        return [rows.tolist() for rows in ClientStream(federation, 3, 4, key).order(index, Phase(epochs=2))]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0)[0] != order(1, 0)[1]
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


@pytest.mark.parametrize("steps", [0, 1, 5, 8, 9, 20])
def test_a_phase_can_state_its_steps(federation, steps):
    stream = ClientStream(federation, 3, 4, key=2)  # 31 rows: 8 batches an epoch
    batches = list(stream.batches(0, Phase(steps=steps)))
    assert len(batches) == steps == stream.steps(Phase(steps=steps))
    if steps > 8:
        assert torch.equal(
            torch.cat([b["x"] for b in batches[:8]]).sort(0).values,
            federation.columns["x"][federation.train[3]].sort(0).values,
        )


def test_blocks_do_not_change_the_batches(federation, monkeypatch):
    whole = list(ClientStream(federation, 3, 4, key=2).batches(0, Phase()))
    monkeypatch.setattr("fedchord.core.stream.BLOCK_BYTES", 300)
    pieces = list(ClientStream(federation, 3, 4, key=2).batches(0, Phase()))
    assert all(torch.equal(a["x"], b["x"]) and torch.equal(a["y"], b["y"]) for a, b in zip(whole, pieces, strict=True))
    assert sum(len(b["y"]) for b in ClientStream(federation, 3, 4, key=2).whole()) == 31


def test_images_stay_bytes_until_batched():
    federation = make_federation([6, 6])
    columns = {"x": torch.arange(20 * 6, dtype=torch.uint8).reshape(20, 6), "y": federation.columns["y"]}
    object.__setattr__(federation, "columns", columns)
    batch = next(iter(ClientStream(federation, 0, 6, key=0).batches(0, Phase())))
    assert batch["x"].dtype == torch.float32 and float(batch["x"].max()) == pytest.approx(35 / 255)
    assert columns["x"].dtype == torch.uint8


def test_a_last_batch_too_small_for_batch_normalisation_is_left_out(federation):
    stream = ClientStream(federation, 3, 10, key=2, least=2)  # 31 rows: 10 + 10 + 10 + 1
    assert [len(b["y"]) for b in stream.batches(0, Phase(epochs=2))] == [10] * 6
    assert sum(len(b["y"]) for b in stream.whole()) == 31
    with pytest.raises(FedchordError, match="toy: client 0 has 1 training row; BatchNorm needs 2: use GroupNorm"):
        ClientStream(make_federation([1, 3]), 0, 10, key=2, least=2)


@pytest.mark.parametrize("name", ["plain", "momentum", "whole client"])
def test_the_short_path_of_plain_steps_has_the_same_bits(federation, name, monkeypatch):
    def run() -> torch.Tensor:
        task = Task(lambda: TwoNN(6, 5, 3))
        stream = ClientStream(federation, 3, SETTINGS[name].batch, key=9)
        return local_round(Plain(), task, SETTINGS[name], task.init(1), {}, stream, INFO, 3, 1)[0].mix["theta"]

    short, asked = run(), []

    def never(*arguments) -> bool:
        asked.append(arguments)
        return False

    monkeypatch.setattr("fedchord.core.local.has_default_steps", never)
    assert torch.equal(short, run()) and asked


def test_inputs_are_not_modified(federation):
    task = Task(TwoNN(6, 5, 3))
    shared = task.init(0)
    before = {name: tensor.clone() for name, tensor in shared.items()}
    stream = ClientStream(federation, 0, 4, rng.key(0, "batches", 0, 0))
    local_round(Plain(), task, Training(momentum=0.9), shared, {}, stream, INFO, 0, 1)
    assert all(torch.equal(before[name], shared[name]) for name in shared)


def test_data_loss_is_the_mean_over_rows_not_over_pieces(federation, monkeypatch):
    monkeypatch.setattr("fedchord.core.stream.BLOCK_BYTES", 300)
    task = Task(TwoNN(6, 5, 3))
    model = task.init(0)
    rows = federation.train[3]
    outputs = task.outputs(model["theta"], model["buffers"], federation.batch(rows))
    expected = F.cross_entropy(outputs.double(), federation.columns["y"][rows])
    assert float(data_loss(task, model, ClientStream(federation, 3, 4, 0))) == pytest.approx(float(expected), abs=1e-6)


@dataclass(frozen=True)
class TwoRates(ClientRule):
    """Three stretches: with a rate of its own, with the round's, and with another."""

    def phases(self, visit):
        return Phase(epochs=1, lr=0.03), Phase(epochs=2), Phase(steps=3, lr=0.2)


@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
@pytest.mark.parametrize("dense", [True, False])
def test_a_phase_may_have_its_own_learning_rate(federation, name, dense):
    """Against torch.optim with three rates, made anew for each stretch, so that momentum starts at zero."""
    training = SETTINGS[name]
    torch.manual_seed(0)
    module = TwoNN(6, 5, 3)
    task = Task(module, dense=dense)
    start, stream = task.init(0), ClientStream(federation, 3, training.batch, key=9)
    upload, _, _ = local_round(TwoRates(), task, training, start, {}, stream, INFO, 3, 1)
    for index, (phase, rate) in enumerate(zip(TwoRates().phases(None), (0.03, INFO.lr, 0.2), strict=True)):
        optimiser = torch_optimiser(training, module.parameters())
        for group in optimiser.param_groups:
            group["lr"] = rate
        for batch in ClientStream(federation, 3, training.batch, key=9).batches(index, phase):
            optimiser.zero_grad()
            F.cross_entropy(module(batch["x"]), batch["y"]).backward()
            optimiser.step()
    after = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    assert torch.allclose(start["theta"] + upload.mix["theta"], after, atol=2e-6)


def test_rates_of_phases_are_the_same_for_all_executors(federation):
    algorithm = Algorithm(TwoRates(), BySize(), Step())
    thetas = {}
    for executor in ("serial", "processes", "vectorised"):
        settings = {"rounds": 2, "training": SETTINGS["momentum"], "executor": executor, "workers": 2}
        *_, last = simulate(algorithm, Task(lambda: TwoNN(6, 5, 3)), federation, **settings)
        thetas[executor] = last.state.broadcast["theta"]
    assert torch.equal(thetas["serial"], thetas["processes"])
    assert torch.allclose(thetas["serial"], thetas["vectorised"], atol=1e-5)
