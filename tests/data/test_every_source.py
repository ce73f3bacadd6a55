"""Two rounds of FedAvg, SuPerFed-LM and AAggFF on every public data set, with the model that the thesis has for it.

The data are random rows in the official layouts (`official.put`), so what is tested is that everything fits: files,
split, shapes, objective, buffers, sweep.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.official import PIECES, put

from fedchord.data import SOURCES
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute

SHARDS: dict[str, Any] = {"clients": 3}
DIRICHLET: dict[str, Any] = {"split": "dirichlet", "split.alpha": 10.0, "split.minimum": 4, "clients": 3}
SILOS = ("heart", "berka", "berka-leaking", "berka-before", "mqp", "isic")
"""Few clients, all of them in every round: AAggFF-S; the others have AAggFF-D."""

CASES: dict[str, dict[str, Any]] = {
    "digits": {"model": "twonn", "clients": 60},
    "mnist": {"model": "twonn", **SHARDS},
    "qmnist": {"model": "twonn"},
    "cifar10": {"model": "twocnn", **SHARDS},
    "cifar100": {"model": "resnet9", **DIRICHLET},
    "tinyimagenet": {"model": "mobilenet-short", "augment": True, **DIRICHLET},
    "femnist": {"model": "vgg9"},
    "shakespeare": {"model": "lstm-characters"},
    "celeba": {"model": "leafconv"},
    "reddit": {"model": "lstm-words"},
    "shakespeare_words": {"model": "lstm-words-200"},
    "speechcommands": {"model": "m5"},
    "heart": {"model": "logreg"},
    "berka": {"model": "logreg"},
    "berka-leaking": {"model": "logreg"},
    "berka-before": {"model": "logreg"},
    "mqp": {"model": "encoder"},
    "isic": {"model": "efficientnet-b0", "augment": True, "class_weights": True},
    "dermamnist": {"model": "resnet10", **DIRICHLET},
    "dermamnist_64": {"model": "resnet10", **DIRICHLET},
    "organcmnist": {"model": "resnet10", **DIRICHLET},
    "organcmnist_64": {"model": "resnet10", **DIRICHLET},
}
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "superfed-lm": {"method.warmup": 0.5},
    "aaggff": {},
}


def test_every_source_has_a_case() -> None:
    assert sorted(CASES) == sorted(SOURCES)


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The root of each data set, made when it is first asked for."""
    return {name: tmp_path_factory.mktemp(name) for name in CASES}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DistilBERT of two narrow layers with random weights."""
    transformers = pytest.importorskip("transformers", reason="the extra text is not installed")
    folder = tmp_path_factory.mktemp("encoder")
    config = transformers.DistilBertConfig(
        vocab_size=len(PIECES), dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=200
    )
    transformers.DistilBertModel(config).save_pretrained(folder)
    return folder


LARGE = {name for name in CASES if name == "isic" or name.endswith("_64")}
"""Pictures that take seconds a run: one method each, another for the next of them."""
PAIRS = [(name, method) for name in CASES for method in METHODS if name not in LARGE]
PAIRS += list(zip(sorted(LARGE), itertools.cycle(METHODS), strict=False))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_two_rounds(
    name: str, method: str, roots: dict[str, Path], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)
    case = dict(CASES[name])
    if case["model"] == "encoder":
        case["model"] = f"encoder:{request.getfixturevalue('encoder')}"
    root = roots[name]
    if not any(root.iterdir()):
        put(name, root)
    silo = name in SILOS
    chosen = {"aaggff": "aaggff-s" if silo else "aaggff-d"}.get(method, method)
    common = {"data": name, "data.root": str(root), "rounds": 2, "batch": 4, "lr": 0.01, "executor": "serial"}
    cohort = "all" if silo else 2
    config = RunConfig.from_values(common | case | METHODS[method] | {"method": chosen, "cohort": cohort})
    summary = execute(config)
    headline = "auroc" if SOURCES[name].classes == 2 else "top1"
    assert summary["protocol"]["round"] == 2 and summary["protocol"]["evaluated"] >= 2
    assert math.isfinite(summary["metrics"]["loss"]["mean"])
    assert 0 <= summary["metrics"][headline]["mean"] <= 1
    if method == "superfed-lm":
        swept = summary["sweep"]
        assert len(swept["mean"]) == 11 and all(0 <= value <= 1 for value in swept["mean"])
    else:
        assert summary["sweep"] is None
