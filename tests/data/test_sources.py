"""Sources on tiny files in the official layouts, damaged and hostile ones included, and on the real data if present."""

import gzip
import os
import pickle
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from fedchord.check import FedchordError
from fedchord.data import SOURCES, Dirichlet, Natural, data_root, federate, load, status
from fedchord.data.sources import digits


def idx(array: np.ndarray, kind: int) -> bytes:
    kinds = {8: ">u1", 12: ">i4"}
    return (
        struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape) + array.astype(kinds[kind]).tobytes()
    )


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def put_mnist(root: Path, end: str = ".gz", folder: str = "mnist") -> tuple[np.ndarray, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (12, 28, 28))
    labels = np.arange(12) % 10
    for part, rows in (("train", slice(0, 8)), ("t10k", slice(8, 12))):
        put(root / folder / f"{part}-images-idx3-ubyte{end}", idx(images[rows], 8))
        put(root / folder / f"{part}-labels-idx1-ubyte{end}", idx(labels[rows], 8))
    return images, labels


@pytest.mark.parametrize("end, folder", [(".gz", "mnist"), ("", "mnist"), ("", "MNIST/raw")])
def test_mnist_files(tmp_path, end, folder):
    images, labels = put_mnist(tmp_path, end, folder)
    data = load("mnist", tmp_path)
    assert data.columns["x"].dtype == torch.uint8
    assert data.columns["x"].shape == (8, 1, 28, 28)
    assert np.array_equal(data.columns["x"][:, 0].numpy(), images[:8])
    assert data.columns["y"].tolist() == labels[:8].tolist()
    assert np.array_equal(data.holdout["x"][:, 0].numpy(), images[8:])
    assert data.holdout["y"].tolist() == labels[8:].tolist()
    assert "8 training and 4 test rows, not the official 60000 training and 10000 test rows" in data.origin
    assert status(SOURCES["mnist"], tmp_path) == "present"


def put_qmnist(root: Path, width: int = 8) -> None:
    for part, writers in (("train", [7, 3, 7, 2010, 3, 7]), ("test", [5, 5])):
        table = np.zeros((len(writers), width), dtype=np.int64)
        table[:, 0] = np.arange(len(writers))
        table[:, 1] = 4
        table[:, 2] = writers
        put(root / f"qmnist/qmnist-{part}-labels-idx2-int.gz", idx(table, 12))
        put(root / f"qmnist/qmnist-{part}-images-idx3-ubyte.gz", idx(np.zeros((len(writers), 28, 28)), 8))


def test_qmnist_clients_are_writers(tmp_path):
    put_qmnist(tmp_path)
    data = load("qmnist", tmp_path)
    assert data.group_names == ("3", "7", "2010")
    assert data.groups.tolist() == [1, 0, 1, 2, 0, 1]
    assert data.columns["y"].tolist() == [0, 1, 2, 3, 4, 5]
    made = federate(data, Natural())
    assert made.client_names == ("3", "7", "2010")
    assert sorted(torch.cat([made.train[1], made.test[1]]).tolist()) == [0, 2, 5]


def put_cifar(root: Path, name: str, keys: str = "latin1", protocol: int = 2) -> np.ndarray:
    folder, files, label = {
        "cifar10": ("cifar-10-batches-py", [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], "labels"),
        "cifar100": ("cifar-100-python", ["train", "test"], "fine_labels"),
    }[name]
    (root / folder).mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(1).integers(0, 256, (len(files), 2, 3072)).astype(np.uint8)
    for i, file in enumerate(files):
        batch = {"data": pixels[i], label: [i, 9 - i], "filenames": ["a.png", "b.png"]}
        stored = {k.encode(): v for k, v in batch.items()} if keys == "bytes" else batch
        (root / folder / file).write_bytes(pickle.dumps(stored, protocol))
    return pixels


