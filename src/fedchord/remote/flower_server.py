"""Our server app in Flower's terms: keys are registered, a run is started, and this process takes its task.

Flower calls this isolation "process": the SuperLink starts no server app of its own but hands the task to who asks for
it with the secret. So the server app is the command `fedchord serve` itself, and no `flwr run` is needed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import serialization
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.interceptors.http.utils import add_headers
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from fedchord.check import FedchordError
from fedchord.remote.flower_fetch import Fetching
from fedchord.remote.flower_link import SECRET

APP = Path(__file__).with_name("app")
"""The app whose name the run has; its code is only run where somebody else's Flower starts it."""
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


class LinkLost(FedchordError):
    """The SuperLink does not answer, or has given up this run."""


@dataclass(frozen=True)
class Link:
    """Where a SuperLink is, whom to believe there (None: plain text), and the secret to steer it."""

    address: str
    ca: Path | None
    secret: bytes

    @property
    def secure(self) -> dict[str, Any]:
        """How its clients are told."""
        return {"insecure": self.ca is None, "root_certificates": self.ca.read_bytes() if self.ca else None}


class Patience:
    """Tries a request again while nobody answers, for so many seconds; then the link is lost."""

    def __init__(self, seconds: float, alive: Callable[[], bool] = lambda: True) -> None:
        self.seconds, self.alive = seconds, alive

    def invoke(self, target: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """The answer of `target`."""
        end = time.monotonic() + self.seconds
        while True:
            try:
                return target(*given, **named)
            except httpx.TransportError as error:
                if time.monotonic() > end or not self.alive():
                    raise LinkLost(f"the SuperLink does not answer ({error})") from error
                time.sleep(0.5)
            except (httpx.HTTPStatusError, RunNotRunningException) as error:
                raise LinkLost(f"the SuperLink refuses ({' '.join(str(error).split())[:200]})") from error


class _Secret:
    """Shows the secret to the SuperLink's door."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret.hex()

    def intercept(self, context: Any, call_next: Callable[[Any], httpx.Response]) -> httpx.Response:
        """Add the header."""
        add_headers(context.request, {SECRET: self._secret})
        return call_next(context)


def public_key(text: str) -> bytes:
    """A public key as ssh writes it, in the form in which Flower keeps it."""
    key = serialization.load_ssh_public_key(text.encode())
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@contextmanager
def server_app(
    link: Link, keys: Iterable[bytes] | None, alive: Callable[[], bool] = lambda: True, patience: float = 20.0
) -> Iterator[Fetching]:
    """The Grid of a new run, with these keys registered and no others; the run ends with the body.

    A SuperLink that does not answer is waited for, as long as it is `alive`.
    """
    with _closing(ControlHttpClient, link, [_Secret(link.secret)], patience) as control:
        if keys is not None:
            _register(control, list(keys))
        for run in control.ListRuns(ListRunsRequest()).run_dict.values():  # of a server that was killed
            if not str(run.status.status).startswith("finished"):
                control.StopRun(StopRunRequest(run_id=run.run_id))
        content = build_fab_from_disk(APP)
        fab = fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {}))
        run_id = control.StartRun(StartRunRequest(fab=fab)).run_id
    grid = HttpGrid(link.address, token=_token(link, run_id, patience), **link.secure)
    trying = Patience(patience, alive)
    grid._retry_invoker = trying  # type: ignore[assignment]  # its own ends this process when a run is over
    heartbeat = HeartbeatSender(lambda: _beat(grid))
    done = False
    try:
        given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = given.context.node_id
        grid.set_run(run_from_proto(given.run))
        heartbeat.start()
        yield Fetching(grid, given.run.run_id)
        done = True
    finally:
        if heartbeat.is_running:
            heartbeat.stop()
        trying.seconds = 1.0
        try:
            status = "completed" if done else "failed"
            grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=""))
        except (LinkLost, httpx.HTTPError):
            pass  # a link that is gone needs no end
        grid.close()


def _beat(grid: HttpGrid) -> bool:
    try:
        return bool(grid._runtime_client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success)
    except (LinkLost, httpx.HTTPError):
        return False


@contextmanager
def _closing(kind: type[Any], link: Link, interceptors: list[Any], patience: float) -> Iterator[Any]:
    client = kind.from_server_address(
        link.address,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="fedchord"), *interceptors],
        retry_invoker=Patience(patience),
        **link.secure,
    )
    try:
        yield client
    finally:
        client.close()


def _register(control: ControlHttpClient, keys: list[bytes]) -> None:
    """Let Flower know these keys and forget all others."""
    known: Mapping[bytes, int] = {
        bytes(info.public_key): info.node_id
        for info in control.ListNodes(ListNodesRequest()).nodes_info
        if info.status != "unregistered"
    }
    for key in set(known) - set(keys):
        control.UnregisterNode(UnregisterNodeRequest(node_id=known[key]))
    for key in set(keys) - set(known):
        control.RegisterNode(RegisterNodeRequest(public_key=key))


def _token(link: Link, run_id: int, patience: float) -> str:
    """The right to be the server app of a run."""
    signed = SuperExecAuthHttpInterceptor(master_secret=link.secret, protected_methods={ACQUIRE})
    end = time.monotonic() + patience
    with _closing(RuntimeHttpClient, link, [signed], patience) as runtime:
        while time.monotonic() < end:
            given = runtime.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"]))
            if given.token and given.task.run_id == run_id:
                return str(given.token)
            time.sleep(0.0 if given.token else 0.2)  # the task of another run: nobody takes it up
    raise LinkLost("the SuperLink gives no task for the run")
