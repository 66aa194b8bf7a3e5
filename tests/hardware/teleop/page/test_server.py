import asyncio
import base64
import contextlib
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

import cv2
import numpy as np
import pytest
from websockets.asyncio import client as asyncio_client
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import connect

from hardware.teleop.config import MappingConfig
from hardware.teleop.device import Curve, Look, Surroundings, Thing, View
from hardware.teleop.devices.browser import BrowserConfig, BrowserDevice
from hardware.teleop.mapping import Mapping
from hardware.teleop.page import server
from hardware.teleop.page.layout import layout_of
from hardware.teleop.page.server import (
    ALLOWED_AT_ONCE,
    MOST_CONNECTIONS,
    MOST_KEYS,
    MOST_PAGES,
)
from robolearn.errors import ConfigError
from robolearn.web import address
from tests.hardware.teleop.pages import ARM, FakePage, page, ws_url
from tests.mocks import observation
from tests.waiting import wait_until

LAYOUT = layout_of(Surroundings(task="pick_place", spec=ARM))
VIEW = View("running", Thing("tool", (0.1, 0.2, 0.3)), (Thing("cube", (0.0, 0.1, 0.02)),))


@pytest.fixture
def device():
    device = BrowserDevice(LAYOUT)
    yield device
    device.close()
    device.close()


