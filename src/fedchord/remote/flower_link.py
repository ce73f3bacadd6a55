"""Flower's SuperLink in a process of ours, behind a door: `python -m fedchord.remote.flower_link` takes its options,
and as the last word the bytes of the largest answer.

A SuperLink answers nodes (fleet), the server app (runtime) and whoever steers runs and registers keys (control) on one
port, and asks nobody of the last for a name. Behind this door only who has the secret of the run folder may steer, and
no node can send an answer that is larger than the server takes: Flower would keep it, and hand it on whole.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import ssl
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config
from flwr.superlink.main import create_app

from fedchord.remote.processes import live_with_parent, tell

SECRET = "x-fedchord-secret"
PIECE = 8 * 2**20
"""The largest request of a node: Flower cuts messages into pieces of 5 MiB."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Door:
    """Lets in who may come, and says who was turned away."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], secret: bytes, largest: int) -> None:
        self._app, self._secret, self._largest = app, secret, largest
        self._sent: dict[bytes, int] = {}  # bytes of the pieces of a node's present answer, by its key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        path, headers = str(scope["path"]), dict(scope["headers"])
        who = scope["client"][0] if scope.get("client") else "somebody"
        if not path.startswith(("/v1/fleet/", "/v1/runtime/", "/health")) and not self._knows(headers):
            tell(f"refused {who}: {path} is only for this server")
            return await _answer(send, 403, b"this federation is steered by its server alone")
        if path.startswith("/v1/fleet/") and (problem := self._too_large(path, headers)):
            tell(f"refused {who}: {problem}")
            return await _answer(send, 413, b"too large")

        async def watched(event: MutableMapping[str, Any]) -> None:
            if event["type"] == "http.response.start" and event["status"] >= 400 and path.startswith("/v1/fleet/"):
                self._turned_away(path, event["status"], headers, who)
            await send(event)

        await self._app(scope, receive, watched)
        return None

    def _too_large(self, path: str, headers: dict[bytes, bytes]) -> str:
        """What is wrong with the size of a request, or with that of all pieces of the answer it belongs to."""
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or int(length) > PIECE:
            return f"a message of {length.decode(errors='replace')[:20] or 'unknown'} bytes, at most {PIECE} are taken"
        key, what = headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER.encode(), b""), path.rpartition("/")[2]
        if what == "push-messages":
            self._sent[key] = 0
        if what != "push-object":
            return ""
        sent = self._sent[key] = self._sent.get(key, 0) + int(length)
        many = sent > self._largest + PIECE
        return f"an answer of more than the {self._largest} bytes that are taken ({_named(key)})" if many else ""

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        return hmac.compare_digest(headers.get(SECRET.encode(), b""), self._secret.hex().encode())

    def _turned_away(self, path: str, status: int, headers: dict[bytes, bytes], who: str) -> None:
        key = headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER.encode(), b"")
        reasons = {
            "register-node": "it has no key that was registered",
            "activate-node": "its key is not registered, or a node with that key is here",
        }
        if reason := reasons.get(path.rpartition("/")[2]):
            tell(f"refused a node at {who}: {reason} ({_named(key)})")
        elif status == 401:
            tell(f"refused a node at {who}: its signature is wrong, or its clock")


def _named(key: bytes) -> str:
    """A short name of a public key as it stands in a header."""
    try:
        return "key " + hashlib.sha256(base64.b64decode(key)).hexdigest()[:16]
    except ValueError:
        return "no key"


async def _answer(send: Send, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})


class Handshake(ssl.SSLObject):
    """Says when somebody speaks plain text, or does not believe our certificate."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLError as error:
            plain = error.reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "HTTPS_PROXY_REQUEST")
            tell(f"refused a connection: {'plain text, TLS is needed' if plain else error.reason}")
            raise


def main() -> None:
    """The SuperLink, until it is told to end."""
    live_with_parent()
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--superexec-auth-secret-file", type=Path, required=True)
    secret = own.parse_known_args()[0].superexec_auth_secret_file.read_bytes()
    largest = int(sys.argv.pop())  # the last word is ours, all others are Flower's
    config = _parse_superlink_lifespan_config()
    settings = uvicorn.Config(
        Door(create_app(config, SuperLinkLifespan), secret, largest),
        host=config.host,
        port=config.port,
        loop="asyncio",
        access_log=False,
        log_config=get_uvicorn_log_config(30),
        ssl_keyfile=config.ssl_keyfile,
        ssl_certfile=config.ssl_certfile,
    )
    settings.load()
    if settings.ssl is not None:
        settings.ssl.sslobject_class = Handshake
    server = uvicorn.Server(settings)
    server.run()
    sys.exit(0 if server.started else 1)


if __name__ == "__main__":
    main()
