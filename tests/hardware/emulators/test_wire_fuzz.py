"""What a network may carry into emulators and drivers: noise, damaged and absurd messages.

``pytest tests/hardware/emulators/test_wire_fuzz.py -m slow -s`` sends 100,000 messages into each
parser and prints how much memory the process grew by.
"""

import gc
import http.client
import io
import json
import random
import socket
import struct
import time
from collections.abc import Callable

import cv2
import numpy as np
import psutil
import pytest

from hardware.devices.camera import StreamConfig
from hardware.drivers.cameras.mjpeg import MjpegConfig
from hardware.drivers.ur import watch as ur_watch
from hardware.emulators import mjpeg
from hardware.emulators.lab import admin as admin_module
from hardware.emulators.lab.workcell import DevicesConfig, VirtualLab
from hardware.emulators.loop import Connection, EmulatorLoop
from hardware.emulators.plant import KinematicPlant
from hardware.emulators.tracker import TrackerPacket, encode_packet
from hardware.emulators.ur import controller as ur_module
from hardware.wire import rtde
from robolearn.errors import RobotConnectionError, StaleSignalError
from tests.hardware.devices.test_tracker import Stream
from tests.hardware.lab import HOME, address

COUNT = pytest.mark.parametrize(
    "count",
    [1500, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
)
GROWTH = 30 << 20
TOKEN = "t" * 20


@pytest.fixture
def memory(request):
    """Fails a test whose process grew by more than 30 MiB."""
    process = psutil.Process()
    gc.collect()
    before, start = process.memory_info().rss, time.monotonic()
    yield
    gc.collect()
    grown, seconds = process.memory_info().rss - before, time.monotonic() - start
    print(f" {request.node.name}: {grown / 2**20:+.1f} MiB, {seconds:.0f} s")
    assert grown < GROWTH


class Pipe(socket.socket):
    """A socket that has received some bytes and no more."""

    def __init__(self, data=b""):
        self.data = data

    def recv(self, size, flags=0, /):
        out, self.data = self.data[:size], self.data[size:]
        if not out:
            raise BlockingIOError
        return out

    def sendall(self, data, flags=0, /):
        pass

    def close(self):
        pass


class Peer(Connection):
    """A client of an emulator, without a socket."""

    def __init__(self, loop, sock, on_bytes, buffer_limit=0):
        self.open, self.paused, self.inbox = True, False, bytearray()
        self.sent, self.last = 0, b""
        self.feed = lambda data: on_bytes(self, data)
        made.append(self)

    def send(self, data):
        self.sent += len(data)
        self.last = data
        return self.open

    def close(self):
        self.open = False

    def pause(self):
        pass

    resume = pause


made: list[Peer] = []
# What each server does with a new client, by the server's name.
doors: dict[str, Callable[[socket.socket], None]] = {}


@pytest.fixture
def plant():
    return KinematicPlant(np.array(HOME), {"block": np.zeros(3)})


@pytest.fixture
def lab(monkeypatch, plant):
    """A lab without a thread, whose connections are peers."""
    for module in (ur_module, admin_module):
        monkeypatch.setattr(module, "Connection", Peer)
    listen = EmulatorLoop.listen

    def noted(loop, address, port, accept, what):
        doors[what] = accept
        return listen(loop, address, port, accept, what)

    monkeypatch.setattr(EmulatorLoop, "listen", noted)
    lab = VirtualLab(plant, DevicesConfig(), address=address(45), token=TOKEN, seed=0)
    yield lab
    lab.close()
    made.clear()


def peer(accept):
    """The newest connection of a server, a new one where that was closed."""
    if not made or not made[-1].open:
        made.clear()
        accept(Pipe())
    return made[-1]


def turn(lab, plant, k):
    """One tick."""
    now_ns = time.monotonic_ns()
    lab.robot.control(now_ns, 1)
    plant.step(0.002)
    lab.robot.publish(now_ns)
    if lab.robot.status.protective and k % 500 == 0:
        lab.robot.unlock(force=True)


def damaged(rng, good):
    """A good message, or one with bytes changed, cut, doubled or put in; or noise."""
    kind, data = rng.randrange(6), bytearray(good)
    at = rng.randrange(len(data))
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 200))
    if kind == 1:
        data[at] = rng.randrange(256)
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        data[at:at] = rng.randbytes(rng.randrange(1, 8))
    elif kind == 4:
        data += data[at:]
    return bytes(data)


