"""Every model under `local_round`, two steps of FedAvg beside a plain torch loop; executors; private parts."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers.networks import BATCH_NORM, RECURRENT, TINY, inputs
from torch import Tensor, nn

from fedchord import simulate
from fedchord.catalog import build as method
from fedchord.check import FedchordError
from fedchord.clients.plain import Plain
from fedchord.core.local import local_round
from fedchord.core.objective import CLASSIFICATION, Batch, Objective
from fedchord.core.rules import Phase, RoundInfo
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation, Ragged
from fedchord.models import MODELS, ResNet, SmallConvNet, build

INFO = RoundInfo(round=0, rounds=1, num_clients=2, cohort=1, lr=0.05, epochs=1, key=0)


def _token_losses(outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
    losses = F.cross_entropy(outputs.transpose(1, 2), batch["y"], reduction="none")
    return losses.sum(1), torch.full((len(losses),), float(losses.shape[1]))


TOKENS = Objective("next tokens", _token_losses, lambda o, b: (o.flatten(0, 1), b["y"].flatten()), ("top1",))


def tiny_federation(name: str, clients: int = 1, rows: int = 6) -> Federation:
    """Random rows and labels; for models that predict at every step, a label per token."""
    classes = TINY[name][1]
    x = inputs(name, clients * rows)
    shape = tuple(x.shape) if "words" in name else (len(x),)
    y = torch.randint(classes, shape, generator=torch.Generator().manual_seed(1))
    train = Ragged.of(torch.arange(len(x)).split(rows))
    none = Ragged.of([torch.zeros(0, dtype=torch.int64)] * clients)
    return Federation("toy", {"x": x, "y": y}, classes, train, none, train, tuple(f"c{i}" for i in range(clients)))


@pytest.mark.parametrize("name", MODELS)
def test_two_steps_of_fedavg_equal_a_plain_loop(name: str) -> None:
    federation, objective = tiny_federation(name), TOKENS if "words" in name else CLASSIFICATION
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build(name, *TINY[name])
    for part in module.modules():  # what is drawn is drawn differently by a plain loop
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if type(part).__name__ == "Residual":
            part.skip = 0.0
    task, training = Task(module, objective), Training(epochs=1, batch=3, momentum=0.9)
    start = task.init(0)
    stream = ClientStream(federation, 0, 3, key=9, least=task.least_batch)
    # BatchNorm over a dozen values, as deep inside EfficientNet here, makes long steps chaotic
    info = replace(INFO, lr=1e-5) if name == "efficientnet-b0" else INFO
    upload, own, loss = local_round(Plain(), task, training, start, {}, stream, info, 0, 1, needs_loss=True)
    plain = copy.deepcopy(module).train()
    optimiser = torch.optim.SGD(plain.parameters(), info.lr, 0.9)
    batches = list(ClientStream(federation, 0, 3, key=9).batches(0, Phase(epochs=1)))
    assert len(batches) == 2 and own == {} and loss is not None and bool(loss.isfinite())
    last = getattr(plain, "channels_last", False)  # so that kernels round alike, where long steps are chaotic
    for batch in batches:
        optimiser.zero_grad()
        outputs = plain(batch["x"].contiguous(memory_format=torch.channels_last) if last else batch["x"])
        F.cross_entropy(outputs.flatten(0, -2), batch["y"].flatten()).backward()
        optimiser.step()
    change = nn.utils.parameters_to_vector(plain.parameters()).detach() - start["theta"]
    assert change.norm() > 0
    assert float((upload.mix["theta"] - change).norm() / change.norm()) < 1e-3
    assert bool(task.buffers.size) == (name in BATCH_NORM)
    statistics = [buffer.reshape(-1).float() for buffer in plain.buffers()]
    if statistics:
        carried = next(iter(upload.carry.values()))
        torch.testing.assert_close(carried, torch.cat(statistics), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["smallconv", "resnet9", "resnet10", "leafconv", "spectral"])
def test_vectorised_equals_serial(name: str) -> None:
    def make() -> nn.Module:
        if name.startswith("resnet"):
            return ResNet(3, 3, depth=int(name[6:]), width=4)
        if name == "spectral":
            return SmallConvNet(2, (9, 8), 3, width=4, activation="silu", spectral=True)
        return build(name, *TINY[name])

    federation = tiny_federation("smallconv" if name == "spectral" else name, clients=3, rows=5)
    ends = []
    for executor in ("serial", "vectorised"):
        run = simulate(
            method("fedavg"),
            Task(make),
            federation,
            rounds=2,
            cohort=3,
            seed=1,
            training=Training(batch=2),
            executor=executor,
        )
        *_, last = run
        ends.append(last.state.broadcast["theta"])
    assert ends[0].isfinite().all()
    torch.testing.assert_close(ends[0], ends[1], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "line"),
    [("lstm-characters", "lstm is a recurrent layer"), ("m5", r"BatchNorm1d\) computes statistics over a batch")],
)
def test_what_cannot_be_vectorised_is_named(name: str, line: str) -> None:
    run = simulate(
        method("fedavg"),
        Task(lambda: build(name, *TINY[name])),
        tiny_federation(name, clients=2),
        rounds=1,
        cohort=2,
        training=Training(batch=3),
        executor="vectorised",
    )
    with pytest.raises(FedchordError, match=line):
        list(run)


@pytest.mark.parametrize("name", ["superfed-lm", "fedper", "lg-fedavg", "ditto", "fedadam"])
@pytest.mark.parametrize("model", ["m5", "lstm-characters", "resnet9"])
def test_methods_run_on_models_with_statistics_and_recurrence(name: str, model: str) -> None:
    def make() -> nn.Module:
        return ResNet(3, 3, depth=9, width=4) if model == "resnet9" else build(model, *TINY[model])

    federation = tiny_federation(model, clients=2)
    run = simulate(
        method(name), Task(make), federation, rounds=2, cohort=2, training=Training(batch=3), executor="serial"
    )
    *_, last = run
    assert last.state.broadcast["theta"].isfinite().all()
    sizes = {"fedper": "head", "lg-fedavg": "head"}
    if name in sizes:
        module = make()
        head = sum(p.numel() for n, p in module.named_parameters() if n.startswith("head."))
        whole = sum(p.numel() for p in module.parameters())
        assert len(last.state.broadcast["theta"]) == (head if name == "lg-fedavg" else whole - head)


def test_recurrent_names_are_known() -> None:
    assert set(RECURRENT) <= set(MODELS) == set(TINY)
