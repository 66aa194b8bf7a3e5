"""Acts and plays on the play table.

The expert works through the wanted sub-goals one after another. The player draws goals of its own,
several ahead, and does each in one of several ways: other speeds, heights and bows, grasping or
pushing, pauses, changes of mind. What it does next depends on intentions that no signal shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robolearn.geometry import XY, Vector
from robolearn.spec import EmbodimentSpec
from sim.experts.drawer import slide_drawer
from sim.experts.script import Hand, Script, ScriptedExpert
from sim.experts.skills import above_by, carry, nearest_turn, pick, release
from sim.experts.stacking import stack
from sim.tasks.drawer import CABINET
from sim.tasks.manipulation import heading
from sim.tasks.play_table import (
    ACHIEVED,
    BLUE,
    BUTTON,
    BUTTON_TRAVEL_M,
    DRAWER,
    GREEN,
    RED,
    SIDE_M,
    SLIDER,
    SUBGOALS,
    TRAVEL_M,
    TRAY,
    WANTED,
)

SLIDER_POSE, BUTTON_POSE = "slider/pose", "button/pose"
# Heights [m] over the table: where to take the slider's knob; the button's top at rest.
KNOB_Z_M, BUTTON_TOP_M = 0.066, 0.040
# The fingers end this far below the tool's point [m].
TIP_M = 0.009
_OVER_M = 0.09
_TRIES = 4
_NEEDS = (RED, GREEN, BLUE, TRAY, CABINET, DRAWER, SLIDER, SLIDER_POSE, BUTTON, BUTTON_POSE)


def expert(embodiment: EmbodimentSpec, noise: float = 0.0) -> ScriptedExpert:
    """Reaches the sub-goals that ``goal/wanted`` names, in their order; tries each a few times."""
    needs = (*_NEEDS, WANTED, ACHIEVED)
    return ScriptedExpert("play_table", _wanted, embodiment, noise, needs)


def player(embodiment: EmbodimentSpec, noise: float = 0.0) -> ScriptedExpert:
    """Plays: random goals in random manners, without an end."""
    return ScriptedExpert("play_table", _play, embodiment, noise, _NEEDS, source="play")


def _wanted(hand: Hand) -> Script:
    ways: dict[str, Callable[[Hand], Script]] = {
        "drawer_open": lambda h: slide_drawer(h, 0.135),
        "slider_right": lambda h: slide_knob(h, 0.14),
        "button_pressed": press_button,
        "red_in_tray": lambda h: put(h, RED, h.view.value(TRAY)[:2]),
        "green_on_blue": lambda h: stack(h, GREEN, BLUE),
    }
    left = [k for k in range(len(SUBGOALS)) if hand.view.value(WANTED)[k] > 0.5]
    for _ in range(_TRIES):
        for k in list(left):
            watch = _Watch(hand, k)
            yield from watch.until(ways[SUBGOALS[k]](hand))
            if watch.seen:
                left.remove(k)


class _Watch:
    """Runs a skill and notes whether a sub-goal held at any tick (a button springs back)."""

    def __init__(self, hand: Hand, subgoal: int) -> None:
        self._hand, self._subgoal, self.seen = hand, subgoal, False

    def until(self, skill: Script) -> Script:
        """Pass everything through."""
        target = next(skill)
        while True:
            view = yield target
            self.seen = self.seen or float(view.value(ACHIEVED)[self._subgoal]) > 0.5
            try:
                target = skill.send(view)
            except StopIteration:
                return


def slide_knob(hand: Hand, to: float, grasp: bool = True) -> Script:
    """Bring the slider to ``to`` [m]: the knob between the fingers, or pushed by closed ones."""
    rail = hand.view.value(SLIDER_POSE)
    yaw = nearest_turn(heading(rail), hand.home_yaw, math.pi)
    right = np.array([math.sin(heading(rail)), -math.cos(heading(rail)), 0.0])

    def knob(opening: float) -> Vector:
        return rail[:3] + opening * right + above_by(KNOB_Z_M)

    now = float(hand.view.value(SLIDER)[0])
    side = np.zeros(3) if grasp else math.copysign(0.035, now - to) * right
    yield from hand.rise(KNOB_Z_M + _OVER_M)
    above = knob(now) + side + above_by(_OVER_M)
    yield from hand.move(above, yaw, width=0.06 if grasp else 0.0)
    start = knob(float(hand.view.value(SLIDER)[0])) + side + hand.noise.miss()
    yield from hand.move(start, yaw, speed=0.18)
    if grasp:
        yield from hand.close()
    # Closed fingers touch the knob with their backs: 21 mm wide, and the knob is 20 mm.
    contact = np.zeros(3) if grasp else math.copysign(0.021, now - to) * right
    yield from hand.move(knob(to) + contact + (start - knob(now) - side), yaw, speed=0.15)
    if grasp:
        yield from hand.open(0.06)
    yield from hand.rise(KNOB_Z_M + _OVER_M)


def press_button(hand: Hand, hold_s: float = 0.1) -> Script:
    """Press the button down with closed fingers, hold it, and let it spring back."""
    top = hand.view.value(BUTTON_POSE)[:3] + above_by(BUTTON_TOP_M + TIP_M)
    yield from hand.rise(float(top[2]) + _OVER_M)
    yield from hand.move(top + above_by(0.06), width=0.0)
    miss = hand.noise.miss()
    yield from hand.close()
    yield from hand.move(top + miss - above_by(BUTTON_TRAVEL_M + 0.004), speed=0.12)
    yield from hand.wait(hold_s)
    yield from hand.move(top + above_by(0.08), speed=0.2, patience_s=0.1)


def put(hand: Hand, name: str, xy: XY, over: float = _OVER_M) -> Script:
    """One attempt to pick a cube and put it down at ``xy [2]`` [m]."""
    if not (yield from pick(hand, name)):
        return
    goal = np.array([float(xy[0]), float(xy[1]), SIDE_M / 2])
    if not (yield from carry(hand, name, goal + above_by(over))):
        return
    if (yield from carry(hand, name, goal + above_by(0.003))):
        yield from release(hand)


def push_cube(hand: Hand, name: str, direction: float, distance: float) -> Script:
    """Push a cube along the table with closed fingers."""
    cube = hand.view.value(name)[:3]
    along = np.array([math.cos(direction), math.sin(direction), 0.0])
    start = cube - 0.055 * along
    # The fingers are flat across their closing direction, the hand's y axis.
    yaw = nearest_turn(direction, hand.home_yaw, math.pi)
    yield from hand.rise(0.12)
    yield from hand.move(start + above_by(0.08), yaw, width=0.0)
    yield from hand.move(start, yaw, speed=0.2)
    yield from hand.move(cube + (distance - 0.03) * along, yaw, speed=0.15, patience_s=0.2)
    yield from hand.rise(0.12)


@dataclass(frozen=True, slots=True)
class _Table:
    """Where play puts cubes [m]: away from drawer, slider and button."""

    low: tuple[float, float] = (-0.16, -0.22)
    high: tuple[float, float] = (0.09, 0.02)


def _play(hand: Hand) -> Script:
    """Intentions are drawn three at a time; now and then one is dropped half-way."""
    rng, plan = hand.rng, list[Callable[[Hand], Script]]()
    yield from hand.wait(float(rng.uniform(0.05, 0.5)))
    while True:
        if not plan:
            plan = [_intention(hand) for _ in range(3)]
        hand.speed = float(rng.uniform(0.18, 0.40))
        hand.bow = float(rng.normal(0.0, 0.05))
        skill = plan.pop()(hand)
        if rng.random() < 0.12:
            yield from _abandoned(hand, skill, int(rng.integers(8, 40)))
        else:
            yield from skill
        if rng.random() < 0.35:
            yield from hand.wait(float(rng.uniform(0.1, 1.2)))
        if rng.random() < 0.2:
            yield from _wander(hand)


def _intention(hand: Hand) -> Callable[[Hand], Script]:
    """One thing to do, and how."""
    rng, table = hand.rng, _Table()
    names = [RED, GREEN, BLUE]
    choice = rng.choice(8, p=(0.18, 0.15, 0.13, 0.14, 0.14, 0.08, 0.08, 0.10))
    first, second = rng.permutation(3)[:2]
    cube, other = names[first], names[second]
    xy = rng.uniform(table.low, table.high)
    if choice == 0:
        # The drawer goes the other way, not always all the way.
        share = float(rng.choice([1.0, 1.0, 0.6]))
        return lambda h: slide_drawer(h, 0.14 * share if _half(h, DRAWER) else 0.02)
    if choice == 1:
        grasp = bool(rng.random() < 0.6)
        share = float(rng.choice([1.0, 1.0, 0.5]))
        return lambda h: slide_knob(h, 0.145 * share if _half(h, SLIDER) else 0.012, grasp)
    if choice == 2:
        hold_s = float(rng.uniform(0.05, 0.6))
        return lambda h: press_button(h, hold_s)
    if choice == 3:
        in_tray = rng.uniform(-0.02, 0.02, 2)
        over = float(rng.uniform(0.06, 0.14))
        return lambda h: put(h, RED, h.view.value(TRAY)[:2] + in_tray, over)
    if choice == 4:
        return lambda h: stack(h, GREEN, BLUE)
    if choice == 5:
        return lambda h: stack(h, cube, other)
    if choice == 6:
        far = float(rng.uniform(0.04, 0.10))
        return lambda h: push_cube(h, cube, _inwards(h, cube, table), far)
    return lambda h: put(h, cube, xy)


def _half(hand: Hand, signal: str) -> bool:
    """True if something that opens is less than half open."""
    return float(hand.view.value(signal)[0]) < TRAVEL_M / 2


def _inwards(hand: Hand, name: str, table: _Table) -> float:
    """Heading [rad] from a cube to the middle of the table."""
    dx, dy = 0.5 * (np.array(table.low) + table.high) - hand.view.value(name)[:2]
    return math.atan2(float(dy), float(dx))


def _abandoned(hand: Hand, skill: Script, ticks: int) -> Script:
    """Begin something, change one's mind, and let go of whatever is held."""
    target = next(skill)
    for _ in range(ticks):
        view = yield target
        hand.view = view
        try:
            target = skill.send(view)
        except StopIteration:
            return
    skill.close()
    yield from hand.rise(0.10)
    yield from release(hand, up=0.03)


def _wander(hand: Hand) -> Script:
    """Go somewhere for no reason."""
    xyz = hand.rng.uniform((-0.12, -0.25, 0.12), (0.12, 0.25, 0.28))
    yaw = hand.home_yaw + float(hand.rng.uniform(-0.6, 0.6))
    yield from hand.move(xyz, yaw, patience_s=0.1)
