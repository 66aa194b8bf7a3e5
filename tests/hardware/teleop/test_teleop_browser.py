import contextlib
import dataclasses
import itertools
import json
import threading
from typing import Any

import numpy as np
import pytest

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.device import (
    CameraState,
    Curve,
    HandPose,
    Look,
    Rate,
    Surroundings,
    Thing,
    View,
)
from hardware.teleop.devices.browser import BrowserConfig, BrowserDevice
from hardware.teleop.page.layout import layout_of
from hardware.teleop.session.attended import AttendedEnv
from hardware.teleop.session.config import SessionConfig
from hardware.teleop.session.session import TeleopSession
from robolearn.geometry import rotvec_from_rotation
from robolearn.pusht import BLOCK, TABLE_SIZE_M, TOOL
from robolearn.types import Condition
from robolearn.web import address
from sim.worlds import make_world
from tests.browser import browsing
from tests.hardware.teleop.pages import ARM, SIX_AXES, page, ws_url
from tests.mocks import Listener, observation
from tests.waiting import paced, wait_until

HERE, CUBE = Thing("tool", (0.1, 0.2, 0.3), 0.5), Thing("cube", (0.0, 0.1, 0.02), 1.0)
GOAL = Thing("goal", (-0.1, 0.2, 0.0))


class Keeper(Listener):
    verdict = ""

    def spare(self):
        """It is kept anyway."""

    def keep(self):
        self.verdict = "keep"
        return "ep_000000"

    def discard(self):
        self.verdict = "discard"


@pytest.fixture(scope="module")
def browser():
    with browsing() as running:
        yield running


@pytest.fixture
def tab(browser):
    return browser.tab()


@pytest.fixture
def arm():
    device = BrowserDevice(layout_of(Surroundings(task="pick_place", spec=ARM)))
    device.begin(1.0)
    yield device
    device.close()


def twist_of(device) -> Any:
    motion = device.poll().motion
    return motion.twist.tolist() if isinstance(motion, Rate) else None


KEYS: dict[str, Any] = {"ready": ("start", "quit"), "stopped": ("start", "quit")}


def view(phase: Any = "running", **more):
    picture = np.full((480, 640, 3), 90, np.uint8)
    return View(
        phase,
        HERE,
        (CUBE, GOAL),
        engaged=phase == "running",
        gripper=1.0,
        max_steps=600,
        wanted=3,
        rate_hz=20.0,
        pictures={"top": picture},
        keys=KEYS.get(phase, ("keep", "discard", "redo", "quit", "marker")),
        **more,
    )


@contextlib.contextmanager
def pusht_session():
    """A session of one Push-T episode by the page, on a thread: device and keeper."""
    env, keeper = make_world("pusht_reference"), Keeper()
    device = BrowserDevice(layout_of(Surroundings(task="pusht", spec=env.spec)))
    start = Condition("drawn", 0, {TOOL: (0.1, 0.1), BLOCK: (0.25, 0.32, 0.6)})
    config = SessionConfig(1, 300, 0, "pusht", "pusht_reference", lambda _: start)
    session = TeleopSession(AttendedEnv(env), device, keeper, config)
    # One that a failing test leaves behind must not keep the tests from ending.
    thread = threading.Thread(target=session.run, daemon=True)
    thread.start()
    try:
        yield device, keeper
    finally:
        device.close()
        thread.join(timeout=10)
    env.close()


def travelled(keeper, name):
    """Where something was at every step of what was recorded ``[n, 2]`` [m]."""
    return np.array([t.observation.value(name)[:2] for t in keeper.ticks])


def test_a_drawn_pointer_path_becomes_an_episode(tab, tmp_path):
    with pusht_session() as (device, keeper):
        tab.open(device.url)
        tab.wait_for("document.title.startsWith('Ready')")
        box = tab.evaluate(
            "(({x, y, width}) => [x, y, width])(drawing.canvas.getBoundingClientRect())"
        )

        def move(x, y):
            size = TABLE_SIZE_M
            tab.pointer(box[0] + box[2] * x / size, box[1] + box[2] * (1 - y / size))

        tab.screenshot(tmp_path / "ready.png")
        move(0.4, 0.4)
        tab.key(" ")
        tab.wait_for("document.title.startsWith('Recording')")
        # Far from the tool nothing is taken.
        tab.wait_for("$('hint').textContent.includes('blue disc')")
        path = np.linspace([0.1, 0.1], [0.3, 0.34], 25)
        for k in paced(25, len(path)):
            move(*path[k])
        tab.wait_for("link.view.engaged")
        tab.screenshot(tmp_path / "running.png")
        tab.pointer(5, 5)
        tab.wait_for("$('held').textContent === 'holds'")
        tab.key("Enter")
        tab.wait_for("document.title.startsWith('Finished')")
        # The program closes what is over: nothing is lost.
        device.close()
        tab.wait_for("link.lost")
        assert tab.evaluate("document.title.startsWith('Finished')")
        assert not tab.evaluate("document.body.classList.contains('lost')")
        tab.screenshot(tmp_path / "done.png")
        assert tab.errors == []
    assert keeper.verdict == "keep"
    assert keeper.ends[0].reason == "operator"
    sources = [t.command.source for t in keeper.ticks]
    assert sources[0] == "hold"
    assert sources[-1] == "hold"
    assert "human:browser" in sources
    tool, block = travelled(keeper, TOOL), travelled(keeper, BLOCK)
    assert np.linalg.norm(tool[-1] - tool[0]) > 0.15
    assert np.linalg.norm(block[-1] - block[0]) > 0.005


