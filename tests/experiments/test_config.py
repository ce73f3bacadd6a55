"""Settings of a run: the same names everywhere, every mistake told in one line before any work."""

from __future__ import annotations

import dataclasses
import tomllib

import pytest
import torch

from fedchord import FedchordError, catalog
from fedchord.data import SOURCES
from fedchord.experiments.config import INDIFFERENT, KEYS, RunConfig, about
from fedchord.experiments.run import execute
from fedchord.experiments.settings import parse_value
from fedchord.models import MODELS


def test_defaults_are_a_run_on_digits():
    assert RunConfig().values() == {
        "method": "fedavg",
        "model": "twonn",
        "data": "digits",
        "split": "pathological",
        "clients": 20,
        "test": 0.2,
        "validation": 0.0,
        "noise": "none",
        "rounds": 20,
        "cohort": 5,
        "seed": 0,
        "epochs": 1,
        "batch": 10,
        "lr": 0.05,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "lr_decay": 1.0,
        "lr_step": 1,
        "clip": 0.0,
        "optimiser": "sgd",
        "executor": "processes",
        "device": "auto",
        "eval_every": 1,
        "checkpoint_every": 10,
    }


def test_choices_follow_the_data():
    assert RunConfig(data="cifar10").choices()["model"] == "twocnn"
    assert RunConfig(data="mnist").choices() | {"eval_every": 0} == {
        "model": "twonn",
        "split": "pathological",
        "clients": 20,
        "cohort": 5,
        "noise": "none",
        "eval_every": 0,
    }
    natural = RunConfig(data="qmnist").choices()
    assert (natural["split"], natural["clients"]) == ("natural", "all")
    assert "cohort" not in natural  # how many clients there are is not known yet
    assert RunConfig(data="qmnist", split="iid").choices()["clients"] == 20
    assert RunConfig(rounds=500).choices()["eval_every"] == 10
    assert RunConfig(rounds=500, eval_every=0).choices()["eval_every"] == 0


def test_every_key_has_a_line_of_help():
    assert set(about()) == set(KEYS)
    assert all(text and "\n" not in text for _, text in about().values())
    assert set(KEYS) > INDIFFERENT


def test_pairs_and_toml_say_the_same(tmp_path):
    pairs = ["method=fedprox", "method.mu=0.1", "split=dirichlet", "split.alpha=0.5", "rounds=3", "cohort=0.5"]
    quoted = tmp_path / "quoted.toml"
    quoted.write_text(
        'method = "fedprox"\n"method.mu" = 0.1\nsplit = "dirichlet"\n"split.alpha" = 0.5\nrounds = 3\ncohort = 0.5\n'
    )
    tables = tmp_path / "tables.toml"
    tables.write_text(
        'rounds = 3\ncohort = 0.5\n[method]\nname = "fedprox"\nmu = 0.1\n[split]\nname = "dirichlet"\nalpha = 0.5\n'
    )
    expected = RunConfig.from_pairs(pairs)
    assert RunConfig.from_toml(quoted) == RunConfig.from_toml(tables) == expected
    assert expected.algorithm().client.mu == 0.1  # type: ignore[attr-defined]
    assert RunConfig.from_pairs(["seed=4"], {"method": {"name": "fedprox", "mu": 0.1}}).seed == 4


def test_what_is_written_can_be_read_again(tmp_path):
    config = RunConfig.from_pairs(
        ["method=fedadam", "server.lr=0.1", "cohort=all", "noise=pair", "noise.rate=0.2", "out=a"]
    )
    file = tmp_path / "config.toml"
    file.write_text(config.to_toml())
    again = RunConfig.from_toml(file)
    assert again.values() == config.values()
    assert again.fingerprint() == config.fingerprint()
    assert '"server.lr" = 0.1' in file.read_text()
    assert tomllib.loads(file.read_text())["noise.rate"] == 0.2


