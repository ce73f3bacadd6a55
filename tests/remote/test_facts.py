"""Facts without rows: parties that see only their own file end with the very rows of a simulation over all of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.parties import NAMES, cut, table, write

from fedchord.check import FedchordError
from fedchord.data import outline as outlines
from fedchord.experiments.config import RunConfig
from fedchord.remote.agree import agree
from fedchord.remote.agreed import make_plan
from fedchord.remote.checking import fits
from fedchord.remote.facts import Facts, facts_of, lines, read_facts
from fedchord.remote.init import init
from fedchord.remote.plan import Plan
from fedchord.remote.rows import own_rows
from fedchord.remote.settings import Party, read_fed, read_party

PLAN: dict[str, object] = {"method": "fedavg", "seed": 3, "rounds": 1, "test": 0.3, "validation": 0.1}
KEYS = {"data.label": "outcome", "data.category": ["code"]}


def party(path: Path, name: str, client: int, keys: dict[str, Any] | None = None, part: str = "") -> Party:
    here = path.parent
    data = {"data": str(path), **(KEYS if keys is None else keys), **({"part": part} if part else {})}
    places = [here / name for name in ("plan.json", "data.safetensors", "memory", "audit.jsonl", "secret")]
    return Party(here / "node.toml", name, client, "127.0.0.1:9092", *places, data=data)


def parties(folder: Path, rows: list[dict[str, str]], keys: dict[str, Any] | None = None) -> list[Party]:
    return [party(path, name, number, keys) for number, (name, path) in enumerate(cut(folder, rows).items())]


def simulated(folder: Path, rows: list[dict[str, str]], keys: dict[str, Any] | None = None) -> Any:
    path = write(folder / "all.csv", rows)
    config = RunConfig.from_values({**PLAN, "data": str(path), **(KEYS if keys is None else keys)})
    return config.federation()


def agreed(every: list[Party], share: tuple[str, ...] = ()) -> tuple[Any, list[str]]:
    return agree("fed", [one.name for one in every], [facts_of(one, PLAN, ("rows", *share)) for one in every])


def assert_same_rows(every: list[Party], outline: Any, whole: Any) -> None:
    """Each party's training, validation and test rows are, bit for bit and in order, those of the simulation."""
    plan = Plan.of(PLAN, outline)
    for one in every:
        own = own_rows(one.data, plan, one.client)
        fits(plan, one.client, own)
        for part in ("train", "validation", "test"):
            mine, theirs = own.batch(own.part(part)[one.client]), whole.batch(whole.part(part)[one.client])
            assert len(mine["y"]) > 0 and torch.equal(mine["y"], theirs["y"])
            assert torch.equal(mine["x"], theirs["x"]), (one.name, part)


def test_parties_with_their_own_files_have_the_rows_of_a_simulation(tmp_path: Path) -> None:
    rows = table()
    every, whole = parties(tmp_path, rows), simulated(tmp_path, rows)
    assert whole.client_names == NAMES
    outline, notes = agreed(every)
    assert_same_rows(every, outline, whole)
    assert (outline.features, outline.class_names, outline.blocks) == (
        whole.features,
        whole.class_names,
        whole.blocks,
    )
    assert [f.categories for f in outline.features if f.name == "ward"] == [("a", "b", "c")]
    assert "column 'ward': north has no c" in notes and "column 'ward': west has no a" in notes
    assert len(outline.columns["x"]) == len(outline.columns["y"]) == 0


def test_the_outline_is_that_of_a_simulation_and_survives_its_file(tmp_path: Path) -> None:
    rows = table()
    outline, _ = agreed(parties(tmp_path, rows))
    whole = outlines.outline(simulated(tmp_path, rows))
    outlines.save(outline, tmp_path / "data.safetensors")
    again = outlines.load(tmp_path / "data.safetensors")
    for found in (outline, again):
        assert found.shape == whole.shape and found.classes == whole.classes
        assert {k: (v.dtype, v.shape) for k, v in found.columns.items()} == {
            k: (v.dtype, v.shape) for k, v in whole.columns.items()
        }
        for part in ("train", "validation", "test"):
            assert torch.equal(found.part(part).sizes, whole.part(part).sizes)
        assert found.scaling is not None and torch.equal(found.scaling.scaled, whole.scaling.scaled)
        assert bool(found.scaling.mean.isnan().all())  # nobody's statistics


