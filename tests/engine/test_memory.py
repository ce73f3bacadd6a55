import json

import pytest
import torch
from helpers.federations import make_federation

from fedchord import catalog, run
from fedchord.check import FedchordError
from fedchord.core.per_client import PerClient
from fedchord.core.rules import ServerState
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine import checkpoint
from fedchord.engine.checkpoint import Checkpoints
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import simulate
from fedchord.models import TwoNN

FEDERATION = make_federation([13, 20, 7, 31])


@pytest.fixture(params=["memory", "disk"])
def memory(request, tmp_path):
    return ClientMemory(None if request.param == "memory" else tmp_path / "own")


def test_put_copies_and_get_gives_it_back(memory):
    value = torch.arange(3.0)
    memory.put(5, {"a": value}, 0)
    value[0] = 9
    assert memory.get(5)["a"].tolist() == [0, 1, 2]
    assert memory.get(6) is None and memory.clients() == [5] and len(memory) == 1
    memory.put(5, {"a": torch.zeros(1)}, 1)
    assert memory.get(5)["a"].tolist() == [0]
    memory.put(7, {}, 1)
    assert len(memory) == 1


def test_what_is_read_is_on_the_memorys_device(tmp_path):
    memory = ClientMemory(tmp_path / "own")
    memory.put(1, {"a": torch.ones(2)}, 0)
    checkpoint.save(tmp_path / "c", state(1), memory, "f")
    for folder in (None, tmp_path / "own"):
        fresh = ClientMemory(folder, device="meta")
        manifest = {"1": memory._files[1]}
        fresh.restore(tmp_path / "own", manifest)
        assert fresh.get(1)["a"].device.type == "meta"


def test_only_the_newest_version_stays_on_disk(tmp_path):
    memory = ClientMemory(tmp_path)
    for round in range(4):
        memory.put(1, {"a": torch.tensor([float(round)])}, round)
        memory.settle()
    assert [path.name for path in tmp_path.iterdir()] == ["client-0000001-round-000003.safetensors"]


def state(round: int) -> ServerState:
    return ServerState(
        round, {"theta": torch.ones(2) * round}, {"g": torch.ones(1)}, {}, PerClient.filled(3, 0, torch.int32)
    )


def test_a_checkpoint_restores_states_of_its_round(memory, tmp_path):
    memory.put(1, {"a": torch.tensor([1.0])}, 0)
    memory.put(2, {"a": torch.tensor([2.0])}, 0)
    checkpoint.save(tmp_path / "c", state(1), memory, "f")
    memory.put(1, {"a": torch.tensor([10.0])}, 1)  # after the checkpoint: must not be seen on resume
    fresh = ClientMemory(memory._folder)
    found = checkpoint.load(tmp_path / "c", fresh, "f")
    assert found.state.round == 1 and found.state.broadcast["theta"].tolist() == [1, 1] and found.problems == ()
    assert found.state.mixing["g"].tolist() == [1]
    assert fresh.get(1)["a"].item() == 1.0 and fresh.get(2)["a"].item() == 2.0


def test_the_last_two_checkpoints_are_kept_with_their_files(tmp_path):
    memory = ClientMemory()
    for round in (1, 2, 3, 4):
        memory.put(1, {"a": torch.tensor([float(round)])}, round)
        checkpoint.save(tmp_path, state(round), memory, "f")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["memory", "round-000003", "round-000004"]
    assert len(list((tmp_path / "memory").iterdir())) == 2


