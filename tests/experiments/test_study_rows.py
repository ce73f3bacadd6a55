"""What studies share: files on top of others, rows by name, sets of rows; and that no row is written twice."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from fedchord.check import FedchordError
from fedchord.experiments import study
from fedchord.experiments.study_file import load, parse, seeds_of
from fedchord.experiments.study_rows import read, rows

STUDIES = Path(__file__).parents[2] / "src" / "fedchord" / "thesis" / "studies"

COMMON = """
seeds = [1, 2]
methods = ["A", "B"]
[settings]
data = "digits"
"split.alpha" = 1.0
[row]
A = { method = "fedavg" }
B = { method = "fedprox", "method.mu" = 0.1, in = { "x" = { lr = 1.0 } } }
[set]
both = ["B", "A"]
[scale.small]
rounds = 3
"""


def written(folder: Path, own: str, common: str = COMMON) -> Path:
    (folder / "shared").mkdir(exist_ok=True)
    (folder / "shared" / "common.toml").write_text(common)
    (folder / "mine.toml").write_text(own)
    return folder / "mine.toml"


def test_own_keys_win_and_the_rest_is_taken_over(tmp_path: Path) -> None:
    own = """
include = "shared/common"
[settings]
split = { name = "dirichlet", alpha = 2.0 }
[row.B]
"method.mu" = 0.5
in = { "y" = { lr = 2.0 } }
[scale.small]
epochs = 4
"""
    study = parse("mine", read(written(tmp_path, own)))
    assert (study.seeds, study.base) == ((1, 2), {"data": "digits", "split": "dirichlet", "split.alpha": 2.0})
    assert [entry.label for entry in study.methods] == ["A", "B"]
    assert study.methods[1].keys == {"method": "fedprox", "method.mu": 0.5}
    assert study.methods[1].inside == {"x": {"lr": 1.0}, "y": {"lr": 2.0}}
    assert study.scales == {"small": {"rounds": 3, "epochs": 4}}


def test_rows_of_its_own_take_the_place_of_the_included_ones(tmp_path: Path) -> None:
    own = """
include = "shared/common"
methods = ["set:both", "C"]
[row]
C = { like = "B", mixing = "term" }
[[method]]
label = "D"
like = "C"
lr = 0.5
"""
    found = parse("mine", read(written(tmp_path, own))).methods
    assert [entry.label for entry in found] == ["B", "A", "C", "D"]
    third = {"method": "fedprox", "method.mu": 0.1, "mixing": "term"}
    assert [found[2].keys, found[3].keys] == [third, third | {"lr": 0.5}]
    alone = parse("mine", read(written(tmp_path, 'include = "shared/common"\n[[method]]\nmethod = "local"')))
    assert [entry.label for entry in alone.methods] == ["local"]


def test_a_file_of_ones_own_may_include_a_built_in_one(tmp_path: Path) -> None:
    path = written(tmp_path, 'include = ["shared/common", "smoke"]\nmethods = ["FedAvg", "A"]')
    study = parse("mine", read(path, STUDIES))
    assert [entry.label for entry in study.settings] == ["two classes each", "iid"] and study.seeds == (1, 2)
    assert [entry.keys["method"] for entry in study.methods] == ["fedavg", "fedavg"]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ('include = "shared/comon"', "unknown study that study mine includes 'shared/comon'; did you mean 'shared/com"),
        ('include = "mine"', "include = 'mine' leads back to itself"),
        ("include = 3", "include must name study files, got 3"),
        ('include = "shared/common"\nmethods = ["AA"]', "unknown row of study mine 'AA'"),
        (
            'include = "shared/common"\nmethods = ["set:bth"]',
            "unknown set of study mine 'set:bth'; did you mean",
        ),
        ('include = "shared/common"\nmethods = ["A", "A"]', "two .* are called 'A'"),
        ('include = "shared/common"\nmethods = "A"', "methods must be a list"),
        ('include = "shared/common"\nrow = { A = { like = "A" } }', "row 'A' is like itself"),
        ('include = "shared/common"\nrow = { A = 3 }', "row 'A' must be a table, got 3"),
        ('methods = ["A"]\nrow = { A = { lr = 3 } }', "'A' needs method = NAME"),
        ("row = 3", "row must be a table, got 3"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, own: str, words: str) -> None:
    with pytest.raises(FedchordError, match=words) as caught:
        parse("mine", read(written(tmp_path, own)))
    assert "\n" not in str(caught.value)


def test_seeds_may_be_a_range() -> None:
    assert seeds_of("s", "1-4") == seeds_of("s", "1,2-3, 4") == (1, 2, 3, 4)
    for wrong in ("4-1", "1-", "1-2-3", "1,1-2"):
        with pytest.raises(FedchordError, match="seeds must be"):
            seeds_of("s", wrong)


def test_no_row_is_written_in_two_files() -> None:
    """Two files must not come to the same row on their own: what they share is included, and named by `like`."""
    seen: dict[str, set[str]] = {}
    for path in sorted(STUDIES.glob("**/*.toml")):
        own, content = tomllib.loads(path.read_text()), read(path)
        labels = [label for label, row in own.get("row", {}).items() if set(row) != {"like"}]
        picked = content | {"methods": labels, "method": own.get("method", [])}
        for row in rows(path.stem, picked):
            keys = {key: value for key, value in row.items() if key != "label"}
            seen.setdefault(json.dumps(keys, sort_keys=True), set()).add(path.name)
    assert len(seen) > 60
    assert {keys: files for keys, files in seen.items() if len(files) > 1} == {}


BELOW = '[settings]\ndata = "digits"\nrouns = 3\n'
MISTAKES = {
    'include = "below"\n\n[[method]]\nmethod = "fedavg"\n': ("below", 3, "key 'rouns'; did you mean 'rounds'"),
    'title = "x"\n# titel\ntitel = "y"\n': ("mine", 3, "key of study mine 'titel'; did you mean 'title'"),
    '[[method]]\nlabel = "my fedprx"\nmethod = "fedprx"\n': ("mine", 3, "method 'fedprx'; did you mean 'fedprox'"),
    '[[method]]\nmethod = "fedavg"\n[scale.small.in]\n"K*" = { rounds = 1 }\n': ("mine", 4, "scale.small in 'K*'"),
    '[[method]]\nmethod = "fedavg"\n[[setting]]\nlabel = "a"\nmetric = "top6"\n': ("mine", 5, "mine, a 'top6'"),
}


@pytest.mark.parametrize("own", MISTAKES)
def test_a_mistake_is_told_with_its_file_and_line(tmp_path: Path, own: str) -> None:
    (tmp_path / "below.toml").write_text(BELOW)
    (tmp_path / "mine.toml").write_text(own)
    place, line, words = MISTAKES[own]
    with pytest.raises(FedchordError) as caught:
        study.plan(load(tmp_path / "mine.toml"))
    assert str(caught.value).startswith(f"{place}.toml, line {line}: ") and words in str(caught.value)
    assert "unknown" in str(caught.value) and "\n" not in str(caught.value)
