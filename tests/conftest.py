"""Small federations that many tests share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from fedchord.data.federation import Federation, Ragged

settings.register_profile("fedchord", deadline=None)  # a busy machine is no mistake
settings.load_profile("fedchord")
torch.set_num_threads(1)  # the tests' tensors are tiny: threads would only wait for each other


def make_federation(sizes: list[int], inputs: int = 6, classes: int = 3, seed: int = 0, test: int = 4) -> Federation:
    """Clients of given training sizes with learnable random data, `test` test rows each."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(sizes) + test * len(sizes)
    x = torch.randn(total, inputs, generator=generator)
    y = (x @ torch.randn(inputs, classes, generator=generator)).argmax(1)
    train, tests, start = [], [], 0
    for size in sizes:
        train.append(torch.arange(start, start + size))
        tests.append(torch.arange(start + size, start + size + test))
        start += size + test
    nothing = Ragged.of([torch.zeros(0, dtype=torch.int64)] * len(sizes))
    names = tuple(f"client {i}" for i in range(len(sizes)))
    return Federation("toy", {"x": x, "y": y}, classes, Ragged.of(train), nothing, Ragged.of(tests), names)


@pytest.fixture
def federation() -> Federation:
    return make_federation([13, 20, 7, 31, 10, 5])


@pytest.fixture
def data_root() -> Path:
    """The folder with the real data sets; tests that need it are skipped, with the reason, where it is not set."""
    root = os.environ.get("FEDCHORD_DATA")
    if not root:
        pytest.skip("FEDCHORD_DATA is not set: real data are not tested")
    return Path(root)


class Server:
    """Serves a folder, remembers what was asked for, and can cut its answers short."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.cut = folder, [], set()
        server = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                if self.path not in server.cut:
                    return super().do_GET()
                body = (server.folder / self.path.lstrip("/")).read_bytes()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                return self.wfile.write(body[: len(body) // 2])

            def log_message(self, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/{name}"

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[Server]:
    """A server on this machine for the folder `served`."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    (tmp_path / "served").mkdir()
    made = Server(tmp_path / "served")
    yield made
    made.close()