def rtde_messages(rng):
    names = [*rtde.TYPES, "input_int_register_0", "input_double_register_3", "nonsense", ""]
    recipe = ",".join(rng.choices(names, k=rng.randrange(1, 9))).encode()
    registers = ["input_int_register_0", *[f"input_double_register_{i}" for i in range(11)]]
    values = [rng.choice([0.0, 1.5, np.nan, np.inf, 1e308, -7.0]) for _ in range(11)]
    command = rng.choice([*range(70), 255, -1, 2**31 - 1])
    bodies = {
        rtde.VERSION: struct.pack(">H", rng.randrange(4)),
        rtde.CONTROLLER: b"",
        rtde.OUTPUTS: struct.pack(">d", rng.choice([500.0, 0.0, -1.0, np.nan, 1e9])) + recipe,
        rtde.INPUTS: rng.choice([recipe, ",".join(registers).encode()]),
        rtde.START: b"",
        rtde.PAUSE: b"",
        rtde.DATA: struct.pack(">Bi11d", rng.randrange(1, 4), command, *values),
        rng.randrange(256): rng.randbytes(rng.randrange(40)),
    }
    kind = rng.choice(list(bodies))
    return rtde.frame(kind, bodies[kind])


@COUNT
@pytest.mark.parametrize("server", ["RTDE", "dashboard server", "script server"])
def test_the_ur_controller_survives_what_its_ports_may_carry(lab, plant, server, count, memory):
    rng = random.Random(1)
    robot, accept = lab.robot, doors[server]
    words = ["stop", "unlock protective stop", "power off", "power on", "brake release", "quit"]
    words += ["robotmode", "programstate", "PolyscopeVersion", "é" * 300]
    sent = 0
    for k in range(count):
        if server == "RTDE":
            data = damaged(rng, rtde_messages(rng))
        elif server == "dashboard server":
            data = damaged(rng, rng.choice(words).encode() + b"\n")
        else:
            data = damaged(rng, b"def prog():\n  servoj(1)\nend\n")
        client = peer(accept)
        client.feed(data)
        sent += client.sent
        assert len(client.inbox) <= ur_module.SCRIPT_LIMIT
        if k % 20 == 0:
            turn(lab, plant, k)
            assert len(robot.log.events) <= 10_000
            assert len(robot._clients) + len(robot._others) <= 3 * robot.config.max_clients
    assert (sent > count) is (server != "script server")
    assert np.isfinite(plant.joint_positions()).all()


def request_line(rng, operations):
    odd = [None, True, -1, 0.5, 2**70, 10**400, np.nan, np.inf, "x", "block", [], {}, [1, 2, 3]]
    kinds = ["protective_stop", "unlock", "delay", "overload", "garbage", "hang", "drop_links"]
    line = {"token": rng.choice([TOKEN] * 9 + ["no"]), "op": rng.choice([*operations, "what"])}
    keys = ["kind", "name", "pose", "since_ns", "limit", "seconds", "amount", "size", "view"]
    for key in rng.sample([*keys, "width", "height", "camera"], rng.randrange(6)):
        line[key] = rng.choice([*odd, rng.choice(kinds), [rng.choice(odd)] * 3])
    return json.dumps(line).encode() + b"\n"


@COUNT
def test_the_labs_side_door_answers_or_closes(lab, plant, count, memory):
    rng = random.Random(2)
    door, answered = doors["lab admin channel"], 0
    for k in range(count):
        good = request_line(rng, ["place", "truth", "log", "fault", "stats", "picture"])
        client = peer(door)
        client.feed(rng.choice([good, damaged(rng, good)]))
        answered += client.last.startswith(b'{"ok": true')
        client.last = b""
        assert len(client.inbox) <= admin_module.LINE_LIMIT or not client.open
        if k % 20 == 0:
            turn(lab, plant, k)
    assert answered > count / 50
    assert np.isfinite(plant.joint_positions()).all()
    made.clear()
    client = peer(door)
    client.feed(b"x" * (2 * admin_module.LINE_LIMIT))
    assert not client.open


def test_who_says_nothing_at_the_labs_side_door_makes_room(lab):
    door = doors["lab admin channel"]
    line = json.dumps({"token": TOKEN, "op": "truth"}).encode() + b"\n"
    door(Pipe())
    known = made[-1]
    known.feed(line)
    for _ in range(3 * admin_module.MAX_CLIENTS):
        door(Pipe())
    assert known.open
    assert sum(client.open for client in made) == admin_module.MAX_CLIENTS
    for client in [c for c in made if c.open]:
        client.feed(line)
        assert client.last.startswith(b'{"ok": true')
    door(Pipe())
    assert len([c for c in made if c.open]) == admin_module.MAX_CLIENTS, "all are known: refused"


