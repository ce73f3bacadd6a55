"""FedEvg on tables: categories that clients code differently, test rows outside the range of training rows, bounds."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from fedchord import catalog, rng
from fedchord.data import DataSet, Natural, federate
from fedchord.data.federation import Block, Federation, Ragged
from fedchord.engine.simulate import simulate
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments import reading
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.report import tables
from fedchord.report.cells import Cell, mark_best
from fedchord.report.show import result_notes
from fedchord.synthetic.learn import Judge, learn
from fedchord.synthetic.set import drawn, load_set
from fedchord.synthetic.utility import utility

MARK, KIND = Block(1, 2, none=True), Block(2, 5)


def table(rows: tuple[int, int] = (60, 30)) -> DataSet:
    """A number, a mark and a category of three codes at two clients, who have them with other frequencies; every
    client standardises all of them. The label is the mark, mostly."""
    generator = torch.Generator().manual_seed(4)
    parts, labels = [], []
    for client, count in enumerate(rows):
        y = (torch.arange(count) % 2 == 0).long()
        flip = torch.rand(count, generator=generator) < 0.15
        mark = torch.where(flip, 1 - y, y) if client == 0 else ((torch.arange(count) < 4) | flip).long()
        code = (torch.arange(count) % (3 + 4 * client)).clamp_max(2)
        number = torch.randn(count, generator=generator) + y
        hot = torch.nn.functional.one_hot(code, 3)
        parts.append(torch.cat([number[:, None], mark[:, None], hot], 1).float())
        labels.append(y)
    groups = torch.arange(2).repeat_interleave(torch.tensor(rows))
    columns = {"x": torch.cat(parts), "y": torch.cat(labels)}
    return DataSet(
        *("small", columns, 2, groups),
        group_names=("a", "b"),
        scaled=torch.ones(5, dtype=torch.bool),
        blocks=(MARK, KIND),
    )


def ends(federation: Federation, client: int) -> tuple[Tensor, Tensor]:
    rows = federation.columns["x"][federation.train[client]]
    return rows.amin(0), rows.amax(0)


def test_categories_are_coded_as_by_the_average_client():
    federation = federate(table(), Natural(), seed=2)
    n = federation.train.sizes.double()
    (low_a, high_a), (low_b, high_b) = ends(federation, 0), ends(federation, 1)
    assert low_a[1] != pytest.approx(float(low_b[1]), rel=0.1)  # the same mark, coded differently
    inputs = federation.inputs
    for feature in range(1, 5):
        low = float((n[0] * low_a[feature] + n[1] * low_b[feature]) / n.sum())
        high = float((n[0] * high_a[feature] + n[1] * high_b[feature]) / n.sum())
        assert float(inputs.low[feature]) == pytest.approx(low, abs=1e-6)
        assert float(inputs.high[feature]) == pytest.approx(high, abs=1e-6)
    rows = federation.columns["x"][federation.train.rows]
    assert inputs.low[0] == rows[:, 0].min() and inputs.high[0] == rows[:, 0].max()
    assert inputs.observed


def test_codes_that_all_clients_share_stay_even_where_a_client_has_only_one_of_them():
    x = torch.tensor([[0.0, 1], [1, 1], [0, 1], [0, 0], [0, 0]])
    none = Ragged.of([torch.zeros(0, dtype=torch.int64)] * 3)
    train = Ragged.of([torch.arange(3), torch.arange(3, 5), torch.arange(0)])
    toy = Federation("toy", {"x": x, "y": torch.tensor([0, 1, 0, 1, 0])}, 2, train, none, none, ("a", "b", "c"))
    toy = Federation(**(vars(toy) | {"blocks": (Block(0, 2),)}))
    assert toy.inputs.low.tolist() == [0, 0] and toy.inputs.high.tolist() == [1, 1]


def test_a_run_ends_with_codes_of_the_average_client():
    federation = federate(table(), Natural(), seed=2)
    config = RunConfig.from_pairs(["method=fedevg-tables", "data=heart", "cohort=all"])
    task = config.task(federation)
    algorithm = catalog.build("fedevg-tables", {"spc": 5})
    *_, last = simulate(algorithm, task, federation, rounds=3, executor="serial")
    made = drawn(Fitted.of(last))
    lows, highs = (torch.stack(part) for part in zip(*(ends(federation, c) for c in (0, 1)), strict=True))
    inputs = federation.inputs
    for feature in range(1, 5):
        column = made.x[:, feature]
        near_low, near_high = (torch.isclose(column, end[feature]) for end in (inputs.low, inputs.high))
        assert bool((near_low | near_high).all())
        # between the codings of the two clients, and at an extreme that only one of them has nowhere
        assert float(column.min()) > float(lows[:, feature].min()) + 1e-3
        assert float(column.max()) < float(highs[:, feature].max()) - 1e-3
    high = torch.isclose(made.x[:, 2:5], inputs.high[2:5])
    assert high.sum(1).tolist() == [1] * 10


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run, with a test row far outside the range of the training rows."""
    folder = tmp_path_factory.mktemp("tables") / "run"
    pairs = ["method=fedevg-tables", "data=heart", "cohort=all", "rounds=1", "executor=serial", "judge.privacy=true"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedchord.experiments.build.load_source", lambda *arguments: table())
        config = RunConfig.from_pairs([*pairs, "judge.features=classifier", f"out={folder}"])
        federation = config.federation()
        federation.columns["x"][federation.test.rows[0], 0] = 50.0
        patch.setattr(RunConfig, "federation", lambda self: federation)
        return folder, federation, runs.execute(config)


def test_quality_and_privacy_take_test_rows_outside_the_range_of_training_rows(done):
    folder, federation, summary = done
    assert float(federation.inputs.high[0]) < 50
    found = summary["synthetic"]
    assert found["quality"]["frechet"] > 0 and 0 <= found["privacy"]["membership"] <= 1
    assert float(load_set(folder).x[:, 0].max()) < 50


def test_all_real_rows_stand_beside_as_many(done):
    folder, federation, summary = done
    assert json.loads((folder / "summary.json").read_text())["synthetic"] == summary["synthetic"]
    numbers = summary["synthetic"]["numbers"]
    every = federation.batch(federation.train.rows)
    learnt = learn(Judge(), {"x": every["x"], "y": every["y"]}, 2, rng.key(0, "judge"))
    assert numbers["real"]["mean"] == utility(learnt, federation).clients["auroc"]
    assert numbers["real"]["mean"] != numbers["upper"]["mean"]
    assert f"all real training rows {numbers['real']['mean']:.4f}." in "\n".join(result_notes(summary, "a"))
    (row,) = tables.tabulate([reading.read(folder)], ["real"], ["mean"]).rows
    assert row[-1].number == pytest.approx(100 * numbers["real"]["mean"])


@pytest.mark.parametrize(
    ("metric", "best"),
    [
        ("official", [False, True]),
        ("frechet", [True, False]),
        ("kid", [True, False]),
        *((name, [False, False]) for name in ("upper", "lower", "real", "real_frechet", "real_kid", "membership")),
        *((name, [False, False]) for name in ("upper_official", "lower_official", "real_official")),
    ],
)
def test_bounds_are_no_contest(metric, best):
    found = [Cell("", number) for number in (0.2, 0.4)]
    assert [cell.best for cell in mark_best(found, metric, "mean")] == best


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_the_usual_model_takes_own_tables(tmp_path, suffix):
    own = table()
    x, y, client = own.columns["x"].numpy(), own.columns["y"].numpy(), own.groups.numpy()
    path = tmp_path / f"own.{suffix}"
    if suffix == "npz":
        np.savez(path, x=x, y=y, client=client)
    else:
        lines = [",".join(map(str, [*row, label, who])) for row, label, who in zip(x, y, client, strict=True)]
        path.write_text("\n".join(["a,b,c,d,e,label,client", *lines]) + "\n")
    config = RunConfig.from_pairs(["method=fedevg-tables", f"data={path}", "cohort=all", "rounds=1", "executor=serial"])
    assert config.choices()["model"] == "twonn"
    assert runs.execute(config)["synthetic"]["samples"] == 20
    pictures = RunConfig.from_pairs(["method=fedevg", "data=digits"])
    assert pictures.choices()["model"] == "smallconv"
