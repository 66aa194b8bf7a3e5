"""Counts what an episode cost: the time that it drove, the arm's way and forces, a person's help.

Ways are added up from tick to tick: at the rate of the sensors their noise would count as motion.
Forces are looked at as often as they were measured, where they are (``tool/wrench``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.data.episode import Episode, take_overs, taken_over
from robolearn.data.insight.episode_measures import EVENT, supervised
from robolearn.shapes import AnyFloats, Floats

JOINTS, WRENCH = "joint_position", "wrench"
PLACES = {"tool/pose": 3, "tool/xy_table": 2}
"""Where the tool is: so many numbers of the signal are its place [m]; the first that was seen."""
PEAK_N = 50.0
"""From here on a force is a peak [N]."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Of one episode, or of many together."""

    # Time that it drove [s].
    seconds: float = 0.0
    # Way of all joints together [rad], and of the tool [m]; 0 where it was not seen.
    travel_rad: float = 0.0
    travel_m: float = 0.0
    # How often the force at the tool rose beyond 50 N, and the largest one [N].
    force_peaks: int = 0
    largest_force_n: float = 0.0
    # How often a person took over, and steps that the person drove.
    take_overs: int = 0
    person_steps: int = 0
    # How often the supervisor stepped in: what was asked for beyond the limits, what came late.
    interventions: int = 0


@dataclass(frozen=True, slots=True)
class Wear:
    """What a practice cost the arm and the person."""

    # Time that episodes drove [s].
    robot_seconds: float = 0.0
    # Ways that the arm was sent: episodes, and on a cell ways to a start.
    moves: int = 0
    # Of all joints together [rad]; of the tool [m]; 0 where it is not seen.
    travel_rad: float = 0.0
    travel_m: float = 0.0
    # Of the supervisor; and how often it stepped in at all: what was asked for beyond the limits,
    # what came late.
    stops: int = 0
    interventions: int = 0
    # How often the force at the tool rose beyond 50 N; the largest [N].
    force_peaks: int = 0
    largest_force_n: float = 0.0
    # How often a person took over, and for how long [s].
    take_overs: int = 0
    person_seconds: float = 0.0


def telling(signals: Sequence[str]) -> list[str]:
    """Those of ``signals`` that :func:`effort_of` looks at."""
    kinds = (JOINTS, WRENCH)
    return [n for n in signals if n in (*PLACES, EVENT) or n.rpartition("/")[2] in kinds]


# Kinds of episodes that a policy is in charge of.
_LED = ("rollout", "corrected", "online", "deployment")


def effort_of(episode: Episode) -> Effort:
    """That of a recorded episode; :func:`telling` says which of its signals are needed."""
    joints = [n for n in episode.view if n.rpartition("/")[2] == JOINTS]
    place = next((n for n in PLACES if n in episode.view), "")
    forces = [_force(episode, n) for n in episode.streams if n.rpartition("/")[2] == WRENCH]
    # There a policy is in charge from the start on: who takes over before it has answered for the
    # first time has taken over, too.
    led = ("policy", *episode.source) if episode.meta.kind in _LED else episode.source
    return Effort(
        seconds=episode.duration_s,
        travel_rad=float(sum(np.abs(_moved(episode, n)).sum() for n in joints)),
        travel_m=float(np.linalg.norm(_moved(episode, place)[:, : PLACES[place]], axis=1).sum())
        if place
        else 0.0,
        force_peaks=sum(_peaks(force) for force in forces),
        largest_force_n=float(max((f.max() for f in forces if f.size), default=0.0)),
        take_overs=int(take_overs(led).sum()),
        person_steps=int(taken_over(led).sum()),
        interventions=len(supervised(episode)),
    )


def together(efforts: Iterable[Effort]) -> Effort:
    """Their sum; of forces the largest."""
    every = tuple(efforts)
    return Effort(
        seconds=math.fsum(e.seconds for e in every),
        travel_rad=math.fsum(e.travel_rad for e in every),
        travel_m=math.fsum(e.travel_m for e in every),
        force_peaks=sum(e.force_peaks for e in every),
        largest_force_n=max((e.largest_force_n for e in every), default=0.0),
        take_overs=sum(e.take_overs for e in every),
        person_steps=sum(e.person_steps for e in every),
        interventions=sum(e.interventions for e in every),
    )


def _moved(episode: Episode, name: str) -> AnyFloats:
    """From tick to tick ``[T - 1, n]``; what was not seen has not moved."""
    seen = episode.observed(name).reshape(episode.steps, -1).astype(np.float64)
    return np.nan_to_num(np.diff(seen, axis=0))


def _force(episode: Episode, name: str) -> Floats:
    """``[k]``, of the first three numbers of the wrench [N]."""
    value = episode.streams[name].value
    return np.nan_to_num(np.linalg.norm(value[:, :3].astype(np.float64), axis=1))


def _peaks(force: Floats) -> int:
    beyond = force > PEAK_N
    return int((beyond & ~np.concatenate([[False], beyond[:-1]])).sum())
