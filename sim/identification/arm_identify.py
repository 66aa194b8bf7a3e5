"""Identifies an arm from recorded motions: fits, checks on others, says what can be believed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from robolearn.arms.shapes import JointRows
from robolearn.errors import DataError
from robolearn.geometry import VectorRows
from robolearn.shapes import Floats
from sim.identification.arm_evidence import Play, differing, play_of
from sim.identification.arm_fit import ArmFit, FitConfig, Fitted
from sim.identification.arm_model import UNITS, ArmModel, Kind, Parameter, Unknowns
from sim.identification.arm_motion import ArmMotion, checked_motions
from sim.identification.arm_rollouts import ArmRollouts, Compared, Track
from sim.scene.config import Scene

Status = Literal["identified", "ratio", "assumed"]

# 95 % of a normal distribution.
_WIDE = 1.96
# Known when the data made it this much narrower than what was believed before ...
_NARROWER = 0.5
# ... and a factor is known to less than two.
_FACTOR_LOG = 0.69
_TOGETHER = 0.7
# A stretch of the motion whose error is so many times the usual one is no model's: a touch, a stop.
_STRANGE, _STRANGE_RAD, _WINDOW = 8.0, 0.02, 50
_MOST_CUT = 0.2
# An arm that is further from its model explains nothing [rad].
_FARTHEST_RAD = 0.03
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ArmIdentifyConfig:
    """How an arm is identified; ``held_out``: share of the motions (or of the one) to check on."""

    fit: FitConfig = field(default_factory=FitConfig)
    held_out: float = 0.2


@dataclass(frozen=True, slots=True)
class Found:
    """One parameter: ``before`` and ``after`` with its 95 % interval, in ``unit``. ``ratio``: known
    only together with ``partners``; ``assumed``: the data say nothing of it, it is the scene's.
    """

    name: str
    kind: Kind
    # Its joint's name; "": of the whole arm.
    joint: str
    unit: str
    before: float
    after: float
    low: float
    high: float
    status: Status
    partners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArmErrors:
    """Root mean squares over held-out motions: every joint [deg], the tool's tip [mm]."""

    joint_deg: dict[str, float]
    tool_mm: float

    @property
    def worst_deg(self) -> float:
        """Of the worst joint [deg]."""
        return max(self.joint_deg.values())


@dataclass(frozen=True, slots=True)
class ArmIdentified:
    """What was found. ``hysteresis_deg``: by how much what is left over differs between the two
    directions of each joint's motion, as backlash would have it; ``fitted``: for other searches.
    """

    found: tuple[Found, ...]
    before: ArmErrors
    after: ArmErrors
    hysteresis_deg: dict[str, float]
    # Between motors and links, as encoders on motors show it; no parameter of the scene.
    play: tuple[Play, ...]
    # Joint damping and servo damping together, with the 95 % interval: all that a motion whose
    # speed is not fed forward tells [N m s/rad].
    viscous: dict[str, tuple[float, float, float]]
    notes: tuple[str, ...]
    fit_s: float
    held_out_s: float
    rollouts: int
    duration_s: float
    fitted: Fitted

    def value(self, kind: Kind, joint: str = "") -> float:
        """What a parameter became."""
        return next(f.after for f in self.found if f.kind == kind and f.joint == joint)

    @property
    def delay_s(self) -> float:
        """From a set-point to its effect: delay and lag of the smoothing together [s]."""
        return self.value("delay") + self.value("smoothing")


def identify_arm(
    motions: Sequence[ArmMotion],
    scene: Scene,
    config: ArmIdentifyConfig,
    held_out: Sequence[ArmMotion] = (),
    note: Note = lambda _text: None,
) -> ArmIdentified:
    """Fit the scene's arm to ``motions`` and check it on ``held_out`` (none: on a part of them).

    Raises :class:`DataError` when the motions tell too little, with what is missing.
    """
    started = time.monotonic()
    model = ArmModel(scene)
    if not held_out:
        motions, held_out = _split(motions, config.held_out)
    checked = checked_motions(motions, model.arm)
    others = checked_motions(held_out, model.arm, least_s=1.0)
    rollouts = ArmRollouts(model, config.fit.threads)
    tracks = [rollouts.track(m) for m in checked.motions]
    held_tracks = [rollouts.track(m) for m in others.motions]
    searched = model.moving(checked.moved)
    fit = ArmFit(rollouts, tracks, searched, config.fit, note)
    x = fit.solve()
    notes = list(dict.fromkeys((*checked.notes, *others.notes)))
    clean, cut = _without_strange(rollouts, tracks, x)
    if cut:
        notes += cut
        fit, tracks = ArmFit(rollouts, clean, searched, config.fit, note), clean
        x = fit.solve()
    fitted = fit.judged(x)
    _require_explained(model, fitted)
    notes += _at_border(model, fitted)
    play = play_of(rollouts, tracks, fitted.x, fitted.evidence)
    notes += [_told_play(p, _friction(model, fitted, p.joint)) for p in play if p.sure]
    for kind in ("payload", "delay"):
        notes += differing(model, tracks, fitted.evidence, kind)
    answers = rollouts.roll(held_tracks, np.stack([model.start, fitted.x]))
    before, after = (_errors(model, held_tracks, [a[k] for a in answers]) for k in (0, 1))
    if not all(np.isfinite(v) for v in after.joint_deg.values()):
        raise DataError("the fitted arm is unstable in the held-out motions: record others")
    return ArmIdentified(
        found=_found(model, fitted, {p.joint for p in play if p.sure}),
        before=before,
        after=after,
        hysteresis_deg=_hysteresis(model, held_tracks, [a[1] for a in answers]),
        play=play,
        viscous=_viscous(model, fitted),
        notes=tuple(notes),
        fit_s=sum(t.seconds for t in tracks),
        held_out_s=sum(t.seconds for t in held_tracks),
        rollouts=rollouts.count,
        duration_s=time.monotonic() - started,
        fitted=fitted,
    )


