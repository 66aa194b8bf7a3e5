r"""Finds in a demonstration which of its ticks belong to which object.

    tool      ......\___/------\___/..        an object moves with the tool from grasp to release
    skills       [ cube ]     [ goal ]        ticks near the place of that event
    between   bridge      bridge              free motion

What the tool does near the place where it grasps an object belongs to that object; near the place
where it lets go, to the object that lies there (the nearest; the table, where none is near). Of a
demonstration in which nothing is carried, the moments when the fingers move count; without
fingers it is one skill. A file may say all of this instead (:class:`SkillRule`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import NDArray

from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Vector, quat_conjugate, quat_heading, quat_multiply, quat_rotate
from robolearn.retargeting.shapes import Way
from robolearn.shapes import Floats

Places = Float64[NDArray[np.float64], "n 3"]
Moments = Bool[NDArray[np.bool_], " n"]

# The table: what is relative to it stays where it was.
TABLE = ""
# An object that goes with the tool moves by this [m] per tick, and at most so much of it otherwise.
_MOVES_M, _APART = 0.001, 0.3
# It is so near the tool's point [m], and lies in the hand as before [m] after a pause.
_REACH_M, _SLIP_M = 0.15, 0.012
# A hold carries an object at least so far [m].
_CARRIED_M = 0.02
# Where it is let go, the object that it belongs to is so near [m].
_TARGET_M = 0.15
# Share of the ticks between two events that one skill may take.
_SHARE = 0.4
# Attitudes that repeat in quarter turns as well as this, over enough demonstrations, matter.
_REPEATS, _ENOUGH = 0.8, 4
# The fingers move when their command changes by this [m].
_FINGERS_M = 0.002


@dataclass(frozen=True, slots=True)
class Seen:
    """One demonstration: the measured tool ``[T, 7]``, objects ``[T, 7]`` by name, and the commands
    of the fingers ``[T]`` (None: there are none).
    """

    tool: Way
    objects: Mapping[str, Way]
    fingers: Floats | None = None


@dataclass(frozen=True, slots=True)
class Skill:
    """Ticks ``[start, stop)`` that are carried over as one piece with ``object``.

    ``event``: the tick that decided on it; ``held``: what was in the hand then; ``turns``: whether
    the hand turns with the object, or as it did before.
    """

    object: str
    start: int
    stop: int
    event: int
    held: str = ""
    turns: bool = True


@dataclass(frozen=True, slots=True)
class SkillRule:
    """A skill as a person says it: what it is relative to (empty: the table), and its ticks as
    ``grasp``, ``release`` (the first, second, ... of the demonstration, in order) or ``end``.
    """

    # Signal of the object (cube/pose); empty: the table.
    object: str
    # The event around which it lies.
    at: str = "grasp"
    # Whether the hand turns with the object; left out: what the demonstrations show.
    turns: bool | None = None

    def __post_init__(self) -> None:
        if self.at not in ("grasp", "release", "end"):
            raise ConfigError(f"at must be grasp, release or end, got '{self.at}'")


@dataclass(frozen=True, slots=True)
class _Event:
    tick: int
    object: str
    held: str
    kind: str


def find_skills(seen: Seen, near_m: float, rules: Sequence[SkillRule] = ()) -> tuple[Skill, ...]:
    """The skills of a demonstration, in order; they reach ``near_m`` [m] around their event.

    ``rules``: what a person says they are. Raises :class:`DataError` where there is no object, or
    the demonstration has other events than the rules name.
    """
    if not seen.objects:
        raise DataError("no object's pose is among the signals: nothing to move along with")
    events = _ruled(seen, rules) if rules else _events(seen)
    found: list[Skill] = []
    for k, event in enumerate(events):
        start, stop = _around(seen.tool[:, :3], event.tick, near_m)
        if k:
            start = max(start, event.tick - int(_SHARE * (event.tick - events[k - 1].tick)))
        # The first tick belongs to where the tool starts, and all that comes last to the last.
        start = max(start, 1)
        if k + 1 == len(events):
            stop = len(seen.tool)
        else:
            stop = min(stop, event.tick + int(_SHARE * (events[k + 1].tick - event.tick)) + 1)
        if found and (found[-1].object, found[-1].held) == (event.object, event.held):
            # Nothing goes over to another object in between.
            found[-1] = dataclasses.replace(found[-1], stop=stop)
        else:
            found.append(Skill(event.object, start, stop, event.tick, event.held))
    return tuple(found)


def turning(
    demonstrations: Sequence[tuple[Seen, Sequence[Skill]]],
) -> Mapping[tuple[str, str], bool]:
    """By (object, held): whether the hand's attitude to the object is the same in all of them, up
    to quarter turns. What differs among demonstrations does not matter to the task; of too few of
    them, everything does.
    """
    headings: dict[tuple[str, str], list[float]] = {}
    for seen, skills in demonstrations:
        for skill in skills:
            if skill.object == TABLE:
                continue
            moment = slice(skill.event, skill.event + 1)
            other = quat_conjugate(seen.objects[skill.object][moment, 3:])
            angle = quat_heading(quat_multiply(other, seen.tool[moment, 3:])).item()
            headings.setdefault((skill.object, skill.held), []).append(angle)
    found: dict[tuple[str, str], bool] = {}
    for key, angles in headings.items():
        repeat = abs(complex(np.mean(np.exp(4j * np.array(angles)))))
        found[key] = len(angles) < _ENOUGH or repeat > _REPEATS
    return found


def _events(seen: Seen) -> list[_Event]:
    """Grasps and releases; else moves of the fingers; else the end."""
    events: list[_Event] = []
    for name, way in seen.objects.items():
        for first, last in _holds(seen.tool, way):
            events.append(_Event(first, name, "", "grasp"))
            others = {n: w for n, w in seen.objects.items() if n != name}
            target, away = _nearest(way[last, :3], others, last)
            events.append(_Event(last, target if away < _TARGET_M else TABLE, name, "release"))
    if not events and seen.fingers is not None:
        ticks = _finger_ticks(seen.fingers)
        events = [
            _Event(t, _nearest(seen.tool[t, :3], seen.objects, t)[0], "", "grasp") for t in ticks
        ]
    if not events:
        end = len(seen.tool) - 1
        events = [_Event(end, _nearest(seen.tool[end, :3], seen.objects, end)[0], "", "end")]
    return sorted(events, key=lambda e: (e.tick, e.kind))


def _ruled(seen: Seen, rules: Sequence[SkillRule]) -> list[_Event]:
    """Events as the rules say, of which the demonstration says when they were."""
    unknown = sorted({r.object for r in rules} - {TABLE, *seen.objects})
    if unknown:
        raise DataError(f"{unknown} are no objects here; there are {sorted(seen.objects)}")
    own = _events(seen)
    events: list[_Event] = []
    tick = -1
    for rule in rules:
        if rule.at == "end":
            tick = len(seen.tool) - 1
            events.append(_Event(tick, rule.object, "", "end"))
            continue
        later = [e for e in own if e.kind == rule.at and e.tick > tick]
        if not later:
            raise DataError(
                f"the demonstration has no {rule.at} after tick {max(tick, 0)} for"
                f" '{rule.object or 'the table'}'; it has"
                f" {[f'{e.kind} at {e.tick}' for e in own]}"
            )
        tick = later[0].tick
        events.append(_Event(tick, rule.object, later[0].held, rule.at))
    return events


def _holds(tool: Way, way: Way) -> list[tuple[int, int]]:
    """First and last tick of every time in which an object goes with the tool."""
    inside = quat_rotate(quat_conjugate(tool[:, 3:]), way[:, :3] - tool[:, :3])
    moved = np.linalg.norm(np.diff(way[:, :3], axis=0), axis=1)
    slipped = np.linalg.norm(np.diff(inside, axis=0), axis=1)
    near = np.linalg.norm(inside[1:], axis=1) < _REACH_M
    carried = np.flatnonzero((moved > _MOVES_M) & (slipped < _APART * moved) & near)
    found: list[list[int]] = []
    for tick in carried.tolist():
        if found and float(np.linalg.norm(inside[tick] - inside[found[-1][1]])) < _SLIP_M:
            found[-1][1] = tick + 1
        else:
            found.append([tick, tick + 1])
    return [(a, b) for a, b in found if _length(way[a : b + 1, :3]) > _CARRIED_M]


def _length(places: Places) -> float:
    return float(np.linalg.norm(np.diff(places, axis=0), axis=1).sum())


def _nearest(place: Vector, objects: Mapping[str, Way], tick: int) -> tuple[str, float]:
    away = {n: math.dist(place.tolist(), way[tick, :3].tolist()) for n, way in objects.items()}
    if not away:
        return TABLE, math.inf
    name = min(away, key=lambda n: (away[n], n))
    return name, away[name]


def _finger_ticks(fingers: Floats) -> list[int]:
    """When the fingers begin to move."""
    moving: Moments = np.abs(np.diff(fingers)) > _FINGERS_M
    begins = moving & ~np.concatenate([[False], moving[:-1]])
    return (np.flatnonzero(begins) + 1).tolist()


def _around(places: Places, event: int, near_m: float) -> tuple[int, int]:
    """Ticks ``[start, stop)`` around the event in which the tool stays near its place then."""
    near = np.linalg.norm(places - places[event], axis=1) < near_m
    away = np.flatnonzero(~near)
    before, after = away[away < event], away[away > event]
    start = int(before[-1]) + 1 if len(before) else 0
    return start, int(after[0]) if len(after) else len(places)
