"""Tells what errors that are left over after a fit mean: play in the joints, motions that differ.

Play (backlash) is no parameter of the scene. Its effect on the joints' encoders is rolled out and
fitted beside all parameters at once, to first order, so that what friction or stiffness could
explain as well is not taken for play, nor the other way round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from sim.identification.arm_fit import Evidence, Searched, interval_of
from sim.identification.arm_model import ArmModel, Kind, Unknowns
from sim.identification.arm_motion import SentRows, on_grid
from sim.identification.arm_rollouts import ArmRollouts, Track

Columns = Float64[NDArray[np.float64], "rows j"]

# Tried in every joint at once [rad]; what is believed of it beforehand.
_TRIED_RAD, _BELIEF_RAD = 0.002, 0.01
# Play that is told apart from nothing: this many standard deviations, and this wide [rad].
_SURE, _LEAST_RAD = 2.5, 5e-4
_WIDE = 1.96
# Motions differ when they do by so many standard deviations and so much [kg], [s].
_APART: dict[Kind, float] = {"payload": 0.05, "delay": 0.004}
_FAR = 5.0


@dataclass(frozen=True, slots=True)
class Play:
    """Play of a joint, ``width`` with its 95 % interval [rad]; ``friction`` [N m]: what dry
    friction there would be found beside it.
    """

    joint: str
    width: float
    low: float
    high: float
    friction: float
    sure: bool


def play_of(
    rollouts: ArmRollouts, tracks: Sequence[Track], x: Unknowns, evidence: Evidence
) -> tuple[Play, ...]:
    """Of every joint whose parameters were searched."""
    model = rollouts.model
    effect = _effect(rollouts, tracks, x, evidence) / _TRIED_RAD
    joints = [j for j in range(model.arm.dof) if np.abs(effect[:, j]).max() > 1e-9]
    J = np.zeros((len(effect) * model.arm.dof, len(joints)))
    for column, joint in enumerate(joints):
        J[joint :: model.arm.dof, column] = effect[:, joint] / evidence.noise[joint]
    both = dataclasses.replace(
        evidence,
        jacobian=np.hstack([evidence.jacobian, J]),
        pull=np.append(evidence.pull, np.zeros(len(joints))),
        belief=np.append(evidence.belief, np.full(len(joints), _BELIEF_RAD)),
    )
    step, covariance = interval_of(both)
    found: list[Play] = []
    for column, joint in enumerate(joints):
        at = len(evidence.belief) + column
        spread, width = float(np.sqrt(covariance[at, at])), float(step[at])
        low, high = (max(0.0, width + s * _WIDE * spread) for s in (-1, 1))
        sure = width > _SURE * spread and width > _LEAST_RAD
        friction = _beside(model, x + _whole(model, evidence, step), joint)
        found.append(Play(model.arm.joint_names[joint], max(0.0, width), low, high, friction, sure))
    return tuple(found)


def _whole(model: ArmModel, evidence: Evidence, step: Searched) -> Unknowns:
    """A step of those that are searched as one of all unknowns ``[p]``."""
    out = np.zeros(len(model.start))
    out[evidence.free] = step[: len(evidence.free)]
    return out


def _beside(model: ArmModel, x: Unknowns, joint: int) -> float:
    of = [p.kind == "friction" and p.joint == joint for p in model.parameters]
    return max(0.0, float(x[int(np.argmax(of))]))


def differing(
    model: ArmModel, tracks: Sequence[Track], evidence: Evidence, kind: Kind
) -> tuple[str, ...]:
    """Motions of which a parameter of the whole arm is another one, in a sentence."""
    at = next(i for i, p in enumerate(model.parameters) if p.kind == kind)
    if at not in evidence.free or len(tracks) < 2:
        return ()
    column = evidence.jacobian[:, int(np.flatnonzero(evidence.free == at)[0])]
    offs: list[float] = []
    spreads: list[float] = []
    row = 0
    for track in tracks:
        rows = slice(row, row + len(track.at) * model.arm.dof)
        row = rows.stop
        J, r = column[rows], evidence.residuals[rows]
        size = float(J @ J) + 1e-12
        blocks = np.add.reduceat(J * r, np.arange(0, len(r), evidence.block))
        offs.append(-float(J @ r) / size)
        spreads.append(float(np.sqrt(blocks @ blocks)) / size)
    off, spread = np.array(offs), np.array(spreads)
    middle = float(np.median(off))
    far = (np.abs(off - middle) > _FAR * spread) & (np.abs(off - middle) > _APART[kind])
    if not far.any():
        return ()
    low, high = int(np.argmin(off)), int(np.argmax(off))
    scale, unit = (1e3, "ms") if kind == "delay" else (1.0, "kg")
    names = ", ".join(tracks[i].motion.name for i in np.flatnonzero(far).tolist())
    note = (
        f"{model.parameters[at].name} is not the same in all motions: about"
        f" {scale * (off[high] - off[low]):.2g} {unit} more in {tracks[high].motion.name} than in"
        f" {tracks[low].motion.name}; what is written is between them. Identify them apart"
        f" (others than most: {names})"
    )
    return (note,)


def _effect(
    rollouts: ArmRollouts, tracks: Sequence[Track], x: Unknowns, evidence: Evidence
) -> Columns:
    """What play of a little in every joint does to the angles ``[rows, j]`` [rad]."""
    links = [played(t.motion.sent, _TRIED_RAD) for t in tracks]
    loose = [
        rollouts.track(dataclasses.replace(t.motion, sent=link))
        for t, link in zip(tracks, links, strict=True)
    ]
    moved = np.concatenate([a[0] for a in rollouts.roll(loose, x[None])])
    measured = np.concatenate([t.measured for t in tracks])
    stiff = measured + evidence.residuals.reshape(measured.shape) * evidence.noise
    # The encoders are on the motors, which are ahead of what they drive.
    late_s = rollouts.model.delay_s(x) + rollouts.model.smoothing_s(x)
    gap = [
        on_grid(t.t_s[t.at + 1] - late_s, t.motion.sent_t_s, t.motion.sent - link)
        for t, link in zip(tracks, links, strict=True)
    ]
    return moved + np.concatenate(gap) - stiff


def played(motor: SentRows, width: float) -> SentRows:
    """Where links are that rest until a flank of a play of ``width`` takes them along."""
    link = np.empty_like(motor)
    at, half = motor[0].copy(), 0.5 * width
    for k, row in enumerate(motor):
        at = np.minimum(np.maximum(at, row - half), row + half)
        link[k] = at
    return link
