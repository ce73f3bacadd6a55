"""Every public data set as a few random rows in its official layout, big enough to be trained on."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

Dice = np.random.Generator
CLIENTS, ROWS = 3, 8


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def table(path: Path, rows: list[list[object]], between: str = ",") -> None:
    write(path, "".join(between.join(str(cell) for cell in row) + "\n" for row in rows))


def picture(path: Path, dice: Dice, size: tuple[int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(dice.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(path, format="JPEG")


def idx(array: np.ndarray) -> bytes:
    kind = 8 if array.dtype == np.uint8 else 12
    return (
        struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape)
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


def mnist(root: Path, dice: Dice) -> None:
    for part, rows in (("train", 30), ("t10k", 4)):
        write(root / f"mnist/{part}-images-idx3-ubyte.gz", idx(dice.integers(0, 256, (rows, 28, 28)).astype(np.uint8)))
        write(root / f"mnist/{part}-labels-idx1-ubyte.gz", idx((np.arange(rows) % 10).astype(np.uint8)))


def qmnist(root: Path, dice: Dice) -> None:
    for part, rows in (("train", CLIENTS * ROWS), ("test", 4)):
        labels = np.zeros((rows, 8), dtype=np.int32)
        labels[:, 0], labels[:, 2] = np.arange(rows) % 10, 100 + np.arange(rows) % CLIENTS
        images = dice.integers(0, 256, (rows, 28, 28)).astype(np.uint8)
        write(root / f"qmnist/qmnist-{part}-images-idx3-ubyte.gz", idx(images))
        write(root / f"qmnist/qmnist-{part}-labels-idx2-int.gz", idx(labels))


def cifar10(root: Path, dice: Dice) -> None:
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        held = {b"data": dice.integers(0, 256, (4, 3072)).astype(np.uint8), b"labels": [0, 1, 2, 3]}
        write(root / f"cifar-10-batches-py/{name}", pickle.dumps(held, protocol=2))


def cifar100(root: Path, dice: Dice) -> None:
    for name, rows in (("train", 18), ("test", 4)):
        data = dice.integers(0, 256, (rows, 3072)).astype(np.uint8)
        held = {b"data": data, b"fine_labels": [i % 4 for i in range(rows)], b"coarse_labels": [0] * rows}
        write(root / f"cifar-100-python/{name}", pickle.dumps(held, protocol=2))


def tinyimagenet(root: Path, dice: Dice) -> None:
    folder, classes = root / "tiny-imagenet-200", [f"n{i:08d}" for i in range(200)]
    write(folder / "wnids.txt", "\n".join(classes))
    for name in classes[:2]:
        for i in range(9):
            picture(folder / f"train/{name}/images/{name}_{i}.JPEG", dice, (64, 64))
    picture(folder / "val/images/val_0.JPEG", dice, (64, 64))
    write(folder / "val/val_annotations.txt", f"val_0.JPEG\t{classes[0]}\t0\t0\t62\t63\n")


def medmnist(name: str, side: int, colours: int, classes: int) -> Callable[[Path, Dice], None]:
    def put(root: Path, dice: Dice) -> None:
        held = {}
        for part, rows in (("train", 18), ("val", 2), ("test", 4)):
            shape = (rows, side, side, 3) if colours == 3 else (rows, side, side)
            held[f"{part}_images"] = dice.integers(0, 256, shape).astype(np.uint8)
            held[f"{part}_labels"] = (np.arange(rows) % classes).astype(np.uint8)[:, None]
        (root / "medmnist").mkdir(parents=True)
        np.savez(root / f"medmnist/{name}.npz", **held)

    return put


def leaf(root: Path, name: str, part: str, users: dict[str, tuple[list[object], list[object]]]) -> None:
    held = {
        "users": list(users),
        "num_samples": [len(x) for x, _ in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    write(root / f"{name}/{part}/all_data.json", json.dumps(held))


def femnist(root: Path, dice: Dice) -> None:
    for part, rows in (("train", ROWS), ("test", 2)):
        pixels = dice.integers(0, 256, (CLIENTS, rows, 784)) / 255
        leaf(root, "femnist", part, {f"f{i}": (own.tolist(), list(range(rows))) for i, own in enumerate(pixels)})


def shakespeare(root: Path, dice: Dice) -> None:
    letters = list("abcdefghij ,.\n")
    for part, rows in (("train", ROWS), ("test", 2)):
        users = {
            f"HAMLET_{i}": (["".join(dice.choice(letters, 80)) for _ in range(rows)], list(dice.choice(letters, rows)))
            for i in range(CLIENTS)
        }
        leaf(root, "shakespeare", part, users)


def comment(words: list[str]) -> tuple[list[list[str]], dict[str, list[list[str]]]]:
    """LEAF's rows of ten tokens, and those that follow."""
    x, y = ["<BOS>", *words, "<EOS>"], [*words, "<EOS>", "<PAD>"]
    gap = ["<PAD>"] * (-len(x) % 10)
    x, y = x + gap, y + gap
    cut = [[row[i : i + 10] for i in range(0, len(row), 10)] for row in (x, y)]
    return cut[0], {"target_tokens": cut[1]}


def words(name: str) -> Callable[[Path, Dice], None]:
    def put(root: Path, dice: Dice) -> None:
        for part, rows in (("train", ROWS), ("test", 2)):
            users = {}
            for i in range(CLIENTS):
                made = [comment(list(dice.choice(list("abcdefgh"), dice.integers(2, 14)))) for _ in range(rows)]
                users[f"user{i}"] = ([x for x, _ in made], [y for _, y in made])
            leaf(root, name, part, users)

    return put