def _require_explained(model: ArmModel, fitted: Fitted) -> None:
    worst = int(np.argmax(fitted.noise))
    if not fitted.noise[worst] < _FARTHEST_RAD:
        raise DataError(
            f"the motion cannot be explained by any arm of this kind: with the best parameters"
            f" {model.arm.joint_names[worst]} is still {np.degrees(fitted.noise[worst]):.1f}"
            " degrees off. Set-points and joints are of different motions, the arm was in contact,"
            " or it is another arm"
        )


def _split(motions: Sequence[ArmMotion], share: float) -> tuple[list[ArmMotion], list[ArmMotion]]:
    """Whole motions to check on, the last ones; of a single motion its end."""
    if not motions:
        raise DataError("there is no motion to identify the arm from")
    if len(motions) == 1:
        begin_s, end_s = motions[0].span_s
        at = end_s - share * (end_s - begin_s)
        first, last = motions[0].part(begin_s, at), motions[0].part(at, end_s)
        return [first], [dataclasses.replace(last, name=f"end of {last.name}")]
    count = max(1, round(share * len(motions)))
    return list(motions[:-count]), list(motions[-count:])


def _errors(model: ArmModel, tracks: Sequence[Track], answers: Sequence[Compared]) -> ArmErrors:
    off = np.concatenate([a - t.measured for a, t in zip(answers, tracks, strict=True)])
    apart: list[Floats] = []
    for answer, track in zip(answers, tracks, strict=True):
        tips = [_tips(model, q) for q in (np.nan_to_num(answer), track.measured)]
        apart.append(np.linalg.norm(tips[0] - tips[1], axis=1))
    rms = np.degrees(np.sqrt(np.mean(off**2, axis=0)))
    return ArmErrors(
        dict(zip(model.arm.joint_names, rms.tolist(), strict=True)),
        1e3 * float(np.sqrt(np.mean(np.concatenate(apart) ** 2))),
    )


def _tips(model: ArmModel, q: JointRows) -> VectorRows:
    T = model.arm.fk_rows(q)
    return T[:, :3, 3] + T[:, :3, :3] @ model.mount.tip


def _hysteresis(
    model: ArmModel, tracks: Sequence[Track], answers: Sequence[Compared]
) -> dict[str, float]:
    """Mean error while a joint moves one way less that while it moves the other way [deg]."""
    out: dict[str, float] = {}
    for joint, name in enumerate(model.arm.joint_names):
        ways: dict[int, list[Floats]] = {1: [], -1: []}
        for answer, track in zip(answers, tracks, strict=True):
            speed = np.gradient(track.measured[:, joint])
            moving = np.abs(speed) > 0.2 * np.abs(speed).max(initial=1e-9)
            for way, kept in ways.items():
                kept.append((track.measured - answer)[:, joint][moving & (np.sign(speed) == way)])
        means = [
            float(np.mean(np.concatenate(v))) if sum(map(len, v)) else 0.0 for v in ways.values()
        ]
        out[name] = abs(float(np.degrees(means[0] - means[1])))
    return out


def _told_play(play: Play, friction: float) -> str:
    name = play.joint.replace("_", " ")
    width, low, high = (float(np.degrees(v)) for v in (play.width, play.low, play.high))
    return (
        f"{name} has backlash: {width:.2g} deg of play (95 %: {low:.2g} to {high:.2g}) between"
        f" motor and link. A scene has none: it stays in the errors, and the friction of {name}"
        f" may hold some of it ({friction:.3g} N m; {play.friction:.3g} beside the play)"
    )


def _friction(model: ArmModel, fitted: Fitted, joint: str) -> float:
    at = model.arm.joint_names.index(joint)
    of = [p.kind == "friction" and p.joint == at for p in model.parameters]
    return float(fitted.x[int(np.argmax(of))])


