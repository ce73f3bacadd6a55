"""A Grid that fetches answers beside the loop that waits for them.

Flower announces an answer before its pieces are there, and its Grid then waits for the last piece, of one answer after
another. A node that is slow, or dies on the way, would keep the server from hearing all others until long after the
deadline. Here every answer has a thread of its own; it is there when it is whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, cast

import httpx
from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, inflate_object_from_contents, pull_objects
from flwr.superlink.grid import HttpGrid

from fedchord.check import FedchordError

SLOWEST = 1800.0
"""Seconds after which pieces of an answer are not waited for any more; it was late long before."""

BRIEFLY = 0.4
"""Seconds that small answers, which are there at once, are waited for."""


class Fetching:
    """What a transport needs of a Grid."""

    def __init__(self, grid: HttpGrid, run_id: int) -> None:
        self._grid, self._run_id = grid, run_id
        self._whole: dict[str, Message] = {}  # by the message that they answer
        self._under_way: set[str] = set()  # messages whose answers were announced: the link knows of them no more

    def get_nodes(self) -> Iterable[Any]:
        """Who is here."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; their ids."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The answers to these messages that are whole; others are fetched meanwhile."""
        asked = list(message_ids)
        new = [name for name in asked if name not in self._under_way and name not in self._whole]
        came = self._grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=new))
        until = time.monotonic() + BRIEFLY
        for fetch in [self._begin(*one) for one in zip(came.messages_list, came.message_object_trees, strict=True)]:
            fetch.join(max(0.0, until - time.monotonic()))
        found = [self._whole.pop(name, None) for name in asked]
        return [message for message in found if message is not None]

    def _begin(self, told: Any, tree: Any) -> threading.Thread:
        parts = [part.object_id for part in iterate_object_tree(tree)]
        self._under_way.add(told.metadata.reply_to_message_id)
        fetch = threading.Thread(target=self._fetch, args=(told.metadata, parts), daemon=True)
        fetch.start()
        return fetch

    def _fetch(self, about: Any, parts: list[str]) -> None:
        """Fetch the pieces of an answer; one whose pieces never come is as if it had not been sent."""
        client, node = self._grid._runtime_client, self._grid.node
        try:
            one = make_pull_object_fn_protobuf(client.PullObject, node, self._run_id)
            contents = pull_objects(parts, pull_object_fn=one, max_time=SLOWEST)
            got = ConfirmMessageReceivedRequest(node=node, run_id=self._run_id, message_object_id=about.message_id)
            client.ConfirmMessageReceived(got)
            message = cast(Message, inflate_object_from_contents(about.message_id, contents))
            message.metadata.__dict__["_message_id"] = about.message_id
            self._whole[about.reply_to_message_id] = message
        except (ObjectPullError, FedchordError, httpx.HTTPError, RuntimeError, ValueError):
            pass
        finally:
            self._under_way.discard(about.reply_to_message_id)
