"""Opens the drawer: takes the handle between the fingers, pulls, lets go."""

from __future__ import annotations

import math

import numpy as np

from robolearn.geometry import Vector
from robolearn.spec import EmbodimentSpec
from sim.experts.noise import NoiseScale
from sim.experts.script import Hand, Script, ScriptedExpert
from sim.experts.skills import above_by, nearest_turn
from sim.shapes import PoseValues
from sim.tasks.drawer import CABINET, HANDLE_X_M, HANDLE_Z_M, OPENING
from sim.tasks.manipulation import heading

# The handle is large and the drawer light: a hand that only trembles still opens it.
_NOISE = NoiseScale(miss_m=(0.06, 0.10))
_OPEN_TO_M = 0.135
_SPREAD_M = 0.06
_CLEAR_M = 0.09


def expert(embodiment: EmbodimentSpec, noise: float = 0.0) -> ScriptedExpert:
    """Tries again until the drawer is open."""
    return ScriptedExpert("drawer", plan, embodiment, noise, (CABINET, OPENING), _NOISE)


def plan(hand: Hand) -> Script:
    """The script of one episode."""
    while opening(hand) < _OPEN_TO_M - 0.01:
        yield from slide_drawer(hand, _OPEN_TO_M)


def slide_drawer(hand: Hand, to: float) -> Script:
    """One attempt to bring the drawer's opening to ``to`` [m] by its handle."""
    cabinet = hand.view.value(CABINET)
    # The fingers close along the tool's y axis, here the cabinet's: they take the tab by its sides.
    yaw = nearest_turn(heading(cabinet), hand.home_yaw, math.pi)
    yield from hand.rise(HANDLE_Z_M + _CLEAR_M)
    yield from hand.move(grip_point(hand) + above_by(_CLEAR_M), yaw, width=_SPREAD_M)
    point = grip_point(hand) + hand.noise.miss()
    yield from hand.move(point, yaw, speed=0.18)
    yield from hand.close()
    step = to - opening(hand)
    slips = hand.noise.lets_go()
    pulled = np.array(hand.target.xyz) + (0.3 if slips else 1.0) * step * out_of(cabinet)
    yield from hand.move(pulled, yaw, speed=0.15, patience_s=0.3)
    yield from hand.open(_SPREAD_M)
    yield from hand.rise(HANDLE_Z_M + _CLEAR_M)


def opening(hand: Hand) -> float:
    """How far the drawer is open [m]."""
    return float(hand.view.value(OPENING)[0])


def out_of(cabinet: PoseValues) -> Vector:
    """Unit vector ``[3]`` out of the cabinet's front."""
    yaw = heading(cabinet)
    return -np.array([math.cos(yaw), math.sin(yaw), 0.0])


def grip_point(hand: Hand) -> Vector:
    """Where the fingers take the handle ``[3]`` [m]."""
    cabinet = hand.view.value(CABINET)
    middle = cabinet[:3] + (HANDLE_X_M + opening(hand)) * out_of(cabinet)
    return middle + above_by(HANDLE_Z_M)