def test_with_values_makes_choices_anew():
    config = RunConfig.from_pairs(["data=cifar10", "method=fedprox", "method.mu=1"])
    changed = config.with_values(data="mnist", **{"split.shards": 3})
    assert changed.choices()["model"] == "twonn"
    assert changed.split_shards == 3
    assert changed.parameters == (("method.mu", 1),)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("5.", 5.0),
        ("true", True),
        ('"3"', "3"),
        ("all", "all"),
        ("runs/a", "runs/a"),
        ("2024-01-01", "2024-01-01"),
        ("[1, 2]", "[1, 2]"),
        ("1\nx = 2", "1\nx = 2"),
    ],
)
def test_values_are_toml_scalars_or_text(text, value):
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_the_usual_model_reads_the_data(federation):
    usual = {"shakespeare": "lstm-characters", "reddit": "lstm-words", "speechcommands": "m5", "cifar100": "twocnn"}
    for data, name in (usual | {"mnist": "twonn"}).items():
        assert RunConfig.from_pairs([f"data={data}"]).choices()["model"] == name
    words = dataclasses.replace(federation, columns=federation.columns | {"x": torch.zeros((99, 80)).long()})
    with pytest.raises(FedchordError) as error:
        RunConfig.from_pairs(["data=shakespeare", "model=twonn"]).task(words)
    assert str(error.value) == (
        "run: shakespeare has rows of token numbers, which twonn does not read; use model=lstm-characters, lstm-words "
        "or encoder:FOLDER"
    )
    assert RunConfig.from_pairs(["data=shakespeare"]).task(words).layout.size > 0


def test_names_stay_text():
    assert RunConfig.from_pairs(["out=2024"]).out == "2024"
    assert RunConfig.from_pairs(['out="my runs"']).out == "my runs"


def test_the_fingerprint_is_of_what_changes_the_result():
    config = RunConfig()
    same = ["out=x", "executor=serial", "workers=1", "device=cpu", "eval_every=3", "checkpoint_every=1", "data.root=/x"]
    for pair in [*same, "model=twonn", "split=pathological", "clients=20", "lr=0.05", "noise=none"]:
        assert config.with_pairs([pair]).fingerprint() == config.fingerprint(), pair
    for pair in [
        "seed=1",
        "lr=0.06",
        "method=uniform",
        "rounds=21",
        "cohort=1",
        "test=0.3",
        "method.lr=0.5",
        "model=logreg",
    ]:
        assert config.with_pairs([pair]).fingerprint() != config.fingerprint(), pair
    one, everyone = (RunConfig(cohort=cohort).fingerprint() for cohort in (1, 1.0))
    assert one != everyone
    assert RunConfig(cohort="all").fingerprint() == everyone


def test_builders():
    config = RunConfig.from_pairs(["clients=10", "split.shards=1", "model=logreg", "momentum=0.9", "cohort=0.3"])
    federation = config.federation()
    assert federation.num_clients == 10
    assert config.plan().size(10) == 3
    assert config.training().momentum == 0.9
    assert config.task(federation).layout.size == 650
    noisy = config.with_pairs(["noise=symmetric", "noise.rate=0.5"]).federation()
    assert 0.3 < float((noisy.columns["y"] != federation.columns["y"]).double().mean()) < 0.5


def test_two_classes_are_a_binary_task(tmp_path):
    rows = "\n".join(f"{i},{i % 7},{'yes' if i % 3 else 'no'},{'abc'[i % 3]}" for i in range(30))
    (tmp_path / "own.csv").write_text(f"age,dose,label,client\n{rows}\n")
    config = RunConfig(data=str(tmp_path / "own.csv"), cohort=2)
    federation = config.federation()
    assert federation.client_names == ("a", "b", "c")
    assert federation.columns["x"].shape == (30, 2)  # the client column is no feature, whatever the split
    assert "auroc" in config.task(federation).objective.metrics
    assert config.with_values(split="iid", clients=5).federation().columns["x"].shape == (30, 2)


