"""A page without a browser: it says what the page's scripts say, and looks at what comes."""

import contextlib
import json
import threading
import time

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from hardware.teleop.page.messages import BEAT_S, PICTURE_HEAD, VERSION
from robolearn.geometry import quat_from_rotation
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from tests.waiting import paced, wait_until

POSE = SignalSpec("tool/pose", (7,))
WIDTH = SignalSpec("gripper/width", (1,))
CAMERA = SignalSpec("top/image", (480, 640, 3), dtype="uint8")
ARM = EmbodimentSpec(
    "arm",
    (POSE, WIDTH, SignalSpec("arm/joint_position", (6,)), CAMERA),
    (
        ActionSpec("tool/xyz_yaw", (4,), low=(-0.3, -0.4, 0.0, -3.0), high=(0.3, 0.4, 0.5, 3.0)),
        ActionSpec("gripper/width", (1,), low=(0.0,), high=(0.1,)),
    ),
    20.0,
)
# Also leans its tool over.
SIX_AXES = EmbodimentSpec(
    "arm",
    ARM.signals,
    (
        ActionSpec(
            "tool/pose", (7,), low=(-0.3, -0.4, 0.0, *[-1.0] * 4), high=(0.3, 0.4, 0.5, *[1.0] * 4)
        ),
        ARM.actions[1],
    ),
    20.0,
)


def ws_url(url):
    return url.replace("http", "ws", 1).replace("/?", "/ws?")


class FakePage:
    """One open page; ``clock_ms`` is its own clock."""

    def __init__(self, socket) -> None:
        self.socket, self.seq, self.offset_ms = socket, 0, 5e6
        # Numbers and clock must go out in order, whoever sends.
        self._lock = threading.Lock()

    @property
    def clock_ms(self) -> float:
        return 1e3 * time.monotonic() + self.offset_ms

    def say(self, kind, **values) -> None:
        self.socket.send(json.dumps({"v": VERSION, "type": kind, **values}))

    def hand(self, held=True, late_ms=0.0, away=False, **motion) -> None:
        motion = motion or {"twist": [0.0] * 6}
        with self._lock:
            self.seq += 1
            t_ms = self.clock_ms - late_ms
            self.say("hand", seq=self.seq, t_ms=t_ms, held=held, away=away, **motion)

    def point(self, x, y, held=True) -> None:
        self.hand(held, xy=[x, y])

    def twist(self, *values) -> None:
        self.hand(twist=[float(v) for v in values] + [0.0] * (6 - len(values)))

    def hear(self, kind):
        """The next message of a kind; others are passed over, pictures as (camera, JPEG)."""
        while True:
            data = self.socket.recv(timeout=10)
            if isinstance(data, bytes):
                _, camera, _ = PICTURE_HEAD.unpack_from(data)
                if kind == "picture":
                    return camera, data[PICTURE_HEAD.size :]
            elif (message := json.loads(data))["type"] == kind:
                return message

    def closed(self) -> int:
        """Reads until the program closes the page; the code that it gives."""
        try:
            while True:
                self.socket.recv(timeout=10)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 0

    def driving(self, expected=True):
        while (role := self.hear("role"))["driving"] is not expected:
            pass
        return role


@contextlib.contextmanager
def page(device, *, driving=True, **options):
    """Opens a page, and waits until it knows whether it drives."""
    with connect(ws_url(device.url), **options) as socket:
        opened = FakePage(socket)
        opened.driving(driving)
        yield opened


class OpenPage:
    """A page that somebody looks at: it tells what the hand does at every beat and what was seen,
    as the browser's does, and calls ``on_view`` with every view (a dictionary).
    """

    def __init__(self, socket, on_view, beat_s) -> None:
        self.page, self._beat_s = FakePage(socket), beat_s
        self._on_view = on_view
        self._motion = {"twist": [0.0] * 6}
        self.driving, self.pictures, self._closed = False, 0, False
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._look, self._beat)
        ]
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self.driving)

    def deflect(self, twist) -> None:
        self._motion = {"twist": [float(v) for v in np.clip(twist, -1.0, 1.0)]}

    def turn(self, R) -> None:
        """The device itself is held so, and its button is."""
        self._motion = {"turn": [float(v) for v in quat_from_rotation(R)]}

    def say(self, kind, **values) -> None:
        self.page.say(kind, **values)

    def close(self) -> None:
        self._closed = True
        self.page.socket.close()
        for thread in self._threads:
            thread.join()

    def _beat(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            for _ in paced(1.0 / self._beat_s):
                if self._closed:
                    break
                self.page.hand(**self._motion)

    def _look(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                data = self.page.socket.recv()
                if isinstance(data, bytes):
                    self.pictures += 1
                    self.say("seen", camera=PICTURE_HEAD.unpack_from(data)[1])
                    continue
                message = json.loads(data)
                if message["type"] == "role":
                    self.driving = message["driving"]
                elif message["type"] == "view":
                    self.say("seen")
                    self._on_view(message)


@contextlib.contextmanager
def open_page(url, on_view=lambda view: None, *, beat_s=BEAT_S, **options):
    """Somebody who opens the page, and drives."""
    with connect(ws_url(url), **options) as socket:
        opened = OpenPage(socket, on_view, beat_s)
        try:
            yield opened
        finally:
            opened.close()
