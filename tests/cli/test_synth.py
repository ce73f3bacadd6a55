"""Runs that end with samples: what they keep and write down, and the commands `synth ...`."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedchord.check import FedchordError
from fedchord.cli import synth
from fedchord.engine.simulate import rounds_of, simulate
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments import run as runs
from fedchord.experiments import session, study
from fedchord.experiments.config import RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.parts import Parts
from fedchord.experiments.summary import notes
from fedchord.export.chosen import load_model
from fedchord.report.show import result_notes
from fedchord.synthetic.set import drawn, load_set
from fedchord.thesis import studies


def invoke(*arguments: str, code: int = 0) -> str:
    """What a command prints; for a mistake its one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # typer uses names that click deprecates
        import typer
        from typer.testing import CliRunner

        app = typer.Typer()
        synth.register(app)
        app.command("other")(lambda: None)  # one command alone would have no name
        done = CliRunner().invoke(app, list(arguments))
    mistake = isinstance(done.exception, FedchordError)
    assert (2 if mistake else done.exit_code) == code, done.output or done.exception
    return str(done.exception) if mistake else done.output


def size(file: Path) -> tuple[int, int]:
    """Width and height of a picture."""
    with Image.open(file) as picture:
        return picture.size


SETTINGS = ["method=fedevg", "clients=4", "split=iid", "cohort=all", "rounds=4", "judge.steps=60", "executor=serial"]
SETTINGS += ["model=twonn", "method.swish=false", "method.spectral=false", "method.iterations=2"]


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """A finished run of four rounds on digits, evaluated after the second and the fourth."""
    folder = tmp_path_factory.mktemp("synth") / "run"
    more = ["eval_every=2", "judge.privacy=true", "judge.features=classifier", f"out={folder}"]
    runs.execute(RunConfig.from_pairs([*SETTINGS, *more]))
    return folder


@pytest.fixture(scope="module")
def summary(done) -> dict:
    return json.loads((done / "summary.json").read_text())


class TestRun:
    def test_the_folder_holds_the_set_its_grid_and_snapshots(self, done):
        made, snapshots = load_set(done), RunFolder(done).read_snapshots()
        assert made.spc == 10 and made.shape == (1, 8, 8) and made.low == 0 and made.high == 1
        assert list(snapshots) == [2, 4] and torch.equal(snapshots[4].x, made.x)
        assert not torch.equal(snapshots[2].x, made.x)
        assert size(done / "grid.png")[0] > 500

    def test_the_summary_has_utility_bounds_quality_privacy_and_bytes(self, summary):
        found = summary["synthetic"]
        numbers = found["numbers"]
        assert set(numbers) == {"upper", "lower", "frechet", "kid", "real_frechet", "real_kid", "membership"}
        assert found["utility"]["synthetic"]["clients"]["top1"] == summary["metrics"]["top1"]["mean"]
        assert numbers["upper"]["mean"] > numbers["lower"]["mean"] + 0.3
        assert numbers["frechet"]["mean"] > numbers["real_frechet"]["mean"]
        assert 0.3 < numbers["membership"]["mean"] < 0.7
        assert summary["protocol"]["samples"] == 100 and "twonn, 60 steps" in summary["protocol"]["classifier"]

    def test_bytes_are_those_of_the_thesis(self, summary):
        """P30: 2 M D + M numbers per client and round, whatever the network."""
        traffic = summary["synthetic"]["traffic"]
        assert traffic["up"] + traffic["down"] == 4 * (2 * 100 * 64 + 100)
        assert traffic["ratios"]["twonn"] == pytest.approx(2 * summary["parameters"] / (2 * 6400 + 100))

    def test_the_notes_tell_all(self, summary):
        told = "\n".join(result_notes(summary, "runs/a"))
        for words in (
            "as many real samples",
            "random labels",
            "Frechet distance",
            "KID",
            "Membership",
            "A client sends",
        ):
            assert words in told
        assert "synthetic.npz, snapshots/" in told

    def test_going_on_gives_the_same_set(self, done, tmp_path):
        config = RunConfig.from_pairs([*SETTINGS, "eval_every=2", "checkpoint_every=1", f"out={tmp_path / 'a'}"])
        folder = RunFolder(tmp_path / "a")
        rounds = iter(session.Run(Parts.build(config)))
        for _ in range(3):
            next(rounds)
        rounds.close()
        runs.resume(folder.path)
        assert torch.equal(load_set(folder.path).x, load_set(done).x)

    def test_a_model_cannot_be_exported(self, done):
        with pytest.raises(
            FedchordError, match="fedevg ends with samples, not with a model; write fedchord synth export"
        ):
            load_model(done)

    def test_evaluations_are_few_unless_asked_for(self):
        config = RunConfig.from_pairs(["method=fedevg", "rounds=100"])
        assert config.choices()["eval_every"] == 20
        assert RunConfig.from_pairs(["rounds=100"]).choices()["eval_every"] == 2


