"""From a person's input to the command: keys of a terminal, events of a pad, reports of a puck,
keys and pads of the page in headless Chromium.

    make bench ONLY=teleop

Inputs come at random moments of a loop that decides at the control rate, as ``collect`` does; the
time is taken from the write of the bytes to the command that first shows them. The arm's own lag is
not in it (``tool_lag``).
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.device import Surroundings, View
from hardware.teleop.devices.browser import BrowserDevice
from hardware.teleop.devices.gamepad import TL, Gamepad, Y
from hardware.teleop.devices.keyboard import KeyboardDevice
from hardware.teleop.devices.spacemouse import SpaceMouse, SpaceMouseConfig
from hardware.teleop.page.layout import layout_of
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.timing.clocks import Rate
from tests.browser import chromium, chromium_path
from tests.hardware.teleop.inputs import Pad, Puck
from tests.hardware.teleop.terminals import EmulatedTerminal
from tests.mocks import observation
from tests.waiting import pass_time, wait_until

RATE_HZ = 20.0
# Over one control period [s].
FLOOR_S = 0.020
SPEC = EmbodimentSpec(
    "arm",
    (SignalSpec("tool/pose", (7,)),),
    (ActionSpec("tool/xyz_yaw", (4,), low=(-1e3,) * 4, high=(1e3,) * 4),),
    RATE_HZ,
)
# ``touch(on)`` presses and lets go.
Touched = tuple[TeleopAgent, Callable[[bool], None]]


@contextlib.contextmanager
def keys(kitty: bool) -> Iterator[Touched]:
    with EmulatedTerminal(kitty=kitty) as terminal:
        device = KeyboardDevice(lambda _: None, terminal.slave)
        if kitty:
            wait_until(lambda: device.tells_releases)
        yield (
            TeleopAgent(device, SPEC),
            lambda on: terminal.press("w") if on else terminal.release("w"),
        )
        device.close()


@contextlib.contextmanager
def pad() -> Iterator[Touched]:
    with Pad() as pad:
        device = Gamepad(pad.open)
        pad.press(TL)
        wait_until(lambda: device.poll().clutch)
        yield TeleopAgent(device, SPEC), lambda on: pad.stick(Y, -1.0 if on else 0.0)
        device.close()


@contextlib.contextmanager
def puck() -> Iterator[Touched]:
    with Puck() as puck:
        device = SpaceMouse(SpaceMouseConfig(), puck.open)
        yield TeleopAgent(device, SPEC), lambda on: puck.move(float(on), 0, 0, 0, 0, 0)
        device.close()


@contextlib.contextmanager
def chromium_page(by: str) -> Iterator[Touched]:
    device = BrowserDevice(layout_of(Surroundings(spec=SPEC)))
    with contextlib.closing(device), chromium() as tab:
        tab.open(device.url)
        device.show(View("running", max_steps=1000))
        tab.wait_for("link.driving && !document.body.classList.contains('loading')")
        wait_until(lambda: device.poll().clutch)
        x, y = tab.centre("#move svg")
        tab.pointer(x, y)

        def key(on: bool) -> None:
            tab.hold("keyDown" if on else "keyUp", "w")

        def pad(on: bool) -> None:
            tab.button("mousePressed" if on else "mouseReleased", x, y - 40)

        yield TeleopAgent(device, SPEC), key if by == "key" else pad


def latencies(touched: Touched, count: int, rng: np.random.Generator) -> tuple[list[float], int]:
    """Seconds from the input to the command that moves, ``count`` times; and how many inputs moved
    nothing, as the device was silent for longer than its lease (a starved machine).
    """
    agent, touch = touched
    done, moved = threading.Event(), threading.Event()
    first_s = [0.0]

    def loop() -> None:
        rate, tick, last = Rate(RATE_HZ), 0, 0.0
        pose = np.array([0.0, 0, 0.2, 0, 1, 0, 0])
        while not done.is_set():
            command = agent.decide(observation(round(tick * 1e9 / RATE_HZ), tool__pose=pose), None)
            x = float(command.action["tool/xyz_yaw"][0])
            # The arm follows at once: no lead to be held back by.
            pose[0] = x
            if x - last > 1e-6 and not moved.is_set():
                first_s[0] = time.monotonic()
                moved.set()
            last, tick = x, tick + 1
            rate.wait()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    out: list[float] = []
    unheard = 0
    while len(out) < count:
        pass_time(rng.uniform(0.15, 0.25), "a press comes at any moment of a period")
        moved.clear()
        start = time.monotonic()
        touch(True)
        if moved.wait(1.0):
            out.append(first_s[0] - start)
        else:
            unheard += 1
            assert unheard <= count, "nothing moves"
        touch(False)
    done.set()
    thread.join()
    return out, unheard


PAGES = [
    ("a held key of the page in Chromium", functools.partial(chromium_page, "key")),
    ("a pad of the page in Chromium", functools.partial(chromium_page, "pad")),
]


def rows(long: bool) -> list[dict[str, object]]:
    """One row per input; the reference is the control period."""
    count, found = 400 if long else 60, []
    for name, open_input in (
        ("keys that tell releases", functools.partial(keys, kitty=True)),
        ("keys, one press one step", functools.partial(keys, kitty=False)),
        ("events of a pad", pad),
        ("reports of a puck", puck),
        *([] if chromium_path() is None else PAGES),
    ):
        with open_input() as touched:
            times, unheard = latencies(touched, count, np.random.default_rng(0))
        p50, p95 = (float(np.percentile(times, p)) for p in (50, 95))
        found.append(
            {
                "name": f"{name} to command, p95",
                "unit": "ms",
                "ours": 1e3 * p95,
                "reference": 1e3 / RATE_HZ,
                "ratio": p95 * RATE_HZ,
                "floor": 1e3 * (1.0 / RATE_HZ + FLOOR_S),
                "holds": p95 <= 1.0 / RATE_HZ + FLOOR_S and not unheard,
                "why": f"{count} presses at {RATE_HZ:g} Hz; p50 {1e3 * p50:.1f} ms;"
                f" {unheard} unheard",
            }
        )
    return found
