"""A real Chromium without a window, spoken to by its DevTools protocol over two pipes: no port, no driver."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
MOVED = "import os, sys; os.dup2({}, 3); os.dup2({}, 4); os.execv(sys.argv[1], sys.argv[1:])"
PATIENCE = 120
"""Seconds for one answer: a busy machine takes its time."""


def found() -> str | None:
    """The Chromium of this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One Chromium with one page; `events` are what it told without being asked."""

    def __init__(self, profile: Path) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        command = [str(found()), *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        # the pipes must be 3 and 4 there, whatever they are here
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        moved = [sys.executable, "-c", MOVED.format(*ends), *command]
        self._process = subprocess.Popen(
            moved,
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs_in, theirs_out, *ends):
            os.close(end)
        self._in, self._out, self._rest, self._count = ours_in, ours_out, b"", 0
        self.events: list[dict[str, Any]] = []
        self._session = ""
        targets = self.ask("Target.getTargets")["targetInfos"]
        (page,) = [one["targetId"] for one in targets if one["type"] == "page"]
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        """End it."""
        self._session = ""
        try:
            self._send("Browser.close", {})
            self._process.wait(timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    # -- the protocol ----------------------------------------------------------------------------------------------

    def _send(self, method: str, parameters: dict[str, Any]) -> int:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        text = json.dumps(message | ({"sessionId": self._session} if self._session else {}))
        os.write(self._out, text.encode() + b"\0")
        return self._count

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            assert ready, "Chromium does not answer"
            piece = os.read(self._in, 1 << 16)
            assert piece, "Chromium has ended"
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one command."""
        wanted, until = self._send(method, parameters), time.monotonic() + PATIENCE
        while (message := self._next(until)).get("id") != wanted:
            self.events.append(message)
        assert "error" not in message, message["error"]
        return message["result"]

    # -- the page --------------------------------------------------------------------------------------------------

    def open(self, file: Path) -> None:
        """Load a file and wait until all of it is there."""
        self.events.clear()
        self.ask("Page.navigate", url=file.resolve().as_uri())
        until = time.monotonic() + PATIENCE
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(until))

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        done = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def type(self, selector: str, text: str) -> None:
        """Put the cursor into a field, empty it, and press keys."""
        self.run(f"(() => {{ const f = document.querySelector({json.dumps(selector)}); f.focus(); f.select?.(); }})()")
        if text:
            self.ask("Input.insertText", text=text)
        else:
            self.press("Backspace", 8)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press one key."""
        what = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **what, **({"text": text} if text else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **what)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{found}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self.run(f"{found}.getBoundingClientRect().toJSON()")
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def look(self, width: int = 1200, height: int = 900, dark: bool = False, media: str = "") -> None:
        """The size of the window, dark or light, screen or print."""
        phone = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def shot(self, to: Path, whole: bool = True) -> Path:
        """A picture of the page, or of what the window shows."""
        taken = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        to.write_bytes(base64.b64decode(taken["data"]))
        return to

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and what is against the page's own policy."""
        self.run("0")  # what was told before this answer has come
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    def asked_for(self) -> list[str]:
        """The addresses the page loaded, without those that lie within it."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent if not one["request"]["url"].startswith("data:")]