@pytest.mark.parametrize("name, labels", [("cifar10", [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]), ("cifar100", [0, 9])])
@pytest.mark.parametrize("keys", ["bytes", "latin1"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_cifar_files(tmp_path, name, labels, keys, protocol):
    pixels = put_cifar(tmp_path, name, keys, protocol)
    data = load(name, tmp_path)
    assert data.columns["y"].tolist() == labels
    assert data.columns["x"].shape == (len(labels), 3, 32, 32)
    assert np.array_equal(data.columns["x"].numpy().reshape(-1, 3072), pixels[:-1].reshape(-1, 3072))
    assert np.array_equal(data.holdout["x"].numpy().reshape(-1, 3072), pixels[-1])
    assert f"{len(labels)} training and 2 test rows, not the official 50000 training" in data.origin


def python_2_pickle(label: bytes) -> bytes:
    """A batch as Python 2 wrote it: byte strings (opcode U) and the old module path of NumPy."""

    def text(word: bytes) -> bytes:
        return b"U" + bytes([len(word)]) + word

    dtype = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    pixels = b"T" + struct.pack("<i", 3072) + bytes(range(256)) * 12
    state = b"(K\x01K\x01M\x00\x0c\x86" + dtype + b"\x89" + pixels + b"tb"
    return b"\x80\x02}(" + text(b"data") + array + state + text(label) + b"]K\x05au."


def test_cifar_as_python_2_wrote_it(tmp_path):
    for file in ("train", "test"):
        put(tmp_path / "cifar-100-python" / file, python_2_pickle(b"fine_labels"))
    data = load("cifar100", tmp_path)
    assert data.columns["y"].tolist() == [5]
    assert data.columns["x"].flatten()[:300].tolist() == [i % 256 for i in range(300)]


class Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


def test_a_hostile_pickle_is_refused_and_not_run(tmp_path):
    put_cifar(tmp_path, "cifar100")
    file, trace = tmp_path / "cifar-100-python/train", tmp_path / "trace"
    file.write_bytes(pickle.dumps({"data": Hostile(trace)}))
    pickle.loads(file.read_bytes())
    assert trace.exists()  # the bait works with the ordinary reader
    trace.unlink()
    with pytest.raises(FedchordError) as error:
        load("cifar100", tmp_path)
    assert str(error.value) == f"cifar100: {file} is refused: it asks for {os.name}.system, which image data never need"
    assert not trace.exists()


@pytest.mark.parametrize(
    "batch, message",
    [
        ([1], "holds a list, expected a dict"),
        ({"data": np.zeros((1, 3072), np.uint8)}, "has no entry 'fine_labels' (entries: data)"),
        ({"data": [0], "fine_labels": [0]}, ": data must be bytes of (n, 3072), got list"),
        (
            {"data": np.zeros((1, 3072)), "fine_labels": [0]},
            ": data must be bytes of (n, 3072), got float64 of (1, 3072)",
        ),
        (
            {"data": np.zeros((1, 3072), np.uint8), "fine_labels": ["a"]},
            ": fine_labels must be a list of whole numbers",
        ),
        (
            {"data": np.zeros((1, 3072), np.uint8), "fine_labels": [10**400]},
            ": fine_labels must be whole numbers of at most 64 bits",
        ),
        ({"data": np.zeros((1, 3072), np.uint8), "fine_labels": [0, 1]}, "holds 2 labels for 1 images"),
        ({"data": np.array([None]), "fine_labels": [0]}, "is damaged: expected a pickled batch, got an array of 'O8'"),
    ],
)
def test_odd_batches(tmp_path, batch, message):
    put_cifar(tmp_path, "cifar100")
    file = tmp_path / "cifar-100-python/train"
    file.write_bytes(pickle.dumps(batch))
    with pytest.raises(FedchordError) as error:
        load("cifar100", tmp_path)
    assert str(error.value) == f"cifar100: {file}{'' if message.startswith(':') else ' '}{message}"


@pytest.mark.parametrize("keep", [0, 1, 40, 3000])
def test_truncated_batches(tmp_path, keep):
    put_cifar(tmp_path, "cifar100")
    file = tmp_path / "cifar-100-python/train"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(FedchordError, match=r"^cifar100: .*train is damaged: expected a pickled batch, got [^\n]+$"):
        load("cifar100", tmp_path)


def damaged(kind: str) -> bytes:
    whole = idx(np.zeros((8, 28, 28)), 8)
    return {
        "magic": gzip.compress(idx(np.zeros(8), 8)),
        "header": gzip.compress(whole[:10]),
        "short": gzip.compress(whole[:-1]),
        "long": gzip.compress(whole + b"x"),
        "plain": b"<html>not found</html>",
        "cut": gzip.compress(whole)[:30],
        "bits": gzip.compress(whole)[:12] + b"\xff" * 10 + gzip.compress(whole)[22:],
        "size": gzip.compress(idx(np.zeros((8, 20, 28)), 8)),
        "rows": gzip.compress(idx(np.zeros((7, 28, 28)), 8)),
    }[kind]


@pytest.mark.parametrize(
    "kind, message",
    [
        ("magic", "{f} is damaged: it starts with 0x00000801, expected 0x00000803"),
        ("header", "{f} is damaged: it ends inside its header"),
        ("short", "{f} is damaged: it holds 6287 bytes, its header promises 6288"),
        ("long", "{f} is damaged: it holds 6289 bytes, its header promises 6288"),
        ("plain", "{f} is damaged: expected a gzip file, got Not a gzipped file (b'<h')"),
        (
            "cut",
            "{f} is damaged: expected a gzip file, got "
            "Compressed file ended before the end-of-stream marker was reached",
        ),
        ("bits", "{f} is damaged: expected a gzip file, got "),
        ("size", "{f} holds images of (20, 28), expected (28, 28)"),
        ("rows", "{g} holds 8 labels for 7 images"),
    ],
)
def test_damaged_idx_files(tmp_path, kind, message):
    put_mnist(tmp_path)
    images, labels = (tmp_path / f"mnist/train-{what}-ubyte.gz" for what in ("images-idx3", "labels-idx1"))
    images.write_bytes(damaged(kind))
    with pytest.raises(FedchordError) as error:
        load("mnist", tmp_path)
    expected = "mnist: " + message.format(f=images, g=labels)
    assert str(error.value).startswith(expected)
    assert "\n" not in str(error.value)
    assert kind == "bits" or str(error.value) == expected


def test_qmnist_with_other_columns(tmp_path):
    put_qmnist(tmp_path, width=5)
    with pytest.raises(FedchordError, match=r"train-labels-idx2-int.gz has 5 label columns, expected 8$"):
        load("qmnist", tmp_path)


def test_missing_files_root_and_names(tmp_path):
    with pytest.raises(FedchordError) as error:
        load("mnist", tmp_path / "none")
    hint = "fedchord data get mnist, or set FEDCHORD_DATA or data.root to the folder that holds mnist/"
    assert str(error.value) == f"mnist: {tmp_path / 'none'} does not exist; {hint}"
    put_mnist(tmp_path)
    (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FedchordError) as error:
        load("mnist", tmp_path)
    assert str(error.value) == (
        f"mnist: missing mnist/t10k-labels-idx1-ubyte.gz in {tmp_path}; fedchord data get mnist, or get it from "
        f"{SOURCES['mnist'].home} "
        f"and put the files into {tmp_path / 'mnist'}"
    )
    with pytest.raises(FedchordError, match=r"missing mnist/t10k-labels-idx1-ubyte.gz"):
        SOURCES["mnist"].load(tmp_path)
    assert status(SOURCES["mnist"], tmp_path) == "missing: mnist/t10k-labels-idx1-ubyte.gz"
    assert status(SOURCES["cifar100"], tmp_path) == "missing: cifar-100-python/train, cifar-100-python/test"
    assert status(SOURCES["digits"], tmp_path / "none") == "present"
    with pytest.raises(FedchordError) as error:
        load("minst")
    assert str(error.value) == (
        f"unknown data set 'minst'; did you mean 'mnist'? (known: {', '.join(sorted(SOURCES))})"
    )


def test_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDCHORD_DATA", str(tmp_path))
    assert data_root() == tmp_path
    put_mnist(tmp_path)
    assert len(load("mnist").columns["y"]) == 8
    monkeypatch.delenv("FEDCHORD_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "fedchord"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache" / "fedchord"


def test_digits_are_embedded():
    data = load("digits", "/nowhere")
    assert data.columns["x"].shape == (1797, 1, 8, 8)
    assert data.columns["x"].dtype == torch.float32
    assert (data.columns["x"].min(), data.columns["x"].max()) == (0, 1)
    assert Counter(data.columns["y"].tolist())[0] == 178
    assert data.origin.endswith("1797 rows, the official number.")


def test_digits_are_those_of_scikit_learn():
    data, theirs = load("digits", "/nowhere"), load_digits()
    assert torch.equal(data.columns["x"].squeeze(1), torch.from_numpy(theirs.images).float() / 16)
    assert data.columns["y"].tolist() == theirs.target.tolist()


def test_a_run_on_digits_loads_no_scikit_learn_scipy_or_matplotlib():
    code = (
        "import atexit, sys; from fedchord.cli import main;"
        "heavy = ('sklearn', 'scipy', 'matplotlib', 'pandas', 'flwr');"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules]));"
        "sys.argv = ['fedchord', 'run', 'data=digits', 'method=fedavg', 'rounds=1']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(FedchordError, match="pip install scikit-learn"):
        load("digits", "/nowhere")


def test_records_agree_with_their_names():
    for name, source in SOURCES.items():
        assert source.name == name
        assert source.embedded == (not source.files)
        assert source.title and source.licence and source.home


def real(name: str):
    root = os.environ.get("FEDCHORD_DATA")
    if not root:
        pytest.skip("FEDCHORD_DATA is not set")
    found = status(SOURCES[name], root)
    if found != "present":
        pytest.skip(f"{name} under FEDCHORD_DATA: {found}")
    return load(name, root)


@pytest.mark.data
def test_real_mnist():
    data = real("mnist")
    assert torch.bincount(data.columns["y"]).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(data.holdout["y"]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    pixels = data.columns["x"].float() / 255
    assert (float(pixels.mean()), float(pixels.std())) == pytest.approx((0.1307, 0.3081), abs=1e-4)
    assert data.origin.endswith("the official number.")
    for num_clients in (100, 1000):
        made = federate(data, Dirichlet(0.01), num_clients)
        assert int(made.train.sizes.min()) == 48000 // num_clients


@pytest.mark.data
def test_real_qmnist():
    data = real("qmnist")
    assert len(data.group_names) == 539
    assert torch.equal(data.columns["y"][:5], torch.tensor([5, 0, 4, 1, 9]))
    made = federate(data, Natural())
    assert made.num_clients == 539
    assert made.train.sizes.sum() + made.test.sizes.sum() == 60000


@pytest.mark.data
def test_real_cifar10():
    data = real("cifar10")
    assert torch.bincount(data.columns["y"]).tolist() == [5000] * 10
    assert torch.bincount(data.holdout["y"]).tolist() == [1000] * 10
    assert data.columns["y"][:5].tolist() == [6, 9, 9, 4, 1]
    mean = data.columns["x"].float().mean(dim=(0, 2, 3)) / 255
    assert mean.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=2e-3)


@pytest.mark.data
def test_real_cifar100():
    data = real("cifar100")
    assert data.classes == 100
    assert len(data.columns["y"].unique()) == 100
    assert data.columns["y"][:3].tolist() == [19, 29, 0]
