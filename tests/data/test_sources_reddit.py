"""Reddit and Shakespeare's words: vocabulary, rows, which words count, and odd files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedchord.check import FedchordError
from fedchord.data import SOURCES, Natural, federate, load, status
from fedchord.data.formats import leaf
from fedchord.data.official.verify import loaded_rows, look, verdict
from fedchord.data.sources import reddit


@pytest.fixture(autouse=True)
def no_outer_cache(monkeypatch):
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)


def cut(comment: str) -> tuple[list[list[str]], dict[str, list]]:
    """A comment in LEAF's layout, written without its code: BOS, words, EOS, and padding to rows of ten."""
    words = comment.split()
    x, y = ["<BOS>", *words, "<EOS>"], [*words, "<EOS>", "<PAD>"]
    gap = -len(x) % 10
    counts = [1.0] * len(x) + [0.0] * gap
    x, y = x + ["<PAD>"] * gap, y + ["<PAD>"] * gap
    parts = [[seq[i : i + 10] for i in range(0, len(seq), 10)] for seq in (x, y, counts)]
    return parts[0], {"target_tokens": parts[1], "count_tokens": parts[2], "subreddit": "x"}


def put(path: Path, users: dict[str, list[str]]) -> Path:
    pairs = {user: [cut(comment) for comment in comments] for user, comments in users.items()}
    data = {user: {"x": [x for x, _ in both], "y": [y for _, y in both]} for user, both in pairs.items()}
    held = {"users": list(users), "num_samples": [len(c) for c in users.values()], "user_data": data}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held))
    return path


TRAIN = {"bob": ["b a a", "a b c d e f g h i j k"], "ann": ["c c c b"]}
# counts: a 3, b 3, c 4, d to k 1 each


def put_all(root: Path, name: str = "reddit", val: bool = True) -> Path:
    put(root / name / "train/train_data.json", TRAIN)
    put(root / name / "test/test_data.json", {"bob": ["a z"], "ann": ["b"], "new": ["a"]})
    if val:
        put(root / name / "val/val_data.json", {"bob": ["d"]})
    return root / name


def test_vocabulary_by_counts(tmp_path):
    put_all(tmp_path)
    expected = ["<PAD>", "<UNK>", "<BOS>", "<EOS>", "c", "a", "b", *"defghijk"]
    assert reddit.vocabulary(tmp_path) == {word: i for i, word in enumerate(expected)}


def test_the_vocabulary_is_cut_at_its_size(tmp_path, monkeypatch):
    put_all(tmp_path)
    monkeypatch.setattr(reddit, "SIZE", 7)
    assert list(reddit.vocabulary(tmp_path)) == ["<PAD>", "<UNK>", "<BOS>", "<EOS>", "c", "a", "b"]
    data = load("reddit", tmp_path)
    assert int(data.columns["x"].max()) == 6
    bob = data.columns["y"][1]  # a b c d e f g h i j: only the first three are known
    assert bob.tolist() == [5, 6, 4, 1, 1, 1, 1, 1, 1, 1]
    assert data.columns["mask"][1].tolist() == [True] * 3 + [False] * 7