def test_if_energies_diverge_the_last_good_set_is_kept(tmp_path, monkeypatch):
    def broken(*arguments):
        for result in rounds_of(*arguments):
            yield result
            if result.round == 2:
                raise FedchordError("Langevin: the energies diverged in round 3")

    monkeypatch.setattr("fedchord.experiments.parts.rounds_of", broken)
    told: list[str] = []
    config = RunConfig.from_pairs([*SETTINGS, "eval_every=0", f"out={tmp_path / 'a'}"])
    with pytest.raises(FedchordError, match="diverged in round 3"):
        runs.execute(config, report=told.append)
    assert "the set of round 2 is kept in" in told[-1]
    parts = Parts.build(config)
    running = simulate(
        parts.algorithm, parts.task, parts.federation, rounds=4, training=parts.training, executor="serial"
    )
    next(running)
    assert torch.equal(load_set(tmp_path / "a").x, drawn(Fitted.of(next(running))).x)


def test_fedevgs_own_network_diverges_in_one_line_and_the_last_good_set_is_kept(tmp_path):
    pairs = ["method=fedevg", "clients=3", "split=iid", "cohort=all", "executor=serial", "eval_every=0", "rounds=20"]
    pairs += ["method.optimiser=sgd", "method.lr=100", "method.weight_decay=0.1", f"out={tmp_path / 'a'}"]
    told: list[str] = []
    with pytest.raises(FedchordError) as caught:
        runs.execute(RunConfig.from_pairs(pairs), report=told.append)
    done = len(RunFolder(tmp_path / "a").read_rounds())
    assert done > 0
    line = str(caught.value)
    assert (
        line.startswith(f"round {done + 1}: only ") and "of 3 updates can be used, 2 are needed (client 0 not" in line
    )
    assert line.endswith(f"the last checkpoint is of round {done}; go on with: fedchord resume {tmp_path / 'a'}")
    assert told[-1] == f"the set of round {done} is kept in {tmp_path / 'a' / 'synthetic.npz'}"
    assert load_set(tmp_path / "a").spc == 10


def test_a_run_that_goes_on_and_diverges_again_keeps_the_set_of_its_checkpoint(tmp_path):
    pairs = ["method=fedevg", "clients=3", "split=iid", "cohort=all", "executor=serial", "eval_every=0", "rounds=20"]
    pairs += ["method.optimiser=sgd", "method.lr=100", "method.weight_decay=0.1", f"out={tmp_path / 'a'}"]
    folder = RunFolder(tmp_path / "a")
    with pytest.raises(FedchordError, match="updates can be used"):
        runs.execute(RunConfig.from_pairs([*pairs, "checkpoint_every=1"]))
    good, done = load_set(folder.path).x, len(folder.read_rounds())
    folder.samples.unlink()
    told: list[str] = []
    with pytest.raises(FedchordError, match=f"round {done + 1}: only"):
        runs.resume(folder.path, report=told.append)
    assert told[-1] == f"the set of round {done} is kept in {folder.samples}"
    assert torch.equal(load_set(folder.path).x, good)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["judge=twonn"], "judge needs a method that ends with samples, got fedavg"),
        (["judge.privacy=true"], "judge.privacy needs a method that ends with samples"),
        (
            ["method=fedevg", "judge.features=incepton:f"],
            "unknown features 'incepton:f'; did you mean 'inception:FILE'",
        ),
        (["method=fedevg", "judge=resnet100"], "unknown model"),
        (["method=fedevg", "judge.steps=0"], "steps must be a whole number of at least 1, got 0"),
        (["synthetic.add=all"], "synthetic.add is given, but no synthetic set is"),
        (["synthetic=a.npz", "synthetic.least=5"], "synthetic.least needs synthetic.add=poor or missing"),
        (["method=fedevg", "newcomers=2"], "newcomers need a method that ends with a model"),
        (["method=fedcvae", "method.spc=0"], "spc must be a whole number of at least 1, got 0"),
        (["method=fedevg", "mixing=aaggff-d"], "mixes models and cannot be used with Energy"),
        (["method=fedevg", "server=fedadam"], "Adam takes theta and cannot be used with Energy"),
    ],
)
def test_wrong_settings_are_told_before_anything_runs(pairs, message):
    with pytest.raises(FedchordError, match=message):
        RunConfig.from_pairs(pairs)


# -- commands ------------------------------------------------------------------------------------------------------


