"""Runs of personal methods: who deploys the global model, where mixing begins, where the line is measured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedchord import FedchordError
from fedchord.cli import read_settings
from fedchord.experiments import reading, study
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.report import show, study_table, tables, words

TINY = ["model=twonn", "clients=8", "cohort=2", "rounds=4", "executor=serial", "seed=3"]


def execute(*pairs: str) -> dict[str, Any]:
    return runs.execute(RunConfig.from_pairs([*TINY, *pairs]))


def with_cohorts(tmp_path, *pairs: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    summary = execute(*pairs, f"out={tmp_path / 'run'}")
    return summary, [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]


# -- clients without a model of their own --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "first", "told"),
    [
        (["method=superfed-mm", "method.start_round=2"], 3, True),
        (["method=superfed-mm", "method.warmup=1.0"], 5, True),  # nobody has two models: there is no sweep
        (["method=apfl"], 1, True),
        (["method=fedavg-ft", "method.form=last"], 1, True),
        (["method=fedavg-ft"], None, False),
        (["method=fedavg-ft", "method.tune_epochs=0"], 5, True),
        (["method=superfed-stateless"], None, False),
        (["method=superfed-stateless", "method.tune_epochs=0"], 5, True),
        (["method=fedper"], None, False),
        (["method=local"], None, False),
    ],
)
def test_clients_that_deploy_the_global_model_are_counted_and_shown(tmp_path, pairs, first, told):
    """Those whom no cohort held since the rule trains a model of theirs."""
    summary, lines = with_cohorts(tmp_path, *pairs)
    own = {client for line in lines if first is not None and line["round"] >= first for client in line["cohort"]}
    expected = 0 if first is None else 8 - len(own)
    protocol = summary["protocol"]
    assert protocol["global_model"] == expected and told == bool(expected)
    if summary["sweep"]:
        assert summary["sweep"]["one_model"] == expected
    sampled = {client for line in lines for client in line["cohort"]}
    assert protocol["never_sampled"] == 8 - len(sampled)
    line = show.result_notes(summary, None)[0]
    verb = "deploys" if expected == 1 else "deploy"
    words = f", {expected} {verb} the global model." if told else "."
    assert line.endswith(f"{protocol['never_sampled']} were never sampled{words}")
    made = tables.tabulate(reading.read_all([tmp_path / "run"])[0])
    assert f"clients that deploy the global model: {expected}" in made.notes


def test_one_model_for_all_is_not_counted_as_a_lack(tmp_path):
    summary = execute(f"out={tmp_path / 'a'}")
    assert "deploy the global model" not in "\n".join(show.result_notes(summary, None))
    assert "deploy the global model" not in "\n".join(tables.tabulate(reading.read_all([tmp_path / "a"])[0]).notes)
    execute("method=ditto", f"out={tmp_path / 'b'}")
    notes = tables.tabulate(reading.read_all([tmp_path])[0]).notes
    (line,) = [note for note in notes if "deploy the global model" in note]
    assert line.startswith("clients that deploy the global model: all [fedavg]; ") and line.endswith(" [ditto]")


def test_a_study_shows_them_too(tmp_path):
    rows = [{"label": "A", "method": "superfed-mm", "method.warmup": 0.5}]
    keys = {"model": "logreg", "clients": 8, "cohort": 2, "rounds": 4, "executor": "serial"}
    made = study.plan(study.parse("t", {"seeds": [3], "settings": keys, "method": rows}))
    study.run(made, tmp_path, say=lambda line: None)
    count = next(iter(made.runs(tmp_path).values()))[0].summary["protocol"]["global_model"]
    assert count and f"clients that deploy the global model: {count}" in study_table.tabulate(made, tmp_path).notes


# -- where mixing begins -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["superfed-mm", "superfed-lm", "superfed-stateless"])
def test_a_start_beyond_the_rounds_is_refused(method):
    for begin in (4, 100):
        with pytest.raises(FedchordError) as error:
            RunConfig.from_pairs([*TINY, f"method={method}", f"method.start_round={begin}"])
        line = f"run: method.start_round must be below the number of rounds, 4 (they count from 0), got {begin}"
        assert str(error.value) == line
    assert RunConfig.from_pairs([*TINY, f"method={method}", "method.start_round=3"])


def test_a_run_that_never_mixes_says_so():
    def told(*pairs: str) -> list[str]:
        protocol = execute("method=superfed-mm", "method.warmup=1.0", *pairs)["protocol"]
        return words.sentences(protocol, "superfed-mm")

    late = told()
    assert "superfed-mm: mixing begins after the last round, so that training is FedProx with mu=0.01" in late
    plain = told("method.mu=0")
    assert "superfed-mm: mixing begins after the last round, so that training is FedAvg" in plain
    both = told("method.start_round=3")
    assert "superfed-mm: method.start_round counts, method.warmup does not" in both
    assert not [note for note in both if "mixing begins" in note]
    for pairs in (["method=superfed-mm"], ["method=superfed-mm", "method.start_round=0"], ["method=ditto"]):
        assert {note["kind"] for note in execute(*pairs)["protocol"]["notes"]} == {"data"}


# -- where the line is measured ------------------------------------------------------------------------------------


def test_the_grid_of_lambda_is_a_key(tmp_path):
    base = ["method=apfl", "validation=0.2"]
    whole = execute(*base)["sweep"]
    found = execute(*base, "sweep.lambdas=0,0.2,1")["sweep"]
    assert found["lambdas"] == [0.0, 0.2, 1.0]
    assert found["mean"] == pytest.approx([whole["mean"][at] for at in (0, 2, 10)])
    assert set(found["validated"]["lambdas"]) <= {0.0, 0.2, 1.0}
    file = tmp_path / "run.toml"
    for text in ("[sweep]\nlambdas = [0, 0.2, 1]\n", '"sweep.lambdas" = [0.0, 0.2, 1.0]\n'):
        file.write_text(text)
        config = RunConfig.from_toml(file, [*TINY, *base])
        assert config == RunConfig.from_pairs([*TINY, *base, "sweep.lambdas=[0, 0.2, 1]"])
        file.write_text(config.to_toml())
        assert RunConfig.from_toml(file).fingerprint() == config.fingerprint()
    assert RunConfig.from_pairs(["sweep.lambdas=0.5"]).lambdas() == (0.5,)


def test_the_command_shows_the_line(tmp_path):
    def told(*pairs: str) -> tuple[dict[str, Any], list[str]]:
        summary = execute(*pairs)
        return summary, [line for line in show.result_notes(summary, None) if "along lambda" in line]

    found, (line,) = told("method=apfl", "validation=0.2")
    best, own = found["sweep"]["best_mean"], found["sweep"]["optimistic"]["mean"]
    assert line == (
        f"top1 along lambda, mean over clients: {best['mean']:.4f} at {best['lambda']:g}, the best on the test rows; "
        f"{own:.4f} at each client's own best on them (optimistic); with lambda chosen on validation rows (honest): "
        f"{found['sweep']['validated']['mean']:.4f}."
    )
    assert told("method=apfl")[1][0].endswith("(honest): none; add validation=0.1.")
    summary, lines = told("method=fedavg", "sweep.lambdas=0,1")
    assert not lines and {"kind": "no-line", "method": "fedavg"} in summary["protocol"]["notes"]
    assert "fedavg has one model: sweep.lambdas has no effect" in show.result_notes(summary, None)


def test_the_grid_changes_the_fingerprint_only_where_it_is_another():
    plain = RunConfig.from_pairs(["method=apfl"])
    usual = RunConfig.from_pairs(["method=apfl", "sweep.lambdas=" + ",".join(str(i / 10) for i in range(11))])
    other = RunConfig.from_pairs(["method=apfl", "sweep.lambdas=0,1"])
    assert "sweep.lambdas" not in plain.values() and usual == plain
    assert plain.fingerprint() == usual.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0,1.5", "sweep.lambdas: every lambda must lie between 0 and 1, got 1.5"),
        ("-0.1,1", "sweep.lambdas: every lambda must lie between 0 and 1, got -0.1"),
        ("0,nan", "sweep.lambdas: every lambda must lie between 0 and 1, got nan"),
        ("0.5,0.5", "sweep.lambdas: every lambda must be above the one before, got (0.5, 0.5)"),
        ("1,0", "sweep.lambdas: every lambda must be above the one before, got (1.0, 0.0)"),
        ("0,half", "run: sweep.lambdas must be numbers such as 0,0.25,0.5,0.75,1, got '0,half'"),
        ("true", "run: sweep.lambdas must be numbers such as 0,0.25,0.5,0.75,1, got True"),
        ("[]", "run: sweep.lambdas must be numbers such as 0,0.25,0.5,0.75,1, got '[]'"),
    ],
)
def test_bad_grids_are_one_line(text, line):
    with pytest.raises(FedchordError) as error:
        RunConfig.from_pairs(["method=apfl", f"sweep.lambdas={text}"])
    assert str(error.value) == line
    with pytest.raises(FedchordError, match="needs at least one lambda"):
        RunConfig.from_values({"sweep.lambdas": []})


def test_few_validation_rows_are_told(tmp_path):
    def few(summary: dict[str, Any]) -> list[str]:
        return [words.sentence(note) for note in summary["protocol"]["notes"] if note["kind"] == "few-validation-rows"]

    summary = execute("method=ditto", "validation=0.02", f"out={tmp_path / 'a'}")
    (line,) = few(summary)
    begin = "lambda is chosen on fewer than 10 validation rows of 8 of 8 clients, the smallest has "
    assert line.startswith(begin) and 0 < int(line.removeprefix(begin).split()[0]) < 10
    found = reading.read_all([tmp_path])[0]
    assert f"ditto: {line}" in tables.tabulate(found, columns=["validated"]).notes
    assert f"ditto: {line}" not in tables.tabulate(found).notes
    assert not few(execute("method=ditto", "validation=0.3")) and not few(execute("validation=0.02"))


# -- another method from the same file -----------------------------------------------------------------------------


def test_another_method_takes_over_what_it_has(tmp_path):
    file, said = tmp_path / "mm.toml", []
    pairs = ["method=superfed-mm", "method.mu=0.5", "method.nu=3", "method.warmup=0.2", "lr=0.07"]
    file.write_text(RunConfig.from_pairs(pairs).to_toml())
    tuned = RunConfig.from_toml(file, ["method=fedavg-ft", "method.tune_epochs=2"], said.append)
    assert dict(tuned.parameters) == {"method.tune_epochs": 2} and tuned.lr == 0.07
    assert said == ["method.mu, method.nu, method.warmup left out: method=fedavg-ft has no such parameter"]
    prox = RunConfig.from_toml(file, ["method=fedprox"])
    assert dict(prox.parameters) == {"method.mu": 0.5}
    same = RunConfig.from_toml(file, ["method=superfed-mm", "seed=2"], said.append)
    assert len(same.parameters) == 3 and len(said) == 1
    with pytest.raises(FedchordError, match=r"unknown parameter of fedavg-ft 'method\.nu'"):
        RunConfig.from_toml(file, ["method=fedavg-ft", "method.nu=1"])  # what is asked for is not dropped
    file.write_text(RunConfig.from_pairs(["method=fedadam", "server.tau=0.1", "server.lr=0.5"]).to_toml())
    assert dict(RunConfig.from_toml(file, ["method=fedavg"]).parameters) == {"server.lr": 0.5}
    assert dict(RunConfig.from_toml(file, ["method=fedavg", "server=fedyogi"]).parameters) == {
        "server.lr": 0.5,
        "server.tau": 0.1,
    }


def test_a_parameter_of_the_server_stays_where_the_next_server_has_it(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(RunConfig.from_pairs(["method=fedadam", "method.lr=0.5", "method.tau=0.1"]).to_toml())
    assert dict(RunConfig.from_toml(file, ["method=fedavg"]).parameters) == {"method.lr": 0.5}
    assert dict(RunConfig.from_toml(file, ["method=fedavg", "server=step"]).parameters) == {}  # then it is server.lr


def test_the_command_says_what_was_left_out(tmp_path, capsys):
    file = tmp_path / "config.toml"
    file.write_text(RunConfig.from_pairs([*TINY, "method=superfed-mm", "method.nu=3", "method.mu=0.1"]).to_toml())
    assert read_settings([str(file), "method=fedavg-ft"]).parameters == ()
    told = capsys.readouterr()
    assert told.err == "method.mu, method.nu left out: method=fedavg-ft has no such parameter\n" and not told.out
