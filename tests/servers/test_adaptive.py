"""Server optimisers: Adam's bias correction against torch.optim, and all of them against Flower's strategies."""

import math

import pytest
import torch

from fedchord.check import FedchordError
from fedchord.core.rules import RoundInfo, Update
from fedchord.servers.adaptive import Adagrad, Adam, Momentum, Yogi

CHANGES = [
    torch.tensor([0.5, -1.0, 0.0, 2.0]),
    torch.tensor([0.1, 0.3, -0.2, -4.0]),
    torch.tensor([1.0, 1.0, 1.0, 0.5]),
]
START = torch.tensor([1.0, 2.0, 3.0, 4.0])


def info(round: int) -> RoundInfo:
    return RoundInfo(round, 3, 10, 2, 0.1, 1, 0)


def play(rule) -> list[torch.Tensor]:
    broadcast, path = {"theta": START}, []
    state = rule.init(broadcast)
    for round, change in enumerate(CHANGES):
        broadcast, state = rule.step(broadcast, Update({"theta": change}), state, info(round))
        path.append(broadcast["theta"])
    return path


def test_adam_with_bias_correction_is_torch_adam():
    """torch divides by sqrt(v / c2) + eps, the paper's form by (sqrt(v) + tau) / sqrt(c2): equal for eps = tau = 0+."""
    path = play(Adam(lr=0.1, beta1=0.8, beta2=0.9, tau=1e-12, v0=0.0, bias_correction="adam"))
    parameter = torch.nn.Parameter(START.clone())
    optimiser = torch.optim.Adam([parameter], 0.1, (0.8, 0.9), 1e-12)
    for change, ours in zip(CHANGES, path, strict=True):
        parameter.grad = -change
        optimiser.step()
        assert torch.allclose(ours, parameter.detach(), atol=1e-5)


def test_momentum_is_torch_sgd():
    path = play(Momentum(lr=0.3, beta=0.7))
    parameter = torch.nn.Parameter(START.clone())
    optimiser = torch.optim.SGD([parameter], 0.3, 0.7)
    for change, ours in zip(CHANGES, path, strict=True):
        parameter.grad = -change
        optimiser.step()
        assert torch.allclose(ours, parameter.detach(), atol=1e-6)


def test_first_round_by_hand():
    """One update in the first round, from m = 0 and v = tau^2, on the coordinate with change 2."""
    m, tau = 0.2 * 2.0, 0.5
    v = {"adam": 0.9 * tau**2 + 0.1 * 4.0, "yogi": tau**2 + 0.1 * 4.0, "adagrad": tau**2 + 4.0}
    rules = {
        "adam": Adam(lr=0.1, beta1=0.8, beta2=0.9, tau=tau),
        "yogi": Yogi(lr=0.1, beta1=0.8, beta2=0.9, tau=tau),
        "adagrad": Adagrad(lr=0.1, beta1=0.8, tau=tau),
    }
    for name, rule in rules.items():
        assert float(play(rule)[0][3]) == pytest.approx(4.0 + 0.1 * m / (math.sqrt(v[name]) + tau), abs=1e-6)


def test_bad_values():
    with pytest.raises(FedchordError, match=r"Adam: bias_correction must be one of none, adam, flower, got True"):
        Adam(bias_correction=True)
    with pytest.raises(FedchordError, match=r"Yogi: tau must be above 0, got 0"):
        Yogi(tau=0)
    with pytest.raises(FedchordError, match=r"Adagrad: v0 must be at least 0, got -1"):
        Adagrad(v0=-1)


FLOWER = {
    "FedAdam": (
        Adam(lr=0.1, beta1=0.8, beta2=0.9, tau=1e-3, v0=0.0, bias_correction="flower"),
        {"beta_1": 0.8, "beta_2": 0.9},
    ),
    "FedYogi": (Yogi(lr=0.1, beta1=0.8, beta2=0.9, tau=1e-3, v0=0.0), {"beta_1": 0.8, "beta_2": 0.9}),
    "FedAdagrad": (Adagrad(lr=0.1, tau=1e-3, v0=0.0), {}),
}


@pytest.fixture
def in_a_flower_run():
    """Flower builds messages only inside a run; give this process one for the time of the test."""
    pytest.importorskip("flwr.serverapp.strategy", reason="the extra peers is not installed")
    from flwr.supercore.task_identity import TaskIdentity

    before = TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id
    TaskIdentity._run_id = TaskIdentity._node_id = TaskIdentity._task_id = 1
    yield
    TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id = before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("in_a_flower_run")
@pytest.mark.parametrize("name", FLOWER)
def test_against_flowers_strategies(name):
    """Two clients of 10 and 30 examples reply with models whose weighted mean is the start plus the change."""
    from flwr.common import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import strategy as strategies

    rule, betas = FLOWER[name]
    strategy = getattr(strategies, name)(eta=0.1, tau=1e-3, **betas)
    current = START
    for round, (change, ours) in enumerate(zip(CHANGES, play(rule), strict=True)):
        replies = []
        for examples, shift in ((10, 3.0), (30, -1.0)):  # 10 * 3 + 30 * (-1) = 0
            arrays = ArrayRecord({"theta": Array((current + change + shift).numpy())})
            content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": examples})})
            replies.append(Message(content=content, dst_node_id=0, message_type="train"))
        strategy.current_arrays = {"theta": current.numpy()}
        after, _ = strategy.aggregate_train(round + 1, replies)
        current = torch.from_numpy(after["theta"].numpy().copy()).float()
        assert torch.allclose(ours, current, atol=2e-6), round
