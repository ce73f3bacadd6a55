"""Sentences of facts, and that tables read facts and not sentences."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fedchord.catalog import METHODS, build
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.reading import Run, read
from fedchord.report import notes, show, tables, words
from fedchord.report.rows import Group

TINY = ["model=logreg", "clients=4", "cohort=2", "rounds=2", "executor=serial"]

SENTENCES = [
    ({"kind": "data", "text": "digits: 3 rows."}, "digits: 3 rows."),
    (
        {"kind": "newcomers", "clients": 2, "of": 8},
        "newcomers: 2 of 8 clients were kept out of training",
    ),
    ({"kind": "central", "rows": 40}, "central: every round, one client trained on the 40 training rows of all"),
    (
        {"kind": "attack", "attack": "noise", "scale": 10.0, "clients": [1, 4], "of": 10},
        "attack: 2 of 10 clients are hostile (noise, scale 10); numbers are of the 8 honest clients",
    ),
    (
        {
            "kind": "privacy",
            "level": "clients",
            "epsilon": 7.999,
            "delta": 1e-5,
            "clip": 1.0,
            "noise": 0.8125,
            "sampling": "every client in every round",
            "trusted": "the server",
            "covers": "the model",
        },
        "privacy of clients: epsilon 8 at delta 1e-05 (clip 1, noise 0.812); every client in every round. "
        "Trusted: the server. Covered: the model",
    ),
    (
        {"kind": "average", "rounds": 5},
        "average: the global model that is deployed is the mean of the models of the last 5 rounds",
    ),
    (
        {"kind": "average", "rounds": 1},
        "average: the global model that is deployed is the model of the last round",
    ),
    (
        {"kind": "choice", "at": 0.5, "epochs": 1, "rows": 90},
        "choice of all clients, by 90 rows held out of training: lambda 0.5 and 1 epoch before use",
    ),
    (
        {"kind": "choice", "at": None, "epochs": 5, "rows": 90},
        "choice of all clients, by 90 rows held out of training: 5 epochs before use",
    ),
    (
        {"kind": "choice", "at": 1.0, "epochs": 10, "rows": 90, "efforts": [0, 5, 10]},
        "choice of all clients, by 90 rows held out of training: lambda 1 and 10 epochs before use; it is the longest "
        "on offer, and choose.epochs=0,10,30 would try more",
    ),
    (
        {"kind": "choice", "at": 0.0, "epochs": 5, "rows": 90, "efforts": [5]},
        "choice of all clients, by 90 rows held out of training: lambda 0 and 5 epochs before use",
    ),
    ({"kind": "no-line", "method": "fedavg"}, "fedavg has one model: sweep.lambdas has no effect"),
    (
        {"kind": "unvalidated", "clients": 1, "of": 3},
        "validated: 1 of 3 clients have no validation row, so no lambda is chosen; each needs 3 rows or more",
    ),
    (
        {"kind": "few-validation-rows", "below": 10, "clients": 2, "of": 3, "smallest": 1},
        "lambda is chosen on fewer than 10 validation rows of 2 of 3 clients, the smallest has 1 row",
    ),
    (
        {"kind": "start-round", "method": "superfed-mm"},
        "superfed-mm: method.start_round counts, method.warmup does not",
    ),
    (
        {"kind": "never-mixes", "method": "superfed-mm", "mu": 0.01},
        "superfed-mm: mixing begins after the last round, so that training is FedProx with mu=0.01",
    ),
    (
        {"kind": "never-mixes", "method": "superfed-lm", "mu": 0.0},
        "superfed-lm: mixing begins after the last round, so that training is FedAvg",
    ),
    ({"kind": "of-tomorrow", "clients": 3}, "kind of-tomorrow, clients 3"),
]


@pytest.mark.parametrize(("note", "sentence"), SENTENCES)
def test_every_kind_has_its_sentence(note: dict[str, Any], sentence: str) -> None:
    assert words.sentence(note) == sentence


def test_no_kind_is_forgotten() -> None:
    assert set(words.KINDS) == {note["kind"] for note, _ in SENTENCES} - {"of-tomorrow"}


def test_what_a_rule_changed() -> None:
    changed = [{"key": "momentum", "asked": 0.9, "used": 0.0}]
    assert words.overrides([]) == ""
    assert words.overrides(changed) == "momentum set to 0 (was 0.9)"
    changed += [{"key": "clip", "asked": 1.0, "used": 0.0}, {"key": "optimiser", "asked": "adam", "used": "sgd"}]
    assert words.overrides(changed) == "momentum and clip set to 0 (were 0.9, 1); optimiser set to sgd (was adam)"


def test_a_sweep_without_effect_is_no_local_training(tmp_path: Path) -> None:
    """It once stood under `local training`, since the note begins with the name of the method."""
    summary = runs.execute(RunConfig.from_pairs([*TINY, "sweep.lambdas=0,1", f"out={tmp_path / 'a'}"]))
    assert "fedavg has one model: sweep.lambdas has no effect" in show.result_notes(summary, None)
    made = tables.tabulate([read(tmp_path / "a")])
    assert not [note for note in made.notes if note.startswith("local training") or "sweep.lambdas" in note]


def test_what_was_really_trained_stands_under_the_table(tmp_path: Path) -> None:
    asked = ["method=scaffold", "momentum=0.9", f"out={tmp_path / 'a'}"]
    runs.execute(RunConfig.from_pairs([*TINY, *asked]))
    runs.execute(RunConfig.from_pairs([*TINY, "method=superfed-mm", "method.warmup=1.0", f"out={tmp_path / 'b'}"]))
    (line,) = [
        note
        for note in tables.tabulate([read(tmp_path / "a"), read(tmp_path / "b")]).notes
        if note.startswith("local training")
    ]
    late = "mixing begins after the last round, so that training is FedProx with mu=0.01 [superfed-mm]"
    assert line == f"local training: momentum set to 0 (was 0.9) [scaffold]; {late}"


def test_tables_do_not_read_sentences() -> None:
    """Words that look like facts change nothing; the kind does."""

    def facts(kind: str, text: str) -> list[str]:
        told = {"deploys": {"words": "the global model", "kind": kind}, "global_model": 3, "notes": []}
        told["notes"] = [{"kind": "data", "text": text}]
        return notes.protocol([Group((Run(Path("r"), {"method": "fedavg"}, {"protocol": told}),))], [("fedavg",)])

    plain = facts("global", "")
    assert (
        plain == facts("global", "fedavg: set to 0") == facts("global", "validated: no") == facts("global", "lambda is")
    )
    assert "clients that deploy the global model: 3" in facts("own", "")
    assert not [line for line in plain if line.startswith(("clients that deploy", "local training"))]


def test_clients_left_out_are_shown_where_there_are_any(tmp_path: Path) -> None:
    summary = runs.execute(RunConfig.from_pairs([*TINY, f"out={tmp_path / 'a'}"]))
    run = read(tmp_path / "a")
    assert "left out" not in show.result_notes(summary, None)[0] + "".join(tables.tabulate([run]).notes)
    for one in (summary, run.summary):
        one["protocol"] |= {"never_sampled": 2, "left_out": 1}
    assert show.result_notes(summary, None)[0].endswith("2 were never sampled, 1 of these was left out.")
    assert "never sampled and left out: 1" in tables.tabulate([run]).notes


def test_leaders_share_a_place_or_not() -> None:
    assert words.leaders("top1", (["a"], "9 %"), (["a"], "5 %"), True) == (
        "a has the highest mean top1 over clients (9 %) and the best worst tenth (5 %)."
    )
    assert words.leaders("loss", (["a", "b"], "0.1"), (["c"], "0.5"), False) == (
        "a and b have the lowest mean loss over clients (0.1), c has the best worst tenth (0.5)."
    )


def test_what_intervals_decide_is_said() -> None:
    told = words.decided("fedavg", ["a", "b"], ["c"], ["d"])
    assert told.endswith("over clients: a, b are better; c is worse; d cannot be told from it.")
    assert "better" not in words.decided("fedavg", [], [], ["d"])


KINDS = {
    **dict.fromkeys(("fedavg", "fedprox", "scaffold", "q-fedavg"), "global"),
    **dict.fromkeys(("local", "fedper", "pfedme", "fedavg-ft"), "own"),
    **dict.fromkeys(("superfed-mm", "superfed-lm", "superfed-stateless", "apfl", "ditto"), "line"),
    **dict.fromkeys(("fedevg", "fedcgan"), "samples"),
}


@pytest.mark.parametrize("method", METHODS)
def test_what_is_deployed_has_a_kind(method: str) -> None:
    found = asdict(build(method).client.deploys)
    assert found["words"] and found["kind"] in ("global", "own", "line", "samples")
    assert method not in KINDS or found["kind"] == KINDS[method]
