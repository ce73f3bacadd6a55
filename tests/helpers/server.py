"""A web server on this machine."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


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
