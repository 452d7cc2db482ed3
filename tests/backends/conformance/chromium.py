"""A real Chromium, driven over its DevTools pipe: no driver binary, no package, no network.

The browser reads commands from file descriptor 3 and writes answers and events to 4, as JSON that ends in a
zero byte (`--remote-debugging-pipe`). The picture in the documentation is made by

    python tests/conformance/chromium.py report.html docs/conformance.png
"""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--disable-default-apps", "--hide-scrollbars", "--force-color-profile=srgb",
]  # fmt: skip


class Page:
    """One tab. `errors` collects everything that the console would show in red."""

    def __init__(self, write_to: int, read_from: int) -> None:
        self.write_to, self.read_from = write_to, read_from
        self.buffer = b""
        self.last_id = 0
        self.session = ""
        self.errors: list[str] = []
        self.loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.last_id:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file at a window size, in light or dark, and wait until it has loaded."""
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self.loaded:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 20.0) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"still false after {seconds} s: {expression}"
            time.sleep(0.05)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Write a PNG of the window, or of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_from], [], [], 60.0)
            assert ready, "the browser has not answered for a minute"
            chunk = os.read(self.read_from, 1 << 20)
            assert chunk, "the browser has gone"
            self.buffer += chunk
        text, _, self.buffer = self.buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(json.dumps(params["entry"]))
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith("file:"):
            self.errors.append(f"request to {params['request']['url'][:80]}")


@contextmanager
def chromium(path: str) -> Iterator[Page]:
    """Start a browser, give one page, and end the browser with all its processes."""
    to_child, from_us = os.pipe()
    from_child, to_us = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        script = 'exec 3<&"$0" 4>&"$1"; shift 1; exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", script, str(to_child), str(to_us), path, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(to_child, to_us),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_child)
        os.close(to_us)
        try:
            yield Page(from_us, from_child)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(from_us)
            os.close(from_child)


def picture(report: Path, png: Path) -> None:
    """What a reader sees first of a report, and the film half-way through."""
    with chromium(next(filter(None, map(shutil.which, NAMES)))) as page:
        page.open(report, width=1120, height=2400)
        page.evaluate("view.film && show(Math.floor(view.film.events.length / 2))")
        page.screenshot(png)


if __name__ == "__main__":
    picture(Path(sys.argv[1]), Path(sys.argv[2]))
