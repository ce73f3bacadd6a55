"""A model of your own in a run: model=my_net.py:Net with arguments, mistakes in one line, and the file's hash."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest
import torch
from helpers.invoked import invoke

from fedchord import FedchordError
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts
from fedchord.experiments.run import execute

NET = """
from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs, classes, width=16):
        super().__init__()
        self.body = nn.Linear(inputs, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x.flatten(1)).relu())


def make(shape, classes, *, depth=1, width):
    sides = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(sides, width), *[nn.ReLU()] * depth, nn.Linear(width, classes))


class Logits(Net):
    def forward(self, x):
        return SimpleNamespace(logits=super().forward(x))


class Both(Net):
    def forward(self, x):
        return super().forward(x), x


class Lazy(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = nn.LazyLinear(classes)

    def forward(self, x):
        return self.head(x.flatten(1))


class Narrow(Net):
    def __init__(self, inputs, classes=5):
        super().__init__(inputs, 5)


class Flat(Net):
    def forward(self, x):
        return super().forward(x).sum()


class Wrong(Net):
    def forward(self, x):
        return self.head(x.flatten(1))


class Raises(Net):
    def __init__(self, inputs):
        raise ValueError("no such luck")


class Plain:
    pass


def number():
    return 3


ready = nn.Linear(2, 2)
"""
SMALL = {"rounds": 2, "clients": 4, "cohort": 2, "executor": "serial"}


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_net.py"
    path.write_text(NET)
    return path


def config(name: str = "Net", **values) -> RunConfig:
    return RunConfig.from_values(SMALL | {"model": f"my_net.py:{name}"} | values)


def test_it_trains_with_its_arguments_and_the_facts_of_the_data(net):
    parts = Parts.build(config(**{"model.width": 8}))
    shapes = {entry.name: tuple(entry.shape) for entry in parts.task.layout.entries}
    assert shapes == {"body.weight": (8, 64), "body.bias": (8,), "head.weight": (10, 8), "head.bias": (10,)}
    made = Parts.build(config("make", **{"model.width": 7, "model.depth": 2}))
    assert made.task.layout.size == 64 * 7 + 7 + 7 * 10 + 10
    assert np.isfinite(execute(config())["metrics"]["loss"]["mean"])


def test_given_arguments_come_before_the_facts(net):
    with pytest.raises(FedchordError, match="has 12 outputs, but digits has 10 classes"):
        Parts.build(config(**{"model.classes": 12}))


def test_worker_processes_find_the_same_bits(net):
    serial, forked = (execute(config(executor=name, workers=2)) for name in ("serial", "processes"))
    assert serial["per_client"] == forked["per_client"]


@pytest.mark.parametrize("name, words", [
    ("Nett", "unknown name in my_net.py 'Nett'; did you mean 'Net'?"),
    ("", "name what is in the file, such as model=my_net.py:Net"),
    ("Plain", "my_net.py:Plain: is a class, but no nn.Module"),
    ("ready", "is a Linear that is built already, not a class or a function"),
    ("number", "my_net.py:number: must build an nn.Module, got int"),
    ("make", "my_net.py:make: needs model.width; write model.width=VALUE"),
    ("Lazy", r"head.weight is a Lazy layer's \(LazyLinear\)"),
    ("Logits", r"with .logits, not a tensor; return its .logits, or in Python write Task\(model, apply="),
    ("Both", "must give one tensor, got tuple"),
    ("Narrow", "has 5 outputs, but digits has 10 classes; make its last layer 10 wide"),
    ("Flat", r"must give outputs of shape \(2, 10\), got \(\)"),
    ("Wrong", r"my_net.py:Wrong: line \d+: RuntimeError: .* when it was tried on rows of shape \(2, 1, 8, 8\)"),
    ("Raises", r"my_net.py:Raises: line \d+: ValueError: no such luck"),
])  # fmt: skip
def test_common_mistakes_get_a_hint_in_one_line(net, name, words):
    with pytest.raises(FedchordError, match=words) as caught:
        Parts.build(config(name))
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_do_not_import(net, tmp_path):
    with pytest.raises(FedchordError, match=r"my_nett.py: no such file; did you mean my_net.py\?"):
        RunConfig(model="my_nett.py:Net")
    (tmp_path / "bad.py").write_text("import torch\nclass Net(\n")
    with pytest.raises(FedchordError, match=r"bad.py: line 2: SyntaxError"):
        RunConfig(model="bad.py:Net")
    (tmp_path / "worse.py").write_text("import no_such_package\n")
    with pytest.raises(
        FedchordError, match=r"worse.py: line 1: ModuleNotFoundError: No module named 'no_such_package'"
    ):
        RunConfig(model="worse.py:Net")


def test_arguments_are_for_models_of_your_own(net):
    with pytest.raises(FedchordError, match=r"model.width is for a model of your own .* got model=twonn"):
        RunConfig.from_pairs(["model=twonn", "model.width=3"])
    with pytest.raises(FedchordError, match=r"unknown parameter of my_net.py:Net 'model.wide'; did you mean 'model.w"):
        config(**{"model.wide": 3})


@pytest.mark.parametrize("width, objective", [(1, "binary cross-entropy"), (2, "cross-entropy")])
def test_two_classes_may_be_one_output_or_two(net, tmp_path, width, objective):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 3)).astype("float32")
    np.savez(tmp_path / "two.npz", x=x, y=(x[:, 0] > 0).astype("int64"), client=np.arange(80) % 4)
    parts = Parts.build(config(data="two.npz", clients="all", **{"model.classes": width}))
    assert parts.task.objective.name == objective
    assert parts.task.objective.metrics == ("top1", "loss", "auroc", "ece", "mce")
    values = {"data": "two.npz", "clients": "all", "model.classes": width, "lr": 0.5, "rounds": 20, "cohort": "all"}
    assert execute(config(**values))["metrics"]["auroc"]["mean"] > 0.9


def test_the_files_hash_is_in_the_fingerprint_and_the_path_stays_as_given(net):
    before = config()
    assert before.values()["model"] == "my_net.py:Net"
    assert before.values()["code"] == f"model {hashlib.sha256(NET.encode()).hexdigest()}"
    assert config().fingerprint() == before.fingerprint()
    net.write_text(NET + "# another word\n")
    assert config().fingerprint() != before.fingerprint()


def test_a_changed_file_is_imported_anew(net):
    assert Parts.build(config()).task.layout.size == 64 * 16 + 16 + 170
    net.write_text(NET.replace("width=16", "width=4"))
    assert Parts.build(config()).task.layout.size == 64 * 4 + 4 + 50


def test_a_run_is_not_continued_with_another_file(net):
    execute(config(out="a", checkpoint_every=1))
    os.remove("a/summary.json")
    net.write_text(NET + "# another word\n")
    with pytest.raises(FedchordError, match=r"run: my_net.py:Net has changed since the run was begun; start a new"):
        runs.resume("a")
    net.write_text(NET)
    assert runs.resume("a")["rounds"] == 2


def test_a_run_folders_settings_run_again_and_with_another_model(net):
    execute(config(out="a", **{"model.width": 8}))
    again = RunConfig.from_toml("a/config.toml", ["out=b"])
    assert again.free("model") == {"width": 8}
    said = []
    other = RunConfig.from_toml("a/config.toml", ["out=b", "model=logreg"], said.append)
    assert "code" not in other.values() and other.free("model") == {}
    assert said == ["model.width left out: model=logreg has no such parameter"]


def test_the_command_tells_a_mistake_before_any_work(net):
    found = invoke("run", "model=my_net.py:Narrow", "rounds=1", "out=a")
    assert isinstance(found.exception, FedchordError)
    assert not os.path.exists("a")


def test_the_first_model_is_drawn_from_the_runs_seed(net):
    one, two = (Parts.build(config(seed=seed)).task.init(seed)["theta"] for seed in (1, 2))
    assert not torch.equal(one, two)