def test_keys_alone_lead_a_point(tab):
    with pusht_session() as (device, keeper):
        tab.open(device.url)
        tab.wait_for("document.title.startsWith('Ready')")
        tab.key(" ")
        tab.wait_for("document.title.startsWith('Recording')")
        tab.hold("keyDown", "w")
        tab.wait_for("link.view.engaged && link.view.tool.at[1] > 0.2")
        tab.hold("keyDown", "d")
        tab.wait_for("link.view.tool.at[0] > 0.13")
        tab.hold("keyUp", "d")
        # Never off the table, however long a key is held.
        tab.wait_for("hands.xy[1] === link.scene.high[1]")
        tab.hold("keyUp", "w")
        tab.wait_for("$('held').textContent === 'holds'")
        # A hold that the focus takes away stops, though the key's release goes elsewhere.
        tab.hold("keyDown", "s")
        tab.wait_for("link.view.engaged")
        tab.evaluate("window.dispatchEvent(new Event('blur'))")
        tab.wait_for("!link.view.engaged && !hands.state().held")
        tab.key("Enter")
        tab.wait_for("document.title.startsWith('Finished')")
        assert tab.errors == []
    tool = travelled(keeper, TOOL)
    sources = [t.command.source for t in keeper.ticks]
    assert sources[0] == "hold"
    assert "human:browser" in sources
    assert tool[:, 1].max() > 0.25
    # A held key is a speed: the tool does not jump.
    assert np.linalg.norm(np.diff(tool, axis=0), axis=1).max() < 0.06


def test_an_arm_is_driven_by_pads_and_keys(arm, tab, tmp_path):
    tab.open(arm.url)
    arm.show(view())
    tab.wait_for("!document.body.classList.contains('loading') && pictures.all[0].count > 0")
    wait_until(lambda: twist_of(arm) == [0.0] * 6)
    x, y = tab.centre("#move svg")
    tab.pointer(x, y - 30)
    tab.button("mousePressed", x, y - 30)
    wait_until(lambda: (twist_of(arm) or [0])[0] > 0.2)
    assert twist_of(arm)[2:] == [0.0] * 4
    tab.button("mouseReleased", x, y - 30)
    # It springs back.
    wait_until(lambda: twist_of(arm) == [0.0] * 6)
    tab.hold("keyDown", "w")
    wait_until(lambda: twist_of(arm)[0] == 1.0)
    # Whatever hides the page lets go, though the key's release goes elsewhere.
    tab.evaluate("window.dispatchEvent(new Event('blur'))")
    # Nobody is there, which is not that somebody let go.
    wait_until(lambda: not (arm.poll().clutch or arm.poll().present))
    tab.hold("keyUp", "w")
    tab.click(*tab.centre("#phase"))
    wait_until(lambda: arm.poll().present)
    wait_until(lambda: twist_of(arm) == [0.0] * 6)
    for gone in ("visibilitychange", "pagehide"):
        tab.hold("keyDown", "a")
        wait_until(lambda: (twist_of(arm) or [0] * 6)[1] == 1.0)
        tab.evaluate(HIDE if gone == "visibilitychange" else LEAVE)
        wait_until(lambda: not arm.poll().clutch)
        tab.hold("keyUp", "a")
        tab.evaluate(SHOW)
        tab.click(*tab.centre("#phase"))
        wait_until(lambda: twist_of(arm) == [0.0] * 6)
    tab.key("g")
    wait_until(lambda: arm.poll().gripper == 0.0)
    tab.key("m")
    wait_until(lambda: arm.pressed() == ("marker",))
    # A lost pointer is a hand that is gone.
    tab.pointer(x, y - 30)
    tab.button("mousePressed", x, y - 30)
    wait_until(lambda: twist_of(arm)[0] > 0.2)
    tab.evaluate("pads.all[0].svg.releasePointerCapture(pads.all[0].pointer)")
    tab.button("mouseReleased", x, y - 30)
    wait_until(lambda: twist_of(arm) == [0.0] * 6)
    tab.screenshot(tmp_path / "arm.png")
    assert tab.errors == []


