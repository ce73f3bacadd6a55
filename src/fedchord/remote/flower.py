"""Flower carries the parcels: a transport over its Grid. Nothing algorithmic.

A node is found by its id in Flower, which nobody chooses; which client it is it says itself, once, in its "hello".
Where keys are registered, the key decides: a node may only be the client that its key belongs to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedchord.check import FedchordError
from fedchord.remote.parcel import Parcel
from fedchord.remote.transport import Answers
from fedchord.remote.wire import decode, encode, size

KIND = "query"
"""The type of all our messages for Flower; what is asked stands in the message itself."""
WHOLE = 4 * 2**20
"""Bytes up to which a parcel is one record."""
POLL = 0.5
HELLO = 20.0
SLACK = 300.0
"""Seconds that a message outlives its deadline: clocks of nodes may be wrong by so much."""

Session = tuple[int, str]
"""A node's id and since when it is here: who went and came again is asked anew who it is."""


class Grid(Protocol):
    """What is used of Flower's Grid."""

    def get_nodes(self) -> Iterable[Any]: ...
    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]: ...
    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]: ...


def pack(kind: str, parcel: Parcel) -> RecordDict:
    """A parcel as Flower carries it.

    Every object of a message is a request of its own on each of its ways, so a small parcel is a single record. A large
    one goes as an array of bytes, which Flower cuts into pieces.
    """
    tensors, facts = encode(parcel)
    if len(tensors) <= WHOLE:
        return RecordDict({"parcel": ConfigRecord({"kind": kind, "facts": facts, "tensors": tensors})})
    body = ArrayRecord({"tensors": Array(np.frombuffer(tensors, dtype=np.uint8))})
    return RecordDict({"parcel": ConfigRecord({"kind": kind, "facts": facts}), "body": body})


def unpack(record: RecordDict, limit: int) -> tuple[str, Parcel]:
    """What `pack` made; a damaged or an oversized message is one line, before anything in it is read."""
    try:
        told = record["parcel"]
        facts, kind = str(told["facts"]), str(told["kind"])
        held = record["body"]["tensors"].data if "body" in record else told["tensors"]
        if (length := len(held) + len(facts)) > limit:
            raise FedchordError(f"a message of {length} bytes is larger than the limit of {limit}")
        tensors = record["body"]["tensors"].numpy().tobytes() if "body" in record else bytes(held)
        return kind, decode(tensors, facts)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, FedchordError):
            raise
        raise FedchordError(f"a message is damaged ({type(error).__name__}: {error})") from error


