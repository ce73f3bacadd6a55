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
from fedchord.data.formats.npz import array_of
from fedchord.experiments.interrupts import stopping
from fedchord.remote.parcel import Parcel
from fedchord.remote.transport import Answers
from fedchord.remote.wire import decode, encode, size

KIND = "query"
"""The type of all our messages for Flower; what is asked stands in the message itself."""
WHOLE = 4 * 2**20
"""Bytes up to which a parcel is one record."""
POLL = 0.5
LOST = "lost"
LOOK = 2.0
"""Seconds between two looks at who is here while answers are waited for."""
HELLO = 120.0
"""Seconds that a node has to say who it is; nobody waits for it meanwhile."""
SLACK = 300.0
"""Seconds that a message outlives its deadline: clocks of nodes may be wrong by so much."""

GRACE = 10.0
"""Seconds that a round under way has left when the server is told to stop; it can be done again to the same bits."""

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
        told: Any = record["parcel"]
        body: Any = record["body"]["tensors"] if "body" in record else None
        facts, kind = str(told["facts"]), str(told["kind"])
        held = told["tensors"] if body is None else body.data
        if (length := len(held) + len(facts)) > limit:
            raise FedchordError(f"a message of {length} bytes is larger than the limit of {limit}")
        return kind, decode(bytes(held) if body is None else array_of(held).tobytes(), facts)
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
        self._until: float | None = None  # when it ends, after it was told to stop
        self.sent = self.received = 0

    def clients(self) -> set[int]:
        """The clients that can be asked now. Sessions never seen are asked who they are; that is not waited for."""
        return set(self._here())

    def ask(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> Answers:
        """Send each client its parcel and wait, at most so many seconds, for the answers.

        Who is away, or gets lost on the way, is sent it when it is here again. Who refuses, or answers with garbage, is
        not asked again.
        """
        end = time.monotonic() + seconds
        answers: dict[int, Parcel] = {}
        missing: dict[int, str] = {}
        waiting: dict[str, tuple[int, Session]] = {}  # messages under way: to which client, in which session
        look = 0.0
        while open_ := [c for c in parcels if c not in answers and missing.get(c, LOST).startswith(LOST)]:
            if time.monotonic() >= look:
                here, look = self._here(), time.monotonic() + LOOK
                gone = {identity for identity, (client, session) in waiting.items() if here.get(client) != session}
                self._late |= gone
                waiting = {identity: sent for identity, sent in waiting.items() if identity not in gone}
                busy = {client for client, _ in waiting.values()}
                now = {client: here[client] for client in open_ if client in here and client not in busy}
                sent = self._push(kind, {now[c][0]: parcels[c] for c in now}, max(1.0, end - time.monotonic()))
                waiting |= {sent[session[0]]: (c, session) for c, session in now.items() if session[0] in sent}
            end = min(end, stop) if (stop := self._stop()) else end
            left = end - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(POLL, left))
            for client, answer in self._come(waiting):
                if isinstance(answer, Parcel):
                    answers[client] = answer
                else:
                    missing[client] = answer
        self._late |= set(waiting)
        late = dict.fromkeys((client for client, _ in waiting.values()), "late")
        lost = {client: late.get(client, missing.get(client, LOST)) for client in parcels if client not in answers}
        return Answers(answers, lost)

    def tell(self, kind: str, parcels: Mapping[int, Parcel]) -> None:
        """Send each client that is here its parcel; no answer is waited for."""
        here = self._here()
        sent = {here[client][0]: parcel for client, parcel in parcels.items() if client in here}
        self._late |= set(self._push(kind, sent, HELLO).values())

    def _stop(self) -> float | None:
        """Until when a round may go on after the server was told to stop; None if it was not."""
        if stopping() and self._until is None:
            self._until = time.monotonic() + GRACE
        return self._until

    def _come(self, waiting: dict[str, tuple[int, Session]]) -> list[tuple[int, Parcel | str]]:
        """What came for those who wait, by client: an answer, or in words why there is none."""
        found: list[tuple[int, Parcel | str]] = []
        asked = [*waiting, *self._late]
        for message in self._grid.pull_messages(asked) if asked else ():
            identity = message.metadata.reply_to_message_id
            self._late.discard(identity)
            if identity not in waiting:
                continue  # too late for its round
            client, _ = waiting.pop(identity)
            try:
                found.append((client, self._answer(message)))
            except FedchordError as error:
                found.append((client, str(error)))
        return found

    def _here(self) -> dict[int, Session]:
        """The session of every client that is here."""
        online = {(int(n.node_id), str(n.last_activated_at)): bytes(n.public_key) for n in self._grid.get_nodes()}
        self._known = {session: client for session, client in self._known.items() if session in online}
        self._refused &= set(online)
        self._greet(online)
        self._hear(online)
        return {client: session for session, client in self._known.items()}

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

    def _answer(self, message: Message) -> Parcel:
        if message.has_error():
            raise FedchordError(f"{LOST}: {' '.join(str(message.error.reason).split())[:200]}")
        try:
            kind, parcel = unpack(message.content, self._limit)
        except FedchordError as error:
            raise FedchordError(f"garbage: {error}") from None
        self.received += size(parcel)
        if kind == "refused":
            raise FedchordError(f"refused: {parcel.facts.get('reason', '')}")
        return parcel


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 16 else text[:12] + "..."