@pytest.mark.parametrize("name", ["reddit", "shakespeare_words"])
def test_rows_masks_and_the_split(tmp_path, name):
    put_all(tmp_path, name)
    assert status(SOURCES[name], tmp_path) == "present"
    data = load(name, tmp_path)
    assert data.classes == 10000
    assert data.group_names == ("ann", "bob")
    assert {column: values.dtype for column, values in data.columns.items()} == {
        "x": torch.int32,
        "y": torch.int64,
        "mask": torch.bool,
    }
    made = federate(data, Natural())
    batch = made.batch(made.train[1])
    # "b a a": then a row of ten, then "j k" (k is the last word: its target EOS does not count)
    assert batch["x"].tolist() == [
        [2, 6, 5, 5, 3, 0, 0, 0, 0, 0],
        [2, 5, 6, 4, 7, 8, 9, 10, 11, 12],
        [13, 14, 3, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert batch["y"].tolist() == [
        [6, 5, 5, 3, 0, 0, 0, 0, 0, 0],
        [5, 6, 4, 7, 8, 9, 10, 11, 12, 13],
        [14, 3, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert batch["mask"].sum(1).tolist() == [3, 10, 1]
    assert batch["x"].dtype == torch.int64
    test = made.batch(made.test[1])
    assert (test["y"].tolist(), test["mask"].tolist()) == ([[5, 1, 3] + [0] * 7], [[True] + [False] * 9])
    assert made.validation.sizes.sum() == 0
    assert federate(data, Natural(), validation=0.2).validation.sizes.tolist() == [0, 1]
    assert "Users left out for want of training rows: 1." in data.origin
    thesis = "the thesis has 817 clients and 97961 rows" if name == "reddit" else "a substitute that the thesis has not"
    assert thesis in data.origin


def test_validation_rows_do_not_count_as_official_ones(tmp_path, monkeypatch):
    """The full set is counted in training and test rows, with LEAF's validation part or without it."""
    put_all(tmp_path, val=False)
    plain = load("reddit", tmp_path)
    rows = len(plain.columns["y"])
    source = replace(SOURCES["reddit"], rows=rows)
    monkeypatch.setitem(SOURCES, "reddit", source)
    monkeypatch.setitem(reddit.SOURCES, "reddit", source)
    put_all(tmp_path, val=True)
    data = load("reddit", tmp_path)
    assert len(data.columns["y"]) > rows and loaded_rows(data) == loaded_rows(plain) == (rows, 0)
    assert "1 validation rows" in data.origin and "; the full set; the thesis" in data.origin
    assert verdict(source, look(source, tmp_path), loaded_rows(data))[0] == "counts"


def test_one_file_is_in_memory_at_a_time(tmp_path, monkeypatch):
    """The training file is parsed for the vocabulary first and again for the rows, each time by itself; then never."""
    put_all(tmp_path)
    seen, held = [], []

    def watched(owner, path):
        held.append(path.name)
        seen.append((path.name, len(held)))
        yield from users(owner, path)
        held.remove(path.name)

    users = leaf.read_users
    monkeypatch.setattr(leaf, "read_users", watched)
    monkeypatch.setattr(reddit, "read_users", watched)
    load("reddit", tmp_path)
    names = ["train_data.json", "train_data.json", "val_data.json", "test_data.json"]
    assert seen == [(name, 1) for name in names]
    load("reddit", tmp_path)
    assert len(seen) == 4


def test_rows_without_a_word_to_predict_are_left_out(tmp_path):
    folder = put_all(tmp_path, val=False)
    put(folder / "train/more.json", {"cid": ["a b c d e f g h i", "a"], "dan": [""]})
    data = load("reddit", tmp_path)
    cid = data.columns["mask"][data.groups == data.group_names.index("cid")]
    assert cid.sum(1).tolist() == [9, 1]  # BOS and nine words fill a row; the next holds EOS only
    assert "dan" not in data.group_names
    assert bool(data.columns["mask"].any(dim=1).all())


def test_count_tokens_hide_targets(tmp_path):
    folder = put_all(tmp_path, val=False)
    path = folder / "train/train_data.json"
    held = json.loads(path.read_text())
    held["user_data"]["ann"]["y"][0]["count_tokens"][0][0] = 0.0
    del held["user_data"]["bob"]["y"][0]["count_tokens"]
    path.write_text(json.dumps(held))
    data = load("reddit", tmp_path)
    ann = data.columns["mask"][(data.groups == 0) & (data.parts == 0)]
    assert ann.tolist() == [[False, True, True, True] + [False] * 6]


def test_a_stored_vocabulary(tmp_path):
    folder = put_all(tmp_path)
    words = {word: i for i, word in enumerate([*reddit.SPECIAL, "k", "a"])}
    path = folder / "vocab.json"
    path.write_text(json.dumps({"vocab": words, "size": 6}))
    assert reddit.vocabulary(tmp_path) == words
    assert load("reddit", tmp_path).columns["y"][0].tolist() == [1, 5, 5, 3, 0, 0, 0, 0, 0, 0]
    for held, message in (
        ({"words": {}}, "has no entry 'vocab'"),
        ([], "has no entry 'vocab'"),
        ({"vocab": {"a": 0}}, "<PAD>, <UNK>, <BOS>, <EOS> must be 0 to 3"),
        ({"vocab": words | {"b": [6]}}, "must number at most 10000 words from 0 on, got 7"),
        ({"vocab": words | {"b": 9}}, "must number at most 10000 words from 0 on, got 7"),
    ):
        path.write_text(json.dumps(held))
        with pytest.raises(FedchordError) as error:
            load("reddit", tmp_path)
        assert message in str(error.value) and str(path) in str(error.value)
    for text in ("{", "[" * 200_000):
        path.write_text(text)
        with pytest.raises(FedchordError, match=r"vocab.json is damaged: expected a json file, got "):
            load("reddit", tmp_path)


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("x", [["a"] * 10], "x must hold rows of 10 words for every comment"),
        ("x", [[["a"] * 9]], "x must hold rows of 10 words for every comment"),
        ("x", [[[1] * 10]], "x must hold rows of 10 words for every comment"),
        ("x", [[["a"] * 10, ["a"] * 10]], "x and target_tokens differ in length"),
        ("y", [3], "y must hold target_tokens for every comment"),
        ("y", [{"tokens": []}], "y must hold target_tokens for every comment"),
        ("y", [{"target_tokens": [["a"] * 3]}], "target_tokens must hold rows of 10 words for every comment"),
        ("y", [{"target_tokens": [["a"] * 10], "count_tokens": [[10**400] * 10]}], "count_tokens must have the shape"),
        ("y", [{"target_tokens": [["a"] * 10], "count_tokens": [[1.0]]}], "count_tokens must have the shape of target"),
    ],
)
def test_odd_comments(tmp_path, key, value, message):
    folder = put_all(tmp_path)
    path = folder / "test/test_data.json"
    held = json.loads(path.read_text())
    held["user_data"]["bob"][key] = value
    path.write_text(json.dumps(held))
    with pytest.raises(FedchordError) as error:
        load("reddit", tmp_path)
    assert str(error.value).startswith(f"reddit: {path}: user bob: {message}")


def test_missing_reddit(tmp_path):
    put_all(tmp_path)
    (tmp_path / "reddit/train/train_data.json").unlink()
    with pytest.raises(FedchordError, match=r"^reddit: missing reddit/train/\*.json in "):
        load("reddit", tmp_path)


@pytest.mark.data
@pytest.mark.parametrize("name", ["reddit", "shakespeare_words"])
def test_real_words(data_root, name):
    if status(SOURCES[name], data_root) != "present":
        pytest.skip(f"{name} is not under FEDCHORD_DATA")
    data = load(name, data_root)
    x, y, mask = (data.columns[column] for column in ("x", "y", "mask"))
    # a target is the next input of its row, wherever it counts
    assert bool((x[:, 1:][mask[:, :-1]] == y[:, :-1][mask[:, :-1]]).all())
    assert int(y[mask].min()) >= 4
