"""A headless Chromium that says what a page did: console messages, requests, and what is in the document."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
)


class Page:
    """An open page, through the DevTools protocol over two pipes."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._number, self._buffer = 0, b""
        self._session = ""
        self.console: list[str] = []
        self.requests: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.send(f"{domain}.enable")

    def open(self, path: Path) -> None:
        """Load a file, and wait until it is there."""
        self.send("Page.navigate", url=path.resolve().as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def show(self, *, width: int, dark: bool = False, media: str = "") -> None:
        """Choose the size of the window, the colour scheme, and screen or print."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def screenshot(self, path: Path, *, height: int | None = None) -> None:
        """Write the whole page as a PNG, or its upper part."""
        width = self.evaluate("innerWidth")
        part = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}} if height else {}
        picture = self.send("Page.captureScreenshot", captureBeyondViewport=True, **part)["data"]
        path.write_bytes(base64.b64decode(picture))

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            received = os.read(self._answers, 1 << 20)
            assert received, "the browser has gone"
            self._buffer += received
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.console.append(json.dumps(parameters))
            case "Log.entryAdded":
                self.console.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
        return message


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in ends)
    for end in ends:
        os.close(end)
    return read, write


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Start Chromium and end it with the body."""
    assert CHROMIUM is not None
    # Chromium reads commands from descriptor 3 and answers on 4, which a shell puts there: high numbers keep clear.
    to_browser, commands = _pipe()
    answers, from_browser = _pipe()
    connected = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
    process = subprocess.Popen(
        ["bash", "-c", connected, "bash", CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(to_browser, from_browser),
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(commands, answers)
    finally:
        process.terminate()
        process.wait(30)
        os.close(commands)
        os.close(answers)