def test_one_file_of_several_clients_serves_each_by_its_part(tmp_path: Path) -> None:
    rows = table()
    path = write(tmp_path / "all.csv", rows)
    every = [party(path, f"p{number}", number, part=name) for number, name in enumerate(NAMES)]
    assert_same_rows(every, agreed(every)[0], simulated(tmp_path, rows))
    with pytest.raises(FedchordError, match=r"unknown part of all 'nort'; did you mean 'north'"):
        facts_of(replace(every[0], data={**every[0].data, "part": "nort"}), PLAN)


def test_columns_in_another_order_and_empty_ones_are_told_and_do_no_harm(tmp_path: Path) -> None:
    rows = [{**row, "dose": "" if row["client"] == "south" else row["dose"]} for row in table()]
    whole = simulated(tmp_path, rows)
    every = parties(tmp_path, rows)
    own = [row for row in rows if row["client"] == "west"]
    write(Path(every[2].data["data"]), own, ["code", "outcome", "dose", "ward", "age"])
    outline, notes = agreed(every)
    assert_same_rows(every, outline, whole)
    assert "west has its columns in another order than north; they are read by name" in notes
    assert "column 'dose' has no value at south" in notes


def test_numbers_to_predict_share_one_scale(tmp_path: Path) -> None:
    rows, keys = table(regression=True), {"data.target": "outcome", "data.category": ["code"]}
    every, whole = parties(tmp_path, rows, keys), simulated(tmp_path, rows, keys)
    with pytest.raises(FedchordError, match="north, south, west did not say; ask for: fedchord deploy facts"):
        agreed(every)
    outline, _ = agreed(every, ("target",))
    assert outline.target == pytest.approx(whole.target, rel=1e-12)
    assert_same_rows(every, outline, whole)


def test_ranges_are_those_of_all_training_rows(tmp_path: Path) -> None:
    rows = table()
    outline, _ = agreed(parties(tmp_path, rows), ("ranges",))
    whole = simulated(tmp_path, rows)
    assert outline.declared is not None and outline.declared.observed
    for end in ("low", "high"):
        torch.testing.assert_close(getattr(outline.declared, end), getattr(whole.inputs, end), rtol=1e-6, atol=1e-6)
    assert agreed(parties(tmp_path, rows))[0].declared is None


