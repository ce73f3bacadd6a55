"""Files that the long fuzzing found, and that did not end in one line then. Others are beside what reads them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedchord.check import FedchordError
from fedchord.data.formats import cache, idx
from fedchord.data.formats.csv_file import read_csv
from fedchord.experiments import study_file
from fedchord.experiments.checks import check_run
from fedchord.experiments.config import RunConfig
from fedchord.remote.settings import read_party


def test_an_idx_file_without_rows_of_endless_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes([0, 0, 8, 3]) + bytes(4) + b"\xff" * 8)
    with pytest.raises(FedchordError, match="is damaged: it has rows of 4294967295 x 4294967295"):
        idx.read_idx("t", tmp_path / "a", 8, 3)


def test_a_cache_of_endless_rows_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)
    made = []

    def build(writer: cache.Writer) -> dict[str, str]:
        made.append(1)
        writer.add(x=np.zeros((2, 3), np.uint8))
        return {}

    cache.cached("t", tmp_path, [], "", build)
    meta = next(tmp_path.glob("cache/t-*/meta.json"))
    good = json.loads(meta.read_text())
    for wrong in (good | {"rows": 10**30}, good | {"rows": -1}, good | {"columns": []}, []):
        meta.write_text(json.dumps(wrong))
        assert cache.cached("t", tmp_path, [], "", build)[0]["x"].shape == (2, 3)
    assert len(made) == 5


def test_a_party_whose_rows_have_a_name_that_no_system_takes(tmp_path: Path) -> None:
    text = 'name = "one"\nclient = 0\nserver = "127.0.0.1:9092"\n[data]\ndata = "{}"\n'
    (tmp_path / "node.toml").write_text(text.format("x" * 5000))
    try:
        assert read_party(tmp_path / "node.toml").name == "one"
    except FedchordError as error:
        assert "\n" not in str(error)


def test_a_run_whose_data_have_a_name_that_no_system_takes() -> None:
    with pytest.raises(FedchordError, match="xxx"):
        check_run(RunConfig.from_values({"data": "digi/" + "x" * 5000}))


def test_a_home_of_nobody_is_a_file_that_is_not_there() -> None:
    with pytest.raises(FedchordError, match=r"~nobody-of-this-name/rows\.csv"):
        RunConfig.from_values({"data": "~nobody-of-this-name/rows.csv", "data.label": "y"}).federation()


def test_a_table_whose_first_column_counts_beyond_all_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",y\n" + "1" * 5028 + ",2\n")
    with pytest.raises(FedchordError, match="column 1 of the header has no name"):
        read_csv(tmp_path / "a.csv")


def test_a_set_of_a_study_that_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('methods = ["set:all"]\n[set]\nall = 3\n[row]\nA = { method = "fedavg" }\n')
    with pytest.raises(FedchordError, match="the set all must be a list of rows, got 3"):
        study_file.load(tmp_path / "a.toml")
