"""Serves a local page as a device: it draws the workcell from above, the pointer is the target.

    browser                                  this process
    GET /?token=...        ------------->    the page (one file, nothing from the network)
    ws  /ws?token=...      ------------->    {"type": "pointer", "x":, "y":, "inside":} [m, table]
                                             {"type": "key", "key": "start"}
                           <-------------    {"type": "scene", ...} once, then {"type": "view", ...}

The server listens on loopback only, and every request needs the random token of the printed
address. A closed tab, a lost connection and a pointer outside the picture all mean: nobody holds
the tool.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

import numpy as np
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from hardware.teleop.device import DeviceReading, Key, Keys, Surroundings, TablePoint, View
from robolearn import pusht
from robolearn.errors import ConfigError, SpecMismatchError

KEYS: tuple[Key, ...] = get_args(Key)
# The page repeats the pointer this often while it is inside, so that silence means a lost tab.
HEARTBEAT_S = 0.1
CLOSE_S = 1.0
_NOBODY = DeviceReading(0, present=False, clutch=False)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrowserConfig:
    """A page on this computer."""

    # Port of the page (0: any free one).
    port: int = 0

    @property
    def keys(self) -> Keys:
        """The page has them."""
        return "own"

    def build(self, around: Surroundings) -> BrowserDevice:
        """Serve the page and tell its address; it draws Push-T alone."""
        if around.task != "pusht":
            raise SpecMismatchError(
                f"the page draws Push-T alone, not '{around.task}': its pointer is a point on the"
                " table. Use --agent keyboard here, or another device"
            )
        params = {pusht.TASK_PARAMS: around.task_params or {}}
        device = BrowserDevice(self.port, pusht.recorded_goal(params))
        around.on_page(device.url)
        return device


class BrowserDevice:
    """Serves the page at :attr:`url` until :meth:`close`."""

    name = "browser"
    # The page repeats its pointer every HEARTBEAT_S.
    lease_s = 0.5

    def __init__(
        self, port: int = 0, goal: pusht.Pose = pusht.GOAL, host: str = "127.0.0.1"
    ) -> None:
        # Where the page draws the T's goal.
        self._goal = goal
        self._token = secrets.token_urlsafe(18)
        self._changed = threading.Condition()
        self._view: View | None = None
        self._version = 0
        self._closed = False
        self._reading = _NOBODY
        self._owner: ServerConnection | None = None
        self._pressed: list[Key] = []
        self._connections: set[ServerConnection] = set()
        try:
            self._server: Server = serve(
                self._talk, host, port, process_request=self._answer, max_size=4096
            )
        except OSError as error:
            raise ConfigError(
                f"cannot serve the page on {host}:{port}: {error.strerror or error};"
                " choose another --port, or 0 for any free one"
            ) from error
        self.port = int(self._server.socket.getsockname()[1])
        self.url = f"http://{host}:{self.port}/?token={self._token}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="teleop-page", daemon=True
        )
        self._thread.start()

    @property
    def connected(self) -> bool:
        """Whether a page is open."""
        with self._changed:
            return bool(self._connections)

    def begin(self, opening: float | None) -> None:
        """The pointer is absolute: nothing to prepare."""
        del opening

    def poll(self) -> DeviceReading:
        """The newest pointer; never blocks."""
        with self._changed:
            return self._reading

    def pressed(self) -> tuple[Key, ...]:
        """Keys pressed since the last call, oldest first."""
        with self._changed:
            pressed, self._pressed = tuple(self._pressed), []
        return pressed

    def show(self, view: View) -> None:
        """Hand the view to all open pages; a slow page skips views."""
        with self._changed:
            self._view, self._version = view, self._version + 1
            self._changed.notify_all()

    def close(self) -> None:
        """Stop serving; safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            # Open pages get the last view before they are closed.
            self._changed.wait_for(lambda: not self._connections, timeout=CLOSE_S)
            connections = tuple(self._connections)
        for connection in connections:
            connection.close()
        self._server.shutdown()
        self._thread.join()

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        url = urlsplit(request.path)
        given = parse_qs(url.query).get("token", [""])[0]
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return connection.respond(
                HTTPStatus.FORBIDDEN, "Open the address that 'robolearn collect' printed.\n"
            )
        if url.path == "/ws":
            return self._refused_origin(connection, request)
        if url.path == "/":
            return _page()
        return connection.respond(HTTPStatus.NOT_FOUND, "There is only one page here: /\n")

    def _refused_origin(self, connection: ServerConnection, request: Request) -> Response | None:
        """A page from elsewhere that learned the token must not drive the tool; a program that is
        no browser tells no origin.
        """
        origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
        if origin is None or urlsplit(origin).netloc == host:
            return None
        log.warning("a page of %s was refused", origin[:100])
        return connection.respond(HTTPStatus.FORBIDDEN, "Only the page served here may connect.\n")

    def _talk(self, connection: ServerConnection) -> None:
        with self._changed:
            self._connections.add(connection)
        sender = threading.Thread(
            target=self._send_views, args=(connection,), name="teleop-views", daemon=True
        )
        sender.start()
        try:
            for message in connection:
                self._hear(connection, message)
        except ConnectionClosed:
            log.debug("page closed without saying goodbye")
        finally:
            with self._changed:
                self._connections.discard(connection)
                if self._owner is connection:
                    self._reading, self._owner = _NOBODY, None
                self._changed.notify_all()
            sender.join()

    def _send_views(self, connection: ServerConnection) -> None:
        sent = -1
        with contextlib.suppress(ConnectionClosed):
            connection.send(json.dumps(scene_message(self._goal)))
            while (news := self._news(connection, sent)) is not None:
                view, sent = news
                connection.send(json.dumps({"type": "view", **dataclasses.asdict(view)}))
            connection.close()

    def _news(self, connection: ServerConnection, sent: int) -> tuple[View, int] | None:
        """Wait for a view newer than ``sent``; None when the page or the device is closed."""
        with self._changed:
            while connection in self._connections:
                if self._view is not None and self._version != sent:
                    return self._view, self._version
                if self._closed:
                    break
                self._changed.wait()
        return None

    def _hear(self, connection: ServerConnection, message: str | bytes) -> None:
        try:
            raw: dict[str, Any] = json.loads(message)
            kind = raw["type"]
            if kind == "pointer":
                point = TablePoint(np.array([float(raw["x"]), float(raw["y"])]))
                inside, now = bool(raw["inside"]), time.monotonic_ns()
                with self._changed:
                    self._owner = connection
                    self._reading = DeviceReading(now, True, inside, point)
            elif kind == "key" and raw["key"] in KEYS:
                with self._changed:
                    self._pressed.append(raw["key"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            log.warning("ignored a message of the page: %s", error)


def scene_message(goal: pusht.Pose = pusht.GOAL) -> dict[str, Any]:
    """The fixed geometry of the workcell for the page (table frame, [m]), the T's goal with it."""
    bar, stem = pusht.tee_polygons()
    return {
        "type": "scene",
        "size": pusht.TABLE_SIZE_M,
        "tool_radius": pusht.TOOL_RADIUS_M,
        "tee": [bar.tolist(), stem.tolist()],
        "goal": list(goal),
        "success": pusht.SUCCESS_COVERAGE,
        "heartbeat_s": HEARTBEAT_S,
    }


def _page() -> Response:
    body = resources.files("hardware.teleop.devices").joinpath("page.html").read_bytes()
    headers = Headers()
    headers["Content-Type"] = "text/html; charset=utf-8"
    headers["Content-Length"] = str(len(body))
    headers["Cache-Control"] = "no-store"
    headers["Connection"] = "close"
    headers["Referrer-Policy"] = "no-referrer"
    headers["Content-Security-Policy"] = (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
        " connect-src 'self'; img-src data:; frame-ancestors 'none'"
    )
    return Response(HTTPStatus.OK.value, HTTPStatus.OK.phrase, headers, body)