class TestCommands:
    def test_show_draws_runs_and_real_rows_side_by_side(self, done, tmp_path):
        out = invoke("synth", "show", str(done), "--real", "--to", str(tmp_path / "g.png"))
        assert "real, fedevg" in out
        assert size(tmp_path / "g.png")[0] > 2 * size(done / "grid.png")[0]

    def test_show_draws_the_samples_over_rounds(self, done, tmp_path):
        invoke("synth", "show", str(done), "--strip", "--to", str(tmp_path / "s.png"))
        wide, high = size(tmp_path / "s.png")
        assert high > 4 * wide  # two snapshots, ten classes

    def test_export_writes_files_and_pictures(self, done, tmp_path):
        made = load_set(done)
        invoke("synth", "export", str(done), "--to", str(tmp_path / "a.npz"))
        assert np.array_equal(np.load(tmp_path / "a.npz")["x"], made.x.numpy())
        invoke("synth", "export", str(done), "--to", str(tmp_path / "a.pt"))
        assert torch.equal(torch.load(tmp_path / "a.pt", weights_only=True)["y"], made.y)
        assert "100 samples, 10 of each of 10 classes" in invoke(
            "synth", "export", str(done), "--to", str(tmp_path / "p")
        )
        assert len(list((tmp_path / "p").rglob("*.png"))) == 100

    def test_train_measures_and_writes_a_classifier(self, done, tmp_path):
        out = invoke("synth", "train", str(done), "--steps", "40", "--to", str(tmp_path / "c.pt"))
        assert "as many real samples" in out and "random labels" in out
        assert "head.weight" in torch.load(tmp_path / "c.pt", weights_only=True)

    def test_train_takes_a_file_and_the_data_to_measure_with(self, done, tmp_path):
        invoke("synth", "export", str(done), "--to", str(tmp_path / "a.npz"))
        out = invoke("synth", "train", str(tmp_path / "a.npz"), "data=digits", "split=iid", "clients=3", "--steps", "5")
        assert "clients' mean" in out
        assert "nothing was measured" in invoke("synth", "train", str(tmp_path / "a.npz"), "--steps", "5")

    def test_train_makes_folders_and_takes_a_cohort(self, done, tmp_path):
        file, target = tmp_path / "a.npz", tmp_path / "new" / "folder" / "c.pt"
        invoke("synth", "export", str(done), "--to", str(file))
        words = ["data=digits", "split=iid", "clients=3", "cohort=all", "--steps", "5"]
        assert f"wrote {target}" in invoke("synth", "train", str(file), *words, "--to", str(target))
        assert "head.weight" in torch.load(target, weights_only=True)
        told = invoke("synth", "train", str(file), *words, "--to", str(tmp_path), code=2)
        assert told == f"{tmp_path} cannot be written (Is a directory)"

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"x": np.zeros((20, 1, 4, 4))}, "the samples have shape (1, 4, 4), the rows of digits (1, 8, 8)"),
            ({"y": np.repeat(np.arange(5), 4)}, "the set has 5 classes, digits has 10"),
            ({"low": -1.0}, "both sets must be in the same range, got the lower ends -1 and 0"),
        ],
    )
    def test_train_refuses_a_set_that_does_not_fit_the_data(self, tmp_path, change, message):
        made = {"x": np.zeros((20, 1, 8, 8)), "y": np.repeat(np.arange(10), 2)} | change
        np.savez(tmp_path / "a.npz", **made)
        out = invoke("synth", "train", str(tmp_path / "a.npz"), "data=digits", "split=iid", "clients=3", code=2)
        assert out.endswith(message)

    def test_quality_and_privacy_print_their_numbers(self, done):
        assert "Frechet" in invoke("synth", "quality", str(done), "--rows", "100")
        assert "Membership" in invoke("synth", "privacy", str(done))

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["show", "nowhere"], "nowhere: no such run folder"),
            (["export", "nowhere"], "nowhere: no such file"),
            (["export", "RUN", "--to", "a.csv"], "must end in .npz or .pt, or be a folder"),
            (["show", "RUN", "--to", "a.pdf"], "the picture must end in .png"),
            (["quality", "RUN", "--features", "x"], "unknown features 'x'"),
            (["train", "RUN", "data=mnist"], "the data are those of the run"),
        ],
    )
    def test_mistakes_are_one_line(self, done, tmp_path, words, message):
        words = [str(done) if word == "RUN" else word for word in words]
        out = invoke("synth", *words, code=2)
        assert message in out and len(out.strip().splitlines()) == 1

    def test_a_run_without_samples_is_told(self, tmp_path):
        runs.execute(
            RunConfig.from_pairs(["rounds=1", "clients=4", "cohort=2", "model=logreg", f"out={tmp_path / 'a'}"])
        )
        assert "has no synthetic.npz" in invoke("synth", "show", str(tmp_path / "a"), code=2)


def test_a_set_helps_clients_of_another_run(done):
    """FedAvg with the set as public data: every client has 100 rows more, and it is said."""
    base = [
        "split=dirichlet",
        "split.alpha=0.05",
        "clients=4",
        "cohort=2",
        "rounds=2",
        "model=logreg",
        "executor=serial",
    ]
    plain, shared = (Parts.build(RunConfig.from_pairs([*base, *more])) for more in ([], [f"synthetic={done}"]))
    assert (shared.federation.train.sizes - plain.federation.train.sizes).tolist() == [100] * 4
    assert shared.federation.test.sizes.tolist() == plain.federation.test.sizes.tolist()
    assert "A synthetic set of 100 rows was added" in " ".join(str(note.get("text")) for note in notes(shared))
    assert runs.execute(shared.config)["metrics"]["top1"]["mean"] > 0.1


# -- the studies ---------------------------------------------------------------------------------------------------


def test_the_two_studies_are_one_set_of_runs():
    disc, gen = (study.plan(studies.load(name)) for name in ("disc", "gen"))
    assert [job.folder for job in disc.jobs] == [job.folder for job in gen.jobs]
    assert disc.study.metric == "top1" and gen.study.metric == "frechet"