def test_npz_files_hold_the_clients(tmp_path):
    import numpy as np

    path = tmp_path / "own.npz"
    np.savez(path, x=np.arange(24).reshape(12, 2), y=np.arange(12) % 3, client=np.arange(12) // 6)
    federation = RunConfig(data=str(path), cohort="all").federation()
    assert federation.num_clients == 2
    assert federation.columns["x"].dtype == torch.float32


MISTAKES = {
    "method=fedpox": "unknown method 'fedpox'; did you mean 'fedprox'?",
    "data=mnits": "unknown data set 'mnits'; did you mean 'mnist'?",
    "rouds=3": "unknown key 'rouds'; did you mean 'rounds'? (see: fedchord list keys)",
    "method.nu=1": "unknown parameter of fedavg 'method.nu'",
    "model=twonm": "unknown model 'twonm'; did you mean 'twonn'? (known: cgan, cvae, efficientnet-b0, ",
    "split=dirichelt": "unknown split 'dirichelt'; did you mean 'dirichlet'?",
    "noise=pairs": "unknown noise 'pairs'; did you mean 'pair'? (known: none, pair, symmetric)",
    "mixing=by-sise": "unknown mixing rule 'by-sise'; did you mean 'by-size'?",
    "server=adam": "unknown server rule 'adam'; did you mean 'fedadam'?",
    "server.x=1": "unknown parameter of Step 'server.x'",
    "lr=-1": "Training: lr must be above 0, got -1.0",
    "lr=fast": "run: lr must be a finite number, got 'fast'",
    "lr=nan": "run: lr must be a finite number, got nan",
    "momentum=1": "Training: momentum must be at least 0 and below 1, got 1.0",
    "optimiser=rmsprop": "Training: optimiser must be one of sgd, adam, got 'rmsprop'",
    "batch=2.5": "run: batch must be a whole number, got 2.5",
    "rounds=0": "run: rounds must be a whole number of at least 1, got 0",
    "seed=-1": "run: seed must be a whole number of at least 0, got -1",
    "seed=true": "run: seed must be a whole number, got True",
    "cohort=30": "run: cohort must be at most the number of clients, 20, got 30",
    "cohort=1.5": "run: cohort as a share must be above 0 and at most 1, got 1.5",
    "cohort=half": "run: cohort must be a number of clients, a share such as 0.25, or all, got 'half'",
    "clients=0": "run: clients must be a whole number of at least 1, got 0",
    "clients=many": "run: clients must be a whole number or all, got 'many'",
    "clients=all": "run: clients=all needs split=natural, got split=pathological",
    "test=0": "run: test must be above 0, got 0.0",
    "test=1": "split: test must be at least 0 and below 1, got 1.0",
    "validation=0.9": "split: test and validation must leave training rows, got 0.2 and 0.9",
    "split.shards=0": "Pathological: shards must be a whole number of at least 1, got 0",
    "split.alpha=1": "run: split=pathological takes split.shards, got split.alpha",
    "split=dirichlet": "run: split=dirichlet needs split.alpha",
    "noise=pair": "run: noise.rate is needed with noise=pair",
    "noise.rate=0.2": "run: noise.rate is 0.2, but noise is not chosen (pair or symmetric)",
    "noise.rate=2": "run: noise.rate must be between 0 and 1, got 2.0",
    "executor=fast": "run: executor must be one of auto, processes, ranks, serial, vectorised, got 'fast'",
    "rounds=1e23": "run: rounds must be at most 10000000, got 99999999999999991611392",
    "epochs=0": "run: epochs must be a whole number of at least 1, got 0",
    "seed=1e26": "run: seed must be at most 9223372036854775807, got 100000000000000004764729344",
    "workers=100000": "run: workers must be at most 1024, got 100000",
    "workers=0": "run: workers must be a whole number of at least 1, got 0",
    "device=tpu": "run: device must be auto, cpu or cuda, got 'tpu'",
    "eval_every=-1": "run: eval_every must be a whole number of at least 0, got -1",
    "rounds": "run: 'rounds' is not a setting; settings are key=value, for example rounds=50",
    "rounds=": "run: rounds has no value; write rounds=VALUE",
}


def test_whole_numbers_may_be_written_like_1e3():
    config = RunConfig.from_pairs(["rounds=1e3", "clients=1e2", "seed=2.0"])
    assert (config.rounds, config.clients, config.seed) == (1000, 100, 2)
    assert all(type(value) is int for value in (config.rounds, config.clients, config.seed))
    assert config.fingerprint() == RunConfig(rounds=1000, clients=100, seed=2).fingerprint()


def test_the_usual_cohort_is_all_where_clients_are_few(tmp_path):
    """A cohort that is named must fit; one that is not is five, or everybody, also when its file is run again."""
    own = tmp_path / "own.csv"
    own.write_text("a,label,client\n" + "".join(f"{i},{i % 2},{i % 4}\n" for i in range(40)))
    config = RunConfig(data=str(own))
    assert config.plan().size(config.federation().num_clients) == 4
    assert config.plan().size(6) == 5
    assert RunConfig(clients=3).plan().size(3) == 3
    for one in (config, RunConfig(clients=3), RunConfig(newcomers=17)):
        (tmp_path / "config.toml").write_text(one.to_toml())
        again = RunConfig.from_toml(tmp_path / "config.toml")
        assert again.cohort is None and again.fingerprint() == one.fingerprint()
    assert RunConfig().fingerprint() == RunConfig(cohort=5).fingerprint()
    with pytest.raises(FedchordError, match="cohort must be at most the number of clients, 3, got 5"):
        RunConfig(clients=3, cohort=5)


@pytest.mark.parametrize("pair", MISTAKES)
def test_a_mistake_is_one_line(pair):
    with pytest.raises(FedchordError) as caught:
        RunConfig.from_pairs([pair])
    message = str(caught.value)
    assert message.startswith(MISTAKES[pair])
    assert "\n" not in message


def test_mistakes_of_several_settings():
    with pytest.raises(FedchordError, match="run: seed is given twice"):
        RunConfig.from_pairs(["seed=1", "seed=2"])
    with pytest.raises(FedchordError, match=r"Prox: mu must be at least 0, got -1"):
        RunConfig.from_pairs(["method=fedprox", "method.mu=-1"])
    with pytest.raises(FedchordError, match=r"Prox: mu must be a finite number, got 'x'"):
        RunConfig.from_pairs(["method=fedprox", "method.mu=x"])
    with pytest.raises(
        FedchordError,
        match="Adam takes theta and cannot be used with Scaffold, which sends theta and control",
    ):
        RunConfig.from_pairs(["method=scaffold", "server=fedadam"])
    with pytest.raises(FedchordError, match="method must be a word, got 3"):
        RunConfig.from_values({"method": 3})
    with pytest.raises(FedchordError, match=r"method.mu must be one value, got \[1\]"):
        RunConfig.from_values({"method": "fedprox", "method.mu": [1]})
    with pytest.raises(FedchordError, match=r"run: split.alpha is given twice"):
        RunConfig.from_values({"split": {"alpha": 1}, "split.alpha": 2})


def test_mistakes_in_files(tmp_path):
    bad = tmp_path / "bad.toml"
    with pytest.raises(FedchordError, match=r"bad\.toml: no such file"):
        RunConfig.from_toml(bad)
    bad.write_text('method = "fedprox"\nmethod.mu = 0.1\n')
    with pytest.raises(FedchordError, match=r'is not valid TOML: .*; dotted names go in quotes: "method.mu" = 0.1'):
        RunConfig.from_toml(bad)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(FedchordError, match="is not a text file in UTF-8"):
        RunConfig.from_toml(bad)
    with pytest.raises(FedchordError, match=r"data: nowhere.csv: no such file"):
        RunConfig(data="nowhere.csv").federation()
    with pytest.raises(FedchordError, match=r"Pathological: 2000 clients need at least 4000 rows, got 1797"):
        RunConfig(clients=2000).federation()
    (tmp_path / "own.csv").write_text("a,label\n1,x\n2,y\n")
    with pytest.raises(FedchordError, match="Pathological: 20 clients need at least 40 rows, got 2"):
        RunConfig(data=str(tmp_path / "own.csv")).federation()


@pytest.mark.parametrize("method", ["fedavg", "superfed-mm", "fedevg"])
def test_the_algorithm_of_a_run_is_built_once(method, tmp_path, monkeypatch):
    built = []

    def counted(name, *rest):
        built.append(name)
        return build(name, *rest)

    build = catalog.build
    monkeypatch.setattr(catalog, "build", counted)
    pairs = [f"method={method}", "clients=4", "cohort=2", "rounds=1", "executor=serial", f"out={tmp_path / 'a'}"]
    config = RunConfig.from_pairs(pairs)
    execute(config)
    assert built == [method]
    assert config.algorithm() is config.algorithm()
    other = config.with_values(lr=0.1)
    assert built == [method] * 2 and other.algorithm() == config.algorithm()


def test_the_nature_of_a_data_set_stands_on_its_record():
    tables = {"heart", "berka", "berka-before", "berka-leaking"}
    texts = {"shakespeare", "reddit", "shakespeare_words"}
    natural = tables | texts | {"qmnist", "mqp", "isic", "femnist", "celeba", "speechcommands"}
    assert {name for name, source in SOURCES.items() if source.natural} == natural
    assert {name for name, source in SOURCES.items() if source.table} == tables
    for name, source in SOURCES.items():
        made = RunConfig(data=name).choices()
        assert (made["model"], made["split"] == "natural") == (source.model, source.natural)
        assert source.model in MODELS
    assert RunConfig(data="heart", method="fedevg").choices()["model"] == "twonn"  # pictures' model reads no table
