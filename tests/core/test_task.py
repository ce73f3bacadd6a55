import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.core.dense import Dense
from fedchord.core.objective import BINARY, CLASSIFICATION, mean_loss
from fedchord.core.task import Task
from fedchord.engine.vectorised import traced
from fedchord.models import EfficientNetB0, LogisticRegression, TwoCNN, TwoNN
from fedchord.tensors import Layout


def batch_of(shape: tuple[int, ...], classes: int, rows: int = 7) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "x": torch.randn(rows, *shape, generator=generator),
        "y": torch.randint(0, classes, (rows,), generator=generator),
    }


def autograd_oracle(module: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Gradient by `backward` on the module itself."""
    module = copy.deepcopy(module)
    F.cross_entropy(module(batch["x"]), batch["y"]).backward()
    return torch.cat([p.grad.reshape(-1) for p in module.parameters()])


MODELS = {
    "logreg": (lambda: LogisticRegression(12, 4), (3, 2, 2), 4),
    "twonn": (lambda: TwoNN(12, 9, 4), (12,), 4),
    "no bias": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 5, bias=False), nn.ReLU(), nn.Linear(5, 4)),
        (12,),
        4,
    ),
    "twocnn": (lambda: TwoCNN(1, 8, 4, hidden=16), (1, 8, 8), 4),
    "tanh": (lambda: nn.Sequential(nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 4)), (12,), 4),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_gradient_path_equals_autograd(name):
    make, shape, classes = MODELS[name]
    torch.manual_seed(0)
    module, batch = make(), batch_of(shape, classes)
    expected = autograd_oracle(module, batch)
    for task in (Task(module), Task(module, dense=False), traced(Task(module))):
        state = task.init(0)
        before = state["theta"].clone()
        gradient, _ = task.grad(state["theta"], state["buffers"], batch, 0)
        assert torch.allclose(gradient, expected, atol=1e-6), task
        assert torch.equal(state["theta"], before)
    assert (Task(module).dense is not None) == (name in ("logreg", "twonn", "no bias"))


def test_dense_gradient_with_padding_equals_the_real_rows_alone():
    task = Task(TwoNN(5, 4, 3))
    state, batch = task.init(0), batch_of((5,), 3)
    real = {"x": batch["x"][:4], "y": batch["y"][:4]}
    padded = batch | {"live": torch.tensor([1.0] * 4 + [0.0] * 3)}
    expected = task.grad(state["theta"], state["buffers"], real, 0)[0]
    assert torch.allclose(task.grad(state["theta"], state["buffers"], padded, 0)[0], expected, atol=1e-7)
    slow = Task(TwoNN(5, 4, 3), dense=False)
    assert torch.allclose(slow.grad(state["theta"], state["buffers"], padded, 0)[0], expected, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.int64, torch.float32])
@pytest.mark.parametrize("module", [TwoNN(5, 4, 1), nn.Sequential(nn.Linear(5, 1, bias=False))])
def test_dense_gradient_of_one_logit(module, kind):
    """Against autograd, with padding and without; a softmax objective on one output has no such gradient."""
    task, slow = Task(module, objective=BINARY), Task(module, objective=BINARY, dense=False)
    state, x = task.init(0), torch.randn(7, 5)
    batch = {"x": x, "y": torch.tensor([0, 1, 1, 0, 1, 0, 0], dtype=kind)}
    assert task.dense is not None
    for extra in ({}, {"live": torch.tensor([1.0] * 4 + [0.0] * 3)}):
        ours = task.grad(state["theta"], state["buffers"], batch | extra, 0)[0]
        assert torch.allclose(ours, slow.grad(state["theta"], state["buffers"], batch | extra, 0)[0], atol=1e-6)
        assert ours.norm() > 0.01
    assert Task(TwoNN(5, 4, 2), objective=BINARY).dense is None


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)),
        nn.Sequential(nn.Linear(3, 3), nn.ReLU()),
        nn.Sequential(nn.ReLU(), nn.Linear(3, 3)),
        nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.ReLU(), nn.Linear(3, 3)),
        nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 3)),
        nn.Linear(3, 3),
    ],
)
def test_dense_refuses_what_it_does_not_know(module):
    assert Dense.of(module, Layout.of_parameters(module)) is None


def test_dense_refuses_tied_frozen_and_hooked_stacks():
    tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    frozen = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    frozen[0].bias.requires_grad = False
    hooked = nn.Sequential(nn.Linear(3, 3))
    hooked[0].register_forward_hook(lambda m, i, o: o * 2)
    for module in (tied, frozen, hooked):
        assert Dense.of(module, Layout.of_parameters(module)) is None


def test_dense_follows_the_vector_it_is_given():
    """Views are cached by vector: another vector, or the same one changed in place, must give its own gradient."""
    task, batch = Task(TwoNN(5, 4, 3)), batch_of((5,), 3)
    slow = Task(TwoNN(5, 4, 3), dense=False)
    a, b = task.fresh(1), task.fresh(2)
    for theta in (a["theta"], b["theta"], a["theta"]):
        assert torch.allclose(
            task.grad(theta, a["buffers"], batch, 0)[0], slow.grad(theta, a["buffers"], batch, 0)[0], atol=1e-6
        )
    a["theta"].mul_(2)
    assert torch.allclose(
        task.grad(a["theta"], a["buffers"], batch, 0)[0], slow.grad(a["theta"], a["buffers"], batch, 0)[0], atol=1e-6
    )


def test_loss_is_differentiable_and_right():
    module, batch = TwoNN(5, 4, 3), batch_of((5,), 3)
    task = Task(module)
    state = task.init(0)
    theta = state["theta"].requires_grad_()
    loss, _ = task.loss(theta, state["buffers"], batch, 0)
    assert torch.allclose(loss.detach(), F.cross_entropy(module(batch["x"]), batch["y"]).detach(), atol=1e-6)
    assert torch.allclose(torch.autograd.grad(loss, theta)[0], autograd_oracle(module, batch), atol=1e-6)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.norm(self.a(x))))


def test_buffers_move_as_in_the_module():
    module, batch = Normed(), batch_of((4,), 3)
    task = Task(module)
    state = task.init(0)
    assert len(state["buffers"]) == 13
    _, buffers = task.grad(state["theta"], state["buffers"].clone(), batch, 0)
    reference = copy.deepcopy(module).train()
    reference(batch["x"])
    assert torch.allclose(buffers[:6], reference.norm.running_mean) and torch.allclose(
        buffers[6:12], reference.norm.running_var
    )
    assert buffers[12] == 1
    _, by_loss = task.loss(state["theta"], state["buffers"], batch, 0)
    assert torch.allclose(by_loss, buffers)
    reference.eval()
    assert torch.allclose(task.outputs(state["theta"], buffers, batch), reference(batch["x"]), atol=1e-6)
    exported = task.state_dict(state["theta"], buffers)
    assert exported["norm.num_batches_tracked"].dtype == torch.int64
    Normed().load_state_dict(exported)


def test_a_parameter_with_two_names_is_the_same_under_both():
    def tied() -> nn.Sequential:
        module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        module[2].weight = module[0].weight
        return module

    task, batch = Task(tied), batch_of((4,), 4)
    state = task.fresh(7)
    other = tied()
    other.load_state_dict(task.state_dict(state["theta"], state["buffers"]))  # before the task has seen these weights
    assert torch.allclose(other(batch["x"]), task.outputs(state["theta"], state["buffers"], batch), atol=1e-6)


def test_dropout_is_drawn_from_the_key():
    task = Task(nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)))
    state, batch = task.init(0), batch_of((4,), 3)
    one, two, again = (task.grad(state["theta"], state["buffers"], batch, key)[0] for key in (1, 2, 1))
    assert torch.equal(one, again) and not torch.equal(one, two)
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    task.grad(state["theta"], state["buffers"], batch, 5)
    assert torch.equal(torch.rand(2), expected)


def test_start_is_the_module_or_drawn_from_the_key():
    module = TwoNN(5, 4, 3)
    given = Task(module)
    assert torch.equal(given.init(1)["theta"], nn.utils.parameters_to_vector(module.parameters()))
    assert torch.equal(given.init(1)["theta"], given.init(2)["theta"])
    assert not torch.equal(given.fresh(1)["theta"], given.init(1)["theta"])
    built = Task(lambda: TwoNN(5, 4, 3))
    assert torch.equal(built.init(3)["theta"], built.init(3)["theta"])
    assert not torch.equal(built.init(3)["theta"], built.init(4)["theta"])
    with rng.seeded(3):
        assert torch.equal(built.init(3)["theta"], nn.utils.parameters_to_vector(TwoNN(5, 4, 3).parameters()))


def test_a_task_leaves_the_given_module_alone():
    module = Normed()
    before = copy.deepcopy(module.state_dict())
    task = Task(module)
    state = task.init(0)
    task.grad(state["theta"] + 1, state["buffers"], batch_of((4,), 3), 0)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_errors():
    with pytest.raises(FedchordError, match="no trainable parameters"):
        Task(nn.ReLU())
    with pytest.raises(FedchordError, match=r"must return an nn\.Module, got int"):
        Task(lambda: 3)

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))

    with pytest.raises(FedchordError, match="pass a function that builds the model"):
        Task(Bare()).fresh(0)


def test_objectives_count_units():
    outputs = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    batch = {"y": torch.tensor([0, 0])}
    expected = F.cross_entropy(outputs, batch["y"])
    assert torch.allclose(mean_loss(CLASSIFICATION, outputs, batch), expected)
    one_logit = torch.tensor([[0.3], [-0.2]])
    expected = F.binary_cross_entropy_with_logits(one_logit[:, 0], torch.tensor([0.0, 1.0]))
    assert torch.allclose(mean_loss(BINARY, one_logit, {"y": torch.tensor([0, 1])}), expected)


class Dropped(nn.Module):
    """BatchNorm behind Dropout and a block that is skipped by chance, and a count that is no statistic."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.drop, self.norm, self.b = nn.Linear(6, 5), nn.Dropout(0.5), nn.BatchNorm1d(5), nn.Linear(5, 3)
        self.register_buffer("places", torch.arange(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(torch.relu(self.a(x)))
        if self.training:
            x = x * x.new_empty(len(x), 1).bernoulli_(0.5)
        return self.b(self.norm(x))


@pytest.mark.parametrize("how", [lambda task: task, traced])
def test_statistics_draw_nothing(how):
    """The same twice, no number drawn, and those of a plain loop: means of the batches' means and variances."""
    module = Dropped()
    task = how(Task(module))
    theta = task.init(0)["theta"]
    batches = [batch_of((6,), 3, rows=rows) for rows in (7, 4, 1)]  # a row by itself has no statistics
    batches[1]["x"] = batches[1]["x"] * 3 + 1
    state = torch.get_rng_state()
    found = [task.statistics(theta, batches) for _ in range(2)]
    assert torch.equal(*found) and torch.equal(state, torch.get_rng_state())
    seen = [torch.relu(module.a(batch["x"])).detach() for batch in batches[:2]]
    named = task.buffers.views(found[0])
    torch.testing.assert_close(named["norm.running_mean"], sum(x.mean(0) for x in seen) / 2)
    torch.testing.assert_close(named["norm.running_var"], sum(x.var(0) for x in seen) / 2)
    assert named["norm.num_batches_tracked"] == 2 and named["places"].tolist() == [0, 1, 2, 3]


def test_statistics_leave_modes_and_momentum_as_they_were():
    task = Task(Dropped())
    parts, start = dict(task.named_modules()), task.init(0)
    parts[""].train(True)
    parts["drop"].train(False)

    def batches():
        yield batch_of((6,), 3)
        raise RuntimeError("no more rows")

    with pytest.raises(RuntimeError, match="no more rows"):
        task.statistics(start["theta"], batches())
    modes = {name: part.training for name, part in parts.items()}
    assert modes == {name: name != "drop" for name in parts} and parts["norm"].momentum == 0.1


def test_statistics_without_a_batch_do_not_depend_on_what_ran_before():
    task = Task(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)))
    start = task.init(0)
    task.grad(start["theta"], start["buffers"], batch_of((6,), 3), key=1)  # binds these buffers, and changes them
    assert float(start["buffers"][:5].abs().sum()) > 0
    found = task.buffers.views(task.statistics(start["theta"], [batch_of((6,), 3, rows=1)]))
    assert [t.tolist() for t in found.values()] == [[0.0] * 5, [1.0] * 5, 0.0]
    alone = Task(nn.BatchNorm1d(6))  # the module itself is the layer
    x = batch_of((6,), 6)["x"]
    found = alone.buffers.views(alone.statistics(alone.init(0)["theta"], [batch_of((6,), 6)]))
    torch.testing.assert_close(found["running_mean"], x.mean(0))


def test_statistics_that_a_module_keeps_frozen_stay():
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[1].eval()
            return self

    module = Frozen(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.BatchNorm1d(5))
    module[1].running_mean.fill_(3.0)
    task = Task(module)
    found = task.buffers.views(task.statistics(task.init(0)["theta"], [batch_of((6,), 5)]))
    assert found["1.running_mean"].tolist() == [3.0] * 5 and found["1.num_batches_tracked"] == 0
    assert found["2.num_batches_tracked"] == 1 and float(found["2.running_mean"].abs().sum()) > 0


def test_statistics_of_efficientnet_are_reproducible():
    task = Task(lambda: EfficientNetB0(2))
    theta, batch = task.init(0)["theta"], batch_of((3, 32, 32), 2, rows=3)
    with torch.random.fork_rng(devices=[]):
        found = [task.statistics(theta, [batch]) for _ in range(2)]
    assert torch.equal(*found)