def test_two_fingers_and_a_pen_move_and_tilt_a_tool_with_six_axes(tab, tmp_path):
    device = BrowserDevice(layout_of(Surroundings(task="free", spec=SIX_AXES)))
    device.begin(1.0)
    with contextlib.closing(device):
        tab.size(390, 780)
        tab.open(device.url)
        device.show(view())
        tab.wait_for("link.driving && !document.body.classList.contains('loading')")
        tab.evaluate("$('turn').scrollIntoView({block: 'center'})")
        assert tab.evaluate("pads.all.length") == 4
        assert "tilt" in tab.evaluate("$('turn-label').textContent")
        wait_until(lambda: twist_of(device) == [0.0] * 6)
        (mx, my), (tx, ty) = tab.centre("#move svg"), tab.centre("#turn svg")

        def moved():
            return {axis for axis, value in enumerate(twist_of(device)) if abs(value) > 0.05}

        def touches(kind, *fingers):
            points = [{"x": x, "y": y, "id": number} for number, x, y in fingers]
            tab.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)

        # One finger pushes forward while the other leans the tool over; a pad each.
        touches("touchStart", (0, mx, my))
        touches("touchMove", (0, mx, my - 20))
        wait_until(lambda: moved() == {0})
        touches("touchStart", (0, mx, my - 20), (1, tx, ty))
        touches("touchMove", (0, mx, my - 20), (1, tx + 12, ty))
        wait_until(lambda: twist_of(device)[3] > 0.2)
        assert moved() == {0, 3}
        tab.screenshot(tmp_path / "six_axes.png")
        # All fingers gone: it springs back.
        touches("touchEnd")
        wait_until(lambda: twist_of(device) == [0.0] * 6)

        def pen(kind, x, y):
            button = "none" if kind == "mouseMoved" else "left"
            tab.call(
                "Input.dispatchMouseEvent",
                type=kind, x=x, y=y, button=button, buttons=int(kind != "mouseReleased"),
                clickCount=1, pointerType="pen",
            )  # fmt: skip

        tab.evaluate(
            "window.kinds = [], addEventListener('pointerdown', (e) => kinds.push(e.pointerType))"
        )
        # Inside the ring the pen tilts, on it it turns.
        pen("mousePressed", tx, ty)
        pen("mouseMoved", tx, ty - 12)
        wait_until(lambda: twist_of(device)[4] > 0.2)
        assert moved() == {4}
        pen("mouseReleased", tx, ty - 12)
        wait_until(lambda: twist_of(device) == [0.0] * 6)
        far = 0.42 * tab.evaluate("$('turn').firstElementChild.getBoundingClientRect().width")
        pen("mousePressed", tx, ty - far)
        pen("mouseMoved", tx + 0.7 * far, ty - 0.7 * far)
        wait_until(lambda: twist_of(device)[5] < -0.2)
        assert moved() == {5}
        pen("mouseReleased", tx + 0.7 * far, ty - 0.7 * far)
        wait_until(lambda: twist_of(device) == [0.0] * 6)
        assert tab.evaluate("kinds") == ["pen", "pen"]
        # Nothing is wider than a phone.
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert tab.errors == []


STRIP = tuple(np.full((54, 72, 3), 40 * k, np.uint8) for k in range(5))
LOOK = Look(
    (
        Curve("joint 1", (0.0, 0.4, float("nan"), -0.2)),
        Curve("fingers", (0.08, 0.08)),
        Curve("joint 7", (float("nan"),)),
    ),
    (("top", STRIP), ("wrist", STRIP[:1])),
)
OVER = {
    "look": LOOK,
    "counts": (("no success", 1), ("success", 2)),
    "lost_frames": 3,
    "disk_free": 1_400_000_000,
    "jitter_s": 0.0012,
    "input_age_s": 0.0236,
    "error": "emergency stop by key",
}


