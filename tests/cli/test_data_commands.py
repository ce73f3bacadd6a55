"""`fedchord data`: what is here, is it the original, how to get it, what it holds, beside the thesis."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import shutil
import struct
import tarfile
import wave
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.invoked import invoke

from fedchord.check import FedchordError
from fedchord.data import SOURCES
from fedchord.data.official.facts import FACTS, Download, Facts, Thesis
from fedchord.data.statistics import Statistics
from fedchord.experiments.config import RunConfig
from fedchord.thesis.data_table import agrees, entry, explain, settings, table

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """A command in an empty folder with an empty data root; its exit code and what it printed."""
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCHORD_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)

    def call(*arguments: str) -> tuple[int, str]:
        done = invoke("data", *arguments)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    return call


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">I", length) for length in array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes(), mtime=1)


def mnist_files(rows: int = 60, held: int = 20) -> dict[str, bytes]:
    draw, files = np.random.default_rng(0), {}
    for part, count in (("train", rows), ("t10k", held)):
        files[f"mnist/{part}-images-idx3-ubyte.gz"] = idx(draw.integers(0, 256, (count, 28, 28)))
        files[f"mnist/{part}-labels-idx1-ubyte.gz"] = idx(np.arange(count) % 10)
    return files


def put(root: Path, files: dict[str, bytes]) -> None:
    for place, content in files.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(content)


# -- list, check ----------------------------------------------------------------------------------------------------


def test_list_names_every_source(run, tmp_path):
    for arguments in ((), ("list",), ("list", "--root", str(tmp_path / "data"))):
        code, out = run(*arguments)
        assert code == 0
        assert [name for name in SOURCES if f"\n{name}: " not in out] == []
        assert "fedchord data get mnist downloads it" in out and "fedchord data get celeba says more" in out
    put(tmp_path / "data", mnist_files())
    assert "\nmnist: present\n" in run("list")[1]


def test_check_says_what_is_missing_and_how_to_get_it(run, tmp_path):
    assert run("check") == (0, f"there is no file of a data set in {tmp_path / 'data'}\n")
    code, out = run("check", "cifar100")
    assert code == 2
    assert "  cifar-100-python/train: missing\n" in out
    assert out.endswith(
        "  verdict: missing cifar-100-python/train, cifar-100-python/test (missing)\n"
        "  to get it: fedchord data get cifar100\n"
    )


def test_check_without_a_name_tells_of_what_is_there_in_part(run, tmp_path):
    files = mnist_files()
    put(tmp_path / "data", files)
    lost = tmp_path / "data/mnist/t10k-labels-idx1-ubyte.gz"
    lost.unlink()
    code, out = run("check")
    assert code == 2 and out.startswith("mnist: ")
    assert "  verdict: missing mnist/t10k-labels-idx1-ubyte.gz (missing)\n" in out and "cifar" not in out
    place = tmp_path / "data/mnist/train-images-idx3-ubyte.gz"
    put(tmp_path / "data", files | {"mnist/train-images-idx3-ubyte.gz": place.read_bytes()[:100]})
    code, out = run("check")
    assert code == 2 and f"verdict: {place} is damaged" in out
    put(tmp_path / "data", files)
    assert run("check")[0] == 0


def test_check_recognises_a_subset(run, tmp_path):
    put(tmp_path / "data", mnist_files())
    code, out = run("check")
    assert code == 0 and out.startswith("mnist: MNIST handwritten digits")
    assert "  licence CC BY-SA 3.0; from https://yann.lecun.com" in out
    assert "  mnist/train-labels-idx1-ubyte.gz (0.0 kB): not the official file by its MD5 sum\n" in out
    assert out.endswith(
        "  verdict: a subset: 60 + 20 rows, where the official files give 60000 + 10000 rows; 4 of 4 files are not the "
        "official ones by their checksums; Pathological: 100 clients need at least 200 rows, got 60 (subset)\n"
    )
    assert "a subset, or a re-encoded or altered copy" in run("check", "--files")[1]


def test_check_names_a_damaged_file(run, tmp_path):
    files = mnist_files()
    place = "mnist/train-images-idx3-ubyte.gz"
    put(tmp_path / "data", files | {place: files[place][:100]})
    code, out = run("check", "mnist")
    assert code == 2
    assert f"verdict: {tmp_path / 'data' / place} is damaged: expected a gzip file, got Compressed file ended" in out


def test_names_that_nobody_knows(run):
    for command in ("check", "get", "show", "table"):
        with pytest.raises(FedchordError, match=r"^unknown data set 'minst'; did you mean 'mnist'\?"):
            run(command, "minst")


# -- get ------------------------------------------------------------------------------------------------------------


def offer(monkeypatch, tmp_path: Path, server, files: dict[str, bytes]) -> None:
    """Offer files as MNIST, with their checksums."""
    put(tmp_path / "served", files)
    sums = {place: f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}" for place, content in files.items()}
    downloads = tuple(Download((server.url(place),), place, sum_) for place, sum_ in sums.items())
    monkeypatch.setitem(FACTS, "mnist", Facts(downloads=downloads, checksums=sums))
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], rows=60, holdout=20))


def test_get_then_check(run, server, tmp_path, monkeypatch):
    files = mnist_files()
    offer(monkeypatch, tmp_path, server, files)
    code, out = run("get", "mnist")
    assert code == 0
    assert "  licence: CC BY-SA 3.0\n" in out
    assert out.count(": downloaded; its checksum is the published one\n") == 4
    assert out.endswith(
        f"every expected file is in {tmp_path / 'data/mnist'}; fedchord data check mnist counts the rows\n"
    )
    assert {place: (tmp_path / "data" / place).read_bytes() for place in files} == files
    assert "verdict: the official files by their checksums (original)" in run("check", "mnist")[1]
    assert "is there already, with the published checksum" in run("get", "mnist")[1]
    labels = tmp_path / "data/mnist/t10k-labels-idx1-ubyte.gz"
    unpacked = gzip.decompress(labels.read_bytes())
    known = {"mnist/t10k-labels-idx1-ubyte.gz": f"md5:{hashlib.md5(unpacked, usedforsecurity=False).hexdigest()}"}
    monkeypatch.setitem(FACTS, "mnist", replace(FACTS["mnist"], unpacked=known))
    labels.write_bytes(gzip.compress(unpacked, 1, mtime=7))  # both commands say the same of it
    for command in ("get", "check"):
        assert "the official content, packed anew\n" in run(command, "mnist")[1]
    (tmp_path / "data/mnist/t10k-labels-idx1-ubyte.gz").write_bytes(b"mine")
    with pytest.raises(
        FedchordError, match=r"is there already, not the official file by its MD5 sum; --replace takes it away$"
    ):
        run("get", "mnist")
    assert run("get", "mnist", "--replace")[0] == 0
    assert (tmp_path / "data/mnist/t10k-labels-idx1-ubyte.gz").read_bytes() == files["mnist/t10k-labels-idx1-ubyte.gz"]


def test_get_refuses_other_content(run, server, tmp_path, monkeypatch):
    files = mnist_files()
    offer(monkeypatch, tmp_path, server, files)
    put(tmp_path / "served", {"mnist/train-images-idx3-ubyte.gz": b"changed"})
    with pytest.raises(FedchordError, match=r"^mnist: cannot be downloaded: .* has another checksum than md5:"):
        run("get", "mnist")
    assert not list((tmp_path / "data").rglob("*.gz"))


def test_get_an_archive_that_lacks_a_file(run, server, tmp_path, monkeypatch):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as made:
        info = tarfile.TarInfo("cifar-100-python/train")
        info.size = 1
        made.addfile(info, io.BytesIO(b"x"))
    put(tmp_path / "served", {"c.tar.gz": held.getvalue()})
    item = Download((server.url("c.tar.gz"),), "cifar-100-python", "", "cifar-100-python")
    monkeypatch.setitem(FACTS, "cifar100", Facts(downloads=(item,)))
    code, out = run("get", "cifar100")
    assert code == 2
    assert "cifar-100-python: downloaded; no checksum is published to check it by\n" in out
    assert "still missing: cifar-100-python/test; see https://www.cs.toronto.edu" in out


def test_get_again_goes_on(run, server, tmp_path, monkeypatch):
    """A file without a published checksum and an unpacked archive do not stop the same command later."""
    put(tmp_path / "served", {"mqp.csv": b"1,a,b,0\n", "vocab.txt": b"[PAD]\n"})
    sha = f"sha256:{hashlib.sha256(b'[PAD]' + bytes([10])).hexdigest()}"
    items = tuple(
        Download((server.url(name),), f"mqp/{name}", known) for name, known in (("mqp.csv", ""), ("vocab.txt", sha))
    )
    monkeypatch.setitem(FACTS, "mqp", Facts(downloads=items, checksums={"mqp/vocab.txt": sha}))
    assert run("get", "mqp")[0] == 0
    (tmp_path / "data/mqp/vocab.txt").unlink()
    for _ in range(2):
        code, out = run("get", "mqp")
        assert code == 0 and "mqp/mqp.csv is there already and left as it is; there is no checksum to check" in out
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as made:
        for place in (place[0] for place in SOURCES["berka"].files):
            made.addfile(tarfile.TarInfo(place))
    put(tmp_path / "served", {"b.tar.gz": held.getvalue()})
    archive = Download((server.url("b.tar.gz"),), "berka", "", "berka")
    for name in ("berka", "berka-before"):
        monkeypatch.setitem(FACTS, name, Facts(downloads=(archive,)))
    assert "berka: downloaded" in run("get", "berka")[1]
    code, out = run("get", "berka-before")
    assert code == 0 and "berka is there already and left as it is; there is no checksum to check the folder by" in out
    (tmp_path / "data/berka/order.asc").unlink()
    code, out = run("get", "berka-before")
    assert code == 2 and "still missing: berka/order.asc; see" in out and "--replace fetches all of it anew" in out


def test_get_cifar_again(run, server, tmp_path, monkeypatch):
    """The files of its archive have sums of their own: a whole folder is told, another content is refused."""
    held, sums = io.BytesIO(), {}
    with tarfile.open(fileobj=held, mode="w:gz") as made:
        for place in (place[0] for place in SOURCES["cifar100"].files):
            info = tarfile.TarInfo(place)
            info.size = len(place)
            made.addfile(info, io.BytesIO(place.encode()))
            sums[place] = f"md5:{hashlib.md5(place.encode()).hexdigest()}"
    put(tmp_path / "served", {"c.tar.gz": held.getvalue()})
    item = Download((server.url("c.tar.gz"),), "cifar-100-python", "", "cifar-100-python")
    monkeypatch.setitem(FACTS, "cifar100", Facts(downloads=(item,), checksums=sums))
    assert run("get", "cifar100")[0] == 0
    code, out = run("get", "cifar100")
    assert code == 0 and "cifar-100-python is there already, with the published checksums of its files\n" in out
    (tmp_path / "data/cifar-100-python/test").write_bytes(b"a subset")
    with pytest.raises(
        FedchordError, match=r"test is there already, not the official file by its MD5 sum; --replace takes it"
    ):
        run("get", "cifar100")


def test_get_where_no_command_can(run, tmp_path):
    code, out = run("get", "celeba")
    assert code == 2
    assert "licence: non-commercial research only; not to be passed on\n" in out
    assert "cannot be downloaded by a command: accept the terms on https://mmlab.ie.cuhk.edu.hk" in out
    assert out.endswith(f"into {tmp_path / 'data/celeba'}\n")
    assert run("get", "digits") == (
        0,
        f"digits: {SOURCES['digits'].title}\n  licence: {SOURCES['digits'].licence}\n  home: comes with scikit-learn\n"
        "  it comes with fedchord; nothing is to be done\n",
    )


# -- show, table ----------------------------------------------------------------------------------------------------


def test_show_and_its_pictures(run, tmp_path):
    put(tmp_path / "data", mnist_files(400, 20))
    code, out = run("show", "mnist", "clients=20", "--picture", "p/split.png", "--samples", "p/samples.png")
    assert code == 0
    assert out.startswith(
        "here: 20 clients, 400 rows, per client 20.00 (std 0.00)\n"
        "thesis: 50/100/500 clients, rows not given (2_table2)\n"
        "mnist: 400 of 400 rows went to 20 clients by Pathological(shards=2), seed 0.\n"
    )
    assert out.endswith("wrote p/split.png\nwrote p/samples.png\n")
    assert all(Path(f"p/{name}.png").read_bytes().startswith(b"\x89PNG") for name in ("split", "samples"))
    with pytest.raises(FedchordError, match=r"^data: the picture must end in .png or .pdf or .svg, got 'a.gif'$"):
        run("show", "digits", "--samples", "a.gif")


def test_show_takes_a_root(run, tmp_path):
    put(tmp_path / "elsewhere", mnist_files(400, 20))
    with pytest.raises(FedchordError, match=r"^mnist: missing"):
        run("show", "mnist", "clients=20")
    code, out = run("show", "mnist", "clients=20", "--root", str(tmp_path / "elsewhere"))
    assert code == 0 and out.startswith("here: 20 clients, 400 rows")
    np.savez("mine.npz", x=np.zeros((12, 2)), y=np.arange(12) % 2)
    code, out = run("show", "mine.npz", "split=iid", "clients=3", "--root", str(tmp_path / "elsewhere"))
    assert code == 0 and out.startswith("here: 3 clients, 12 rows")


def test_show_your_own_file(run):
    np.savez("mine.npz", x=np.random.default_rng(0).normal(size=(12, 2)), y=np.arange(12) % 2, client=[0, 1, 1] * 4)
    code, out = run("show", "mine.npz")
    assert code == 0 and out.startswith("here: 2 clients, 12 rows, per client 6.00 (std 2.00)\nmine: 12 of 12 rows")
    np.savez("plain.npz", x=np.zeros((12, 2)), y=np.arange(12) % 2)
    with pytest.raises(FedchordError, match=r"^Pathological: 20 clients need at least 40 rows, got 12$"):
        run("show", "plain.npz")


def test_settings_of_the_thesis_unless_others_are_given():
    assert settings("mnist", []) == ["data=mnist", *FACTS["mnist"].thesis.split, "cohort=all"]
    assert settings("mnist", ["clients=7"]) == [
        *("data=mnist", "split=pathological", "split.shards=2", "cohort=all", "clients=7")
    ]
    assert settings("mnist", ["split=iid"]) == ["data=mnist", "clients=100", "cohort=all", "split=iid"]
    assert settings("qmnist", ["cohort=3"]) == ["data=qmnist", "cohort=3"]
    for name in SOURCES:
        assert isinstance(RunConfig.from_pairs(settings(name, [])), RunConfig)


def test_table_has_a_row_and_a_note_for_every_source(run, tmp_path):
    put(tmp_path / "data", mnist_files(400, 20))
    code, out = run("table", "--format", "csv")
    assert code == 0
    lines = [line for line in csv.reader(io.StringIO(out)) if len(line) > 10]
    assert [line[0] for line in lines[1:]] == list(SOURCES)
    rows = {line[0]: line[1:] for line in lines}
    assert rows["mnist"] == ["subset", "100", "400", "4.00", "0.00", "50/100/500", "-", "-", "-", "2_table2"]
    assert rows["celeba"] == ["missing", "-", "-", "-", "-", "9343", "200288", "21.44", "7.63", "dataset_stat"]
    made = table(tmp_path / "data", ["mnist", "celeba", "digits"])
    assert [note.partition(":")[0] for note in made.notes] == ["digits", "mnist", "celeba"]
    assert made.notes[2].startswith("celeba: not here; to get it: accept the terms")
    assert "| mnist | subset | 100 | 400 |" in run("table", "mnist", "--format", "markdown")[1]


def test_agreement_is_to_the_decimals_of_the_thesis():
    told = Thesis("dataset_stat", "Berka", (7,), 621, 88.71, 24.78)
    assert agrees(Statistics(7, 621, 621 / 7, 24.7799), told)
    for other in ((8, 621, 88.71, 24.78), (7, 620, 88.71, 24.78), (7, 621, 88.72, 24.78), (7, 621, 88.71, 24.80)):
        assert not agrees(Statistics(*other), told)
    assert agrees(Statistics(50, 1, 1.0, 0.0), Thesis("2_table2", "MNIST", (50, 100)))


def test_explanations(tmp_path, run):
    put(tmp_path / "data", mnist_files(400, 20))
    found = entry(SOURCES["mnist"], tmp_path / "data")
    same = "Split into as many clients as in the thesis. The table gives numbers of clients only."
    assert explain(found, tmp_path).endswith(f"checksums. {same}")
    other = replace(found, found=Statistics(20, 400, 20.0, 0.0))
    assert explain(other, tmp_path).endswith(
        "The thesis has 50/100/500 clients. The table gives numbers of clients only."
    )
    shutil.rmtree(tmp_path / "data/mnist")
    assert explain(entry(SOURCES["mnist"], tmp_path), tmp_path) == "not here; to get it: fedchord data get mnist"


# -- damaged files, caches ------------------------------------------------------------------------------------------


def put_clips(root: Path) -> Path:
    folder = root / "speech_commands"
    for word in ("bed", "cat"):
        (folder / word).mkdir(parents=True)
        for speaker in ("aa", "bb"):
            for number in range(3):
                with wave.open(str(folder / word / f"{speaker}_nohash_{number}.wav"), "wb") as clip:
                    clip.setnchannels(1)
                    clip.setsampwidth(2)
                    clip.setframerate(16000)
                    clip.writeframes(np.full(100, number, np.int16).tobytes())
    for part in ("validation", "testing"):
        (folder / f"{part}_list.txt").write_text("")
    return folder


def test_damaged_files_are_skipped_only_if_asked(run, tmp_path):
    bad = put_clips(tmp_path / "data") / "bed/aa_nohash_1.wav"
    bad.write_bytes(b"RIFF")
    asked = ["data=speechcommands", "cohort=all"]
    with pytest.raises(FedchordError, match=rf"^speechcommands: {bad} is damaged: expected a wav file"):
        RunConfig.from_pairs(asked).federation()
    with pytest.raises(FedchordError, match=rf"{bad} is damaged"):
        RunConfig.from_pairs([*asked, "data.skip_damaged=false"]).federation()
    made = RunConfig.from_pairs([*asked, "data.skip_damaged=true"]).federation()
    assert len(made.columns["y"]) == 11
    assert made.notes[-1].endswith(f"Damaged files that were skipped: 1, the first is {bad}.")
    assert run("show", "speechcommands", "data.skip_damaged=true")[1].startswith("here: 2 clients, 11 rows")


def test_the_key_of_skipping():
    config = RunConfig.from_pairs(["data=tinyimagenet", "split=iid", "data.skip_damaged=true"])
    assert config.values()["data.skip_damaged"] is True
    plain = RunConfig.from_pairs(["data=tinyimagenet", "split=iid", "data.skip_damaged=false"])
    assert "data.skip_damaged" not in plain.values()
    with pytest.raises(FedchordError, match=r"^run: data.skip_damaged must be true or false, got 'yes'$"):
        RunConfig.from_pairs(["data=tinyimagenet", "data.skip_damaged=yes"])
    with pytest.raises(
        FedchordError, match=r"^run: data.skip_damaged is for data of many files \(.*celeba.*data=mnist$"
    ):
        RunConfig.from_pairs(["data=mnist", "data.skip_damaged=true"])


def test_caches(run, tmp_path):
    assert run("caches") == (0, "no caches\n")
    folder = put_clips(tmp_path / "data")
    run("show", "speechcommands")
    code, out = run("caches")
    assert code == 0 and out.endswith(", in use\n") and "/cache/speechcommands-" in out
    (folder / "bed/aa_nohash_1.wav").unlink()
    assert "stale\n--clean deletes" in run("caches")[1]
    assert run("caches", "--clean")[1].endswith(", stale, deleted\n")
    assert run("caches") == (0, "no caches\n")
    assert (folder / "bed/aa_nohash_0.wav").is_file()
