"""Speech Commands: clips, speakers and lists, and clips that are not what they should be."""

import os
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from fedchord.check import FedchordError
from fedchord.data import SOURCES, Natural, federate, load, status
from fedchord.data.sources import speechcommands


@pytest.fixture(autouse=True)
def no_outer_cache(monkeypatch):
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)


def put_clip(path: Path, samples: np.ndarray, rate: int = 16000, channels: int = 1, width: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as clip:
        clip.setnchannels(channels)
        clip.setsampwidth(width)
        clip.setframerate(rate)
        clip.writeframes(samples.tobytes())
    return path


def sound(seed: int, length: int = 16000) -> np.ndarray:
    return np.random.default_rng(seed).integers(-32768, 32768, length).astype("<i2")


CLIPS = {  # the number gives the content; bb has two training clips only, cc is a testing, dd a validation speaker
    "zero/aa_nohash_0.wav": 1,
    "bed/aa_nohash_0.wav": 2,
    "bed/aa_nohash_1.wav": 3,
    "zero/bb_nohash_0.wav": 4,
    "bed/bb_nohash_0.wav": 5,
    "zero/cc_nohash_0.wav": 6,
    "bed/dd_nohash_0.wav": 7,
    "zero/0e_nohash_0.wav": 8,
    "zero/0e_nohash_1.wav": 9,
    "bed/0e_nohash_0.wav": 10,
}


def put(root: Path, folder: str = "speech_commands") -> Path:
    for clip, seed in CLIPS.items():
        put_clip(root / folder / clip, sound(seed, 16000 - 1000 * (seed % 3)))
    put_clip(root / folder / "_background_noise_/hum.wav", sound(0, 50000))
    (root / folder / "testing_list.txt").write_text("zero/cc_nohash_0.wav\n")
    (root / folder / "validation_list.txt").write_text("bed/dd_nohash_0.wav\n")
    return root / folder


@pytest.mark.parametrize("folder", ["speech_commands", "SpeechCommands/speech_commands_v0.02"])
def test_clients_are_speakers_with_three_clips(tmp_path, folder):
    put(tmp_path, folder)
    assert status(SOURCES["speechcommands"], tmp_path) == "present"
    data = load("speechcommands", tmp_path)
    assert data.classes == 35 == len(set(speechcommands.WORDS)) and sorted(speechcommands.WORDS)[-1] == "zero"
    assert data.group_names == ("0e", "aa")
    assert data.columns["x"].shape == (6, 1, 16000)
    assert data.columns["x"].dtype == torch.int16
    assert data.holdout["y"].tolist() == [34]
    assert "8 training and 1 test rows, not the official 84843 training and 11005 test rows" in data.origin
    assert "2 of 3 speakers have at least 3 clips, 6 in all; the thesis has 2005 clients" in data.origin
    made = federate(data, Natural())
    assert made.client_names == ("0e", "aa")
    held = torch.cat([made.train[1], made.test[1]]).sort().values
    assert data.columns["y"][held].tolist() == [1, 1, 34]
    order = ["bed/0e_nohash_0.wav", "bed/aa_nohash_0.wav", "bed/aa_nohash_1.wav", "zero/0e_nohash_0.wav"]
    for row, clip in enumerate(order):
        rate, samples = wavfile.read(tmp_path / folder / clip)  # scipy's own reader
        assert rate == 16000
        assert np.array_equal(data.columns["x"][row, 0, : len(samples)].numpy(), samples)
        assert not data.columns["x"][row, 0, len(samples) :].any()
        batch = made.batch(torch.tensor([row]))["x"]
        assert batch.dtype == torch.float32
        assert np.allclose(batch[0, 0, : len(samples)].numpy(), samples / 32768, atol=0)


def test_odd_clips(tmp_path):
    put(tmp_path)
    path = tmp_path / "speech_commands/bed/aa_nohash_0.wav"
    whole = path.read_bytes()

    def refused(message: str) -> None:
        with pytest.raises(FedchordError) as error:
            load("speechcommands", tmp_path)
        assert str(error.value).startswith(f"speechcommands: {path} {message}") and "\n" not in str(error.value)

    put_clip(path, sound(1, 8000), rate=8000)
    refused("must have 1 channel of 16 bits at 16000 Hz, got 1 channels of 16 bits at 8000 Hz")
    put_clip(path, sound(1), channels=2)
    refused("must have 1 channel of 16 bits at 16000 Hz, got 2 channels of 16 bits at 16000 Hz")
    put_clip(path, sound(1), width=1)
    refused("must have 1 channel of 16 bits at 16000 Hz, got 1 channels of 8 bits")
    put_clip(path, sound(1, 16001))
    refused("must hold 1 to 16000 samples, got 16001")
    put_clip(path, sound(1, 0))
    refused("must hold 1 to 16000 samples, got 0")
    path.write_bytes(whole[:-11])
    refused("is damaged: it holds 13994 of 14000 samples")
    for damaged in (b"", whole[:20], b"<html>not a sound</html>", whole[:20] + struct.pack("<H", 85) + whole[22:]):
        path.write_bytes(damaged)
        refused("is damaged: expected a wav file, got ")
    skipping = speechcommands.read(tmp_path, skip_damaged=True)
    assert len(skipping.columns["y"]) == 5
    assert skipping.origin.endswith(f"Damaged files that were skipped: 1, the first is {path}.")
    refused("is damaged")  # a cache without the file is not used where skipping was not asked for
    path.write_bytes(whole)
    assert len(load("speechcommands", tmp_path).columns["y"]) == 6


def test_a_clip_of_the_same_size_is_read_anew(tmp_path):
    path = put(tmp_path) / "bed/aa_nohash_0.wav"
    first = load("speechcommands", tmp_path).columns["x"].clone()
    later = path.stat().st_mtime_ns + 10**9
    put_clip(path, sound(99, 14000))
    os.utime(path, ns=(later, later))
    changed = (load("speechcommands", tmp_path).columns["x"] != first).flatten(1).any(1)
    assert changed.tolist() == [False, True, False, False, False, False]


def test_odd_folders(tmp_path):
    folder = put(tmp_path)
    put_clip(folder / "bird/anna_0.wav", sound(1))
    with pytest.raises(FedchordError, match=r"bird/anna_0.wav must be named SPEAKER_nohash_NUMBER.wav$"):
        load("speechcommands", tmp_path)
    (folder / "bird/anna_0.wav").unlink()
    put_clip(folder / "zeroo/aa_nohash_0.wav", sound(1))
    with pytest.raises(FedchordError, match=r"^unknown word in .* 'zeroo'; did you mean 'zero'"):
        load("speechcommands", tmp_path)
    (folder / "zeroo/aa_nohash_0.wav").rename(folder / "zero/aa_nohash_7.wav")
    (folder / "zeroo").rmdir()
    (folder / "testing_list.txt").write_text("<html>\n")
    with pytest.raises(FedchordError, match=r"testing_list.txt must list WORD/FILE.wav, got '<html>'$"):
        load("speechcommands", tmp_path)
    (folder / "testing_list.txt").unlink()
    with pytest.raises(FedchordError, match=r"^speechcommands: missing speech_commands/testing_list.txt in "):
        load("speechcommands", tmp_path)


@pytest.mark.parametrize("left", ["validation_list.txt", "testing_list.txt", "bed/aa_nohash_0.wav"])
def test_one_folder_that_holds_all_of_it_is_taken(tmp_path, left):
    """What is left over in the first folder does not hide a whole one in the second."""
    whole = put(tmp_path, "SpeechCommands/speech_commands_v0.02")
    before = load("speechcommands", tmp_path).columns["x"].clone()
    over = tmp_path / "speech_commands" / left
    over.parent.mkdir(parents=True)
    over.write_text("")
    assert torch.equal(load("speechcommands", tmp_path).columns["x"], before)
    for name in ("validation_list.txt", "testing_list.txt"):
        if name != left:
            (whole / name).unlink()
            break
    with pytest.raises(FedchordError, match=f"^speechcommands: missing .*{name}") as error:
        load("speechcommands", tmp_path)
    assert "\n" not in str(error.value)


def test_without_testing_clips_there_is_no_holdout(tmp_path):
    (put(tmp_path) / "testing_list.txt").write_text("")
    assert load("speechcommands", tmp_path).holdout is None


@pytest.mark.data
def test_real_speech_commands(data_root):
    if status(SOURCES["speechcommands"], data_root) != "present":
        pytest.skip("speechcommands is not under FEDCHORD_DATA")
    data = load("speechcommands", data_root)
    assert data.columns["x"].shape[1:] == (1, 16000)
    assert int(torch.bincount(data.groups).min()) >= 3
    loud = data.columns["x"][:200].float().abs().amax(dim=(1, 2))
    assert float(loud.median()) > 1000