def test_an_attempt_is_looked_at_and_every_key_has_a_button(arm, tab, tmp_path):
    arm.show(view("ready"))
    tab.open(arm.url)
    tab.wait_for("link.driving && !document.body.classList.contains('loading')")
    assert tab.evaluate("$('look').hidden && document.querySelector('[data-key=marker]').hidden")
    arm.show(view())
    tab.wait_for("!document.querySelector('[data-key=marker]').hidden")
    for key in ("redo", "marker"):
        tab.click(*tab.centre(f"[data-key={key}]"))
        wait_until(lambda key=key: arm.pressed() == (key,))
    # What the program does not ask for is not said.
    tab.click(*tab.centre("[data-key=success]"))
    arm.show(view("review", **OVER))
    tab.wait_for("document.querySelectorAll('#curves svg').length === 3")
    said = [row.split("\n") for row in tab.evaluate("$('curves').innerText").split("\n\n")]
    assert "-0.20 to 0.40" in str(said)
    assert "0.08, still" in str(said)
    assert "no number" in str(said)
    # A gap is no line.
    drawn = tab.evaluate("document.querySelector('#curves path').getAttribute('d')")
    assert (drawn.count("M"), drawn.count("L")) == (2, 1)
    tab.wait_for(
        "[...document.querySelectorAll('#strips img')].every((i) => i.naturalWidth === 72)"
    )
    assert tab.evaluate("document.querySelectorAll('#strips img').length") == 6
    assert tab.evaluate("$('session').textContent") == (
        "1 no success, 2 success · 3 frames lost: the disk cannot keep up · jitter 1.2 ms"
        " · hand 24 ms old at the command · 1.4 GB free: make room"
        " · last error: emergency stop by key"
    )
    tab.screenshot(tmp_path / "look.png", full_page=True)
    # Whoever comes while it is decided sees it, too.
    tab.open(arm.url)
    tab.wait_for("document.querySelectorAll('#curves svg').length === 3")
    arm.show(view())
    tab.wait_for("$('look').hidden && $('curves').children.length === 0")
    assert arm.pressed() == ()
    assert tab.errors == []


def test_a_camera_that_stopped_is_told_though_its_last_picture_comes_again(arm, tab):
    tab.open(arm.url)
    good, stopped = CameraState("top", 0.02), CameraState("top", 3.2, old=True)
    arm.show(view(cameras=(good,)))
    tab.wait_for("pictures.all[0].count > 0 && document.querySelector('.camera .old').hidden")
    assert "top" not in tab.evaluate("$('session').textContent")
    arm.show(view(cameras=(stopped,)))
    tab.wait_for("document.querySelector('.camera .old').textContent === '3 s old'")
    assert "top: newest picture is 3 s old" in tab.evaluate("$('session').textContent")
    assert tab.evaluate("$('session').classList.contains('warn')")
    arm.show(view(cameras=(dataclasses.replace(good, missed=4),)))
    tab.wait_for("document.querySelector('.camera .old').hidden")
    assert "top: 4 did not come" in tab.evaluate("$('session').textContent")
    assert tab.errors == []


def test_a_session_that_an_error_ended_says_so_after_it_is_closed(arm, tab):
    arm.show(view("ready"))
    tab.open(arm.url)
    tab.wait_for("link.driving && document.title.startsWith('Ready')")
    full = "the disk is full; this was not saved"
    arm.show(view("done", message="It could not go on. 2 episodes saved.", error=full))
    tab.wait_for("document.title.startsWith('Ended')")
    arm.close()
    tab.wait_for("link.lost")
    assert tab.evaluate("$('phase').textContent") == "Ended"
    assert "2 episodes saved" in tab.evaluate("$('message').textContent")
    assert full in tab.evaluate("$('session').textContent")
    assert tab.evaluate("document.body.classList.contains('lost')")
    assert tab.errors == []


