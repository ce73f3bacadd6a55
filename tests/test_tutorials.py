"""The tutorials, followed block by block in an empty folder; what they say of their numbers is what came out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from helpers.documents import DOCUMENTS, Followed, follow, typed

GAP = r" +([+-]\d+\.\d+)"


@pytest.fixture
def done(request, tmp_path, monkeypatch) -> Iterator[Followed]:
    """A tutorial, followed."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    yield follow(f"docs/tutorials/{request.param}.md", shell=True)
    plt.close("all")


def holds(name: str, claims: Mapping[str, bool]) -> None:
    """The tutorial has these words, and they are true."""
    text = " ".join(DOCUMENTS[f"docs/tutorials/{name}.md"].split())
    for words, true in claims.items():
        assert words in text, f"{name} does not say: {words}"
        assert true, f"{name} says what is not so: {words}"


def found(pattern: str, text: str) -> tuple[float, ...]:
    """The numbers in the one place where a pattern fits."""
    (numbers,) = re.findall(pattern, text)
    return tuple(float(number) for number in ((numbers,) if isinstance(numbers, str) else numbers))


@pytest.mark.slow
@pytest.mark.parametrize("done", ["own-csv"], indirect=True)
def test_own_csv(done: Followed) -> None:
    said, names = done.said, done.names
    means = {method: 100 * float(names["accuracy"][method].mean()) for method in names["methods"]}
    clients, least, most = (
        names["kept"][0]["per_client"],
        *found(r"Rows per client: (\d+) to (\d+)", said.partition("wrote hospitals.png")[0]),
    )
    aurocs = [float(value) for value in re.findall(r"yes +(\d+\.\d+) \(", said)]
    fedavg, low, high = found(rf" fedavg{GAP}{GAP}{GAP}", said)
    superfed = found(rf" superfed-mm{GAP}{GAP}{GAP}", said)
    apart = max(means["superfed-mm"], means["local"]) - means["fedavg-ft"]
    holds("own-csv", {
        "Five hospitals with 70 to 108 patients each": (len(clients["client"]), least, most) == (5, 70, 108),
        "only 14 to 22 test rows in each": (min(clients["size"]), max(clients["size"])) == (14, 22),
        "All four are at 0.98 or above": len(aurocs) == 4 and min(aurocs) > 98,
        "is worse than no federation**, by about four points": -6 < fedavg < -2.5,
        "the interval of `compare` excludes zero": low < high < -0.5,
        "the interval of their difference lies on both sides of zero": superfed[1] < -0.3 and superfed[2] > 0.3,
        "Fine-tuned FedAvg repairs most of it": apart < 2 and means["fedavg-ft"] - means["fedavg"] > 1.5,
        "The ten rows of *hill* were scaled as its training rows were": (
            "10 rows of hill: the model of client hill; scaled by the training rows of client hill\n" in said
        ),
        "they are scaled by statistics of all hospitals together": (
            "12 rows of harbour: the global model; scaled by pooled statistics of the training rows" in said
        ),
        "are more than twenty, and are scaled by themselves": (
            "84 rows of harbour: the global model; scaled by its own 84 rows\n" in said
        ),
        "About nine of ten of the 84 are right": 0.86 < names["right"] < 0.97,
    })  # fmt: skip
    assert "of 32 features are standardised" in said and "missing values became that mean" in said
    assert len(names["elsewhere"]) == 22 and {"accuracy.png", "hospitals.png"} < {
        path.name for path in Path().iterdir()
    }


@pytest.mark.slow
@pytest.mark.parametrize("done", ["own-method"], indirect=True)
def test_own_method(done: Followed) -> None:
    said, top1 = done.said, done.names["found"]
    mean, low, high = found(rf"absent=0\.1{GAP}{GAP}{GAP}", said)
    gains = [top1["absent = 0.1", seed] - top1["FedAvg", seed] for seed in (1, 2, 3)]
    fedavg = [top1["FedAvg", seed] for seed in (1, 2, 3)]
    (without,) = found(rf"absent=0{GAP}", said)
    holds("own-method", {
        "`absent` = 0.1 was chosen": bool(re.search(r"Present +0\.1 .+ yes ", said)),
        "about four points above FedAvg": 2 < mean < 6,
        "with an interval over clients that excludes zero": 0 < low < high,
        "above it in each of the three seeds": min(gains) > 0,
        "more than twenty points apart": max(fedavg) - min(fedavg) > 0.2,
        "`absent` = 0 is below FedAvg on average": without < -1,
        "Three quarters right": 0.7 < sum(fedavg) / 3 + mean / 100 < 0.8,
    })  # fmt: skip
    assert re.search(r"^19 passed", said, re.MULTILINE) and Path("seeds.png").exists()


