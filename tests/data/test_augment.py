"""Pictures as a model sees them: against Pillow, pixel loops and scipy, and what does not depend on the batch."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from scipy.ndimage import map_coordinates
from torch import Tensor

from fedchord import Task, method, rng, simulate
from fedchord.check import FedchordError
from fedchord.core.rules import Phase
from fedchord.core.stream import ClientStream
from fedchord.core.training import Training
from fedchord.data import DataSet, Iid, Natural, federate
from fedchord.data.augment import IMAGENET, Pictures
from fedchord.data.sources.isic import PLAIN, VARIED
from fedchord.engine.executors import Work
from fedchord.engine.vectorised import cannot_vectorise
from fedchord.models import LogisticRegression

KEYS = rng.as_tensor([rng.key(3, "test", i) for i in range(200)])


def pictures(n: int, height: int = 8, width: int = 10, colours: int = 3, seed: int = 0) -> Tensor:
    return torch.rand(n, colours, height, width, generator=torch.Generator().manual_seed(seed))


def draws(keys: Tensor) -> np.ndarray:
    """The nine numbers of each picture, from the definition of a key's numbers, one key at a time."""
    return np.stack([rng.uniform(int(key) % (1 << 64), 9).numpy() for key in keys])


def test_evaluation_shows_the_middle_in_units_of_imagenet() -> None:
    x = pictures(2, 9, 12)
    shown = Pictures(6, *IMAGENET).show(x)
    assert shown.shape == (2, 3, 6, 6)
    for colour in range(3):
        mean, std = IMAGENET[0][colour], IMAGENET[1][colour]
        torch.testing.assert_close(shown[:, colour], (x[:, colour, 1:7, 3:9] - mean) / std)
    assert torch.equal(Pictures().show(x), x)


def test_nothing_asked_for_changes_nothing() -> None:
    x = pictures(20)
    assert not Pictures(5, *IMAGENET).varies and not Pictures().varies
    assert torch.equal(Pictures(6).vary(x, KEYS[:20]), Pictures(6).show(x))


@pytest.mark.parametrize("mirror, upend", [(True, False), (False, True), (True, True)])
def test_flips_are_exact_and_half_of_the_time(mirror: bool, upend: bool) -> None:
    x, u = pictures(200), draws(KEYS)
    found = Pictures(mirror=mirror, upend=upend).vary(x, KEYS).numpy()
    for i in range(200):
        wanted = x[i].numpy()
        wanted = wanted[:, :, ::-1] if mirror and u[i, 3] < 0.5 else wanted
        wanted = wanted[:, ::-1, :] if upend and u[i, 4] < 0.5 else wanted
        assert np.array_equal(found[i], wanted)
    assert 70 < (u[:, 3] < 0.5).sum() < 130 and 70 < (u[:, 4] < 0.5).sum() < 130
    assert abs(np.corrcoef(u[:, 3], u[:, 4])[0, 1]) < 0.25


def test_crops_reach_every_place() -> None:
    x = torch.arange(8 * 10.0).reshape(1, 1, 8, 10).expand(200, 1, 8, 10)
    found = Pictures(6, shift=True).vary(x, KEYS)
    corners = {(int(value) // 10, int(value) % 10) for value in found[:, 0, 0, 0]}
    assert corners == {(top, left) for top in range(3) for left in range(5)}
    for cut in found:
        top, left = divmod(int(cut[0, 0, 0]), 10)
        assert torch.equal(cut[0], x[0, 0, top : top + 6, left : left + 6])


@pytest.mark.parametrize("size", [(15, 15), (12, 20)])
@pytest.mark.parametrize("turn, shear", [(20.0, 0.0), (0.0, 0.3), (35.0, 0.2)])
def test_turning_and_slanting_against_scipy(size: tuple[int, int], turn: float, shear: float) -> None:
    x, u = pictures(5, *size, colours=1), draws(KEYS[:5])
    found = Pictures(turn=turn, shear=shear).vary(x, KEYS[:5]).numpy()[:, 0]
    height, width = size
    rows, columns = np.mgrid[0:height, 0:width]
    down, right = rows - (height - 1) / 2, columns - (width - 1) / 2
    for i in range(5):
        angle, slope = math.radians(turn) * (2 * u[i, 5] - 1), shear * (2 * u[i, 6] - 1)
        slid = right + slope * down  # slant, then turn
        to_right = math.cos(angle) * slid - math.sin(angle) * down
        to_down = math.sin(angle) * slid + math.cos(angle) * down
        places = [to_down + (height - 1) / 2, to_right + (width - 1) / 2]
        padded = np.pad(x[i, 0].numpy(), 1)  # bilinear into black, as beyond the edge
        wanted = map_coordinates(padded, [place + 1 for place in places], order=1, mode="constant", cval=0.0)
        np.testing.assert_allclose(found[i], wanted, atol=1e-4)


def test_jitter_against_pillow() -> None:
    x, u = (pictures(6, seed=2) * 255).round() / 255, draws(KEYS[:6])
    found = Pictures(jitter=0.4).vary(x, KEYS[:6])
    for i in range(6):
        image = Image.fromarray((x[i] * 255).round().byte().permute(1, 2, 0).numpy())
        for kind, factor in zip(
            (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color),
            1 + 0.4 * (2 * u[i, :3] - 1),
            strict=True,
        ):
            image = kind(image).enhance(float(factor))
        wanted = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
        assert float((found[i] - wanted).abs().max()) < 4 / 255  # Pillow rounds to bytes at every step
    assert float((found - x).abs().max()) > 0.1


def test_what_is_drawn_belongs_to_the_row_and_not_to_the_batch() -> None:
    x, varied = pictures(8, 30, 30), replace(VARIED, side=20)
    whole = varied.vary(x, KEYS[:8])
    assert torch.equal(varied.vary(x[3:5], KEYS[3:5]), whole[3:5])
    assert not torch.equal(varied.vary(x, KEYS[8:16]), whole)
    assert torch.equal(varied.vary(x, KEYS[:8]), whole)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"jitter": 1.0}, r"Pictures: jitter must be .*got 1.0"),
        ({"turn": -1.0}, "Pictures: turn must be at least 0, got -1.0"),
        ({"mean": (0.5,)}, "Pictures: mean and std must have one number per colour each"),
        ({"mean": (0.5,), "std": (0.0,)}, "Pictures: std must be above 0"),
        ({"shift": True}, "Pictures: shift needs a side"),
    ],
)
def test_refused(wrong: dict[str, object], line: str) -> None:
    with pytest.raises(FedchordError, match=line):
        Pictures(**wrong)  # type: ignore[arg-type]


