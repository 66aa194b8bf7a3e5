"""Opens the lab's side door: what a person in the room would do, over newline-delimited JSON.

TCP on loopback, one request per line: ``{"token": ..., "op": ..., ...}``; the answer is one line,
``{"ok": true, ...}`` or ``{"ok": false, "error": "..."}``. A line has at most :data:`LINE_LIMIT`
bytes. Policies and drivers never use it; scoring, resets and fault tests do.

This file holds the server's line handling and :class:`LabClient`; the operations themselves are in
``hardware/emulators/lab/workcell.py``.
"""

from __future__ import annotations

import base64
import hmac
import json
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from hardware.emulators.loop import Connection, EmulatorLoop
from robolearn.arms.shapes import JointRows, Joints
from robolearn.errors import DataError, RobotConnectionError, RobotError, did_you_mean
from robolearn.geometry import ObjectPose
from robolearn.shapes import Picture, Times

log = logging.getLogger(__name__)

LINE_LIMIT = 65536
REPLY_LIMIT = 64 << 20
MAX_CLIENTS = 8
# Numbers of a pose beyond this are none (JSON's integers have no end, its floats may be NaN).
_FAR = 1e9
# How far the norm of a quaternion may be from 1.
_NORM_SLACK = 0.05


class Reply:
    """The answer to one request; it may be given later, by :meth:`ok` or :meth:`refuse`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ok(self, answer: Mapping[str, Any]) -> None:
        """Done, with these values."""
        self._connection.send(json.dumps({"ok": True, **answer}).encode() + b"\n")

    def refuse(self, problem: str) -> None:
        """Not done, and why."""
        self._connection.send(json.dumps({"ok": False, "error": problem}).encode() + b"\n")


Operation = Callable[[Mapping[str, Any], Reply], None]


class AdminServer:
    """Dispatches requests to ``operations[op](request, reply)``; a reply may come later."""

    def __init__(self, token: str, operations: Mapping[str, Operation]) -> None:
        self._token, self._operations = token, operations
        self._connections: list[Connection] = []
        # Those that have named the token.
        self._known: set[Connection] = set()
        self._loop: EmulatorLoop | None = None

    def serve(self, loop: EmulatorLoop, address: str, port: int) -> int:
        """Listen; port 0 takes any free one. Returns the port."""
        self._loop = loop
        return loop.listen(address, port, self._accept, "lab admin channel")

    def _accept(self, sock: socket.socket) -> None:
        self._connections = [c for c in self._connections if c.open]
        self._known.intersection_update(self._connections)
        if len(self._connections) >= MAX_CLIENTS:
            self._make_room()
        if self._loop is None or len(self._connections) >= MAX_CLIENTS:
            sock.close()
            return
        self._connections.append(Connection(self._loop, sock, self._on_bytes, REPLY_LIMIT))

    def _make_room(self) -> None:
        """Who has said nothing yet may hold no place that somebody else needs."""
        for connection in self._connections:
            if connection not in self._known:
                connection.close()
                self._connections.remove(connection)
                return

    def _on_bytes(self, connection: Connection, data: bytes) -> None:
        *lines, rest = (connection.inbox + data).split(b"\n")
        connection.inbox = rest
        for line in lines:
            if connection.open:
                self._handle(connection, bytes(line))
        if len(rest) > LINE_LIMIT:
            connection.close()

    def _handle(self, connection: Connection, line: bytes) -> None:
        reply = Reply(connection)
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            reply.refuse("not a line of JSON")
            connection.close()
            return
        token = request.get("token") if isinstance(request, dict) else None
        if not isinstance(token, str) or not hmac.compare_digest(
            token.encode(errors="replace"), self._token.encode()
        ):
            reply.refuse("wrong token: the lab prints its token in the line 'ready'")
            connection.close()
            return
        self._known.add(connection)
        op = request.get("op")
        operation = self._operations.get(op) if isinstance(op, str) else None
        if operation is None:
            known = sorted(self._operations)
            reply.refuse(f"no operation {op!r}.{did_you_mean(str(op), known)} There are: {known}")
            return
        try:
            operation(request, reply)
        except (RobotError, DataError) as error:
            reply.refuse(str(error))


def number(request: Mapping[str, Any], key: str, low: float, high: float) -> float:
    """A finite number of a request within bounds; raises :class:`DataError`."""
    value = request.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise DataError(f"'{key}' must be a number in [{low:g}, {high:g}], got {value!r}")
    return float(value)


def object_pose(request: Mapping[str, Any], key: str) -> ObjectPose:
    """A pose ``[x, y, yaw]`` or ``[x, y, z, qw, qx, qy, qz]`` of a request; raises
    :class:`DataError`.
    """
    value = request.get(key)
    if not (
        isinstance(value, list)
        and len(value) in (3, 7)
        and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value)
        and all(-_FAR <= v <= _FAR for v in value)
    ):
        raise DataError(
            f"'{key}' must be [x, y, yaw] in m, m, rad, or [x, y, z, qw, qx, qy, qz]; got {value!r}"
        )
    pose = np.array(value, dtype=np.float64)
    if len(pose) == 7 and abs(float(np.linalg.norm(pose[3:])) - 1.0) > _NORM_SLACK:
        raise DataError(f"'{key}': the quaternion {value[3:]} is no rotation, its norm is not 1")
    return pose


@dataclass(frozen=True, slots=True)
class LabEvent:
    """Something that happened at the controller, at ``t_ns`` (monotonic clock of this host)."""

    t_ns: int
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class LabLog:
    """What the controller saw: arrival times ``[n]`` and joint targets ``[n, joints]`` of
    set-points (the newest ones), events, and whether the arm moves now.

    ``count`` counts all set-points since the lab started.
    """

    count: int
    moving: bool
    setpoint_t_ns: Times
    setpoint_q: JointRows
    events: tuple[LabEvent, ...]

    def times(self, kind: str) -> list[int]:
        """When events of a kind happened [ns]."""
        return [e.t_ns for e in self.events if e.kind == kind]


@dataclass(frozen=True, slots=True)
class LabState:
    """The truth at ``t_ns``: joint angles ``q [6]``, and poses of objects, ``[3]`` on the table
    or ``[7]`` in space (``hardware.emulators.plant.Plant``).
    """

    t_ns: int
    q: Joints
    poses: Mapping[str, ObjectPose]


class LabClient:
    """Blocking client of the side door; one request at a time. Use as a context manager."""

    def __init__(self, address: str, port: int, token: str, timeout_s: float = 20.0) -> None:
        self._token = token
        try:
            self._socket = socket.create_connection((address, port), timeout=timeout_s)
        except OSError as error:
            raise RobotConnectionError(
                f"no lab answers at {address}:{port} ({error}); start one with 'robolearn lab'"
            ) from error
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> LabClient:  # noqa: PYI034  (checked by beartype in tests)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        self._reader.close()
        self._socket.close()

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """One request. Raises :class:`RobotError` with the lab's reason when it is refused."""
        line = json.dumps({"token": self._token, "op": op, **arguments}).encode() + b"\n"
        try:
            self._socket.sendall(line)
            answer = self._reader.readline(REPLY_LIMIT)
        except OSError as error:
            raise RobotConnectionError(f"the lab does not answer '{op}': {error}") from error
        if not answer.endswith(b"\n"):
            raise RobotConnectionError(f"the lab closed the connection during '{op}'")
        reply = json.loads(answer)
        if not reply.pop("ok"):
            raise RobotError(f"lab, {op}: {reply['error']}")
        return reply

    def place(self, name: str, pose: Sequence[float]) -> None:
        """Put an object at rest at ``(x, y, yaw)`` [m, m, rad] on the table, or at ``(x, y, z, qw,
        qx, qy, qz)``; refused while the arm moves.
        """
        self.call("place", name=name, pose=[float(v) for v in pose])

    def truth(self) -> LabState:
        """Where everything really is; for scoring only."""
        reply = self.call("truth")
        poses = {k: np.array(v) for k, v in reply["poses"].items()}
        return LabState(reply["t_ns"], np.array(reply["q"]), poses)

    def picture(self, view: str = "top", width: int = 480, height: int = 480) -> Picture:
        """A rendered picture ``[height, width, 3]``; ``view`` is ``top`` or ``perspective``."""
        reply = self.call("picture", view=view, width=width, height=height)
        shape = reply["shape"]
        return np.frombuffer(base64.b64decode(reply["rgb"]), dtype=np.uint8).reshape(shape)

    def log(self, since_ns: int = 0, limit: int = 20_000) -> LabLog:
        """Set-points that reached the controller after ``since_ns`` (newest ``limit``), events."""
        reply = self.call("log", since_ns=since_ns, limit=limit)
        t_ns, q = _unpacked(reply)
        return LabLog(
            count=reply["count"],
            moving=reply["moving"],
            setpoint_t_ns=t_ns,
            setpoint_q=q,
            events=tuple(LabEvent(*e) for e in reply["events"]),
        )

    def reference(self, since_ns: int = 0) -> tuple[Times, JointRows]:
        """What the servos followed after ``since_ns``: times ``[n]`` and joint angles
        ``[n, joints]`` of the controller's ticks, which are one period apart.
        """
        return _unpacked(self.call("reference", since_ns=since_ns))

    def by_hand(self, doing: str, camera: str, thing: str = "") -> None:
        """Let a person carry a camera (``scan``, ``lens``), or turn the board with an object on it
        before one (``turntable``).
        """
        self.call("by_hand", doing=doing, camera=camera, object=thing)

    def fault(self, kind: str, **arguments: float | str) -> None:
        """Cause a fault: ``protective_stop``, ``emergency_stop``, ``unlock``, ``drop_links``,
        ``hang`` and ``delay`` (``seconds``), ``overload`` (``amount`` [A]), ``garbage`` (``size``),
        ``clock_jump`` (``seconds``), ``slow`` (``amount`` [s], ``seconds``),
        ``tracker_blind`` (``seconds``), ``camera_frozen`` and the other faults of
        ``CameraEmulator.fault`` (``camera``, ``seconds``, ``amount``).
        """
        self.call("fault", kind=kind, **arguments)


def _unpacked(reply: Mapping[str, Any]) -> tuple[Times, JointRows]:
    t_ns = np.frombuffer(base64.b64decode(reply["t_ns"]), dtype=np.int64)
    q = np.frombuffer(base64.b64decode(reply["q"]), dtype=np.float64)
    return t_ns, q.reshape(len(t_ns), q.size // max(1, len(t_ns)))
