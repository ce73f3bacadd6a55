"""Rules of your own in a run: method=my_rule.py:Rule, mixing= and server= alike, and those of installed packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedchord import FedchordError, catalog, plugins
from fedchord.data import SOURCES
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute

RULES = """
from __future__ import annotations

from dataclasses import dataclass

from fedchord.catalog import Method
from fedchord.core.rules import ClientRule, Mix, MixingRule, ServerRule
from fedchord.mixing.static import Uniform
from fedchord.servers.step import Step


@dataclass(frozen=True)
class Near(ClientRule):
    mu: float = 0.1
    lr: float = 1.0

    def loss(self, trained, visit, batch, key):
        data, buffers = visit.task.loss(trained["theta"], trained["buffers"], batch, key)
        away = trained["theta"] - visit.shared["theta"]
        return data + self.mu / 2 * (away * away).sum(), {"buffers": buffers}


@dataclass(frozen=True)
class Needy(ClientRule):
    size: int


@dataclass(frozen=True)
class Picky(ClientRule):
    size: int = 1

    def __post_init__(self):
        if self.size != 1:
            raise ValueError("size must be one")


class Loose(ClientRule):
    pass


@dataclass(frozen=True)
class Mixed(MixingRule):
    power: float = 0.0

    def weigh(self, state, cohort, info):
        weights = cohort.sizes.double() ** self.power
        return Mix(weights / weights.sum(), weights / weights.sum()), {}


@dataclass(frozen=True)
class Server(ServerRule):
    lr: float = 1.0

    def step(self, broadcast, update, state, info):
        return Step(lr=self.lr).step(broadcast, update, state, info)


whole = Method(Near, Uniform, about="near, uniformly")
both = Method(Near, server=Server)
"""
SMALL = {"rounds": 2, "clients": 4, "cohort": 2, "executor": "serial"}


@pytest.fixture
def rules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_rules.py"
    path.write_text(RULES)
    return path


def config(**values) -> RunConfig:
    return RunConfig.from_values(SMALL | values)


def losses(**values) -> list[float]:
    return execute(config(**values))["per_client"]["loss"]


def test_a_client_rule_is_a_method_with_its_parameters(rules):
    own = losses(method="my_rules.py:Near", **{"method.mu": 0.5})
    assert own == pytest.approx(losses(method="fedprox", **{"method.mu": 0.5}), rel=1e-4)
    assert own != pytest.approx(losses(method="fedavg"), rel=1e-6)


def test_a_whole_method_brings_its_mixing_rule(rules):
    own = losses(method="my_rules.py:whole", **{"method.mu": 0})
    assert own == pytest.approx(losses(method="uniform"), rel=1e-5)
    assert own != pytest.approx(losses(method="fedavg"), rel=1e-6)


def test_mixing_and_server_rules_alike(rules):
    mixed = losses(mixing="my_rules.py:Mixed", **{"mixing.power": 1})
    assert mixed == pytest.approx(losses(mixing="by-size"), rel=1e-5)
    stepped = losses(server="my_rules.py:Server", **{"server.lr": 0.5})
    assert stepped == pytest.approx(losses(server="step", **{"server.lr": 0.5}), rel=1e-5)


@pytest.mark.parametrize("values, words", [
    ({"method": "my_rules.py:Neer"}, r"unknown name in my_rules.py 'Neer'; did you mean 'Near'\?"),
    ({"method": "my_rule.py:Near"}, r"method: my_rule.py: no such file; did you mean my_rules.py\?"),
    ({"method": "my_rules.py"}, "name what is in the file, such as method=my_rules.py:Rule"),
    ({"method": "my_rules.py:Mixed"}, "must be a class that inherits from fedchord.ClientRule, got"),
    ({"mixing": "my_rules.py:Near"}, "must be a class that inherits from fedchord.MixingRule, got"),
    ({"server": "my_rules.py:Near"}, "must be a class that inherits from fedchord.ServerRule, got"),
    ({"method": "my_rules.py:Loose"}, r"must be a dataclass: put @dataclass\(frozen=True\) above the class"),
    ({"method": "my_rules.py:Needy"}, "Needy: needs client.size; write client.size=VALUE"),
    ({"method": "my_rules.py:Picky", "method.size": 2}, r"Picky: line \d+: ValueError: size must be one"),
    ({"method": "my_rules.py:Near", "method.nu": 2}, r"unknown parameter of my_rules.py:Near 'method.nu'; did you"),
])  # fmt: skip
def test_mistakes_are_one_line(rules, values, words):
    with pytest.raises(FedchordError, match=words) as caught:
        config(**values)
    assert "\n" not in str(caught.value)


def test_an_ambiguous_field_names_keys_that_work(rules):
    with pytest.raises(FedchordError, match=r"method.lr is ambiguous for my_rules.py:both: write client.lr or server"):
        config(method="my_rules.py:both", **{"method.lr": 0.5})
    made = config(method="my_rules.py:both", **{"client.lr": 0.5, "server.lr": 0.25}).algorithm()
    assert (made.client.lr, made.server.lr) == (0.5, 0.25)


def test_client_parameters_reach_the_client_rule_of_any_method():
    assert config(method="fedprox", **{"client.mu": 0.3}).algorithm().client.mu == 0.3
    with pytest.raises(FedchordError, match=r"unknown parameter of Prox 'client.nu'; did you mean 'client.mu'"):
        config(method="fedprox", **{"client.nu": 0.3})
    with pytest.raises(FedchordError, match=r"method.mu and client.mu are the same parameter; give one of them"):
        config(method="fedprox", **{"client.mu": 0.3, "method.mu": 0.3})


def test_another_method_on_top_leaves_foreign_parameters_out(rules):
    base, said = {"method": "fedprox", "client.mu": 0.3}, []
    found = RunConfig.from_pairs(["method=my_rules.py:Picky"], base, said.append)
    assert found.parameters == ()
    assert said == ["client.mu left out: method=my_rules.py:Picky has no such parameter"]


def test_a_run_is_continued_with_the_same_rule_only(rules):
    execute(config(method="my_rules.py:Near", out="a", checkpoint_every=1))
    os.remove("a/summary.json")
    rules.write_text(RULES.replace("mu: float = 0.1", "mu: float = 0.2"))
    with pytest.raises(FedchordError, match=r"run: my_rules.py:Near has changed since the run was begun"):
        runs.resume("a")
    rules.write_text(RULES)
    assert runs.resume("a")["rounds"] == 2


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with one thing of each kind, as pip would leave it: a module and its metadata."""
    site = tmp_path / "site"
    metadata = site / "fed_more-1.5.dist-info"
    metadata.mkdir(parents=True)
    (site / "fed_more.py").write_text(
        RULES + "\nfrom torch import nn\ndef net(inputs, classes, bias=True): return nn.Sequential(nn.Flatten(), "
        "nn.Linear(inputs, classes, bias=bias))\n"
        "from dataclasses import replace\nfrom fedchord.data import SOURCES\n"
        "few = replace(SOURCES['digits'], name='few')\n"
    )
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fed-more\nVersion: 1.5\n")
    (metadata / "entry_points.txt").write_text(
        "[fedchord.methods]\nnear = fed_more:Near\nnear-uniform = fed_more:whole\nbroken = fed_more:nothing\n"
        "fedavg = fed_more:Near\n"
        "[fedchord.mixings]\nmixed = fed_more:Mixed\n[fedchord.servers]\nplain = fed_more:Server\n"
        "[fedchord.models]\nflat = fed_more:net\n[fedchord.sources]\nfew = fed_more:few\nbad = fed_more:Near\n"
    )
    monkeypatch.syspath_prepend(site)
    plugins.installed.cache_clear()
    yield site
    plugins.installed.cache_clear()
    sys.modules.pop("fed_more", None)
    SOURCES.pop("few", None)


