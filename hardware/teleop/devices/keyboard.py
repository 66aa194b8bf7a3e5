"""Drives by the keys of a terminal, without a window system.

Where the terminal tells releases, a held key is a speed. Elsewhere one key is one step, or, after
``v``, a speed that ends by itself, by ``.`` or by another key.

        w up        r rise      i pitch         space  start        g  gripper
    a left  d right f sink    j turn left  l    enter  keep         v  steps or speed
        s down      u o roll    k pitch         x      discard      .  stop moving
                                                esc    emergency stop of an arm
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.teleop.device import DeviceReading, Key, Keys, Rate, Steps, Surroundings, Thing, View
from hardware.teleop.shapes import Deflection
from hardware.teleop.terminal.codes import Key as TerminalKey
from hardware.teleop.terminal.keys import KeyEvent, Terminal
from hardware.teleop.terminal.writer import Writer
from robolearn.machine.interrupt import hang_up

STEP_M, STEP_RAD = 0.005, np.deg2rad(2.0)
# Of steps and speeds with the shift key.
FINE = 0.2
# A speed that was set by one press ends after this time [s].
LATCHED_S = 0.7
# Along and about x (forward), y (left), z (up).
MOVES: dict[str, tuple[int, int]] = {
    "w": (0, 1), "up": (0, 1), "s": (0, -1), "down": (0, -1),
    "a": (1, 1), "left": (1, 1), "d": (1, -1), "right": (1, -1),
    "r": (2, 1), "f": (2, -1),
    "o": (3, 1), "u": (3, -1), "k": (4, 1), "i": (4, -1), "j": (5, 1), "l": (5, -1),
}  # fmt: skip
KEYS: dict[str, Key] = {
    "space": "start", "enter": "keep", "backspace": "discard", "x": "discard", "q": "quit",
    "b": "redo", "1": "success", "0": "failure", "t": "takeover", "h": "handback", "m": "marker",
}  # fmt: skip
HELP = (
    "arrow keys or w a s d move (capitals: fine)   space start   enter keep   x discard   q quit\n"
    "r f up and down   j l turn   i k u o tilt   g gripper   . stop   v steps or speed"
)


@dataclass(frozen=True, slots=True)
class KeyboardConfig:
    """The terminal that the program runs in."""

    # Descriptor of the terminal.
    fd: int = -1

    @property
    def keys(self) -> Keys:
        """It is the terminal's keys."""
        return "own"

    def build(self, around: Surroundings) -> KeyboardDevice:
        """Take the terminal."""
        fd = None if self.fd < 0 else self.fd
        return KeyboardDevice(around.write, fd, full_screen=around.full_screen)


