"""Metrics of predicted numbers against scikit-learn, and what is for classes alone."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from fedchord import metrics
from fedchord.check import FedchordError

SIZES = [5, 0, 17, 2]
ORACLES = {"mse": mean_squared_error, "mae": mean_absolute_error, "r2": r2_score}


def drawn(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    true = 100 * torch.randn(sum(SIZES), generator=generator) + 1e4
    said = true + 30 * torch.randn(sum(SIZES), generator=generator)
    return said[:, None], true, torch.tensor([0, *SIZES]).cumsum(0)


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_client_against_scikit_learn(name: str, seed: int) -> None:
    said, true, offsets = drawn(seed)
    found = metrics.by_client([name], said, true, offsets)[name]
    for client, (start, stop) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        if start == stop:
            assert math.isnan(found[client])
        else:
            expected = ORACLES[name](true[start:stop].double(), said[start:stop, 0].double())
            assert float(found[client]) == pytest.approx(expected, rel=1e-9)
    one = metrics.METRICS[name](said, true)
    assert one == pytest.approx(ORACLES[name](true.double(), said[:, 0].double()), rel=1e-9)


def test_what_does_not_vary_has_no_r2() -> None:
    found = metrics.by_client(["r2", "mae"], torch.ones(3, 1), torch.full((3,), 2.0), torch.tensor([0, 3]))
    assert math.isnan(found["r2"]) and float(found["mae"]) == 1


def test_a_diverged_model_is_not_flattered() -> None:
    said, true, offsets = drawn()
    said[6] = math.nan
    found = metrics.by_client(["mse", "mae", "r2"], said, true, offsets)
    assert found["mse"][2] == found["mae"][2] == math.inf and found["r2"][2] == -math.inf
    assert torch.isfinite(found["mse"][0]) and torch.isfinite(found["r2"][3])


def test_metrics_fit_what_is_predicted() -> None:
    said, true, offsets = drawn()
    for name in ("top1", "auroc", "f1", "ece"):
        with pytest.raises(FedchordError, match=f"^{name}: is for classes, not for numbers to predict$"):
            metrics.by_client([name], said, true, offsets)
    with pytest.raises(FedchordError, match=r"^r2: is for numbers to predict, not for classes$"):
        metrics.by_client(["r2"], torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), torch.tensor([0, 3]))
    metrics.register("bias", lambda scores, labels: float((scores[:, 0] - labels).mean()))
    try:
        found = metrics.by_client(["bias"], said, true, offsets)["bias"]
        assert float(found[0]) == pytest.approx(float((said[:5, 0] - true[:5]).mean()))
    finally:
        del metrics.METRICS["bias"], metrics._FORMULAS["bias"]
        metrics.HIGHER_IS_BETTER.discard("bias")
    assert "r2" in metrics.HIGHER_IS_BETTER and not {"mse", "mae"} & metrics.HIGHER_IS_BETTER