def test_a_tablet_drives_by_tls_on_one_port(tab, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    # Loopback stands for an address in the network; nobody has signed its certificate.
    monkeypatch.setattr(address, "is_loopback", lambda host: False)
    monkeypatch.setattr("hardware.teleop.page.server.is_loopback", lambda host: False)
    tab.call("Security.setIgnoreCertificateErrors", ignore=True)
    device = BrowserConfig(host="127.0.0.1").build(Surroundings(task="pick_place", spec=ARM))
    try:
        device.show(view())
        tab.open(device.url)
        tab.wait_for("link.driving && pictures.all[0].count > 0")
        # Only there are sensors and gamepads.
        assert tab.evaluate("window.isSecureContext && location.protocol") == "https:"
        assert tab.evaluate("link.socket.url").startswith(f"wss://127.0.0.1:{device.port}/")
        tab.hold("keyDown", "w")
        wait_until(lambda: (twist_of(device) or [0.0])[0] == 1.0)
        tab.hold("keyUp", "w")
        wait_until(lambda: twist_of(device) == [0.0] * 6)
        assert tab.errors == []
    finally:
        device.close()
        tab.call("Security.setIgnoreCertificateErrors", ignore=False)


def test_the_second_page_watches_and_a_lost_one_comes_back(arm, tab):
    with page(arm) as first:
        first.twist(1.0)
        tab.open(arm.url)
        arm.show(view())
        tab.wait_for("$('why').textContent.includes('Somebody drives')")
        assert tab.evaluate("$('claim').disabled") is False
        tab.key("x")
        first.socket.close()
        tab.wait_for("$('why').textContent.includes('Nobody')")
        tab.click(*tab.centre("#claim"))
        tab.wait_for("link.driving")
        assert arm.pressed() == ()
        wait_until(lambda: twist_of(arm) == [0.0] * 6)
        # The network drops the page: nobody holds the arm, and the page comes back by itself.
        tab.evaluate("link.socket.close()")
        wait_until(lambda: not arm.poll().present)
        tab.wait_for("link.driving && !link.lost")


def test_a_tablet_that_is_tilted_turns_the_tool_while_its_button_is_held(arm, tab):
    def turn(alpha, beta, gamma):
        tab.call(
            "DeviceOrientation.setDeviceOrientationOverride", alpha=alpha, beta=beta, gamma=gamma
        )

    def rotation() -> Any:
        motion = arm.poll().motion
        return motion.T[:3, :3] if isinstance(motion, HandPose) else None

    tab.call("Emulation.setTouchEmulationEnabled", enabled=True)
    size = {"width": 820, "height": 1180, "deviceScaleFactor": 1, "mobile": True}
    tab.call("Emulation.setDeviceMetricsOverride", **size)
    turn(30.0, 0.0, 0.0)
    tab.open(arm.url)
    arm.show(view())
    tab.wait_for("!document.body.classList.contains('loading') && link.driving && !!tilt.angles")
    wait_until(lambda: twist_of(arm) == [0.0] * 6)
    finger = [dict(zip(("x", "y"), tab.centre("#tilt"), strict=True))]
    tab.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=finger)
    wait_until(lambda: rotation() is not None)
    flat = rotation()
    # Its upper edge is forward, wherever that is on earth.
    assert flat[:, 1] == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    for angles, axis in (((50.0, 0.0, 0.0), (0.0, 0.0, 1.0)), ((30.0, 20.0, 0.0), (0.0, -1.0, 0.0)),
                         ((30.0, 0.0, 20.0), (1.0, 0.0, 0.0))):  # fmt: skip
        turn(*angles)
        wanted = np.radians(20.0) * np.array(axis)
        wait_until(
            lambda w=wanted: np.allclose(rotvec_from_rotation(rotation() @ flat.T), w, atol=1e-3)
        )
    tab.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    wait_until(lambda: twist_of(arm) == [0.0] * 6)
    assert tab.errors == []


