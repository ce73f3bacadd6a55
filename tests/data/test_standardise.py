"""Standardisation by client against scikit-learn fitted on the training rows alone."""

import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedchord.check import FedchordError
from fedchord.data import DataSet, Natural, Ragged, federate
from fedchord.data.standardise import standardise

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
    found = standardise(x, torch.tensor([True, True, True]), held, train)
    root = (2 / 3) ** 0.5  # the std of 1, 2, 3
    expected = torch.tensor([[0, 0, -1 / root], [0, 0, 0], [0, 0, 1 / root], [0, 0, 2 / root], [0, 0, 0]])
    assert torch.allclose(found, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scaled": torch.tensor([True, False])}, "scaled must be one bool per feature of rows that are vectors"),
        ({"scaled": torch.tensor([1, 1, 0])}, "scaled must be one bool per feature of rows that are vectors"),
        ({"scaled": torch.tensor([True, False, True])}, "column x holds nan at row"),
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
