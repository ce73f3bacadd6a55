"""Manifests of checkpoints that were changed by somebody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedchord.check import FedchordError
from fedchord.core.per_client import PerClient
from fedchord.core.rules import ServerState
from fedchord.engine.checkpoint import Checkpoints, add_course
from fedchord.engine.memory import ClientMemory, file_digest, save_tensors


def saved(folder: Path) -> tuple[Checkpoints, Path]:
    memory, kept = ClientMemory(), Checkpoints(folder / "checkpoints", 1, "f")
    memory.put(1, {"w": torch.ones(2)}, 1)
    kept.save(ServerState(2, {"w": torch.zeros(3)}, {}, {}, PerClient.filled(2, 0, torch.int64)), memory)
    return kept, folder / "checkpoints" / "round-000002" / "manifest.json"


def changed(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_client_file_outside_the_folder_is_not_read(tmp_path):
    kept, manifest = saved(tmp_path)
    save_tensors(tmp_path / "secret.safetensors", {"w": torch.ones(1)})
    digest = file_digest(tmp_path / "secret.safetensors")
    for name in ("../../secret.safetensors", str(tmp_path / "secret.safetensors")):
        changed(manifest, memory={"1": [name, digest]})
        with pytest.raises(FedchordError, match="missing or damaged"):
            kept.load(ClientMemory())


@pytest.mark.parametrize(
    "values",
    [
        *({"memory": []}, {"memory": {"x": ["client-1-round-1.safetensors", ""]}}, {"memory": {"1": 5}}),
        {"memory": {"1": [f"client-0000001-round-{'9' * 400}.safetensors", ""]}},  # no system has such a name
        *({"round": "2"}, {"round": -1}, {"round": 1e400}, {"memory": {"1": [5, 5]}}, {"state": 7}),
    ],
    ids=lambda values: str(values)[:60],
)
def test_a_manifest_of_other_kinds_is_one_line(values, tmp_path):
    kept, manifest = saved(tmp_path)
    changed(manifest, **values)
    with pytest.raises(FedchordError, match="missing or damaged"):
        kept.load(ClientMemory())


def test_a_manifest_that_is_no_table_is_left_alone(tmp_path):
    kept, manifest = saved(tmp_path)
    for text in ("[]", "[" * 100_000):
        manifest.write_text(text)
        add_course(kept.folder, "f", "c")
        assert manifest.read_text() == text


def test_a_state_without_its_parts_is_one_line(tmp_path):
    kept, manifest = saved(tmp_path)
    for state in ({"w": torch.ones(1)}, {"visits": torch.tensor(1)}, {"strange/w": torch.ones(1)}):
        changed(manifest, state=save_tensors(manifest.with_name("state.safetensors"), state))
        with pytest.raises(FedchordError, match="damaged"):
            kept.load(ClientMemory())