def test_a_gamepad_drives_while_its_bumper_is_held(arm, tab):
    def pad(**values):
        tab.evaluate(f"Object.assign(window.pad, {json.dumps(values)})")

    def buttons(**pressed):
        """Of the standard layout: value by ``b<number>``."""
        pad(buttons=[{"value": pressed.get(f"b{k}", 0)} for k in range(17)])

    def says(words):
        tab.wait_for(f"$('gamepad').textContent.includes('{words}')")

    tab.call("Page.addScriptToEvaluateOnNewDocument", source=PADS)
    tab.open(arm.url)
    arm.show(view())
    tab.wait_for("!document.body.classList.contains('loading') && link.driving")
    says("Press one of its buttons")
    # A bumper that was down before, and sticks that are deflected as it goes down, drive nothing.
    buttons(b4=1)
    pad(axes=[0, -1, 0, 0], connected=True)
    says("hold a bumper")
    buttons()
    tab.wait_for("!gamepad.down")
    buttons(b4=1)
    says("let go of the sticks")
    assert twist_of(arm) == [0.0] * 6
    pad(axes=[0.05, -0.05, 0.09, 0])
    says("The gamepad drives")
    assert twist_of(arm) == [0.0] * 6
    pad(axes=[-0.5, -1, 0.25, 1])
    # This arm's tool points down: it turns about z alone.
    wait_until(lambda: twist_of(arm) == [1.0, 0.5, -1.0, 0.0, 0.0, -0.25])
    buttons(b4=1, b7=0.5, b0=1)
    wait_until(lambda: arm.poll().gripper == 0.5)
    wait_until(lambda: arm.pressed() == ("keep",))
    # The left trigger makes buttons say what ends an attempt; which are down count anew.
    shifted = ((9, "redo"), (3, "marker"))
    for button, word in shifted:
        buttons(b4=1, b7=0.5, b6=1)
        tab.wait_for(f"gamepad.pressed[6] && !gamepad.pressed[{button}]")
        buttons(b4=1, b7=0.5, b6=1, **{f"b{button}": 1})
        wait_until(lambda said=word: arm.pressed() == (said,))
    # What no pad says: nothing of it is more than a full deflection.
    tab.evaluate("pad.axes = [NaN, 1e308, 'up', -Infinity]; pad.buttons[7] = {value: NaN}")
    wait_until(lambda: twist_of(arm) == [-1.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    # Unplugged: let go of, at once and whatever the sticks said last.
    pad(connected=False)
    wait_until(lambda: not arm.poll().clutch)
    wait_until(lambda: twist_of(arm) == [0.0] * 6)
    pad(connected=True, axes=[0, 0, 0, 0])
    says("hold a bumper")
    for lost in ("window.dispatchEvent(new Event('blur'))", HIDE):
        buttons()
        tab.wait_for("!gamepad.down")
        buttons(b5=1)
        says("The gamepad drives")
        pad(axes=[0, -1, 0, 0])
        wait_until(lambda: (twist_of(arm) or [0])[0] == 1.0)
        tab.evaluate(lost)
        wait_until(lambda: not arm.poll().clutch)
        tab.evaluate(SHOW)
        tab.click(*tab.centre("#phase"))
        # It is still held, and drives nothing until it is taken anew.
        wait_until(lambda: twist_of(arm) == [0.0] * 6)
        pad(axes=[0, 0, 0, 0])
    # Another page drives: what is held here drives nothing, there or after it is gone.
    buttons()
    tab.wait_for("!gamepad.down")
    tab.evaluate("link.driving = false")
    buttons(b4=1)
    says("another page drives")
    tab.evaluate("link.driving = true")
    says("hold a bumper")
    pad(mapping="")
    says("use --agent gamepad")
    tab.evaluate("navigator.getGamepads = () => { throw new DOMException('no', 'SecurityError'); }")
    says("Press one of its buttons")
    assert tab.errors == []


def test_where_sensors_must_be_allowed_a_tap_asks(arm, tab):
    """As Safari on a phone does, which no test here has seen."""
    tab.call("Emulation.setTouchEmulationEnabled", enabled=True)
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=ALLOW)
    tab.open(arm.url)
    arm.show(view())
    tab.wait_for("!document.body.classList.contains('loading') && link.driving")
    assert tab.evaluate("$('tilt').textContent").startswith("Tap to let this page know")
    tab.click(*tab.centre("#tilt"))
    # Not at all, or not within a tap, would be refused.
    tab.wait_for("window.asked === true && $('tilt').textContent.startsWith('Not allowed')")
    tab.evaluate("window.answer = 'granted'")
    tab.click(*tab.centre("#tilt"))
    tab.wait_for("$('tilt').textContent.startsWith('Tap')")
    tab.call("DeviceOrientation.setDeviceOrientationOverride", alpha=10, beta=20, gamma=30)
    tab.wait_for("$('tilt').textContent.startsWith('Hold to turn')")
    assert tab.errors == []


def test_what_slows_the_arm_is_on_the_page_while_it_does(arm, tab):
    words = "slowed: near a singularity (wrist 2 at 4 deg)"
    tab.open(arm.url)
    for slowed in (words, ""):
        arm.show(view(slowed=slowed))
        tab.wait_for(f"link.view && $('hint').textContent === '{slowed}'")
        shown = tab.evaluate("$('hint').checkVisibility()")
        assert shown is bool(slowed)


def test_a_gripper_that_is_lost_with_a_key_held_is_said_and_nothing_drives_after_it(arm, tab):
    tab.open(arm.url)
    arm.show(view())
    tab.wait_for("link.driving && !!link.view")
    tab.hold("keyDown", "w")
    wait_until(lambda: (twist_of(arm) or [0])[0] == 1.0)
    why = "the arm was stopped: gripper_stale (the gripper does not answer any more)"
    arm.show(view("stopped", error=why))
    tab.wait_for(
        f"$('phase').textContent === 'Stopped' && document.body.textContent.includes('{why}')"
    )
    # The key is still down when the stop is cleared: nothing drives until it was let go of.
    agent, pose = TeleopAgent(arm, ARM), np.array([0.0, 0.0, 0.2, 0.0, 1.0, 0.0, 0.0])
    ticks = itertools.count()

    def tick() -> float:
        t_ns = next(ticks) * 50_000_000
        seen = observation(t_ns, tool__pose=pose, gripper__width=np.full(1, 0.1))
        return float(agent.decide(seen, None).action["tool/xyz_yaw"][0])

    def refused() -> bool:
        if not any(twist_of(arm) or [1.0]):
            # A page that a busy machine silenced has let go of it: down again, and begun again.
            tab.hold("keyUp", "w")
            tab.hold("keyDown", "w")
            wait_until(lambda: (twist_of(arm) or [0])[0] == 1.0)
            agent.reset(0)
        assert tick() == 0.0
        return agent.note == "let go of it first"

    arm.show(view())
    agent.reset(0)
    wait_until(refused)
    tab.hold("keyUp", "w")


def test_a_foreign_page_and_a_flood_in_a_browser_drive_nothing(arm, tab):
    # A page of nobody, which has learned the token.
    refused = "new Promise((done) => { const s = new WebSocket('%s');"
    refused += " s.onopen = () => done('open'); s.onerror = () => done('refused'); })"
    assert tab.evaluate(refused % ws_url(arm.url)) == "refused"
    # One that has learned nothing, and one that guesses.
    for place in (arm.url.split("?")[0], f"{arm.url}x"):
        tab.open(place)
        assert "the address that the terminal shows" in tab.evaluate("document.body.textContent")
        assert tab.evaluate(refused % f"{ws_url(arm.url)}x") == "refused"
    tab.errors.clear()
    tab.open(arm.url)
    arm.show(view())
    tab.wait_for("link.driving && !!link.view")
    tab.hold("keyDown", "w")
    wait_until(lambda: (twist_of(arm) or [0])[0] == 1.0)
    # Numbers that JSON has not become null there.
    tab.evaluate("link.send({type: 'hand', seq: link.seq++, t_ms: 0, held: true, twist: [NaN]})")
    wait_until(lambda: not arm.poll().clutch)
    tab.evaluate("for (let k = 0; k < 2000; k++) link.send({type: 'key', key: 'marker'})")
    tab.wait_for("link.lost && $('message').textContent.includes('too many messages')")
    wait_until(lambda: not arm.poll().present)
    tab.hold("keyUp", "w")


def test_a_browser_that_is_closed_with_a_pad_held_lets_go(arm, browser):
    tab = browser.tab()
    tab.open(arm.url)
    arm.show(view())
    tab.wait_for("!document.body.classList.contains('loading') && link.driving")
    wait_until(lambda: twist_of(arm) == [0.0] * 6)
    agent, pose = TeleopAgent(arm, ARM), np.array([0.0, 0.0, 0.2, 0.0, 1.0, 0.0, 0.0])
    ticks = itertools.count()

    def tick():
        seen = observation(
            next(ticks) * 50_000_000, tool__pose=pose, gripper__width=np.full(1, 0.1)
        )
        pose[0] = agent.decide(seen, None).action["tool/xyz_yaw"][0]
        return float(pose[0])

    x, y = tab.centre("#move svg")
    tab.pointer(x, y - 30)

    def drives():
        """Once the pad is deflected; a page that a busy machine silenced must let go first."""
        if tick() > 0.001:
            return True
        if not any(twist_of(arm) or [1.0]):
            tab.button("mousePressed", x, y - 30)
        elif agent.note == "let go of it first":
            tab.button("mouseReleased", x, y - 30)
        return False

    wait_until(drives)
    browser.tab()
    wait_until(lambda: not arm.poll().present)
    stays = tick()
    assert [tick() for _ in range(3)] == [stays] * 3
    assert not agent.engaged
    assert agent.note == "the device is away"


def test_another_tab_in_front_stops_an_arm_whose_key_is_held(arm, browser):
    tab = browser.tab()
    tab.open(arm.url)
    arm.show(view())
    tab.wait_for("link.driving && !!link.view")
    agent, pose = TeleopAgent(arm, ARM), np.array([0.0, 0.0, 0.2, 0.0, 1.0, 0.0, 0.0])
    ticks = itertools.count()

    def tick():
        t_ns = next(ticks) * 50_000_000
        seen = observation(t_ns, tool__pose=pose, gripper__width=np.full(1, 0.1))
        pose[0] = agent.decide(seen, None).action["tool/xyz_yaw"][0]
        return float(pose[0])

    def drives():
        """By the key; a page that a busy machine silenced must let go first."""
        before = float(pose[0])
        if tick() > before + 0.001:
            return True
        if not any(twist_of(arm) or [1.0]):
            tab.hold("keyDown", "w")
        elif agent.note == "let go of it first":
            tab.hold("keyUp", "w")
        return False

    wait_until(lambda: twist_of(arm) == [0.0] * 6)
    for _ in range(2):
        wait_until(drives)
        # The browser's own events, no test's: the key is not released anywhere that the page hears.
        browser.cover()
        wait_until(lambda: not arm.poll().clutch)
        tick()
        stays = tick()
        assert [tick() for _ in range(3)] == [stays] * 3
        assert not agent.engaged
        tab.front()
        tab.wait_for("!document.hidden && link.driving")
        # Back in front, with the key still down: it was let go of, and drives nothing.
        for _ in paced(10, 40):
            assert tick() == stays
            assert not any(twist_of(arm) or [0.0])
        tab.hold("keyUp", "w")
        tab.click(*tab.centre("#phase"))
        wait_until(lambda: twist_of(arm) == [0.0] * 6)


def test_a_tab_of_an_earlier_program_drives_nothing_and_says_so(tab):
    old = BrowserDevice(layout_of(Surroundings(spec=ARM)))
    with contextlib.closing(old):
        tab.open(old.url)
        old.show(view())
        tab.wait_for("link.driving && !!link.view")
        port = old.port
    with contextlib.closing(BrowserDevice(layout_of(Surroundings(spec=ARM)), port)) as new:
        tab.wait_for("link.tries >= 2 && $('phase').textContent === 'Connection lost'")
        assert "see the terminal" in tab.evaluate("$('message').textContent")
        assert tab.evaluate("[...document.querySelectorAll('button')].every((b) => b.disabled)")
        assert not new.connected
        # Whoever reloads it learns which address is meant.
        tab.evaluate("location.reload()")
        tab.wait_for(
            "document.body.textContent.includes('the address that the terminal shows now')"
        )


SIZES = ((390, 844), (820, 1180), (1280, 800), (1920, 1080))
# Those that every run looks at.
LOOKS = (((390, 844), True), ((1280, 800), False))


@pytest.mark.parametrize(
    ("size", "dark"),
    [
        pytest.param(
            size,
            dark,
            id=f"{size[0]}px-{'dark' if dark else 'light'}",
            marks=() if (size, dark) in LOOKS else pytest.mark.slow,
        )
        for size in SIZES
        for dark in (False, True)
    ],
)
def test_the_page_fits_and_nothing_moves(arm, browser, tmp_path, size, dark):
    tab = browser.tab(*size)
    tab.size(*size, dark=dark)
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=SHIFTS)
    arm.show(view("ready"))
    tab.open(arm.url)
    tab.wait_for("!document.body.classList.contains('loading') && pictures.all[0].count > 0")
    for shown in (view(), view("review", message="Solved! Enter keeps it. " * 3, **OVER)):
        arm.show(shown)
        tab.wait_for(f"link.view.phase === '{shown.phase}'")
    tab.wait_for("!$('look').hidden")
    assert tab.evaluate("document.documentElement.scrollWidth") <= size[0]
    small = "[...document.querySelectorAll('button:not([hidden])')].filter((b) =>"
    small += " b.offsetParent && b.getBoundingClientRect().height < 44).length"
    assert tab.evaluate(small) == 0
    assert tab.evaluate("window.shifts") < 0.01, tab.evaluate("window.what")
    assert tab.evaluate(LOW_CONTRAST) == []
    tab.screenshot(tmp_path / "page.png", full_page=True)
    assert tab.errors == []


