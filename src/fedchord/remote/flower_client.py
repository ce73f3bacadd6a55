"""A client process that lives for the run: it takes message after message from the SuperNode beside it.

Flower would start a new process for every message, and each would import torch. With isolation "process" it waits for
one that asks; this one keeps the node, its rows and torch. The code in the app that the server sends is never run.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
from flwr.app import Message
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedchord.check import FedchordError
from fedchord.remote.flower import pack, unpack
from fedchord.remote.parcel import Parcel
from fedchord.remote.transport import Answering

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
POLL = 0.1
LOOK = 2.0
"""Seconds between two looks whether a message that is not whole was given up."""
FOLDERS = re.compile(r"(?<![\w.])/(?:[^/:'\"]+/)*")
"""The folders of a path in a text."""


class Refused(FedchordError):
    """The server does not want this node; `final` if waiting does not help."""

    def __init__(self, reason: str, final: bool) -> None:
        super().__init__(f"the server refuses this node: {reason}")
        self.final = final


def attend(
    node: Answering, address: str, secret: bytes, limit: int = 2**30, say: Callable[[str], None] = print
) -> None:
    """Answer what the SuperNode at an address of this machine hands over, until the server refuses the node."""
    version = RuntimeVersionHttpInterceptor(component_name="fedchord")
    signed = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={ACQUIRE})
    asking = _client(address, [version, signed])
    token = ""
    while True:
        try:
            token = token or _acquired(asking)
        except httpx.TransportError:  # not there yet, or not any more: the supervisor knows
            time.sleep(0.5)
            continue
        if not token:
            time.sleep(POLL)
            continue
        task = _client(address, [version, RuntimeTokenHttpInterceptor(token)])
        token = ""
        heartbeat = HeartbeatSender(partial(_beat, task))
        try:
            heartbeat.start()
            _serve(node, task, Pieces(task, partial(_acquired, asking)), limit, say)
        except Abandoned as error:
            say("a message was given up: its rest never came")
            token = error.token
            _give_up(task)
        except ObjectPullError:
            say("a message was given up: a part of it is gone")
        except httpx.HTTPError as error:
            say(f"the SuperNode does not take the answer ({' '.join(str(error).split())[:200]})")
        finally:
            heartbeat.stop()
            task.close()


class Abandoned(Exception):
    """The SuperNode hands over another message, so that the rest of this one will never come."""

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self.token = token


class Pieces:
    """A task's client that looks, while a piece is missing, whether the SuperNode has gone on without it.

    A SuperNode hands over one message at a time, before it has all pieces of it. Where the run of a message ends
    meanwhile (its server was killed and started again) it forgets the message, and not the task: the pieces would be
    waited for without end.
    """

    def __init__(self, client: RuntimeHttpClient, acquired: Callable[[], str]) -> None:
        self._client, self._acquired = client, acquired
        self._lock, self._look = threading.Lock(), time.monotonic() + LOOK

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:
        """A piece, if it is there."""
        found = self._client.PullObject(request)
        with self._lock:
            if not found.object_available and time.monotonic() >= self._look:
                self._look = time.monotonic() + LOOK
                if token := self._acquired():
                    raise Abandoned(token)
        return found


def reply(
    node: Answering, kind: str, parcel: Parcel, say: Callable[[str], None] = lambda line: None
) -> tuple[str, Parcel]:
    """What a node answers; a refusal of its own, or what went wrong, is an answer too, and said here.

    Where files are on this machine is said here alone.
    """
    if kind == "refused":
        raise Refused(str(parcel.facts.get("reason", "")), bool(parcel.facts.get("final", True)))
    try:
        return kind, node.hello() if kind == "hello" else node.answer(kind, parcel)
    except FedchordError as error:
        reason = str(error)
    except (OSError, MemoryError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}"
    reason = " ".join(reason.split())[:500]
    say(f"not answered: {reason}")
    return "refused", Parcel({}, {"reason": FOLDERS.sub("", reason)})


def _client(address: str, interceptors: list[Any]) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(address, True, None, interceptors)


def _acquired(client: RuntimeHttpClient) -> str:
    """The token of the next message, if there is one."""
    return str(client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-clientapp"])).token)


def _give_up(client: RuntimeHttpClient) -> None:
    """End a task without an answer. One that is left to expire is answered by the SuperNode itself, which would then
    send every later answer one message too late."""
    with suppress(httpx.HTTPError):
        push_task_output(client, None, "failed", "its rest never came")


def _beat(client: RuntimeHttpClient) -> bool:
    try:
        return bool(client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success)
    except httpx.HTTPError:
        return False


def _serve(node: Answering, client: RuntimeHttpClient, pieces: Pieces, limit: int, say: Callable[[str], None]) -> None:
    message, context, _, _ = pull_task_input(pieces)  # type: ignore[arg-type]
    refused: Refused | None = None
    try:
        kind, parcel = unpack(message.content, limit)
        kind, answer = reply(node, kind, parcel, say)
    except Refused as error:
        refused, kind, answer = error, "refused", Parcel({}, {"reason": "gone"})
    except FedchordError as error:
        kind, answer = "refused", Parcel({}, {"reason": str(error)})
        say(f"not answered: {error}")
    if kind == "notice" and parcel.facts.get("reason"):
        say(str(FedchordError(f"the server did not take an answer: {str(parcel.facts['reason'])[:300]}")))
    push_message(client, Message(pack(kind, answer), reply_to=message), context)
    push_task_output(client, None, "completed", "")
    if refused is not None:
        raise refused
