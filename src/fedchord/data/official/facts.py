"""What is known of the public data sets beside their layout: addresses, checksums, and what the thesis says of them.

Checksums are those that the makers of a data set, or widely used loaders of it, publish for the official files. Where
none is published, there is none here, and a copy can only be recognised by its counts. The numbers of the thesis are
those of its tables: `dataset_stat` (clients, samples, mean and std per client), `2_table2` and `fedevg_config` (numbers
of clients).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from fedchord.data.sources import celeba, heart, medmnist

# The addresses of folders that hold several files.
MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist")
QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease"
ZENODO = "https://zenodo.org/records/10519652/files"
CURAI = "https://raw.githubusercontent.com/curai/medical-question-pair-dataset/master"
TORONTO = "https://www.cs.toronto.edu/~kriz"


@final
@dataclass(frozen=True)
class Download:
    """A public file: its addresses, tried in order, and its place under the data root.

    `checksum` is "md5:..." or "sha256:...", or empty where none is published. An archive has a `top`: the folder in it
    that becomes `place`, or "" for all of it; what is no archive has None.
    """

    urls: tuple[str, ...]
    place: str
    checksum: str = ""
    top: str | None = None


@final
@dataclass(frozen=True)
class Thesis:
    """What a table of the thesis says of a data set; `split` are the settings of a run that makes such clients."""

    table: str
    label: str
    clients: tuple[int, ...]
    samples: int | None = None
    mean: float | None = None
    std: float | None = None
    split: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Facts:
    """What is known of one data set.

    `checksums` are of official files, by their usual places, and `unpacked` of what is in those that are packed with
    gzip. `rows` is the number of rows that the official files give, where it is not what `Source.rows` says. `tells`:
    the source itself says in `origin` whether the checksums agree. `manual` says how to get what cannot be downloaded
    by a command. `why` explains a difference to the thesis that the official files have, too.
    """

    downloads: tuple[Download, ...] = ()
    manual: str = ""
    checksums: Mapping[str, str] = field(default_factory=dict)
    unpacked: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
    tells: bool = False
    thesis: Thesis | None = None
    why: str = ""


def _files(addresses: tuple[str, ...], checksums: Mapping[str, str], end: str = "") -> tuple[Download, ...]:
    """Files that are taken as they are; `end` follows the name in an address."""
    names = {place: place.rpartition("/")[2] for place in checksums}
    return tuple(
        Download(tuple(f"{address}/{names[place]}{end}" for address in addresses), place, checksum)
        for place, checksum in checksums.items()
    )


def _md5(folder: str, sums: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": f"md5:{digest}" for name, digest in sums.items()}


_MNIST = _md5(
    "mnist",
    {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
)
_MNIST_UNPACKED = _md5(
    "mnist",
    {
        "train-images-idx3-ubyte.gz": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte.gz": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte.gz": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte.gz": "27ae3e4e09519cfbb04c329615203637",
    },
)
_QMNIST = _md5(
    "qmnist",
    {
        "qmnist-train-images-idx3-ubyte.gz": "ed72d4157d28c017586c42bc6afe6370",
        "qmnist-train-labels-idx2-int.gz": "0058f8dd561b90ffdd0f734c6a30e5e4",
        "qmnist-test-images-idx3-ubyte.gz": "1394631089c404de565df7b7aeaf9412",
        "qmnist-test-labels-idx2-int.gz": "5b5b05890a5e13444e108efe57b788aa",
    },
)
# Of the packed label files with the sums above; those of the unpacked images are not known to us.
_QMNIST_UNPACKED = _md5(
    "qmnist",
    {
        "qmnist-train-labels-idx2-int.gz": "1d43300e7f41ddcbf7fd006cbe865af9",
        "qmnist-test-labels-idx2-int.gz": "5e00709fb0090091f3afc51d204ad83c",
    },
)
_CIFAR10 = _md5(
    "cifar-10-batches-py",
    {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
)
_CIFAR100 = _md5(
    "cifar-100-python",
    {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
)
_HEART = _md5("heart_disease", {f"processed.{hospital}.data": digest for hospital, digest in heart.MD5.items()})
# The vocabulary of the lower-case BERT, at a fixed revision.
_VOCAB = "https://huggingface.co/bert-base-uncased/resolve/86b5e0934494bd15c9632b12f734a8a67f723594/vocab.txt"
_VOCAB_SUM = "sha256:07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
_PATHOLOGICAL = ("split=pathological", "split.shards=2", "clients=100")


def _medmnist(name: str) -> Facts:
    digest = next(digest for digest, known in medmnist.MD5.items() if known == name)
    checksums = _md5("medmnist", {f"{name}.npz": digest})
    thesis = Thesis("fedevg_config", "", (10, 100), split=("split=dirichlet", "split.alpha=1", "clients=10"))
    return Facts(
        downloads=_files((ZENODO,), checksums, "?download=1"),
        checksums=checksums,
        tells=True,
        thesis=thesis if name.endswith("_64") else None,
        why="The thesis gives no counts for MedMNIST.",
    )


def _berka() -> Facts:
    # The one checksum of this archive that we found is that of a public loader.
    archive = Download(
        ("https://sorry.vse.cz/~berka/challenge/pkdd1999/data_berka.zip",),
        "berka",
        "md5:88d001738478c5e348a0896878f2433c",
        "",
    )
    return Facts(downloads=(archive,), thesis=Thesis("dataset_stat", "Berka", (7,), 621, 88.71, 24.78))


_LEAF = (
    "clone https://github.com/TalwalkarLab/leaf, run data/{0}/preprocess.sh {1}, and copy data/{0}/data/train and test"
)

FACTS: dict[str, Facts] = {
    "digits": Facts(),
    "mnist": Facts(
        downloads=_files(MNIST, _MNIST),
        checksums=_MNIST,
        unpacked=_MNIST_UNPACKED,
        thesis=Thesis("2_table2", "MNIST", (50, 100, 500), split=_PATHOLOGICAL),
        why="The table gives numbers of clients only.",
    ),
    "qmnist": Facts(downloads=_files((QMNIST,), _QMNIST), checksums=_QMNIST, unpacked=_QMNIST_UNPACKED),
    "cifar10": Facts(
        downloads=(
            Download(
                (f"{TORONTO}/cifar-10-python.tar.gz",),
                "cifar-10-batches-py",
                "md5:c58f30108f718f92721af3b95e74349a",
                "cifar-10-batches-py",
            ),
        ),
        checksums=_CIFAR10,
        thesis=Thesis("2_table2", "CIFAR-10", (50, 100, 500), split=_PATHOLOGICAL),
        why="The table gives numbers of clients only.",
    ),
    "cifar100": Facts(
        downloads=(
            Download(
                (f"{TORONTO}/cifar-100-python.tar.gz",),
                "cifar-100-python",
                "md5:eb9058c3a382ffc7106e4002c42a8d85",
                "cifar-100-python",
            ),
        ),
        checksums=_CIFAR100,
        thesis=Thesis("2_table2", "CIFAR-100", (100,), split=("split=dirichlet", "split.alpha=1", "clients=100")),
        why="The table gives the number of clients only.",
    ),
    "tinyimagenet": Facts(
        downloads=(
            Download(
                ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
                "tiny-imagenet-200",
                "md5:90528d7ca1a48142e341f4ef8d21d0de",
                "tiny-imagenet-200",
            ),
        ),
        thesis=Thesis("2_table2", "TinyImageNet", (200,), split=("split=dirichlet", "split.alpha=1", "clients=200")),
        why="The table gives the number of clients only.",
    ),
    "heart": Facts(
        downloads=_files((UCI,), _HEART),
        checksums=_HEART,
        tells=True,
        thesis=Thesis("text of chapter 3", "", (4,)),
        why="The thesis gives four clients and no counts.",
    ),
    **{name: _berka() for name in ("berka", "berka-leaking", "berka-before")},
    "mqp": Facts(
        downloads=(Download((f"{CURAI}/mqp.csv",), "mqp/mqp.csv"), Download((_VOCAB,), "mqp/vocab.txt", _VOCAB_SUM)),
        checksums={"mqp/vocab.txt": _VOCAB_SUM},
        thesis=Thesis("dataset_stat", "MQP", (11,), 3048, 277.09, 63.25),
    ),
    "isic": Facts(
        manual="run FLamby's scripts (https://github.com/owkin/FLamby, datasets/fed_isic2019; they ask you to accept "
        "the licence, get 9 GB and make the pictures smaller), and copy the pictures and train_test_split",
        thesis=Thesis("dataset_stat", "ISIC", (6,), 21310, 3551.67, 3976.16),
        why="FLamby has 23,247 rows in 6 centres; the thesis leaves out those with a gap in their metadata.",
    ),
    **{name: _medmnist(name) for name in ("dermamnist", "dermamnist_64", "organcmnist", "organcmnist_64")},
    "femnist": Facts(
        manual=_LEAF.format("femnist", "-s niid --sf 0.05 -k 0 -t sample"),
        thesis=Thesis("2_table2", "FEMNIST", (730,)),
        why="The thesis uses a sample of 5 % that LEAF's scripts draw; which users they draw depends on their seed.",
    ),
    "shakespeare": Facts(
        manual=_LEAF.format("shakespeare", "-s niid --sf 1.0 -k 0 -t sample -tf 0.8"),
        thesis=Thesis("2_table2", "Shakespeare", (660,)),
        why="How many roles there are depends on the edition, on LEAF's sampling and on the least number of samples.",
    ),
    "speechcommands": Facts(
        downloads=(
            Download(
                ("https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",),
                "speech_commands",
                "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
                "",
            ),
        ),
        rows=84700,
        thesis=Thesis("dataset_stat", "SpeechCommands", (2005,), 84700, 42.24, 36.69),
    ),
    "celeba": Facts(
        manual="accept the terms on https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, get img_align_celeba.zip (MD5 "
        "00d2c5bc6d35e252742224ab0c1e8fcb), identity_CelebA.txt and list_attr_celeba.txt, unpack the pictures, and put "
        "img_align_celeba and the two lists",
        checksums=_md5("celeba", celeba.MD5),
        tells=True,
        thesis=Thesis("dataset_stat", "CelebA", (9343,), 200288, 21.44, 7.63),
    ),
    "reddit": Facts(
        manual="get LEAF's subsampled set, which data/reddit/README.md of https://github.com/TalwalkarLab/leaf links "
        "to, unpack it, and put the files as train/train_data.json, test/test_data.json and val/val_data.json",
        thesis=Thesis("dataset_stat", "Reddit", (817,), 97961, 119.9, 229.85),
        why="Rows are windows of 10 tokens; those without a word to predict, and LEAF's validation part, do not count.",
    ),
    "shakespeare_words": Facts(manual="make it yourself, in the layout of LEAF's Reddit, and put train, test and val"),
}
"""The facts of every data set that can be named."""