HIDE = """
Object.defineProperty(document, 'hidden', {value: true, configurable: true});
document.dispatchEvent(new Event('visibilitychange'))
"""
LEAVE = "window.dispatchEvent(new Event('pagehide'))"
SHOW = """
Object.defineProperty(document, 'hidden', {value: false, configurable: true});
document.dispatchEvent(new Event('visibilitychange'))
"""
# A gamepad that is not plugged in.
PADS = """
window.pad = {index: 0, connected: false, mapping: 'standard', axes: [0, 0, 0, 0], buttons: []};
navigator.getGamepads = () => [null, window.pad];
"""
# A browser that tells the orientation once it was allowed to, within a tap.
ALLOW = """
window.answer = 'denied';
DeviceOrientationEvent.requestPermission = async () => {
  window.asked = navigator.userActivation.isActive;
  return window.answer;
};
"""
SHIFTS = """
window.shifts = 0; window.what = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    window.shifts += entry.value;
    window.what.push(entry.sources.map((s) => s.node && (s.node.id || s.node.nodeName)).join());
  }
}).observe({type: 'layout-shift', buffered: true});
"""
# Texts whose contrast is below 4.5 to 1 (WCAG AA), but for those of disabled buttons.
LOW_CONTRAST = """(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (at) => {
    for (; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0.99) return found;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const at of document.querySelectorAll('body *')) {
    const own = [...at.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !at.checkVisibility() || at.closest('button:disabled, script')) continue;
    const [a, b] = [light(rgb(getComputedStyle(at).color)), light(ground(at))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${at.tagName} '${at.textContent}' ${ratio.toFixed(2)}`);
  }
  return low;
})()"""
