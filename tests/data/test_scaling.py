"""Scaling by client against scikit-learn fitted on the training rows alone; new clients; gaps without scaling."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedchord.check import FedchordError, FedchordWarning
from fedchord.data import DataSet, Natural, Ragged, federate
from fedchord.data.scaling import Scaling, _moments

SCALED = torch.tensor([True, True, False])


def rows(seed: int = 0, count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Features on odd scales with gaps in the first two, and the client of each row."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, generator=generator) * torch.tensor([1.0, 5e4, 1.0]) + torch.tensor([7.0, 2e5, 0.0])
    x[:, :2][torch.rand(count, 2, generator=generator) < 0.2] = torch.nan
    return x, torch.arange(count) % 3


def data_of(x: torch.Tensor, clients: torch.Tensor, scaled: torch.Tensor | None = SCALED, **keys: object) -> DataSet:
    y = torch.arange(len(x)) // 2 % 2
    return DataSet("toy", {"x": x, "y": y}, 2, groups=clients, scaled=scaled, **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_against_scikit_learn(seed: int) -> None:
    x, clients = rows(seed)
    made = federate(data_of(x, clients), Natural(), test=0.2, validation=0.1, seed=seed)
    assert made.num_clients == 3
    for client in range(3):
        train, held = made.train[client], (clients == client).nonzero().flatten()
        oracle = make_pipeline(SimpleImputer(strategy="mean"), StandardScaler()).fit(x[train][:, :2].double().numpy())
        expected = torch.from_numpy(oracle.transform(x[held][:, :2].double().numpy()))
        assert torch.allclose(made.columns["x"][held][:, :2].double(), expected, atol=1e-5)
        assert torch.equal(made.columns["x"][held][:, 2], x[held][:, 2])
    gaps = int(x.isnan().sum())
    told = "2 of 3 features are standardised by each client, with the mean and std of its own training rows"
    assert f"{told}; {gaps} missing values became that mean." in made.notes


def test_test_rows_and_other_clients_have_no_part_in_it() -> None:
    x, clients = rows()
    before = federate(data_of(x, clients), Natural())
    outside = torch.cat([before.test[0], *(before.part(split)[c] for split in ("train", "test") for c in (1, 2))])
    changed = x.clone()
    changed[outside] = 1e6
    after = federate(data_of(changed, clients), Natural())
    train = before.train[0]
    assert torch.equal(after.train[0], train)
    assert torch.equal(after.columns["x"][train], before.columns["x"][train])
    assert not torch.equal(after.columns["x"][before.test[0]], before.columns["x"][before.test[0]])


def test_the_data_set_is_not_changed() -> None:
    x, clients = rows()
    kept = x.clone()
    federate(data_of(x, clients), Natural())
    assert torch.equal(x.nan_to_num(), kept.nan_to_num()) and torch.equal(x.isnan(), kept.isnan())


def test_what_does_not_vary_or_is_not_there_is_zero() -> None:
    nan = float("nan")
    x = torch.tensor([[3.3, nan, 1.0], [3.3, nan, 2.0], [3.3, nan, 3.0], [9.0, 5.0, 4.0], [8.0, 8.0, 8.0]])
    held, train = Ragged.of([torch.arange(4)]), Ragged.of([torch.arange(3)])
    found = Scaling.of(x, torch.tensor([True, True, True]), train).spread(x, held)
    root = (2 / 3) ** 0.5  # the std of 1, 2, 3
    expected = torch.tensor([[0, 0, -1 / root], [0, 0, 0], [0, 0, 1 / root], [0, 0, 2 / root], [0, 0, 0]])
    assert torch.allclose(found, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scaled": torch.tensor([True, False])}, "scaled must be one bool per feature of rows that are vectors"),
        ({"scaled": torch.tensor([1, 1, 0])}, "scaled must be one bool per feature of rows that are vectors"),
        ({"scaled": None}, "column x holds nan at row"),
        ({"holdout": {"x": torch.zeros(1, 3), "y": torch.zeros(1, dtype=torch.int64)}}, "a holdout belongs to no"),
    ],
)
def test_mistakes(change: dict[str, object], message: str) -> None:
    with pytest.raises(FedchordError, match=f"^toy: {message}"):
        federate(data_of(*rows(), **change), Natural())  # type: ignore[arg-type]


def test_infinity_is_no_gap() -> None:
    x, clients = rows()
    x[4, 0] = torch.inf
    with pytest.raises(FedchordError, match=r"^toy: column x holds inf at row 4$"):
        federate(data_of(x, clients), Natural())


def test_gaps_of_features_that_are_not_scaled_become_the_mean() -> None:
    x, clients = rows(3)
    x = x / torch.tensor([1.0, 5e4, 1.0])
    made = federate(data_of(x, clients, torch.tensor([False, False, False])), Natural(), seed=3)
    for client in range(3):
        train, held = made.train[client], (clients == client).nonzero().flatten()
        oracle = SimpleImputer(strategy="mean").fit(x[train].double().numpy())
        expected = torch.from_numpy(oracle.transform(x[held].double().numpy()))
        assert torch.allclose(made.columns["x"][held].double(), expected, rtol=1e-6)
    gaps = int(x.isnan().sum())
    told = f"Features are not scaled; {gaps} missing values became the mean of the client's training rows."
    assert told in made.notes


def test_a_gap_that_a_client_knows_nothing_about_becomes_the_pooled_mean() -> None:
    x = torch.tensor([[float("nan")], [float("nan")], [4.0], [8.0]])
    train = Ragged.of([torch.tensor([0, 1]), torch.tensor([2, 3])])
    found = Scaling.of(x, torch.tensor([False]), train).spread(x, train)
    assert found.flatten().tolist() == [6.0, 6.0, 4.0, 8.0]


def test_rows_of_a_new_client() -> None:
    """By its own rows from 20 on, by the pooled ones below, both against scikit-learn."""
    x, clients = rows(5, 150)
    made = federate(data_of(x, clients, torch.tensor([True, True, True])), Natural(), seed=5)
    assert made.scaling is not None
    fresh, _ = rows(99, 40)
    pipeline = make_pipeline(SimpleImputer(strategy="mean"), StandardScaler())
    own = torch.from_numpy(pipeline.fit_transform(fresh.double().numpy()))
    found, by = made.scaling.newcomer(fresh)
    assert by == "its own 40 rows" and torch.allclose(found.double(), own, atol=1e-5)
    few = fresh[:19]
    pooled = pipeline.fit(x[made.train.rows].double().numpy()).transform(few.double().numpy())
    found, by = made.scaling.newcomer(few)
    assert by == "pooled statistics of the training rows, since the client has 19 rows, fewer than 20"
    assert torch.allclose(found.double(), torch.from_numpy(pooled), atol=1e-5)
    assert torch.equal(made.scaling.newcomer(few, known=fresh)[0], made.scaling.newcomer(fresh)[0][:19])


def test_a_known_client_is_scaled_as_in_training() -> None:
    x, clients = rows(6)
    made = federate(data_of(x, clients), Natural(), seed=6)
    assert made.scaling is not None
    last = made.only([2])
    for federation, number, client in ((made, 1, 1), (last, 0, 2)):
        held = (clients == client).nonzero().flatten()
        assert federation.scaling is not None
        assert torch.equal(federation.scaling.rows(x[held], number), made.columns["x"][held])


def test_large_numbers_keep_their_digits() -> None:
    """Dates in seconds lie 10^9 from zero; in float32 two of them a minute apart would be the same number."""
    x = torch.tensor([[1.7e9], [1.7e9 + 60], [1.7e9 + 120]], dtype=torch.float64)
    found = Scaling.of(x, torch.tensor([True]), Ragged.of([torch.arange(3)])).rows(x, 0)
    assert torch.allclose(found.flatten(), torch.tensor([-1.0, 0.0, 1.0]) * 1.5**0.5, atol=1e-6)


def test_features_of_very_different_spread_are_warned_of() -> None:
    x, clients = rows(7)
    x = x.nan_to_num(7.0)
    with pytest.warns(FedchordWarning, match=r"^toy: features 2 and 1 differ in spread by a factor of .e\+0"):
        federate(data_of(x, clients, None), Natural())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        federate(data_of(x, clients, torch.tensor([True, True, True])), Natural())
        federate(data_of(x[:, [0, 2]], clients, None), Natural())
        federate(data_of(torch.zeros(60, 3), clients, None), Natural())  # nothing varies
        federate(
            data_of(x[:, [0, 2, 0, 0]] * torch.tensor([1, 1e-4, 1, 1]), clients, None), Natural()
        )  # one hardly does


@pytest.mark.parametrize("features", [1, 2, 13])
def test_many_clients_have_the_bits_of_one_by_one(features: int) -> None:
    """Clients alone give the same numbers as all together, with gaps, clients of one row, and blocks that are cut."""
    draw = np.random.default_rng(4)
    sizes = torch.from_numpy(draw.integers(1, 9, 300))
    x = torch.from_numpy(draw.normal(3, 100, (int(sizes.sum()) + 50, features))).float()
    x[torch.from_numpy(draw.random(x.shape)) < 0.1] = torch.nan
    held = Ragged.cut(torch.from_numpy(draw.permutation(len(x)))[: int(sizes.sum())], sizes)
    marked = torch.ones(features, dtype=torch.bool)
    found = Scaling.of(x, marked, held)
    rows = found.spread(x, held)
    for client in range(len(held)):
        own = held[client]
        mean, std = _moments(x[own])
        known = ~mean.isnan()  # elsewhere the pooled mean stands
        assert torch.equal(found.mean[client][known], mean[known]) and torch.equal(found.std[client], std)
        assert torch.equal(rows[own], found.rows(x[own], client))
        expected = np.nanmean(x[own].double().numpy(), 0) if bool(known.all()) else found.mean[client].numpy()
        assert np.allclose(found.mean[client].numpy(), expected, rtol=1e-12)
    left = torch.ones(len(x), dtype=torch.bool)
    left[held.rows] = False
    assert int(left.sum()) == 50 and not rows[left].any()