def test_after_going_on_the_files_of_both_checkpoints_stay_until_the_next_is_whole(memory, tmp_path, monkeypatch):
    """Killed between the clients' files and the checkpoint: there must be one to go on from."""
    for round in (1, 2):
        memory.put(1, {"a": torch.tensor([float(round)])}, round)
        checkpoint.save(tmp_path / "c", state(round), memory, "f")
    again = ClientMemory(memory._folder)
    checkpoint.load(tmp_path / "c", again, "f")
    again.put(1, {"a": torch.tensor([3.0])}, 3)
    again.save(tmp_path / "c/memory", 3)  # what `checkpoint.save` does first
    for damaged, value in ((False, 2.0), (True, 1.0)):
        if damaged:
            (tmp_path / "c/round-000002/state.safetensors").unlink()
        fresh = ClientMemory(memory._folder)
        assert checkpoint.load(tmp_path / "c", fresh, "f") is not None and fresh.get(1)["a"].item() == value
    checkpoint.save(tmp_path / "c", state(3), again, "f")
    assert len(list((memory._folder or tmp_path / "c/memory").iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "flip", "manifest", "memory"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, damage):
    memory = ClientMemory()
    for round in (1, 2):
        memory.put(1, {"a": torch.tensor([float(round)])}, round)
        checkpoint.save(tmp_path, state(round), memory, "f")
    newest = tmp_path / "round-000002"
    target = {
        "cut": newest / "state.safetensors",
        "flip": newest / "state.safetensors",
        "manifest": newest / "manifest.json",
        "memory": tmp_path / "memory" / "client-0000001-round-000002.safetensors",
    }[damage]
    data = bytearray(target.read_bytes())
    if damage == "flip":
        data[-1] ^= 1
    target.write_bytes(data if damage == "flip" else data[: len(data) // 2])
    fresh = ClientMemory()
    found = checkpoint.load(tmp_path, fresh, "f")
    assert found.state.round == 1 and fresh.get(1)["a"].item() == 1.0
    assert len(found.problems) == 1 and str(target) in found.problems[0] and "damaged" in found.problems[0]


def test_no_good_checkpoint_is_an_error_and_none_is_none(tmp_path):
    assert checkpoint.load(tmp_path, ClientMemory(), "f") is None
    checkpoint.save(tmp_path, state(1), ClientMemory(), "f")
    (tmp_path / "round-000001" / "state.safetensors").write_bytes(b"")
    with pytest.raises(FedchordError, match=r"none in .* can be used"):
        checkpoint.load(tmp_path, ClientMemory(), "f")


def test_another_runs_checkpoints_are_refused(tmp_path):
    checkpoint.save(tmp_path, state(1), ClientMemory(), "one")
    with pytest.raises(FedchordError, match="another run's checkpoints"):
        checkpoint.load(tmp_path, ClientMemory(), "two")


def test_a_half_written_checkpoint_is_not_seen(tmp_path):
    checkpoint.save(tmp_path, state(1), ClientMemory(), "f")
    (tmp_path / ".round-000002.partial").mkdir()
    assert checkpoint.load(tmp_path, ClientMemory(), "f").state.round == 1


SETTINGS = {"rounds": 5, "cohort": 2, "seed": 3, "training": Training(batch=4), "executor": "serial"}


def started(go=simulate, **more):
    return go(catalog.build("scaffold"), Task(lambda: TwoNN(6, 5, 3)), FEDERATION, **SETTINGS, **more)


def test_going_on_from_the_checkpoint_before_a_damaged_one_ends_at_the_same_bits(tmp_path):
    *_, whole = started()
    checkpoints = Checkpoints(tmp_path / "c", 1)
    running = started()
    for _ in range(3):
        result = next(running)
        assert checkpoints.due(result.round, 5)
        checkpoints.save(result.state, result.memory)
    running.close()
    (tmp_path / "c" / "round-000003" / "manifest.json").write_text(json.dumps({"round": 3}))
    memory = ClientMemory()
    found = checkpoints.load(memory)
    assert found.state.round == 2 and len(found.problems) == 1 and "round-000003" in found.problems[0]
    rest = list(started(state=found.state, memory=memory))
    assert [result.round for result in rest] == [3, 4, 5]
    resumed = rest[-1]
    assert whole.state.visits.tolist() == resumed.state.visits.tolist()
    assert torch.equal(whole.state.broadcast["theta"], resumed.state.broadcast["theta"])
    assert torch.equal(whole.state.broadcast["control"], resumed.state.broadcast["control"])


@pytest.mark.parametrize(("every", "due"), [(0, [5]), (1, [1, 2, 3, 4, 5]), (2, [2, 4, 5])])
def test_when_a_checkpoint_is_due(tmp_path, every, due):
    assert [round for round in range(1, 6) if Checkpoints(tmp_path, every).due(round, 5)] == due


def test_resume_reports_and_ends_at_the_same_bits(tmp_path):
    *_, whole = started()
    folder = tmp_path / "run"
    running = iter(started(run, out=folder, checkpoint_every=1))
    for _ in range(3):
        next(running)
    running.close()
    (folder / "checkpoints" / "round-000003" / "manifest.json").write_text(json.dumps({"round": 3}))
    lines: list[str] = []
    *_, resumed = started(run, out=folder, checkpoint_every=1, resume=True, report=lines.append)
    assert any("going on from the one before" in line for line in lines)
    assert torch.equal(whole.state.broadcast["theta"], resumed.state.broadcast["theta"])
    assert torch.equal(whole.state.broadcast["control"], resumed.state.broadcast["control"])