def _found(model: ArmModel, fitted: Fitted, loose: set[str]) -> tuple[Found, ...]:
    """``loose``: joints with play, whose dry friction is known only together with it."""
    spread = np.sqrt(np.diag(fitted.covariance))
    scale = np.maximum(spread, 1e-30)
    correlation = fitted.covariance / scale[:, None] / scale
    found: list[Found] = []
    for i, p in enumerate(model.parameters):
        if not fitted.searched[i]:
            low, high = (p.value(v) for v in (p.start, p.start))
            found.append(_told(model, p, p.start, low, high, "assumed"))
            continue
        status = _status(p, float(spread[i]), float(fitted.alone[i]))
        partners: list[str] = []
        if status == "ratio":
            order = np.argsort(-np.abs(correlation[i]))
            partners = [
                model.parameters[k].name
                for k in order.tolist()
                if k != i and abs(correlation[i, k]) > _TOGETHER
            ][:4]
        joint = "" if p.joint < 0 else model.arm.joint_names[p.joint]
        if p.kind == "friction" and joint in loose and status != "assumed":
            status, partners = "ratio", [f"backlash of {joint}".replace("_", " "), *partners]
        half = _WIDE * float(np.hypot(spread[i], fitted.left[i]))
        low, high = (
            float(np.clip(v, p.low, p.high)) for v in (fitted.x[i] - half, fitted.x[i] + half)
        )
        at = float(fitted.x[i])
        found.append(_told(model, p, at, p.value(low), p.value(high), status, tuple(partners)))
    return tuple(found)


def _viscous(model: ArmModel, fitted: Fitted) -> dict[str, tuple[float, float, float]]:
    out: dict[str, tuple[float, float, float]] = {}
    for joint, name in enumerate(model.arm.joint_names):
        total, slope = 0.0, np.zeros(len(fitted.x))
        for i, p in enumerate(model.parameters):
            if p.joint == joint and p.kind in ("servo_damping", "damping"):
                value = p.value(float(fitted.x[i]))
                total, slope[i] = total + value, value if p.logarithmic else 1.0
        spread = float(np.sqrt(slope @ fitted.covariance @ slope))
        half = _WIDE * float(np.hypot(spread, slope @ fitted.left))
        out[name] = (total, max(0.0, total - half), total + half)
    return out


def _status(p: Parameter, spread: float, alone: float) -> Status:
    def known(deviation: float) -> bool:
        narrow = deviation < _NARROWER * p.belief
        return narrow and (not p.logarithmic or _WIDE * deviation < _FACTOR_LOG)

    if known(spread):
        return "identified"
    return "ratio" if known(alone) else "assumed"


def _at_border(model: ArmModel, fitted: Fitted) -> list[str]:
    """Where the search ended because it was not allowed on: at zero that means nothing."""
    return [
        f"{p.name} went to the end of its range: the arm is not like the model there, and all that"
        " is known is that it is at least or at most so"
        for i, p in enumerate(model.parameters)
        if fitted.searched[i]
        and (fitted.x[i] >= p.high - 1e-9 or (p.logarithmic and fitted.x[i] <= p.low + 1e-9))
    ]


def _told(
    model: ArmModel,
    p: Parameter,
    at: float,
    low: float,
    high: float,
    status: Status,
    partners: tuple[str, ...] = (),
) -> Found:
    joint = "" if p.joint < 0 else model.arm.joint_names[p.joint]
    return Found(
        *(p.name, p.kind, joint, UNITS[p.kind], p.value(p.start), p.value(at), low, high),
        *(status, partners),
    )


def _without_strange(
    rollouts: ArmRollouts, tracks: Sequence[Track], x: Unknowns
) -> tuple[list[Track], list[str]]:
    """Tracks without the stretches that no parameters explain, and what was left out.

    Raises :class:`DataError` when these are much of the motion.
    """
    arm = rollouts.model.arm
    kept: list[Track] = []
    notes: list[str] = []
    lost_s = 0.0
    answers = rollouts.roll(tracks, x[None])
    errors = [np.abs(a[0] - t.measured) for a, t in zip(answers, tracks, strict=True)]
    usual = np.median(np.concatenate(errors), axis=0)
    for error, track in zip(errors, tracks, strict=True):
        strange = error > np.maximum(_STRANGE * usual, _STRANGE_RAD)
        if not strange.any():
            kept.append(track)
            continue
        row, joint = np.unravel_index(int(np.argmax(error * strange)), error.shape)
        bad = np.flatnonzero(strange.any(axis=1))
        # What follows a touch begins anew half a second later.
        t_s = track.t_s[track.at]
        first, last = float(t_s[bad[0]]), float(t_s[bad[-1]])
        begin_s, end_s = float(track.t_s[0]), float(track.t_s[-1])
        notes.append(
            f"{track.motion.name}: from {first - begin_s:.1f} to {last - begin_s:.1f} s"
            f" {arm.joint_names[int(joint)]} is up to {np.degrees(error[row, joint]):.1f} degrees"
            " from where its set-points would take it: something was touched, or the arm was"
            " stopped. Left out"
        )
        lost_s += last - first
        for a, b in ((begin_s, first - 0.2), (last + 0.5, end_s)):
            if b - a > 1.0:
                kept.append(rollouts.track(track.motion.part(a, b)))
    total_s = sum(t.seconds for t in tracks)
    if lost_s > _MOST_CUT * total_s:
        raise DataError(
            f"{lost_s:.1f} of {total_s:.1f} s of motion cannot be explained by any arm of this"
            f" kind. {notes[0]}. Record motions in which nothing is touched"
        )
    return kept, notes
