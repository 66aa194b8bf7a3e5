"""Defines what a teleoperation device is, what it tells, and what it shows to the person.

A device knows no robot: it is polled for what the hand does and for the keys that were pressed, and
it is told what to show. :mod:`hardware.teleop.mapping` makes commands of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from hardware.shapes import ResizedPicture
from hardware.teleop.shapes import Deflection
from robolearn.arms.shapes import Joints, Twist
from robolearn.geometry import XY, Pose
from robolearn.shapes import Picture
from robolearn.spec import EmbodimentSpec
from robolearn.types import Outline

Key = Literal[
    "start",
    "keep",
    "discard",
    "redo",
    "quit",
    "success",
    "failure",
    "takeover",
    "handback",
    "marker",
    "stop",
]
Phase = Literal["resetting", "placing", "ready", "running", "review", "stopped", "done"]
# Whether a device starts and keeps episodes itself, or with the terminal's keys beside it.
Keys = Literal["own", "welcome", "needed"]


@dataclass(frozen=True, slots=True)
class Rate:
    """``twist``: how far the hand deflects the device, in [-1, 1], without a unit: x forward, y
    left, z up, then turns about them (counter-clockwise).
    """

    twist: Deflection


@dataclass(frozen=True, slots=True)
class Steps:
    """``total``: all steps since the device was opened, along and about the axes of :class:`Rate`
    [m, rad]. Whoever reads late misses none.
    """

    total: Twist


@dataclass(frozen=True, slots=True)
class HandPose:
    """``T``: pose of the hand in the device's frame (x forward, y left, z up); only its changes
    while the clutch is held count.
    """

    T: Pose


@dataclass(frozen=True, slots=True)
class JointAngles:
    """``q``: joint angles of a leader arm, as the joints of the arm that follows count [rad]."""

    q: Joints


@dataclass(frozen=True, slots=True)
class TablePoint:
    """``xy``: a point on the table, in the frame of ``tool/xy_table`` [m]."""

    xy: XY


@dataclass(frozen=True, slots=True)
class Guided:
    """The hand is at the arm itself, which gives way to it: where the arm is measured is where it
    is wanted.
    """


Motion = Rate | Steps | HandPose | JointAngles | TablePoint | Guided


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """What the hand does now."""

    # Monotonic time of the newest input, or of the newest proof that the device would tell of one.
    t_ns: int
    # Plugged in, page open, terminal in focus.
    present: bool
    # The person holds it (dead-man): nothing moves while False.
    clutch: bool
    motion: Motion | None = None
    # Wanted opening of the gripper, 0 to 1; None: as it is.
    gripper: float | None = None


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that stands in the workcell: the part that its pose's signal names, (x, y) or
    (x, y, z) in the action's frame [m], and its turn about z [rad].
    """

    name: str
    at: tuple[float, ...]
    yaw: float = 0.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A number over the attempt, at evenly spread moments; NaN where it was none."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """``curves`` of the joints (of the tool where none are seen) and the fingers; of every camera
    some small pictures, from the first to the last.
    """

    curves: tuple[Curve, ...] = ()
    strips: tuple[tuple[str, tuple[Picture, ...]], ...] = ()

    @property
    def shows(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.curves or self.strips)


@dataclass(frozen=True, slots=True)
class CameraState:
    """What a camera delivers: how old its newest picture is [s] (None: none came yet), whether that
    is too old to steer by, and how many did not come in the attempt.
    """

    name: str
    age_s: float | None
    old: bool = False
    missed: int = 0

    @property
    def trouble(self) -> str:
        """What is wrong with it, in words; "" for nothing."""
        if self.age_s is None:
            return f"{self.name}: no picture"
        if self.old:
            return f"{self.name}: newest picture is {self.age_s:.0f} s old"
        return f"{self.name}: {self.missed} did not come" if self.missed else ""


@dataclass(frozen=True, slots=True)
class View:
    """What the person sees: the workcell and how it goes.

    ``tool``: where the tool is, if it is known; ``things``: all other parts whose poses are;
    ``engaged`` while the person has hold of the tool; ``rate_hz`` as measured; ``progress`` now and
    ``best`` so far, in [0, 1]; ``note``: why nothing moves; ``gripper``: its commanded opening, 0
    to 1; ``keys``: those that do something now.
    """

    phase: Phase
    tool: Thing | None = None
    things: tuple[Thing, ...] = ()
    engaged: bool = False
    progress: float = 0.0
    best: float = 0.0
    step: int = 0
    max_steps: int = 0
    rate_hz: float = 0.0
    saved: int = 0
    wanted: int = 0
    message: str = ""
    note: str = ""
    gripper: float | None = None
    # What keeps the arm from doing all that the hand asks for; "" for nothing.
    slowed: str = ""
    # How far the fingers are open, as measured [m].
    fingers_m: float | None = None
    # Newest picture of each camera, by the name of its part; while things are placed with the start
    # that is wanted over it.
    pictures: Mapping[str, Picture] = field(default_factory=dict[str, Picture])
    # Of those that came as plain JPEGs, the files.
    jpegs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    # How every camera does.
    cameras: tuple[CameraState, ...] = ()
    # The camera that shows the wanted start, and its picture in small, for a terminal.
    start: tuple[str, ResizedPicture] | None = None
    # A policy drives, until the person takes over.
    policy_drives: bool = False
    # Whether the attempt is kept if the person says so; False: driving alone.
    recording: bool = True
    # Of the attempt [s], and how uneven its ticks are (95 of 100 are better) [s].
    elapsed_s: float = 0.0
    jitter_s: float = 0.0
    # How old what the hand said was when it became a command (95 of 100 are younger) [s]; None: it
    # said nothing yet.
    input_age_s: float | None = None
    # Moments that were marked in the attempt.
    markers: int = 0
    # Pictures that did not reach the disk in this session, and what is left of it [bytes].
    lost_frames: int = 0
    disk_free: int | None = None
    # How many attempts became what.
    counts: tuple[tuple[str, int], ...] = ()
    # What is wrong with the attempt that waits for a decision.
    warnings: tuple[str, ...] = ()
    # The attempt that is over, in small.
    look: Look = field(default_factory=Look)
    # What went wrong last.
    error: str = ""
    keys: tuple[Key, ...] = ()


@runtime_checkable
class TeleopDevice(Protocol):
    """A person's hand: keys, a page, a puck, a leader arm."""

    @property
    def name(self) -> str:
        """``browser``, ``keyboard``, ...: commands carry ``human:<name>``."""
        ...

    @property
    def lease_s(self) -> float:
        """A reading whose ``t_ns`` is older than this is of nobody [s]."""
        ...

    def begin(self, opening: float | None) -> None:
        """Control begins with the gripper open by this share (None: there is no gripper)."""
        ...

    def poll(self) -> DeviceReading:
        """The newest state; never blocks, and changes nothing."""
        ...

    def pressed(self) -> tuple[Key, ...]:
        """Keys pressed since the last call, oldest first; never blocks."""
        ...

    def show(self, view: View) -> None:
        """Show the workcell; never blocks."""
        ...

    def close(self) -> None:
        """Release the device; safe to call twice."""
        ...


def unheard(text: str) -> None:
    """Where nobody looks."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the program offers to a device that it opens."""

    # Text for the terminal, which may rewrite its line.
    write: Callable[[str], Any] = unheard
    # Somebody else shows views on the terminal's other screen: a device writes its help alone.
    full_screen: bool = False
    # Address of a page that the person should open.
    on_page: Callable[[str], Any] = unheard
    # Name of the task, and its parameters that are not its defaults.
    task: str = ""
    task_params: Any = None
    # What is driven, for devices that draw it; None: somebody who only wants keys.
    spec: EmbodimentSpec | None = None
    # What things look like from above, as far as it is known.
    outlines: tuple[Outline, ...] = ()
    # Where the person's forward points in the action's frame [rad]; None: as the mapping has it.
    heading_rad: float | None = None
    # The camera in the axes of whose picture the hand counts; "": in other ones.
    camera: str = ""