def status_of(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


def test_a_connection_on_which_nobody_speaks_does_not_delay_the_end():
    device = BrowserDevice(LAYOUT)
    with socket.create_connection(("127.0.0.1", device.port)), page(device):
        began = time.monotonic()
        device.close()
        assert time.monotonic() - began < 5.0


def test_the_page_needs_the_token_and_its_own_name(device):
    status, headers = status_of(device.url)
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert f"connect-src ws://127.0.0.1:{device.port};" in policy
    assert "unsafe-inline" not in policy
    assert status_of(device.url.split("?")[0])[0] == 403
    assert status_of(device.url + "x")[0] == 403
    assert status_of(device.url.replace("/?", "/etc?"))[0] == 404
    # A foreign name that leads here (DNS rebinding).
    assert status_of(device.url, Host="elsewhere.example")[0] == 421
    with pytest.raises(InvalidStatus):
        connect(ws_url(device.url) + "x")


REQUESTS = {
    b"": b"",
    b"\x16\x03\x01garbage\r\n\r\n": b"",
    b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n": b"403",
    b"GET /?token=%ff%00 HTTP/1.1\r\nHost: localhost\r\n\r\n": b"403",
    b"GET /?TOKEN HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n": b"421",
    b"GET /ws?TOKEN HTTP/1.1\r\nHost: localhost\r\n\r\n": b"426",
}


@pytest.mark.parametrize("data", REQUESTS, ids=range(len(REQUESTS)))
def test_a_hostile_request_does_not_end_the_server(device, data, caplog):
    token = device.url.partition("?")[2].encode()
    with socket.create_connection(("127.0.0.1", device.port), 10) as raw:
        raw.sendall(data.replace(b"TOKEN", token))
        if data:
            assert REQUESTS[data] in raw.recv(100)[:15]
    with page(device):
        pass
    assert not [r for r in caplog.records if r.exc_info and r.levelname == "ERROR"]


def test_a_page_from_elsewhere_is_refused_even_with_the_token(device):
    with pytest.raises(InvalidStatus) as refused:
        connect(ws_url(device.url), origin="http://elsewhere.example")
    assert refused.value.response.status_code == 403
    with page(device, origin=f"http://127.0.0.1:{device.port}"):
        pass


def test_hands_keys_and_the_gripper(device):
    assert not device.poll().present
    device.begin(0.9)
    with page(device) as ours:
        ours.twist(0.5, -1.0)
        wait_until(lambda: device.poll().clutch)
        assert device.poll().motion.twist.tolist() == [0.5, -1.0, 0, 0, 0, 0]
        assert device.poll().gripper == 1.0
        ours.say("key", key="start")
        ours.say("gripper", opening=0.0)
        wait_until(lambda: device.poll().gripper == 0.0)
        assert device.pressed() == ("start",)
        assert device.pressed() == ()
        ours.hand(held=False)
        wait_until(lambda: not device.poll().clutch)
        assert device.poll().present
    # A closed tab lets go of the tool.
    wait_until(lambda: not device.poll().present)
    wait_until(lambda: not device.connected)


def test_a_second_operator_watches(device):
    with page(device) as first:
        first.twist(0.5)
        wait_until(lambda: device.poll().clutch)
        with page(device, driving=False) as second:
            second.twist(-1.0)
            second.say("key", key="quit")
            second.say("gripper", opening=1.0)
            second.say("claim")
            assert "Try again" in second.driving(expected=False)["why"]
            assert device.poll().motion.twist[0] == 0.5
            assert device.pressed() == ()
            # But whoever sees the arm may stop it.
            second.say("key", key="stop")
            wait_until(lambda: device.pressed() == ("stop",))
            # Both see the same.
            device.show(VIEW)
            assert first.hear("view")["things"] == second.hear("view")["things"]
            first.socket.close()
            assert "Nobody" in second.driving(expected=False)["why"]
            wait_until(lambda: not device.poll().present)
            second.say("claim")
            second.driving()


NONSENSE = (
    "nonsense",
    '{"v": 1, "type": "hand", "seq": 9, "t_ms": 0, "held": true, "away": false, "twist": [9]}',
)


@pytest.mark.parametrize("text", [*NONSENSE, b"\x00" * 100], ids=["text", "hand", "bytes"])
def test_a_page_without_sense_holds_nothing_and_stays_open(device, text):
    with page(device) as ours:
        ours.twist(1.0)
        wait_until(lambda: device.poll().clutch)
        ours.socket.send(text)
        wait_until(lambda: not device.poll().clutch)

        def held_again():
            ours.twist(0.0)
            return device.poll().clutch

        wait_until(held_again)


def test_a_point_does_not_drive_an_arm_in_space(device):
    with page(device) as ours:
        ours.twist(1.0)
        wait_until(lambda: device.poll().clutch)
        ours.point(0.1, 0.1)
        wait_until(lambda: not device.poll().clutch)


def test_old_hands_are_old_when_they_come(device):
    with page(device) as ours:
        ours.twist(0.0)
        wait_until(lambda: device.poll().clutch)
        fresh = device.poll().t_ns
        ours.hand(late_ms=800.0, twist=[1.0, 0, 0, 0, 0, 0])
        wait_until(lambda: device.poll().motion.twist[0] == 1.0)
        assert device.poll().t_ns < fresh


def test_a_page_that_falls_silent_lets_go_of_the_arm(device):
    mapping = Mapping(MappingConfig(), ARM, device.lease_s)
    at = np.array([0.1, 0.0, 0.2, 0.0, 1.0, 0.0, 0.0])
    here = observation(0, tool__pose=at, gripper__width=np.array([0.05]))
    mapping.reset(here)
    with page(device) as ours:

        def command(x):
            ours.twist(x)
            wait_until(lambda: device.poll().clutch and device.poll().motion.twist[0] == x)
            return mapping.command(device.poll(), here, 0.05)

        assert command(0.0).engaged
        assert command(1.0).engaged
        # The page is open, and says nothing more: a hidden tab, a frozen browser.
        silent = wait_until(lambda: mapping.command(device.poll(), here, 0.05).note, 1.0)
        assert silent == "the device is silent"
        # It comes back with the key still held.
        note = mapping.command(device.poll(), here, 0.05).note
        assert note == silent
        assert command(0.5).note == "let go of it first"
        assert command(0.0).engaged


def test_a_flood_is_closed(device):
    with page(device) as ours:
        ours.twist(1.0)
        wait_until(lambda: device.poll().clutch)
        with contextlib.suppress(ConnectionClosed):
            for _ in range(3 * ALLOWED_AT_ONCE):
                ours.say("key", key="marker")
        assert ours.closed() == 1008
        wait_until(lambda: not device.poll().present)
    assert len(device.pressed()) <= MOST_KEYS


def files():
    """How many this program has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_whoever_opens_connections_takes_no_files_from_the_program(monkeypatch, tmp_path, secure):
    """Nobody needs the token for that, and an episode that finds no file left is lost."""
    for limit in ("ASK_S", "HANDSHAKE_S"):
        monkeypatch.setattr(server, limit, 600.0)
    trusting = {}
    if secure:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        for module in (address, server):
            monkeypatch.setattr(module, "is_loopback", lambda host: False)
        trusting["ssl"] = ssl.create_default_context()
        trusting["ssl"].check_hostname, trusting["ssl"].verify_mode = False, ssl.CERT_NONE
    device = BrowserDevice(LAYOUT)
    with (
        contextlib.closing(device),
        contextlib.ExitStack() as opened,
        page(device, **trusting) as ours,
    ):
        before, count = files(), 3 * MOST_CONNECTIONS
        where = ("127.0.0.1", device.port)
        many = [opened.enter_context(socket.create_connection(where, 10.0)) for _ in range(count)]
        for late in many[MOST_CONNECTIONS:]:
            with contextlib.suppress(ConnectionResetError):
                assert late.recv(1) == b""
        # Both ends are this program's here.
        assert files() - before <= count + MOST_CONNECTIONS
        # Whoever drives goes on, and once those have gone somebody may come.
        ours.twist(0.5)
        wait_until(lambda: device.poll().clutch)
        opened.close()
        wait_until(lambda: comes_in(device, trusting))


def comes_in(device, trusting):
    try:
        with connect(ws_url(device.url), **trusting):
            return True
    except (OSError, InvalidHandshake):
        return False


def pieces(kind, count):
    """Frames of a client (RFC 6455, 5.2) that never become a message, masked by zeros."""
    first = {"ping": 0x89, "fragment": 0x00}[kind]
    begin = b"" if kind == "ping" else bytes([0x01, 0x80, 0, 0, 0, 0])
    return begin + bytes([first, 0x80, 0, 0, 0, 0]) * count


@pytest.mark.parametrize("kind", ["ping", "fragment"])
def test_frames_that_are_no_message_are_a_flood_too(device, kind, caplog):
    """No limit on messages counts them, and empty pieces have no length that adds up."""
    with page(device) as ours:
        ours.twist(1.0)
        wait_until(lambda: device.poll().clutch)
        with contextlib.suppress(OSError):
            ours.socket.socket.sendall(pieces(kind, 10 * ALLOWED_AT_ONCE))
        wait_until(lambda: not device.poll().present)
    assert sum("too many pieces" in r.message for r in caplog.records) == 1


def test_so_many_pages_and_no_more(device):
    with contextlib.ExitStack() as opened:
        for number in range(MOST_PAGES):
            opened.enter_context(page(device, driving=number == 0))
        extra = opened.enter_context(connect(ws_url(device.url)))
        assert FakePage(extra).closed() == 1013


def test_too_long_a_message_ends_the_page(device):
    with page(device) as ours:
        ours.twist(1.0)
        ours.socket.send("x" * 5000)
        assert ours.closed() == 1009
    wait_until(lambda: not device.poll().present)


def test_a_frame_that_says_it_is_huge_is_not_waited_for(device):
    with page(device) as ours:
        ours.twist(1.0)
        wait_until(lambda: device.poll().clutch)
        # A text of 100 MB, of which nothing comes.
        head = b"\x81\xff" + (100_000_000).to_bytes(8, "big") + b"\0" * 4
        ours.socket.socket.sendall(head)
        assert ours.closed() == 1009
        wait_until(lambda: not device.poll().present)
    with page(device):
        pass


def test_a_view_is_told_when_the_last_one_was_seen(device):
    with page(device) as ours:
        device.show(VIEW)
        assert ours.hear("view")["step"] == 0
        for step in range(1, 6):
            device.show(View("running", step=step))
        ours.say("seen")
        # The newest alone.
        assert ours.hear("view")["step"] == 5


def test_pictures_are_the_newest_ones(device):
    def shown(grey):
        picture = np.full((480, 640, 3), grey, np.uint8)
        device.show(View("running", pictures={"top": picture}))

    def grey_of(data):
        return round(float(cv2.imdecode(np.frombuffer(data, np.uint8), 0).mean()))

    # What was shown before the first page came is there for it.
    shown(10)
    with page(device) as ours:
        camera, data = ours.hear("picture")
        assert (camera, grey_of(data)) == (0, 10)
        for grey in range(50, 200):
            shown(grey)
        # One is on its way at most, whatever was shown meanwhile.
        came = 0
        while grey_of(data) != 199:
            ours.say("seen", camera=0)
            data = ours.hear("picture")[1]
            came += 1
        assert came < 100


def test_an_attempt_that_is_over_is_told_in_small_once(device):
    picture = np.full((54, 72, 3), 120, np.uint8)
    look = Look((Curve("joint 1", (0.0, float("nan"), 1.0)),), (("top", (picture, picture)),))
    device.show(View("review", look=look))
    with page(device) as ours:
        told = ours.hear("look")
        assert told["curves"] == [{"name": "joint 1", "values": [0.0, None, 1.0]}]
        ((strip),) = told["strips"]
        assert strip["camera"] == "top"
        jpegs = [base64.b64decode(text) for text in strip["pictures"]]
        assert all(cv2.imdecode(np.frombuffer(j, np.uint8), 1).shape == (54, 72, 3) for j in jpegs)
        # Neither the same one again nor one empty one after the other.
        other = Look((Curve("joint 2", ()),))
        heard = []
        for step, shown in enumerate((look, Look(), Look(), other, other), 1):
            device.show(View("review", step=step, look=shown))
            ours.say("seen")
            heard += looks_until(ours, step)
        assert heard == [[], ["joint 2"]]


def looks_until(ours, step):
    """Names of the curves of every attempt that is told until this view was."""
    looks = []
    while True:
        data = ours.socket.recv(timeout=10)
        message = {} if isinstance(data, bytes) else json.loads(data)
        if message.get("type") == "look":
            looks.append([curve["name"] for curve in message["curves"]])
        elif message.get("type") == "view":
            if message["step"] == step:
                return looks
            ours.say("seen")


def test_the_last_view_is_told_before_the_page_is_closed(device):
    with page(device) as ours:
        device.show(View("running", step=1))
        device.show(View("done", message="2 episodes saved."))
        device.close()
        while ours.hear("view")["phase"] != "done":
            pass
        assert ours.closed() == 1000


def test_a_busy_port_is_explained(device):
    with pytest.raises(ConfigError, match="choose another port"):
        BrowserDevice(LAYOUT, device.port)


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 99999), ("127.0.0.1", -3), ("a" * 80, 0), ("a\0b", 0)]
)
def test_where_nobody_can_listen_is_explained(host, port):
    with pytest.raises(ConfigError, match=r"cannot serve on .*an address that this computer has"):
        BrowserConfig(port=port, host=host).build(Surroundings(spec=ARM))


def test_a_tablet_talks_by_tls_to_the_address_that_the_certificate_names(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    # Loopback stands for an address in the network.
    monkeypatch.setattr(address, "is_loopback", lambda host: False)
    monkeypatch.setattr("hardware.teleop.page.server.is_loopback", lambda host: False)
    told = []
    around = Surroundings(write=told.append, on_page=told.append, spec=ARM)
    device = BrowserConfig(host="127.0.0.1").build(around)
    try:
        url, text = told
        assert url.startswith(f"https://127.0.0.1:{device.port}/?token=")
        assert device.fingerprint in text
        (pem,) = (tmp_path / "robolearn" / "page").iterdir()
        trusting = ssl.create_default_context(cafile=pem)
        with urllib.request.urlopen(url, context=trusting) as answer:
            policy = answer.headers["Content-Security-Policy"]
        assert f"connect-src wss://127.0.0.1:{device.port};" in policy
        asyncio.run(hold_by_tls(device, trusting))
        with pytest.raises(ssl.SSLCertVerificationError):
            asyncio.run(hold_by_tls(device, ssl.create_default_context()))
    finally:
        device.close()


async def hold_by_tls(device, trusting):
    # On one thread: a connection's encryption must not be read and written by two at once.
    told = {"v": 1, "type": "hand", "seq": 0, "t_ms": 0, "held": True, "away": False}
    told |= {"twist": [0] * 6}
    origin = f"https://127.0.0.1:{device.port}"
    async with asyncio_client.connect(ws_url(device.url), ssl=trusting, origin=origin) as opened:
        await opened.send(json.dumps(told))
        await asyncio.to_thread(wait_until, lambda: device.poll().clutch)
