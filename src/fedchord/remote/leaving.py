"""What would leave a node: it answers the questions of a first round to nobody, in a memory that is thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fedchord.core.records import LINE
from fedchord.core.round import open_run
from fedchord.remote.attending import open_node
from fedchord.remote.checking import signed
from fedchord.remote.marks import size
from fedchord.remote.memory import NEVER
from fedchord.remote.node import Node
from fedchord.remote.parcel import Parcel
from fedchord.remote.settings import Party


def leaving(party: Party) -> Iterator[str]:
    """A line for every tensor and fact of every answer: its name, type, shape and bytes."""
    with TemporaryDirectory() as folder:
        node = open_node(replace(party, memory=Path(folder) / "memory", audit=Path(folder) / "audit.jsonl"))
        yield f"{party.name} (client {party.client}) in {node.plan.config.method}, to {party.server}:"
        for kind, answer in answers(node):
            yield f"{kind}: {size(answer)} bytes"
            for name, tensor in sorted(answer.tensors.items()):
                kept = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
                yield f"  {name}: {kept}, {tensor.numel() * tensor.element_size()} bytes"
            yield f"  and: {', '.join(f'{name} = {str(value)[:16]}' for name, value in sorted(answer.facts.items()))}"
        yield "nothing was sent"


def answers(node: Node) -> Iterator[tuple[str, Parcel]]:
    """What the node would answer to a server that begins."""
    plan = node.plan
    broadcast = open_run(node.work.algorithm, node.work.task, plan.clients, plan.course).broadcast
    marks = signed(plan, round=0, counted=NEVER)
    yield "hello", node.hello()
    cohort = plan.course.size(plan.clients)
    yield "train", node.answer("train", Parcel(broadcast, marks | {"cohort": cohort}))
    if plan.algorithm.outcome == "samples":
        return
    yield "evaluate", node.answer("evaluate", Parcel(broadcast, marks | {"split": "test", "everyone": True}))
    if plan.algorithm.client.deploys.kind == LINE:
        yield "sweep", node.answer("sweep", Parcel(broadcast, marks))
