"""Which runs belong to one row and to one problem, by the one definition that tables, compare and plots share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedchord.experiments.reading import Run
from fedchord.report import rows

BASE = {"method": "fedavg", "data": "digits", "clients": 10, "cohort": 5, "rounds": 3, "validation": 0.0, "seed": 1}


def run(**keys: Any) -> Run:
    """A run with these settings changed; two underscores are a dot."""
    return Run(Path("made-up"), BASE | {key.replace("__", "."): value for key, value in keys.items()})


def groups(*runs: Run) -> list[rows.Group]:
    return rows.group(runs)


@pytest.mark.parametrize(
    "keys",
    [
        {"seed": 2},
        {"executor": "serial"},
        {"out": "elsewhere"},
        {"data__root": "elsewhere"},
        {"clients": 10.0},
        {"validation": 0},
    ],
)
def test_side_issues_and_spellings_do_not_make_a_row(keys: dict[str, Any]) -> None:
    assert len(groups(run(), run(**keys))) == 1


@pytest.mark.parametrize("keys", [{"method": "local"}, {"lr": 0.1}, {"clients": 11}, {"made": "python"}])
def test_other_settings_make_a_row(keys: dict[str, Any]) -> None:
    assert len(groups(run(), run(**keys))) == 2


def test_a_cohort_of_one_and_of_all_are_two_rows_with_two_names() -> None:
    """1 is one client, 1.0 and all are every client."""
    found = groups(run(cohort=1), run(cohort=1.0), run(cohort="all", seed=2))
    assert [len(g.runs) for g in found] == [1, 2]
    assert rows.differing(found) == ["cohort"]
    assert rows.labels(found) == ["fedavg, cohort=1", "fedavg, cohort=all"]


def test_problems_are_the_same_whatever_the_spelling_and_the_method() -> None:
    found = groups(run(), run(method="ditto", validation=0, clients=10.0), run(method="local", lr=1, cohort=2))
    assert len(found) == 3 and len(rows.blocks(found)) == 1
    assert rows.differing_problems(found) == []


@pytest.mark.parametrize("keys", [{"data": "mnist"}, {"split__alpha": 0.1}, {"newcomers": 2}, {"noise": "pair"}])
def test_other_federations_are_other_problems(keys: dict[str, Any]) -> None:
    found = groups(run(), run(**keys))
    assert len(rows.blocks(found)) == 2
    assert rows.differing_problems(found) == [key.replace("__", ".") for key in keys]
    assert not rows.is_problem("data.root") and not rows.is_problem("seed")


def test_a_row_is_named_by_what_tells_it_apart() -> None:
    found = groups(run(method="fedprox", method__mu=0.1), run(method="fedprox", method__mu=1), run(seed=4))
    assert rows.labels(found) == ["fedprox, mu=0.1", "fedprox, mu=1", "fedavg"]


def test_own_code_is_named_by_its_file_and_by_its_hash_only_where_the_file_has_changed() -> None:
    one, other = (f"method {letter * 64}" for letter in "ab")
    mine = run(method="my.py:Mine", code=one, method__mu=1)
    found = groups(run(), mine, run(method="my.py:Mine", code=one, method__mu=2))
    assert rows.labels(found) == ["fedavg", "my.py:Mine, mu=1", "my.py:Mine, mu=2"]
    found = groups(run(), mine, run(method="my.py:Mine", code=other, method__mu=1))
    names = ["fedavg", "my.py:Mine, code=method aaaaaaaa, mu=1", "my.py:Mine, code=method bbbbbbbb, mu=1"]
    assert rows.labels(found) == names