def test_installed_packages_offer_rules_and_models(package):
    values = {"method": "near", "mixing": "mixed", "server": "plain", "model": "flat", "model.bias": False}
    made = config(**values, **{"method.mu": 0.5})
    assert made.algorithm().client.mu == 0.5
    assert made.values()["code"] == "method fed-more 1.5, mixing fed-more 1.5, server fed-more 1.5, model fed-more 1.5"
    assert execute(made)["parameters"] == 640
    assert catalog.method("near-uniform").about == "near, uniformly"


def test_installed_packages_offer_data(package):
    assert losses(data="few") == losses(data="digits")
    assert config(data="few").values()["code"] == "data fed-more 1.5"
    with pytest.raises(FedchordError, match=r"bad: must be a fedchord.data.Source, got type"):
        config(data="bad")


def test_ours_come_first_and_what_does_not_import_is_told(package):
    assert catalog.method("fedavg") is catalog.METHODS["fedavg"]
    assert "code" not in config(method="fedavg").values()
    with pytest.raises(FedchordError, match=r"broken of fed-more 1.5: cannot be imported: AttributeError"):
        config(method="broken")
    with pytest.raises(FedchordError, match=r"unknown method 'neer'; did you mean 'near'\?"):
        config(method="neer")


def test_the_list_names_them_with_their_package_and_imports_nothing(package):
    script = "import sys; from fedchord.cli import main\ntry: main(['list'])\nfinally: print('torch' in sys.modules)"
    path = os.pathsep.join([str(package), str(Path(plugins.__file__).parents[1])])
    told = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    ).stdout.splitlines()
    for name in ("near", "near-uniform", "mixed", "plain", "flat", "few"):
        assert any(line.split() == [name, "from", "the", "package", "fed-more", "1.5"] for line in told), name
    assert told[-1] == "False"