@pytest.mark.parametrize(("codes", "named"), [((0, 1, 2), False), ((3, 7, 12), True)])
def test_arrays_with_some_of_the_classes_each(tmp_path: Path, codes: tuple[int, ...], named: bool) -> None:
    dice = np.random.default_rng(5)
    x = dice.integers(0, 255, (60, 1, 4, 4)).astype(np.uint8)
    owner = np.arange(60) % 3
    y = np.array([codes[(row // 3 + row % 3) % 2 + (row % 3 == 2)] for row in range(60)])
    np.savez(tmp_path / "all.npz", x=x, y=y, client=np.array(NAMES)[owner])
    whole = RunConfig.from_values({**PLAN, "data": str(tmp_path / "all.npz")}).federation()
    every = []
    for number, name in enumerate(NAMES):
        np.savez(tmp_path / f"{name}.npz", x=x[owner == number], y=y[owner == number])
        every.append(party(tmp_path / f"{name}.npz", name, number, {}))
    outline, notes = agreed(every)
    assert outline.classes == whole.classes == 3 and outline.class_names == whole.class_names
    assert bool(outline.class_names) == named and any("has no row of class" in note for note in notes)
    assert_same_rows(every, outline, whole)


def test_a_public_data_set_is_cut_by_the_same_keys(tmp_path: Path) -> None:
    cutting = {"data": "digits", "split": "pathological", "clients": 3}
    every = [replace(party(tmp_path / "x", name, number), data=cutting) for number, name in enumerate(NAMES)]
    assert_same_rows(every, agreed(every)[0], RunConfig.from_values({**PLAN, **cutting}).federation())


def test_a_plan_refuses_facts_that_were_told_by_other_settings(tmp_path: Path) -> None:
    init(tmp_path / "fed", NAMES, ["data.label=outcome", "data.category=code", "test=0.3", "seed=3"])
    cut(tmp_path / "fed", table())
    assert "fedchord deploy facts node.toml --share rows test=0.3`" in (tmp_path / "fed" / "README.md").read_text()
    files = []
    for name in NAMES:
        files.append(tmp_path / "fed" / name / "facts.json")
        facts_of(read_party(files[-1].parent / "node.toml"), share=("rows",)).save(files[-1])
    fed = read_fed(tmp_path / "fed" / "server" / "fed.toml")
    with pytest.raises(FedchordError, match=r"north: .*needed again: .*--share rows test=0.3$"):
        make_plan(fed, files)
    assert not fed.plan_file.exists() and not fed.outline.exists()
    for file in files:
        facts_of(read_party(file.parent / "node.toml"), {"test": 0.3}, ("rows",)).save(file)
    make_plan(fed, files)
    facts_of(read_party(files[0].parent / "node.toml"), {"test": 0.3}, ("rows", "ranges")).save(files[0])
    with pytest.raises(FedchordError, match=r"north: .*--share rows,ranges seed=3$"):
        make_plan(fed, files)


def test_a_plan_for_samples_asks_for_ranges(tmp_path: Path) -> None:
    keys = ["data.label=outcome", "data.category=code", "method=fedevg", "cohort=all"]
    init(tmp_path / "fed", NAMES, keys)
    cut(tmp_path / "fed", table())
    fed = read_fed(tmp_path / "fed" / "server" / "fed.toml")
    files = [tmp_path / "fed" / name / "facts.json" for name in NAMES]
    for share in (("rows",), ("rows", "ranges")):
        for file in files:
            facts_of(read_party(file.parent / "node.toml"), share=share).save(file)
        if "ranges" not in share:
            with pytest.raises(FedchordError, match="fedevg needs the ranges of all parties; ask for: fedchord deploy"):
                make_plan(fed, files)
    make_plan(fed, files)
    assert outlines.load(fed.outline).declared is not None


# -- what facts tell -----------------------------------------------------------------------------------------------


def test_facts_hold_no_number_that_was_read_off_a_row_unless_it_is_shared(tmp_path: Path) -> None:
    rows = table()
    one = parties(tmp_path, rows)[0]
    facts = facts_of(one, PLAN)
    facts.save(tmp_path / "facts.json")
    text = (tmp_path / "facts.json").read_text()
    own = [row for row in rows if row["client"] == "north"]
    for row in own:
        assert row["dose"] not in text and (row["age"] == "?" or row["age"] not in text)
    assert str(len(own)) not in json.dumps({k: v for k, v in json.loads(text).items() if k not in ("versions",)})
    assert read_facts(tmp_path / "facts.json") == facts and "\n" not in "".join(lines(facts))
    assert "not in it: the numbers of training, validation and test rows" in lines(facts)
    told = facts_of(one, PLAN, ("rows",)).shared["rows"]
    assert sum(told.values()) == len(own) and told["test"] == 9


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 1}', '{"format": 2}', '{"format": 1, "x": 3}'])
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "facts.json").write_text(text)
    with pytest.raises(FedchordError, match=r"facts.json: is (no file that|of another version)") as caught:
        read_facts(tmp_path / "facts.json")
    assert "\n" not in str(caught.value)


# -- what does not fit ---------------------------------------------------------------------------------------------


def renamed(rows: list[dict[str, str]], who: str, change: Any) -> list[dict[str, str]]:
    return [change(dict(row)) if row["client"] == who else row for row in rows]


def changed(column: str, value: Any) -> Any:
    return lambda row: {**row, column: value(row[column])}


BAD: list[tuple[str, Any, str]] = [
    (
        "south",
        changed("age", lambda age: "old" if age == "?" or float(age) > 50 else "young"),
        "deploy plan: column 'age' is a number at north and words at south (old young); make it a number there,",
    ),
    (
        "west",
        changed("outcome", lambda word: "1" if word == "ill" else "0"),
        "deploy plan: classes are called differently: ill well at north, 0 1 at west; use the same words",
    ),
]


@pytest.mark.parametrize(("who", "change", "told"), BAD)
def test_cells_that_do_not_fit_are_named(tmp_path: Path, who: str, change: Any, told: str) -> None:
    with pytest.raises(FedchordError) as caught:
        agreed(parties(tmp_path, renamed(table(), who, change)))
    assert str(caught.value).startswith(told) and "\n" not in str(caught.value)


def test_a_missing_column_is_named_with_both_parties(tmp_path: Path) -> None:
    every = parties(tmp_path, table())
    own = [row for row in table() if row["client"] == "south"]
    write(Path(every[1].data["data"]), own, ["age", "ward", "code", "outcome"])
    with pytest.raises(FedchordError, match=r"deploy plan: south has no column 'dose', which north has; add it there,"):
        agreed(every)
    write(Path(every[1].data["data"]), [{**row, "zip": "1"} for row in own])
    with pytest.raises(FedchordError, match=r"north has no column 'client', which south has|north has no column 'zip'"):
        agreed(every)


def test_counts_are_needed_and_asked_for(tmp_path: Path) -> None:
    facts = [facts_of(one, PLAN, ("rows",) if one.client else ()) for one in parties(tmp_path, table())]
    with pytest.raises(FedchordError, match="numbers of rows must be known of all parties, north did not say; ask for"):
        agree("fed", NAMES, facts)


def wrong(facts: list[Facts], what: str) -> list[Facts]:
    a, b, c = facts
    return {
        "missing": [a, b],
        "twice": [a, b, b],
        "stranger": [a, b, replace(c, party="east")],
        "number": [a, b, replace(c, client=1)],
        "kind": [a, b, replace(c, kind="arrays")],
        "regression": [a, b, replace(c, classes=())],
        "shape": [replace(one, features=()) for one in (a, b)]
        + [replace(c, features=(), columns={**c.columns, "x": ("float32", (9,))})],
        "type": [replace(one, features=()) for one in (a, b)]
        + [replace(c, features=(), columns={**c.columns, "x": ("uint8", c.columns["x"][1])})],
    }[what]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("missing", "deploy plan: the facts of west are missing (fedchord deploy facts makes them)"),
        ("twice", "deploy plan: the facts of south are given twice"),
        ("stranger", "deploy plan: east is no party of the federation (north, south, west)"),
        ("number", "deploy plan: west says it is client 1, but is number 2 in clients; put client = 2 into"),
        ("kind", "deploy plan: north has table, west arrays"),
        ("regression", "deploy plan: north and west differ: west has numbers to predict, the other not"),
        ("shape", "deploy plan: rows of north and west have different shapes (x): "),
        ("type", "deploy plan: rows of north and west have different types (x): float32 and uint8"),
    ],
)
def test_facts_that_do_not_fit_are_named(tmp_path: Path, what: str, told: str) -> None:
    codes = [{**row, "ward": "ab"[number % 2]} for number, row in enumerate(table())]  # the same words everywhere
    facts = [facts_of(one, PLAN) for one in parties(tmp_path, codes)]
    with pytest.raises(FedchordError) as caught:
        agree("fed", NAMES, wrong(facts, what))
    assert str(caught.value).startswith(told) and "\n" not in str(caught.value)


def test_other_versions_are_told(tmp_path: Path) -> None:
    facts = [facts_of(one, PLAN, ("rows",)) for one in parties(tmp_path, table())]
    facts[1] = replace(facts[1], versions={**facts[1].versions, "fedchord": "9.9"})
    notes = agree("fed", NAMES, facts)[1]
    assert any(note.startswith("fedchord differs: ") and "9.9 at south" in note for note in notes)


def test_rows_that_changed_since_are_refused_in_words(tmp_path: Path) -> None:
    rows = table()
    every = parties(tmp_path, rows)
    outline, _ = agreed(every)
    one = every[1]
    own = [row for row in rows if row["client"] == "south"]
    write(Path(one.data["data"]), [{**own[0], "outcome": "dead"}, *own[1:]], ["age", "ward", "dose", "code", "outcome"])
    with pytest.raises(FedchordError, match=r"south: class 'dead' is none of the agreed ones \(ill, well\)"):
        own_rows(one.data, Plan.of(PLAN, outline), one.client)
    write(Path(one.data["data"]), own, ["age", "ward", "code", "outcome"])
    with pytest.raises(FedchordError, match="has no column 'dose'"):
        own_rows(one.data, Plan.of(PLAN, outline), one.client)