def celeba(root: Path, dice: Dice) -> None:
    names = [f"{i + 1:06d}.jpg" for i in range(CLIENTS * ROWS)]
    for name in names:
        picture(root / f"celeba/img_align_celeba/{name}", dice, (178, 218))
    table(root / "celeba/identity_CelebA.txt", [[name, i % CLIENTS + 1] for i, name in enumerate(names)], " ")
    smiles = [[name, -1, 1 if i // CLIENTS % 2 else -1] for i, name in enumerate(names)]
    table(root / "celeba/list_attr_celeba.txt", [[len(names)], ["Bald", "Smiling"], *smiles], " ")


def speechcommands(root: Path, dice: Dice) -> None:
    folder = root / "speech_commands"
    for speaker in ("aa", "bb", "cc"):
        for word in ("yes", "no"):
            for take in range(4):
                path = folder / f"{word}/{speaker}_nohash_{take}.wav"
                path.parent.mkdir(parents=True, exist_ok=True)
                with wave.open(str(path), "wb") as clip:
                    clip.setnchannels(1)
                    clip.setsampwidth(2)
                    clip.setframerate(16000)
                    clip.writeframes(dice.integers(-999, 999, 12000).astype("<i2").tobytes())
    write(folder / "validation_list.txt", "")
    write(folder / "testing_list.txt", "")


def heart(root: Path, dice: Dice) -> None:
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        ranges = ((30, 78), (0, 2), (1, 5), (90, 200), (0, 400), (0, 2), (0, 3), (60, 200), (0, 2), (0, 5), (1, 4))
        rows = [[*(dice.integers(*span) for span in ranges), "?", "?", i % 2] for i in range(16)]
        table(root / f"heart_disease/processed.{hospital}.data", rows)


REGIONS = ("Prague", "central Bohemia", "south Bohemia", "west Bohemia", "east Bohemia", "south Moravia")


def berka(root: Path, dice: Dice) -> None:
    """Six regions of 8 loans; every account has transactions before and after its loan."""
    heads = {
        "district": [f"A{i}" for i in range(1, 17)],
        "account": ["account_id", "district_id", "frequency", "date"],
        "loan": ["loan_id", "account_id", "date", "amount", "duration", "payments", "status"],
        "order": ["order_id", "account_id", "amount"],
        "trans": ["trans_id", "account_id", "date", "amount", "balance"],
    }
    rows: dict[str, list[list[object]]] = {name: [head] for name, head in heads.items()}
    for i, region in enumerate(REGIONS, 1):
        rows["district"].append([i, f"Town {i}", region, *dice.integers(1, 9999, 13)])
    for i in range(8 * len(REGIONS)):
        rows["account"].append([i, i % len(REGIONS) + 1, "POPLATEK TYDNE", "930101"])
        rows["loan"].append([i, i, "950601", *dice.integers(1, 9999, 3), "AB"[i // len(REGIONS) % 2]])
        rows["order"].append([i, i, dice.integers(1, 999)])
        for day in ("940101", "950531", "950601", "960101"):
            rows["trans"].append([len(rows["trans"]), i, day, *dice.integers(1, 9999, 2)])
    for name, lines in rows.items():
        table(root / f"berka/{name}.asc", lines, ";")


PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "can", "i", "drink", "with", "flu", "?", "##s", "##es", "dose")


def mqp(root: Path, dice: Dice) -> None:
    write(root / "mqp/vocab.txt", "\n".join(PIECES) + "\n")
    ask = [" ".join(dice.choice(["can", "i", "drinks", "with", "doses", "flu"], 5)) + "?" for _ in range(48)]
    rows = [[i % CLIENTS + 1, ask[2 * i], ask[2 * i + 1], i // CLIENTS % 2] for i in range(24)]
    table(root / "mqp/mqp.csv", rows)


def isic(root: Path, dice: Dice) -> None:
    """Two centres with four training and two test pictures each."""
    folder = root / "fed_isic2019"
    rows: list[list[object]] = [["image", "target", "center", "fold", "fold2"]]
    for i in range(12):
        centre, fold = 3 * (i % 2) + 1, "train" if i < 8 else "test"
        picture(
            folder / f"ISIC_2019_Training_Input_preprocessed/ISIC_{i:07d}.jpg", dice, ((230, 224), (224, 240))[i % 2]
        )
        rows.append([f"ISIC_{i:07d}", i // 2 % 2, centre, fold, f"{fold}_{centre}"])
    table(folder / "train_test_split", rows)


OFFICIAL: dict[str, Callable[[Path, Dice], None]] = {
    **{name.__name__: name for name in (mnist, qmnist, cifar10, cifar100, tinyimagenet, femnist, shakespeare, celeba)},
    **{name.__name__: name for name in (speechcommands, heart, mqp, isic)},
    **dict.fromkeys(("berka", "berka-leaking", "berka-before"), berka),
    **{name: words(name) for name in ("reddit", "shakespeare_words")},
    "dermamnist": medmnist("dermamnist", 28, 3, 7),
    "dermamnist_64": medmnist("dermamnist_64", 64, 3, 7),
    "organcmnist": medmnist("organcmnist", 28, 1, 11),
    "organcmnist_64": medmnist("organcmnist_64", 64, 1, 11),
}


def put(name: str, root: Path) -> Path:
    """The files of a data set under a root; embedded ones need none."""
    if name in OFFICIAL:
        OFFICIAL[name](root, np.random.default_rng(0))
    return root