class KeyboardDevice:
    """Reads the terminal ``fd`` until :meth:`close`, which restores its settings."""

    name = "keyboard"
    lease_s = 0.5

    def __init__(
        self,
        write: Callable[[str], Any],
        fd: int | None = None,
        *,
        full_screen: bool = False,
        who: str = "--agent keyboard",
        help_text: str = HELP,
    ) -> None:
        self._write, self._full_screen = write, full_screen
        self._lock = threading.Lock()
        # Held keys, and whether each began with shift.
        self._held: dict[str, bool] = {}
        self._total = np.zeros(6)
        self._latching = False
        self._latched: tuple[int, Deflection] = (0, np.zeros(6))
        self._opening: float | None = None
        self._pressed: list[Key] = []
        self._terminal = Terminal(
            sys.stdin.fileno() if fd is None else fd,
            self._hear,
            who=who,
            full_screen=full_screen,
        )
        # A slow line, or a terminal that was stopped, must not stop whoever drives the arm.
        self._writer = Writer()
        self._write(help_text + "\n")

    def begin(self, opening: float | None) -> None:
        """The gripper's key turns this around; what is held must be let go of first."""
        with self._lock:
            self._opening = None if opening is None else float(round(opening))

    @property
    def tells_releases(self) -> bool:
        """Whether this terminal does."""
        return self._terminal.protocol == "events"

    def poll(self) -> DeviceReading:
        """Speed of the held keys, or all steps so far."""
        terminal = self._terminal
        with self._lock:
            now = time.monotonic_ns()
            t_ns, motion = now, Steps(self._total.copy())
            if self.tells_releases or self._latching:
                twist = self._speed(now)
                motion = Rate(twist)
                if self._held:
                    t_ns = terminal.alive_ns
            here = terminal.focused and not terminal.gone
            return DeviceReading(t_ns, here, here, motion, self._opening)

    def pressed(self) -> tuple[Key, ...]:
        """Start, keep, discard and the others since the last call."""
        with self._lock:
            pressed, self._pressed = tuple(self._pressed), []
        return pressed

    def show(self, view: View) -> None:
        """One line that is rewritten in place, as soon as the terminal takes it."""
        if self._full_screen:
            return
        line = status_line(view, self._terminal.columns - 1)
        self._writer.newest(lambda: self._write(f"\r\x1b[K{line}"))

    def close(self) -> None:
        """Give the terminal back as it was; safe to call twice."""
        terminal, already = self._terminal, self._terminal.closed
        self._writer.close()
        terminal.close()
        if not (already or self._full_screen):
            self._write("\n")

    def _speed(self, now: int) -> Deflection:
        if not self.tells_releases:
            t_ns, twist = self._latched
            return twist if now - t_ns <= LATCHED_S * 1e9 else np.zeros(6)
        twist = np.zeros(6)
        for name, fine in self._held.items():
            axis, sign = MOVES[name]
            twist[axis] += sign * (_FINE_DEFLECTION if fine else 1.0)
        return np.clip(twist, -1.0, 1.0)

    def _hear(self, event: KeyEvent | None) -> None:
        with self._lock:
            if event is None:
                self._held.clear()
                self._latched = (0, np.zeros(6))
                if self._terminal.gone:
                    # Nobody can say stop later; nor that a recording is to be forgotten.
                    hang_up()
                    self._pressed.append("quit")
            else:
                self._press(event.t_ns, event.key)
            holding = bool(self._held)
        self._terminal.keep_pinging(holding)

    def _press(self, t_ns: int, key: TerminalKey) -> None:
        if key.kind == "release":
            self._held.pop(key.name, None)
            return
        if key.ctrl or key.other:
            return
        if key.name in MOVES:
            self._move(t_ns, key)
        elif key.kind == "repeat":
            return
        elif key.name in KEYS:
            self._pressed.append(KEYS[key.name])
        elif key.name == "g" and self._opening is not None:
            self._opening = 1.0 - self._opening
        elif key.name in (".", "escape"):
            self._held.clear()
            self._latched = (0, np.zeros(6))
            if key.name == "escape":
                # Of an arm; a simulated world has nothing to stop.
                self._pressed.append("stop")
        elif key.name == "v" and not self.tells_releases:
            self._latching = not self._latching
            self._latched = (0, np.zeros(6))

    def _move(self, t_ns: int, key: TerminalKey) -> None:
        if self.tells_releases:
            # A repeat without a press: its press was of before the focus came, and is not meant.
            if key.kind == "press" or key.name in self._held:
                self._held[key.name] = key.shift
            return
        axis, sign = MOVES[key.name]
        change = np.zeros(6)
        change[axis] = sign * (FINE if key.shift else 1.0)
        if self._latching:
            self._latched = (t_ns, np.sign(change) * (_FINE_DEFLECTION if key.shift else 1.0))
        else:
            self._total = self._total + change * (STEP_M if axis < 3 else STEP_RAD)


# What the mapping makes a fifth of the full speed of (dead zone .1, power 1.5).
_FINE_DEFLECTION = 0.1 + 0.9 * FINE ** (1.0 / 1.5)


def status_line(view: View, columns: int = 140) -> str:
    """The whole state in one line of at most ``columns`` characters, what to do now first."""
    bar = "#" * round(10 * view.progress)
    where = "" if view.tool is None else "  mm: tool " + _place(view.tool)
    where += "".join(f"  {thing.name} {_place(thing)}" for thing in view.things)
    grip = "" if view.gripper is None else f"  grip {100 * view.gripper:.0f} %"
    said = "the policy drives" if view.policy_drives else view.note or view.message
    said = "  ".join(part for part in (view.slowed, said) if part)
    return (
        f"{view.phase:<7} {view.step:4d}/{view.max_steps}  saved {view.saved}/{view.wanted}"
        f"{'  ' if said else ''}{said}{where}{grip}"
        f"  [{bar:<10}] {100 * view.progress:3.0f} %  {view.rate_hz:.1f} Hz"
    )[:columns]


def _place(thing: Thing) -> str:
    turned = round(np.degrees(thing.yaw)) if thing.yaw else 0
    return " ".join(f"{round(1e3 * v)}" for v in thing.at) + (f" {turned} deg" if turned else "")
