"""Lets a hand guide the arm of a cell under the supervisor, and says where the arm is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.commissioning.no_task import NoScore
from hardware.env.real_env import RealEnv
from hardware.supervisor.follower import Follower, Leeway
from hardware.supervisor.link import Event, Mode
from robolearn.arms.models import ARMS
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError
from robolearn.geometry import Vector
from robolearn.operations.cell.lab import cell_lab
from robolearn.operations.cell.operator import CellOperator

_TELL_EVERY_S = 0.5
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class ArmPlace:
    """Where an arm is: its joints [rad], its flange in the base's frame [m] (None where its
    kinematics are not known here), and how far its limits are.
    """

    joint_position: Joints
    flange_m: Vector | None
    leeway: Leeway


@dataclass(frozen=True, slots=True)
class GuideListener:
    """Who is told how it goes."""

    # The arm gives way from now on.
    on_free: Callable[[], None] | None = None
    # Where it is, twice a second.
    on_place: Callable[[ArmPlace], None] | None = None
    # It holds again: whoever supports it may let go.
    on_hold: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Guided:
    """Where a hand left the arm, and what the supervisor did meanwhile."""

    place: ArmPlace
    interventions: tuple[Event, ...]


def guide_arm(
    config: Path,
    operator: CellOperator,
    *,
    seconds: float = 0.0,
    start_lab: bool = False,
    listener: GuideListener = GuideListener(),
) -> Guided:
    """Let a hand guide the arm of a file of ``configs/hardware/`` until the operator is done.

    ``seconds``: at most for so long [s] (0: as long as it takes); a limit of the cell ends it, too.
    ``start_lab``: start the virtual lab of the config meanwhile.

    Errors: :class:`ConfigError`, also when the operator does not agree; those of the device, which
    needs a freedrive.
    """
    if seconds < 0.0:
        raise ConfigError(f"seconds must be 0 or more, got {seconds}")
    if not seconds and operator.done is None:
        raise ConfigError("nobody says when it is enough: give seconds, or the operator's 'done'")
    cell = load_cell(config)
    with ExitStack() as stack:
        stack.enter_context(cell_lab(config, cell, start=start_lab))
        operator.consent("the arm gives way to your hand; hold it")
        env = RealEnv(cell, place=lambda _: "", scorer=NoScore())
        stack.callback(env.close)
        follower = cell.follower().build(float(cell.driver.get("rate_hz", 500.0)))
        env.guide()
        if listener.on_free is not None:
            listener.on_free()
        _watch(env, seconds, operator.done or _nobody, lambda: _tell(env, cell, follower, listener))
        env.hold()
        if listener.on_hold is not None:
            listener.on_hold()
        return Guided(_place(env, cell, follower), tuple(env.interventions))


def _watch(
    env: RealEnv, seconds: float, done: Callable[[float], bool], tell: Callable[[], None]
) -> None:
    """Until the operator is done, or the time is over, or a limit has ended freedrive."""
    deadline_s = time.monotonic() + (seconds or math.inf)
    told_s = -math.inf
    while time.monotonic() < deadline_s and env.status().mode is Mode.FREEDRIVE:
        if time.monotonic() - told_s > _TELL_EVERY_S:
            told_s = time.monotonic()
            tell()
        if done(_LOOK_EVERY_S):
            return


def _nobody(wait_s: float) -> bool:
    """Says nothing, and takes as long for it."""
    time.sleep(wait_s)
    return False


def _tell(env: RealEnv, cell: CellConfig, follower: Follower, listener: GuideListener) -> None:
    if listener.on_place is not None:
        listener.on_place(_place(env, cell, follower))


def _place(env: RealEnv, cell: CellConfig, follower: Follower) -> ArmPlace:
    q = env.supervisor.state().joint_position
    flange_m = ARMS[cell.arm].fk(q)[:3, 3] if cell.arm in ARMS else None
    return ArmPlace(q, flange_m, follower.leeway(q))