@COUNT
def test_the_tracker_stream_is_taken_or_refused(count, memory):
    stream, rng = Stream(), random.Random(3)
    try:
        for k in range(count):
            x, y, yaw = (rng.choice([0.1, -3.0, np.nan, np.inf, 1e300]) for _ in range(3))
            age_ns = rng.choice([0, 10**6, 10**9, -(10**10)])
            t_ns = max(0, time.monotonic_ns() - age_ns)
            name = rng.choice(["block", "block", "other"])
            good = encode_packet(TrackerPacket(rng.randrange(2**32), t_ns, name, (x, y, yaw)))
            stream.raw(damaged(rng, good))
            if k % 100 == 99:
                assert all(np.isfinite(p.pose).all() for p in stream.tracker.drain())
        counts = stream.tracker.counts
        assert counts.refused > count / 4
        assert counts.taken > count / 200
    finally:
        stream.close()


@COUNT
def test_the_watch_of_a_connecting_ur_tells_or_waits(count, memory, monkeypatch):
    rng, told = random.Random(4), 0
    stamps = b"".join(rtde.frame(rtde.DATA, struct.pack(">Bd", 1, t)) for t in (1.0, 1.1))
    start = rtde.frame(rtde.VERSION, b"\1") + rtde.frame(rtde.OUTPUTS, b"\1DOUBLE")
    good = start + rtde.frame(rtde.START, b"\1") + rtde.frame(rtde.TEXT, b"hello") + stamps
    monkeypatch.setattr(socket.socket, "connect_ex", lambda *_: 0)
    for _ in range(count):
        watch = ur_watch.URWatch("127.0.0.1", 1.0)
        watch.close()
        watch._socket, watch._connected = Pipe(damaged(rng, good)), True
        told += bool(watch.problem())
        assert len(watch._inbox) <= 65536
    assert count / 4 < told < count


class HttpSocket(Pipe):
    """The same for ``http.client``."""

    def makefile(self, *_):  # pyright: ignore[reportIncompatibleMethodOverride]
        return io.BufferedReader(io.BytesIO(self.data))


@COUNT
def test_a_camera_that_is_none_is_a_typed_error(count, memory, monkeypatch):
    rng, refused, pictures = random.Random(5), 0, 0
    jpeg = cv2.imencode(".jpg", np.zeros((24, 32, 3), np.uint8))[1].tobytes()
    part = b"--f\r\nContent-Length: %d\r\nX-Timestamp: 1.5\r\n\r\n%s\r\n" % (len(jpeg), jpeg)
    kind = b"Content-Type: multipart/x-mixed-replace; boundary=f\r\n"
    plain = b"HTTP/1.0 200 OK\r\n" + kind + b"\r\n" + part * 2
    size = b"%x\r\n" % len(part)
    pieces = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + kind + b"\r\n"
    pieces += (size + part + b"\r\n") * 2 + b"0\r\n\r\n"
    answers: list[bytes] = []

    def connect(self):
        self.sock = HttpSocket(answers.pop())

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    config, stream = MjpegConfig("http://127.0.0.1:1/top"), StreamConfig("top", 32, 24)
    for _ in range(count):
        head = rng.randrange(150)
        good = rng.choice([plain, pieces])
        answers.append(damaged(rng, good[:head]) + good[head:] if head else damaged(rng, good))
        try:
            source = config.build(stream)
        except RobotConnectionError:
            refused += 1
            continue
        try:
            for _ in range(3):
                pictures += source.read().image.ndim == 3
        except (RobotConnectionError, StaleSignalError):
            refused += 1
        source.close()
    assert refused > count / 4
    assert pictures > count / 20


@COUNT
def test_the_cameras_server_reads_one_request_of_bounded_length(count, memory):
    rng, served = random.Random(6), 0
    good = b"GET /top HTTP/1.0\r\nHost: camera\r\nAccept: multipart/x-mixed-replace\r\n\r\n"
    for _ in range(count):
        client = Pipe(rng.choice([damaged(rng, good), good * rng.randrange(1, 3)]))
        try:
            served += mjpeg._asked(client) is not None
        except BlockingIOError:
            # A request without an end: the server's time limit closes it.
            assert len(client.data) == 0
    assert served > count / 4
    assert mjpeg._asked(Pipe(b"GET " + b"x" * 100_000)) is None


def test_the_loop_serves_on_after_a_peer_that_stops_reading():
    loop = EmulatorLoop()
    server = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(server.getsockname())
    ours = server.accept()[0]
    server.close()
    peer = Connection(loop, ours, lambda *_: None, 1000)
    while peer.send(b"x" * 500):
        assert peer.unsent <= 1000
    assert peer.lost == 1
    assert peer.unsent <= 1000
    peer.pause()
    assert not peer.send(b"x")
    peer.resume()
    peer.close()
    theirs.close()
    loop.close()
