import math
import operator

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedchord.check import FedchordError
from fedchord.tensors import Layout, clone, cosine, num_bytes, row, stack, weighted_sum


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False))


def test_layout_covers_the_parameters_in_order():
    module = net()
    layout = Layout.of_parameters(module)
    assert layout.size == 3 * 4 + 4 + 4 + 4 + 4 * 2
    assert layout.modules == ("0", "1", "2")
    theta = layout.flatten(dict(module.named_parameters()))
    assert torch.equal(theta, nn.utils.parameters_to_vector(module.parameters()))
    for name, view in layout.views(theta).items():
        assert torch.equal(view, module.get_parameter(name))
        assert view.data_ptr() >= theta.data_ptr()  # a view, not a copy
    layout.views(theta)["0.bias"].fill_(7)
    assert (theta[12:16] == 7).all()


def test_layout_of_buffers_knows_the_counters():
    layout = Layout.of_buffers(net())
    assert [e.name for e in layout.entries] == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert layout.counters.tolist() == [False] * 8 + [True]


def test_frozen_and_tied_parameters():
    module = net()
    module[0].weight.requires_grad = False
    assert Layout.of_parameters(module).size == 4 + 4 + 4 + 8
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert Layout.of_parameters(tied).size == 9 + 3 + 3


def test_spread_gives_each_module_one_value():
    layout = Layout.of_parameters(net())
    spread = layout.spread(torch.tensor([1.0, 2.0, 3.0]))
    assert spread.tolist() == [1.0] * 16 + [2.0] * 8 + [3.0] * 8


def test_select_and_rest_split_the_vector():
    layout = Layout.of_parameters(net())
    head = layout.select(["2"])
    assert head.tolist() == list(range(24, 32))
    assert layout.rest(head).tolist() == list(range(24))
    assert layout.select(["0.bias"]).tolist() == [12, 13, 14, 15]
    with pytest.raises(FedchordError, match=r"unknown module '7' \(known: 0, 1, 2\)"):
        layout.select(["7"])


def test_select_does_not_match_half_a_name():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.header = nn.Linear(1, 1), nn.Linear(1, 1)

    assert Layout.of_parameters(Two()).select(["head"]).tolist() == [0, 1]


def test_weighted_sum_against_a_loop():
    generator = torch.Generator().manual_seed(0)
    stacked = torch.randn(5, 3, 4, generator=generator)
    weights = torch.rand(5, generator=generator, dtype=torch.float64)
    expected = sum(float(w) * x for w, x in zip(weights, stacked, strict=True))
    assert torch.allclose(weighted_sum(weights, stacked), expected, atol=1e-6)


def test_cosine_by_hand():
    a, b = torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0])
    assert float(cosine(a, b)) == pytest.approx(24 / 25)
    assert float(cosine(a, 2 * b)) == pytest.approx(24 / 25)
    assert float(cosine(a, torch.zeros(2))) == 0.0


class Doubles(TorchDispatchMode):
    """Notes the longest float64 tensor that is made."""

    longest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64:
                self.longest = max(self.longest, tensor.numel())
        return made


def test_the_cosine_of_eleven_million_numbers_is_exact_and_copies_no_vector():
    """Oracle: numpy in float64, itself checked by exact sums of a part. float32 sums are off by 0.08 %."""
    draw = np.random.default_rng(0)
    a = draw.standard_normal(11_000_003, dtype=np.float32)
    b = a + 3 * draw.standard_normal(len(a), dtype=np.float32)

    def whole(x, y):
        x, y = x.astype(np.float64), y.astype(np.float64)
        return (x @ y) / math.sqrt(x @ x) / math.sqrt(y @ y)

    few, near = a[:1000].tolist(), b[:1000].tolist()
    sums = [math.fsum(map(operator.mul, *pair)) for pair in ((few, near), (few, few), (near, near))]
    assert whole(a[:1000], b[:1000]) == pytest.approx(sums[0] / math.sqrt(sums[1] * sums[2]), rel=1e-13)
    with Doubles() as doubles:
        found = cosine(torch.from_numpy(a), torch.from_numpy(b))
    assert found.dtype == torch.float32 and float(found) == pytest.approx(whole(a, b), rel=1e-7)
    assert 0 < doubles.longest <= 1 << 16


def test_stack_row_clone_bytes():
    states = [{"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([3.0, 4.0])}]
    stacked = stack(states)
    assert torch.equal(row(stacked, 1)["a"], states[1]["a"])
    copy = clone(states[0])
    copy["a"][0] = 9
    assert states[0]["a"][0] == 1
    assert num_bytes({"a": torch.zeros(3), "b": torch.zeros(2, dtype=torch.int64)}) == 28
    with pytest.raises(FedchordError):
        stack([])