@pytest.mark.slow
def test_the_tests_of_own_method_notice_what_the_text_says_they_notice(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rule, tests = re.findall(r"write_text\('''\n(.*?)'''\)", DOCUMENTS["docs/tutorials/own-method.md"], re.DOTALL)
    Path("test_present.py").write_text(tests)
    Path("present.py").write_text(rule.replace("weights.log()", "weights"))
    with pytest.raises(AssertionError, match="3 failed, 2 passed"):
        typed("weights", "python -m pytest -q test_present.py")
    Path("present.py").write_text("".join(line for line in rule.splitlines(keepends=True) if "live" not in line))
    asked = "python -m pytest -q test_present.py --fedchord-method present.py:Present -k 'test_present or vectorised'"
    with pytest.raises(
        AssertionError, match=r"FAILED .+::test_vectorised_agrees_within_tolerance(?s:.)+1 failed, 5 pas"
    ):
        typed("live", asked)


@pytest.mark.slow
@pytest.mark.parametrize("done", ["own-pictures"], indirect=True)
def test_own_pictures(done: Followed) -> None:
    said = done.said
    made, real, lower = (
        100 * found(rf"(?m)^ {name} +(0\.\d+) ", said)[0]
        for name in ("synthetic", "as many real samples", "random labels")
    )
    run = found(r"synthetic (0\.\d+), as many real samples (0\.\d+), random labels (0\.\d+)", said)
    distance, of_real = found(r"evg +100 +(\d\.\d+) +(\d\.\d+) \(", said)
    samples, rows, near = found(
        r"samples (0\.\d+) \(.+ test rows (0\.\d+) \(.+; (\d+)% of the samples are nearer", said
    )
    auroc, error = found(r"AUROC (0\.\d+) \(0\.5 tells nothing, standard error (0\.\d+)", said)
    holds("own-pictures", {
        "a client sends 26 kB in a round": "A client sends 26 kB" in said,
        "would take 3.7 times as much both ways": "24,058 parameters) would take 0.192 MB: 3.73 times" in said,
        "About 84 % of the test pictures": 79 < made < 89,
        "91 % with as many real pictures": made + 2 < real < 95,
        "about 10 % with random labels": 3 < lower < 18,
        "87, 89 and 6 %": all(abs(a - b) < 0.04 for a, b in zip(run, (0.87, 0.89, 0.06), strict=True)),
        "most have two of the ten classes": "classes per client: 2 to 4 (median 2)" in said,
        "1.5 against 0.9": abs(distance - 1.5) < 0.2 and abs(of_real - 0.9) < 0.2,
        "none is nearer than the nearest one per cent": near == 0,
        "by the median they are farther away": samples > 1.3 * rows,
        "within two standard errors of 0.5": abs(auroc - 0.5) < 2 * error,
    })  # fmt: skip
    assert len(done.names["files"]) == 100 and len(set(done.names["labels"])) == 10
    assert {"owners.png", "samples.png", "beside.png", "classifier.pt"} < {path.name for path in Path().iterdir()}


def test_every_tutorial_is_tested_and_listed() -> None:
    tutorials = {Path(name).stem for name in DOCUMENTS if name.startswith("docs/tutorials/")} - {"README"}
    assert tutorials == {"own-csv", "own-method", "own-pictures"}
    header = "---\njupyter:\n  kernelspec:\n"  # without it Jupytext takes the language that most blocks have
    assert all(DOCUMENTS[f"docs/tutorials/{name}.md"].startswith(header) for name in tutorials)
    assert all(f"({name}.md)" in DOCUMENTS["docs/tutorials/README.md"] for name in tutorials)