class GridTransport:
    """Asks clients by their number over a Grid.

    `expected` are facts that a node's hello must have (plan, version, ...); `keys` says which client a registered
    public key belongs to, None where there are no keys. `say` hears a line for everything that is refused.
    """

    def __init__(
        self,
        grid: Grid,
        clients: int,
        expected: Mapping[str, Any],
        keys: Mapping[bytes, int] | None = None,
        limit: int = 2**30,
        say: Callable[[str], None] = print,
    ) -> None:
        self._grid, self._num, self._expected, self._keys = grid, clients, dict(expected), keys
        self._limit, self._say = limit, say
        self._known: dict[Session, int] = {}  # who said which client it is
        self._refused: set[Session] = set()
        self._greeted: dict[str, tuple[Session, bytes, float]] = {}  # hellos under way: to whom, its key, until when
        self._late: set[str] = set()  # messages whose answers nobody waits for any more
        self.names: dict[int, str] = {}
        self.sent = self.received = 0

    def clients(self) -> set[int]:
        """The clients that can be asked now. Sessions never seen are asked who they are; that is not waited for."""
        return set(self._here())

    def ask(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> Answers:
        """Send each client its parcel and wait, at most so many seconds, for the answers."""
        here = self._here()
        nodes = {here[client]: parcel for client, parcel in parcels.items() if client in here}
        found = self._exchange(kind, nodes, seconds)
        client = {node: number for number, node in here.items()}
        missing = {number: "lost" for number in parcels if number not in here}
        missing |= {client[node]: reason for node, reason in found.missing.items()}
        return Answers({client[node]: parcel for node, parcel in found.parcels.items()}, missing)

    def _here(self) -> dict[int, int]:
        """The node of every client that is here."""
        online = {(int(n.node_id), str(n.last_activated_at)): bytes(n.public_key) for n in self._grid.get_nodes()}
        self._known = {session: client for session, client in self._known.items() if session in online}
        self._refused &= set(online)
        self._greet(online)
        self._hear(online)
        return {client: session[0] for session, client in self._known.items()}

    def _greet(self, online: Mapping[Session, bytes]) -> None:
        """Ask those who were never seen who they are."""
        now = time.monotonic()
        self._late |= {identity for identity, (_, _, until) in self._greeted.items() if until < now}
        self._greeted = {identity: asked for identity, asked in self._greeted.items() if asked[2] >= now}
        waiting = {session for session, _, _ in self._greeted.values()}
        for session in sorted(set(online) - set(self._known) - self._refused - waiting):
            if self._keys is not None and online[session] not in self._keys:
                self._refuse(session, "its key is not registered", final=True)
                continue
            if identity := self._push("hello", {session[0]: Parcel()}, HELLO).get(session[0]):
                self._greeted[identity] = (session, online[session], now + HELLO)

    def _hear(self, online: Mapping[Session, bytes]) -> None:
        """Take in who said who they are."""
        if not self._greeted:
            return
        for message in self._grid.pull_messages(list(self._greeted)):
            session, key, _ = self._greeted.pop(message.metadata.reply_to_message_id, (None, b"", 0.0))
            if session is None or session not in online:
                continue
            try:
                self._welcome(session, key, self._answer(message))
            except FedchordError as error:  # it could not say who it is: it is asked again
                self._say(f"a node did not say who it is: {error}")

    def _welcome(self, session: Session, key: bytes, hello: Parcel) -> None:
        client, facts = hello.facts.get("client"), hello.facts
        if isinstance(client, bool) or not isinstance(client, int) or not 0 <= client < self._num:
            return self._refuse(session, f"it says it is client {client!r}; clients are 0 to {self._num - 1}", True)
        for name, wanted in self._expected.items():
            if (got := facts.get(name)) != wanted:
                reason = f"client {client} has another {name} ({_short(got)}) than the server ({_short(wanted)})"
                return self._refuse(session, reason, True)
        if self._keys is not None and self._keys[key] != client:
            reason = f"it says it is client {client}, but its key is that of client {self._keys[key]}"
            return self._refuse(session, reason, True)
        if client in self._known.values():
            return self._refuse(session, f"client {client} is here already", final=False)
        self._known[session] = client
        self.names[client] = str(facts.get("name", client))
        return None

    def _refuse(self, session: Session, reason: str, final: bool) -> None:
        """A line here, and one at the node; its answer is of no interest."""
        self._refused.add(session)
        self._say(f"refused a node: {reason}")
        told = Parcel({}, {"reason": reason, "final": final})
        self._late |= set(self._push("refused", {session[0]: told}, HELLO).values())

    def _push(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> dict[int, str]:
        """Send each node its parcel; the messages by node."""
        messages = [
            Message(pack(kind, parcel), dst_node_id=node, message_type=KIND, ttl=seconds + SLACK)
            for node, parcel in parcels.items()
        ]
        self.sent += sum(size(parcel) for parcel in parcels.values())
        pushed = zip(parcels, self._grid.push_messages(messages), strict=True) if messages else ()
        return {node: identity for node, identity in pushed if identity}

    def _exchange(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> Answers:
        """The same as `ask`, by node. Who answers with an error is as missing as who does not answer."""
        end = time.monotonic() + seconds
        waiting = {identity: node for node, identity in self._push(kind, parcels, seconds).items()}
        missing = dict.fromkeys(set(parcels) - set(waiting.values()), "lost")
        answers: dict[int, Parcel] = {}
        while waiting and (left := end - time.monotonic()) > 0:
            time.sleep(min(POLL, left))
            for message in self._grid.pull_messages([*waiting, *self._late]):
                identity = message.metadata.reply_to_message_id
                node = waiting.pop(identity, None)
                if node is None:
                    self._late.discard(identity)  # too late for its round
                    continue
                try:
                    answers[node] = self._answer(message)
                except FedchordError as error:
                    missing[node] = str(error)
        self._late |= set(waiting)
        return Answers(answers, missing | dict.fromkeys(waiting.values(), "late"))

    def _answer(self, message: Message) -> Parcel:
        if message.has_error():
            raise FedchordError(f"lost: {' '.join(str(message.error.reason).split())[:200]}")
        kind, parcel = unpack(message.content, self._limit)
        self.received += size(parcel)
        if kind == "refused":
            raise FedchordError(f"refused: {parcel.facts.get('reason', '')}")
        return parcel


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 16 else text[:12] + "..."
