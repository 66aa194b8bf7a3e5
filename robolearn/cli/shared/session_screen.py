"""Shows a person's session on the whole terminal, or as lines where there is none.

+- collect: runs/own -------------------- RECORDING ----------------------------------+
|  12.4 s of 15.0            20.0 Hz, jitter 0.8 ms          3 of 10 saved              |
|  what to do, what is wrong, the last error                                             |
|  keys that do something now                                                            |
+----------------------------------------------------------------------------------------+
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hardware.shapes import ResizedPicture
from hardware.teleop.device import CameraState, Key, Phase, Thing, View
from hardware.teleop.session.seen import thinned
from hardware.teleop.terminal.writer import Writer
from robolearn.cli.shared.parse import printable

# What the phases are called, and how they look.
TITLES: dict[Phase, tuple[str, str]] = {
    "resetting": ("MOVING", "bold black on yellow"),
    "placing": ("YOUR TURN", "bold black on yellow"),
    "ready": ("READY", "bold black on green"),
    "running": ("RECORDING", "bold white on red"),
    "review": ("KEEP IT?", "bold black on cyan"),
    "stopped": ("STOPPED", "bold white on red"),
    "done": ("DONE", "bold"),
}
# How the keyboard's keys are labelled, and what they do (hardware/teleop/devices/keyboard.py).
LABELS: dict[Key, tuple[str, str]] = {
    "start": ("space", "start"),
    "keep": ("enter", "keep"),
    "discard": ("x", "discard"),
    "redo": ("b", "same start again"),
    "success": ("1", "solved"),
    "failure": ("0", "not solved"),
    "marker": ("m", "mark"),
    "takeover": ("t", "take over"),
    "handback": ("h", "hand back"),
    "quit": ("q", "quit"),
    "stop": ("esc", "EMERGENCY STOP"),
}
# Phases that call the person: the bell rings when they begin.
CALLING = ("placing", "review", "stopped")
# From here on there is little left of the disk [bytes].
LITTLE = 2_000_000_000
_REFRESH_HZ = 8.0
# Rows and columns of a picture of the strip.
_CELLS = (8, 12)
_BARS = "▁▂▃▄▅▆▇█"


def _title(view: View) -> tuple[str, str]:
    if view.phase == "running" and not view.recording:
        return "DRIVING", "bold black on cyan"
    return TITLES[view.phase]


def _seconds(view: View) -> str:
    limit = ""
    if view.max_steps and view.step:
        limit = f" of {view.elapsed_s * view.max_steps / view.step:.1f}"
    return f"{view.elapsed_s:.1f} s{limit}"


def _figures(view: View) -> Table:
    """What is counted and measured, two columns."""
    table = Table.grid(padding=(0, 3), expand=False)
    table.add_column(style="dim", justify="right")
    table.add_column()
    table.add_row("time", _seconds(view))
    if view.rate_hz:
        table.add_row("loop", f"{view.rate_hz:.1f} Hz, jitter {1e3 * view.jitter_s:.1f} ms")
    if view.input_age_s is not None:
        table.add_row("hand", f"{1e3 * view.input_age_s:.0f} ms old at the command")
    table.add_row("task", f"{100 * view.progress:.0f} %, best {100 * view.best:.0f} %")
    if view.recording:
        lost = Text("none", "green")
        if view.lost_frames:
            lost = Text(f"{view.lost_frames}: the disk cannot keep up", "bold red")
        table.add_row("frames lost", lost)
        table.add_row("saved", f"{view.saved} of {view.wanted}")
        if view.counts:
            table.add_row("attempts", ", ".join(f"{n} {what}" for what, n in view.counts))
    if view.cameras:
        table.add_row("cameras", _cameras(view.cameras))
    if view.markers:
        table.add_row("markers", str(view.markers))
    if view.disk_free is not None:
        free = Text(f"{view.disk_free / 1e9:.1f} GB free")
        if view.disk_free < LITTLE:
            free = Text(f"{view.disk_free / 1e9:.2f} GB free: make room", "bold red")
        table.add_row("disk", free)
    if view.gripper is not None:
        table.add_row("gripper", f"{100 * view.gripper:.0f} % open")
    for thing in (view.tool, *view.things):
        if thing is not None:
            table.add_row(thing.name, _where(thing))
    return table


def _cameras(cameras: Sequence[CameraState]) -> Text:
    bad = [camera.trouble for camera in cameras if camera.trouble]
    return Text("; ".join(bad), "bold red") if bad else Text("every picture came", "green")


def _where(thing: Thing) -> str:
    turned = f", {round(math.degrees(thing.yaw))}°" if thing.yaw else ""
    return " ".join(f"{round(1e3 * v)}" for v in thing.at) + f" mm{turned}"


def _curves(view: View) -> Table:
    """The attempt that is over: every number from its least to its most."""
    table = Table.grid(padding=(0, 1), expand=False)
    for curve in view.look.curves:
        known = [v for v in curve.values if math.isfinite(v)]
        low, high = min(known, default=0.0), max(known, default=0.0)
        steps = len(_BARS) - 1
        bars = "".join(
            _BARS[round(steps * (v - low) / (high - low)) if high > low else 0]
            if math.isfinite(v)
            else " "
            for v in curve.values
        )
        least, most = f"{low:.2f}", f"{high:.2f}"
        span = f"{least} to {most}" if least != most else f"{least}, still"
        table.add_row(Text(curve.name, "dim"), Text(bars, "cyan"), Text(span, "dim"))
    return table


def _strips(view: View) -> list[RenderableType]:
    """What the cameras saw in the attempt that is over."""
    out: list[RenderableType] = []
    for name, seen in view.look.strips:
        pictures = [thinned(picture, *_CELLS) for picture in seen]
        out.append(_side_by_side(f"{name}, from start to end", pictures))
    return out


def _side_by_side(title: str, pictures: Sequence[ResizedPicture]) -> Text:
    """Pictures in a row, two pixels in a character."""
    text = Text(f"\n{title}", "dim")
    for row in range(0, min((len(p) for p in pictures), default=0) - 1, 2):
        text.append("\n")
        for picture in pictures:
            for above, below in zip(picture[row].tolist(), picture[row + 1].tolist(), strict=True):
                text.append("▀", f"rgb({_rgb(above)}) on rgb({_rgb(below)})")
            text.append(" ")
    return text


def _rgb(pixel: Sequence[int]) -> str:
    return ",".join(map(str, pixel))


def _keys(view: View) -> Text:
    text = Text()
    for key in view.keys:
        label, what = LABELS[key]
        text.append(f" {label} ", "reverse" if key != "stop" else "bold white on red")
        text.append(f" {what}   ")
    return text


def _driver(view: View) -> str:
    if view.policy_drives:
        return "the policy drives; move the device to take over"
    return "the arm is yours" if view.engaged else f"the arm holds. {view.note}"


def screen_of(view: View, where: str, moving: str = "") -> RenderableType:
    """The whole screen: status, figures, what to do, what is wrong, keys; ``moving``: how the
    device moves the arm.
    """
    phase, style = _title(view)
    parts: list[RenderableType] = [Text(f"  {phase}  ", style, justify="center"), Text()]
    figures = Table.grid(padding=(0, 3), expand=False)
    figures.add_row(_figures(view), _curves(view))
    parts += [figures, Text()]
    if view.phase == "running":
        parts.append(Text(_driver(view)))
        if view.slowed:
            parts.append(Text(f"! {view.slowed}", "bold yellow"))
    if view.message or view.phase == "ready":
        parts.append(Text(view.message or "Press start when you are ready.", "bold"))
    parts += [Text(f"! {warning}", "yellow") for warning in view.warnings]
    if view.error:
        parts.append(Text(printable(f"last error: {view.error}"), "red"))
    parts += [Text(), _keys(view)]
    # Last, as a low terminal shows less of it.
    if view.start is not None:
        camera, picture = view.start
        parts.append(_side_by_side(f"{camera}, and in red where things belong", [picture]))
    else:
        parts += _strips(view)
    if moving and not view.look.curves:
        parts += [Text(), Text(moving, "dim")]
    # A path may have brackets, which are no markup.
    title = Text(printable(f"robolearn {where}"))
    return Panel(Group(*parts), title=title, title_align="left")


class FullScreen:
    """Shows the newest view on the terminal's other screen, a few times a second on a thread of its
    own: whoever tells it waits for nothing. The bell rings where the person is needed.
    """

    def __init__(self, where: str, console: Console | None = None) -> None:
        self._where, self._view, self._moving = where, View(phase="resetting"), ""
        self._console = console or Console()
        self._bell = Writer()
        self._live = Live(
            get_renderable=self._render,
            console=self._console,
            screen=True,
            refresh_per_second=_REFRESH_HZ,
            # Whatever else is printed comes when the terminal is as it was.
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def start(self) -> None:
        """Take the terminal."""
        self._live.start()

    def show(self, view: View) -> None:
        """Remember what to show."""
        if view.phase != self._view.phase and view.phase in CALLING:
            self._bell.newest(lambda: self._console.control(Control.bell()))
        self._view = view

    def explain(self, text: str) -> None:
        """How the device is used, in its own words."""
        self._moving = text.strip()

    def stop(self) -> None:
        """Give the terminal back; safe to call twice."""
        self._bell.close()
        self._live.stop()

    def _render(self) -> RenderableType:
        return screen_of(self._view, self._where, self._moving)


class Lines:
    """Says in lines what changed: for logs, pipes and terminals that are no screens."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._last: tuple[object, ...] = ()
        self._slowed = ""
        self._blind: set[str] = set()

    def show(self, view: View) -> None:
        """One line per phase, warning, error and camera without pictures that was not said yet."""
        # How far a joint is bent changes all the time.
        slowed = view.slowed.partition(" (")[0]
        if slowed and slowed != self._slowed:
            self._write(f"  ! {view.slowed}")
        self._slowed = slowed
        for camera in view.cameras:
            if camera.old and camera.name not in self._blind:
                self._write(f"  ! {camera.trouble}")
        self._blind = {camera.name for camera in view.cameras if camera.old}
        told = (view.phase, view.message, view.warnings, view.error)
        if told == self._last:
            return
        before, self._last = self._last, told
        title, _ = _title(view)
        self._write(f"{title.lower()}: {view.message}" if view.message else title.lower())
        for warning in view.warnings:
            self._write(f"  ! {warning}")
        if view.error and (not before or view.error != before[3]):
            self._write(f"  error: {view.error}")


def full_screen_possible() -> bool:
    """Whether keys can be read and a whole screen shown."""
    with contextlib.suppress(OSError, ValueError):
        return sys.stdin.isatty() and sys.stdout.isatty()
    return False
