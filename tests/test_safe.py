"""Text that nobody means: nested without end, with numbers without end, with letters that move a cursor."""

from __future__ import annotations

import ast

import pytest
from helpers.source import called, calls, trees

from fedchord.check import FedchordError, number
from fedchord.experiments.config import RunConfig
from fedchord.experiments.settings import parse_value, read_toml
from fedchord.remote import wire
from fedchord.safe import TEXT, check_growth, json_of, toml_of


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000])
def test_json_that_no_parser_follows_is_a_value_error(text):
    with pytest.raises(ValueError):
        json_of(text)
    with pytest.raises(FedchordError):
        wire.decode(b"", text)


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "a = " + "9" * 5000, "a = 0x" + "f" * 5000, "a = [{b = 9223372036854775808}]"],
    ids=["nested", "digits", "hex", "65 bits"],
)
def test_toml_that_no_parser_follows_is_one_line(text, tmp_path):
    with pytest.raises(ValueError):
        toml_of(text)
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(FedchordError, match="is not valid TOML"):
        read_toml(path)


def test_numbers_of_64_bits_are_toml():
    assert toml_of("a = 9223372036854775807\nb = -9223372036854775807") == {"a": 2**63 - 1, "b": 1 - 2**63}


def test_a_file_of_settings_has_a_largest_size(tmp_path):
    path = tmp_path / "run.toml"
    path.write_bytes(b"#" * (TEXT + 1))
    with pytest.raises(FedchordError, match="longer than"):
        read_toml(path)


@pytest.mark.parametrize("value", ["9" * 400, "9" * 5000, "0x" + "f" * 5000, "[" * 5000])
def test_a_setting_without_end_is_one_line(value):
    with pytest.raises(FedchordError) as error:
        RunConfig.from_pairs([f"lr={value}"])
    assert "\n" not in str(error.value)


def test_a_whole_number_beyond_floats_is_no_finite_number():
    for value in (10**400, -(10**400), float("inf"), float("nan")):
        with pytest.raises(FedchordError, match="finite"):
            number("run", "lr", value)
    assert number("run", "lr", 10**300) == 1e300


def test_a_long_text_of_digits_is_looked_at_once():
    assert parse_value("1" * 100_000 + "x") == "1" * 100_000 + "x"  # a quadratic search takes minutes


def test_an_error_is_one_line_whatever_a_file_calls_its_columns():
    told = str(FedchordError("t: column 'a\nb\x1b[2J\u2028c'"))
    assert told == "t: column 'a b [2J c'"


def test_small_archives_may_grow_and_large_ones_a_hundred_times():
    check_growth(1, 1 << 30)
    check_growth(1 << 30, 100 << 30)
    for packed, unpacked in ((1, (1 << 30) + 1), (1 << 30, (100 << 30) + 1)):
        with pytest.raises(ValueError, match="unpack"):
            check_growth(packed, unpacked)


# -- nothing in a file is run --------------------------------------------------------------------------------------

RUNS = {
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.loads", "shelve.open", "joblib.load", "dill.load"),
    *("dill.loads", "cloudpickle.loads", "pd.read_pickle", "np.load", "numpy.load", "yaml.load", "yaml.unsafe_load"),
    *("eval", "exec", "torch.load", "torch.jit.load"),
}
KNOWN = {
    ("plugins.py", "exec"): "code that the user names in the settings",
    ("engine/processes.py", "pickle.loads"): "between a process and the workers that it forked",
    ("models/efficientnet.py", "torch.load"): "weights_only",
    ("synthetic/features.py", "torch.load"): "weights_only",
}
"""Where a file that could be run is read, and why it is not."""


def dangers(tree: ast.AST) -> list[str]:
    """Calls that run what they read, or unpack an archive without looking."""
    found = []
    for node in calls(tree):
        name = called(node)
        loose = any(word.arg == "allow_pickle" and ast.unparse(word.value) != "False" for word in node.keywords)
        if name in RUNS or loose or name.rpartition(".")[2] in ("extractall", "unpack_archive"):
            found.append(name)
    return found


def test_nothing_that_is_read_is_run():
    assert {(file, name) for file, tree in trees().items() for name in dangers(tree)} == set(KNOWN)


def test_weights_are_read_as_weights_alone():
    loads = [node for tree in trees().values() for node in calls(tree) if called(node) == "torch.load"]
    assert loads and all("weights_only=True" in ast.unparse(node) for node in loads)


def test_the_search_finds_what_could_be_run():
    """Negative control."""
    text = "pickle.loads(x)\nnp.load(p, allow_pickle=True)\ntar.extractall(p)\nsafe.load(p)\neval('1')"
    assert dangers(ast.parse(text)) == ["pickle.loads", "np.load", "tar.extractall", "eval"]
