"""Headless Chromium over its DevTools protocol: open a page, move the pointer, press keys, look.

Protocol: https://chromedevtools.github.io/devtools-protocol/ (domains Page, Runtime, Input).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.waiting import wait_until

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--mute-audio",
    "--remote-debugging-port=0",
)
# Answers come apart, as over a slow line; what moves meanwhile is summed (layout shift, without
# what a person asked for by a key or a click), and headings that were drawn elsewhere are named.
SHIFTS = """(() => {
  window.shifts = []; window.moved = [];
  new PerformanceObserver((list) => { for (const e of list.getEntries()) if (!e.hadRecentInput)
    window.shifts.push([e.value, ...e.sources.map((s) => s.node?.textContent?.slice(0, 60))]); })
    .observe({type: "layout-shift"});
  let main = null, seen = new Map();
  const look = () => {
    const now = document.querySelector("main");
    if (now !== main) { main = now; seen = new Map(); }
    for (const h of main.querySelectorAll("h1, h2, .chosen-world, .plot")) {
      const name = `${h.localName} ${h.textContent.slice(0, 20)}`;
      const at = h.getBoundingClientRect().top + main.scrollTop;
      const was = seen.get(name) ?? at;
      if (Math.abs(was - at) > 1) window.moved.push([name, was, at]);
      seen.set(name, at);
    }
    requestAnimationFrame(() => setTimeout(look));
  };
  look();
  const fetched = window.fetch;
  let answers = 0;
  window.fetch = async (...asked) => {
    const answer = await fetched(...asked);
    await new Promise((go) => setTimeout(go, 25 * (1 + answers++ % 3)));
    return answer;
  };
})()"""
KEY_CODES = {
    " ": ("Space", 32), "Enter": ("Enter", 13), "Backspace": ("Backspace", 8), "Tab": ("Tab", 9),
    "Escape": ("Escape", 27), "ArrowLeft": ("ArrowLeft", 37), "ArrowRight": ("ArrowRight", 39),
}  # fmt: skip
# What a key writes: without it a button or a link does not take Enter.
WRITES = {"Enter": "\r"}


def chromium_path() -> str | None:
    """The first installed Chromium or Chrome, if any."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((p for p in map(shutil.which, names) if p), None)


class Tab:
    """One page. Errors of the page (exceptions, console errors) are kept in :attr:`errors`."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket, self._session, self._number = socket, session, 0
        self.errors: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a DevTools method and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=30))
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def open(self, url: str) -> None:
        """Load ``url`` and wait until it is there."""
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression (promises are awaited)."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, condition: str, timeout_s: float = 20.0) -> Any:
        """Poll a JavaScript expression until it is true; returns its value."""
        try:
            return wait_until(lambda: self.evaluate(condition), timeout_s, what=condition)
        except AssertionError as late:
            raise AssertionError(f"{late}; page errors: {self.errors}") from None

    def pointer(self, x: float, y: float) -> None:
        """Move the mouse to ``x, y`` [CSS px]."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def button(self, kind: str, x: float, y: float) -> None:
        """``mousePressed`` or ``mouseReleased``: the left button."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def click(self, x: float, y: float) -> None:
        """Press and release the left button."""
        for kind in ("mousePressed", "mouseReleased"):
            self.button(kind, x, y)

    def hold(self, kind: str, key: str, *, shift: bool = False) -> None:
        """``keyDown`` or ``keyUp`` of one key (``KeyboardEvent.key``), with Shift or without."""
        code, number = KEY_CODES.get(key, (f"Key{key.upper()}", ord(key[0].upper())))
        written = {"text": WRITES[key]} if kind == "keyDown" and key in WRITES else {}
        self.call(
            "Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number,
            modifiers=8 if shift else 0, **written,
        )  # fmt: skip

    def key(self, key: str, *, shift: bool = False) -> None:
        """Press and release one key (``KeyboardEvent.key``)."""
        for kind in ("keyDown", "keyUp"):
            self.hold(kind, key, shift=shift)

    def centre(self, selector: str) -> tuple[float, float]:
        """Of an element [CSS px]."""
        box = f"document.querySelector('{selector}').getBoundingClientRect()"
        x, y = self.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({box})"
        )
        return x, y

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window's size [CSS px] and colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def front(self) -> None:
        """Bring the tab in front of all others."""
        self.call("Page.bringToFront")

    def screenshot(self, path: Path, *, full_page: bool = False) -> Path:
        """Save a PNG of the window, or of the whole page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=full_page)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path


class Browser:
    """A running Chromium; :meth:`tab` opens a tab that has the screen to itself."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._main = Tab(socket, "")

    def tab(self, width: int = 1280, height: int = 800) -> Tab:
        """A new, empty tab; all others are closed."""
        old = [t["targetId"] for t in self._pages()]
        new = self._main.call("Target.createTarget", url="about:blank")["targetId"]
        for target in old:
            self._main.call("Target.closeTarget", targetId=target)
        wait_until(lambda: [t["targetId"] for t in self._pages()] == [new])
        session = self._main.call("Target.attachToTarget", targetId=new, flatten=True)["sessionId"]
        tab = Tab(self._socket, session)
        for domain in ("Page", "Runtime", "Log"):
            tab.call(f"{domain}.enable")
        tab.size(width, height)
        return tab

    def cover(self) -> None:
        """Another tab comes in front of the one that was opened last, as where a person looks at
        something else; that one loses focus and screen. :meth:`Tab.front` brings it back.
        """
        new = self._main.call("Target.createTarget", url="about:blank")["targetId"]
        self._main.call("Target.activateTarget", targetId=new)

    def _pages(self) -> list[dict[str, Any]]:
        found = self._main.call("Target.getTargets")["targetInfos"]
        return [target for target in found if target["type"] == "page"]


@contextlib.contextmanager
def chromium(width: int = 1280, height: int = 800) -> Generator[Tab]:
    """A browser with one empty tab; the test is skipped where no Chromium is installed."""
    with browsing() as browser:
        yield browser.tab(width, height)


@contextlib.contextmanager
def browsing() -> Generator[Browser]:
    """A browser for several tests; they are skipped where no Chromium is installed."""
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with connect(
                _address(process, Path(profile)), max_size=None, compression=None
            ) as socket:
                yield Browser(socket)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _address(process: subprocess.Popen[bytes], profile: Path) -> str:
    # Chromium writes the chosen port and path into its profile when it listens.
    file = profile / "DevToolsActivePort"

    def told() -> list[str]:
        assert process.poll() is None, f"Chromium did not start (exit code {process.poll()})"
        lines = file.read_text().split("\n") if file.exists() else []
        return lines if len(lines) >= 2 else []

    port, path, *_ = wait_until(told, 30.0, what="Chromium's port")
    return f"ws://127.0.0.1:{port}{path}"