def test_a_crop_larger_than_the_picture() -> None:
    with pytest.raises(FedchordError, match="Pictures: side must be at most 8 for 8x10, got 9"):
        Pictures(9).show(pictures(1))


# -- in a federation ------------------------------------------------------------------------------------------------


def shapes(n: int = 40) -> DataSet:
    stored = torch.randint(0, 256, (n, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    plain = Pictures(8, *IMAGENET)
    varied = replace(plain, jitter=0.1, mirror=True, shear=0.2, shift=True)
    columns = {"x": stored, "y": torch.arange(n) % 3}
    return DataSet("shapes", columns, 3, groups=torch.arange(n) % 2, shown=plain, augmented=varied)


def test_training_is_varied_and_evaluation_is_not() -> None:
    data = shapes()
    made, plain = (federate(data, Natural(), augment=augment) for augment in (True, False))
    assert made.shape == (3, 8, 8) and data.columns["x"].shape[1:] == (3, 12, 12)
    assert any("Training pictures are varied by Pictures(side=8" in note for note in made.notes)
    rows = made.train[0]
    shown = data.shown.show(data.columns["x"][rows].float() / 255)  # type: ignore[union-attr]
    for federation in (made, plain):
        torch.testing.assert_close(federation.batch(rows)["x"], shown)
    stream, phase = ClientStream(made, 0, 4, key=5), Phase(epochs=2)
    still = ClientStream(plain, 0, 4, key=5)
    trained, untouched = (torch.cat([b["x"] for b in s.batches(0, phase)]) for s in (stream, still))
    order = torch.cat(list(stream.order(0, phase)))
    torch.testing.assert_close(untouched, plain.batch(order)["x"])
    assert (trained - untouched).abs().amax((1, 2, 3)).min() > 0.01
    again = torch.cat([b["x"] for b in ClientStream(made, 0, 7, key=5).batches(0, phase)])
    torch.testing.assert_close(again, trained)  # another batch size, the same pictures
    torch.testing.assert_close(made.batch(rows.flip(0), 9)["x"].flip(0), made.batch(rows, 9)["x"])  # in any order
    first, second = trained.split(len(rows))
    back = torch.argsort(order[: len(rows)]), torch.argsort(order[len(rows) :])
    assert (first[back[0]] - second[back[1]]).abs().amax((1, 2, 3)).min() > 0.01  # an epoch draws anew
    torch.testing.assert_close(torch.cat([b["x"] for b in stream.whole()]), shown)


def test_executors_agree_and_vectorised_refuses() -> None:
    made = federate(shapes(), Iid(), 4, augment=True)
    task = Task(lambda: LogisticRegression(192, 3))
    training = Training(batch=4, lr=0.1)
    ends = []
    for executor in ("serial", "processes"):
        *_, last = simulate(method("fedavg"), task, made, rounds=2, training=training, executor=executor, workers=2)
        ends.append(last.state.broadcast["theta"])
    assert torch.equal(*ends)
    reason = cannot_vectorise(Work(method("fedavg"), task, made, training, 0))
    assert reason == "training pictures are varied at random, which only the other executors do"
    still = federate(shapes(), Iid(), 4)
    *_, one = simulate(method("fedavg"), task, still, rounds=2, training=training, executor="vectorised")
    *_, two = simulate(method("fedavg"), task, still, rounds=2, training=training, executor="serial")
    torch.testing.assert_close(one.state.broadcast["theta"], two.state.broadcast["theta"], atol=1e-4, rtol=1e-4)


def test_data_without_augmentation() -> None:
    with pytest.raises(FedchordError, match="federate: shapes has no training augmentation"):
        federate(replace(shapes(), augmented=None), Iid(), 2, augment=True)


def test_the_range_of_a_normalised_picture() -> None:
    low, high = federate(shapes(), Iid(), 2).inputs.low, federate(shapes(), Iid(), 2).inputs.high
    assert torch.as_tensor(low).flatten().tolist() == pytest.approx([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225])
    assert torch.as_tensor(high).flatten().tolist() == pytest.approx([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225])
    assert PLAIN.range()[0].shape == (3, 1, 1) and not PLAIN.varies and VARIED.varies
