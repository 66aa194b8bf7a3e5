"""Gives an arm what its description leaves open: masses, limits, servos; and says what was assumed.

What cannot be meant (degrees for radians, millimetres for metres, inertias of another unit) is
refused with the joint or link that shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from robolearn.errors import SceneError
from robolearn.shapes import Floats
from sim.robots.mjcf import ARM, FIXED, HAND, OBJECT
from sim.robots.own.chain import Chain
from sim.robots.own.source import Source

# kg/m^3, of what has shapes and no inertia.
_DENSITY = 1000.0
# rad/s, of joints whose speed nobody says.
_SPEED = 1.0
# The servos' own frequency with the largest inertia that a joint meets [rad/s]: far above the
# command's, far below the physics'. They are critically damped.
_SERVO_RAD_S = 100.0
# Of that inertia, where the description has no rotor.
_ROTOR_SHARE = 0.05
_POSES = 64
_WIDEST_RAD, _NARROWEST_RAD = 4.0 * math.pi + 0.1, 0.12
_LONGEST_M, _SHORTEST_M, _HEAVIEST_KG = 10.0, 0.03, 2000.0


@dataclass(frozen=True, slots=True)
class GivenServo:
    """A position servo of the description: stiffness [N m/rad], damping [N m s/rad], the largest
    torque [N m] (0: not said).
    """

    kp: float
    kv: float
    torque: float


@dataclass(frozen=True, slots=True)
class Arm:
    """The finished arm: ``max_speed`` [rad/s], ``max_acceleration`` [rad/s^2] per joint, ``reach``
    [m] of the tool from the base, and what was assumed (``what``, ``value``, ``why``).
    """

    chain: Chain
    low: tuple[float, ...]
    high: tuple[float, ...]
    max_speed: tuple[float, ...]
    max_acceleration: tuple[float, ...]
    reach_m: float
    assumed: tuple[dict[str, str], ...]


def given_servos(spec: mujoco.MjSpec) -> dict[str, GivenServo]:
    """Position servos by joint; of other motors only the torque."""
    found: dict[str, GivenServo] = {}
    for a in spec.actuators:
        if a.trntype != mujoco.mjtTrn.mjTRN_JOINT or not a.target:
            continue
        gain, stiff, damp = float(a.gainprm[0]), float(a.biasprm[1]), float(a.biasprm[2])
        low, high = (float(v) for v in a.forcerange)
        torque = min(abs(low), abs(high)) * abs(float(a.gear[0])) if low < high else 0.0
        servo = gain > 0.0 and stiff == -gain and damp <= 0.0 and float(a.gear[0]) == 1.0
        found[str(a.target)] = GivenServo(*((gain, -damp) if servo else (0.0, 0.0)), torque)
    return found


def finish_arm(source: Source, chain: Chain, given: dict[str, GivenServo]) -> Arm:
    """Complete the description in ``source.spec``; SceneError for what cannot be meant."""
    spec, at = source.spec, f"'{source.path}'"
    assumed = [_told("tool", text, "no tool was named") for text in chain.assumed]
    assumed += _masses(spec, chain, at)
    low, high, told = _ranges(spec, chain, at)
    assumed += told
    model = _compiled(spec, at)
    reach = _require_sizes(model, chain, at)
    inertia, weight = _loads(model, chain, low, high)
    speed: list[float] = []
    acceleration: list[float] = []
    for k, name in enumerate(chain.joints):
        joint, servo = spec.joint(name), given.get(name, GivenServo(0.0, 0.0, 0.0))
        if joint.armature <= 0.0:
            joint.armature = _ROTOR_SHARE * float(inertia[k])
            assumed.append(_told(f"armature of {name}", f"{joint.armature:.3g} kg m^2", "absent"))
        whole = float(inertia[k]) + joint.armature
        torque = servo.torque or (float(joint.actfrcrange[1]) if _ordered(joint.actfrcrange) else 0)
        if torque <= 0.0:
            torque = 3.0 * float(weight[k]) + 10.0 * whole
            assumed.append(_told(f"torque of {name}", f"{torque:.3g} N m", "no effort limit"))
        kp, kv = servo.kp, servo.kv
        if kp <= 0.0:
            kp, kv = whole * _SERVO_RAD_S**2, 2.0 * whole * _SERVO_RAD_S
            assumed.append(
                _told(f"servo of {name}", f"kp {kp:.3g}, kv {kv:.3g}", "'identify' finds it")
            )
        _add_servo(spec, name, kp, kv, torque)
        speed.append(source.speed.get(name, _SPEED))
        if name not in source.speed:
            assumed.append(_told(f"speed of {name}", f"{_SPEED:g} rad/s", "no velocity limit"))
        acceleration.append(float(np.clip(0.5 * torque / whole, 1.0, 20.0)))
    assumed.append(
        _told(
            "accelerations", ", ".join(f"{a:.3g}" for a in acceleration) + " rad/s^2", "never said"
        )
    )
    assumed.append(_told("weight", "carried by the controller", "as arms' controllers do"))
    _dress(spec, chain)
    return Arm(
        chain, tuple(low), tuple(high), tuple(speed), tuple(acceleration), reach, tuple(assumed)
    )


def _told(what: str, value: str, why: str) -> dict[str, str]:
    return {"what": what, "value": value, "why": why}


def _ordered(pair: Floats) -> bool:
    return bool(pair[0] < pair[1])


def _masses(spec: mujoco.MjSpec, chain: Chain, at: str) -> list[dict[str, str]]:
    """Every link that moves weighs something: as written, else by its shapes."""
    out: list[dict[str, str]] = []
    for name in chain.joints:
        link = spec.joint(name).parent
        welded = _welded(link)
        if any(b.explicitinertial and b.mass > 0.0 for b in welded):
            continue
        shapes = [g for b in welded for g in b.geoms]
        if not shapes:
            raise SceneError(
                f"{at}: link '{link.name}' moves and has neither <inertial> nor a shape; write its"
                " mass and inertia"
            )
        if all(g.mass == 0.0 or g.density == 0.0 for g in shapes):
            for g in shapes:
                g.mass, g.density = math.nan, _DENSITY
        value = f"its shapes at {float(shapes[0].density):g} kg/m^3"
        out.append(_told(f"mass and inertia of {link.name}", value, "no <inertial>"))
    return out


def _welded(link: Any) -> list[Any]:
    """A link and what is fixed to it."""
    found: list[Any] = []
    waiting = [link]
    while waiting:
        body = waiting.pop()
        found.append(body)
        waiting += [b for b in body.bodies if not b.joints]
    return found


def _ranges(
    spec: mujoco.MjSpec, chain: Chain, at: str
) -> tuple[list[float], list[float], list[dict[str, str]]]:
    """Limits of every joint [rad]; those of joints without any are assumed."""
    low: list[float] = []
    high: list[float] = []
    assumed: list[dict[str, str]] = []
    scale = math.pi / 180.0 if spec.compiler.degree else 1.0
    for name in chain.joints:
        joint = spec.joint(name)
        a, b = (float(v) * scale for v in joint.range)
        free = joint.limited == mujoco.mjtLimited.mjLIMITED_FALSE
        if (free and a <= b) or a == b == 0.0:
            a, b = -2.0 * math.pi, 2.0 * math.pi
            assumed.append(_told(f"range of {name}", "one turn to either side", "no limit"))
        if not a < b:
            raise SceneError(
                f"{at}: joint '{name}' has the limits {a:g} to {b:g} rad: none between"
            )
        if b - a > 2.0 * _WIDEST_RAD:
            raise SceneError(
                f"{at}: joint '{name}' may turn from {a:g} to {b:g} rad, {(b - a) / math.tau:.0f}"
                " turns: its limits are in degrees, and rad is meant here"
            )
        joint.range = [a / scale, b / scale]
        joint.limited = mujoco.mjtLimited.mjLIMITED_TRUE
        low.append(a)
        high.append(b)
    widest = max(b - a for a, b in zip(low, high, strict=True))
    if widest < _NARROWEST_RAD:
        raise SceneError(
            f"{at}: no joint may turn by more than {math.degrees(widest):.2g} degrees: its limits"
            " are in rad, and degrees are meant here (MJCF: <compiler angle='radian'/>)"
        )
    return low, high, assumed


def _compiled(spec: mujoco.MjSpec, at: str) -> mujoco.MjModel:
    try:
        return spec.compile()
    except ValueError as error:
        raise SceneError(f"{at}: {' '.join(str(error).split())}") from error


def _require_sizes(model: mujoco.MjModel, chain: Chain, at: str) -> float:
    """How far the tool can be from the base [m]; SceneError for what is in other units."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    joints = [model.joint(n).id for n in chain.joints]
    points = [data.xanchor[j] for j in joints] + [data.site("tool").xpos]
    steps = np.linalg.norm(np.diff(np.array(points), axis=0), axis=1)
    reach = float(steps.sum())
    if not _SHORTEST_M < reach < _LONGEST_M:
        raise SceneError(
            f"{at}: the arm reaches {reach:g} m from its first joint to its tool; lengths are in m"
            + (", these look like mm" if reach > _LONGEST_M else "")
        )
    total = float(model.body_subtreemass[0])
    if total > _HEAVIEST_KG:
        raise SceneError(f"{at}: the arm weighs {total:g} kg; masses are in kg, these look like g")
    for body in range(1, model.nbody):
        mass, most = float(model.body_mass[body]), float(model.body_inertia[body].max())
        size = math.sqrt(most / mass) if mass > 0.0 else 0.0
        if size > 2.0 * reach:
            raise SceneError(
                f"{at}: {model.body(body).name} weighs {mass:g} kg and has an inertia of {most:g}"
                f" kg m^2, as if it were {size:.3g} m wide beside a reach of {reach:.3g} m: is it"
                " in other units, such as g mm^2?"
            )
    for geom in range(model.ngeom):
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
            wide, name = float(model.geom_rbound[geom]), model.mesh(int(model.geom_dataid[geom]))
            if wide > 5.0 * reach:
                raise SceneError(
                    f"{at}: mesh '{name.name}' is {2 * wide:.3g} m wide beside a reach of"
                    f" {reach:.3g} m; if it is in mm, give it scale='0.001 0.001 0.001'"
                )
    return reach


def _loads(
    model: mujoco.MjModel, chain: Chain, low: list[float], high: list[float]
) -> tuple[Floats, Floats]:
    """The largest inertia [kg m^2] and torque of weight [N m] at every joint, over drawn poses."""
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    dofs = [int(model.joint(n).dofadr[0]) for n in chain.joints]
    qpos = [int(model.joint(n).qposadr[0]) for n in chain.joints]
    inertia, weight = np.zeros(len(dofs)), np.zeros(len(dofs))
    full = np.zeros((model.nv, model.nv))
    for _ in range(_POSES):
        data.qpos[qpos] = rng.uniform(low, high)
        mujoco.mj_forward(model, data)
        mujoco.mj_fullM(model, full, data.qM)
        inertia = np.maximum(inertia, np.diag(full)[dofs] - model.dof_armature[dofs])
        weight = np.maximum(weight, np.abs(data.qfrc_bias[dofs]))
    return inertia, weight


def _add_servo(spec: mujoco.MjSpec, joint: str, kp: float, kv: float, torque: float) -> None:
    servo = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    servo.set_to_position(kp=kp, kv=kv)
    servo.forcerange = [-torque, torque]
    servo.forcelimited = True


def _dress(spec: mujoco.MjSpec, chain: Chain) -> None:
    """Weight, contacts and drawing as the packaged arms have them (``sim/robots/mjcf.py``)."""
    first = spec.joint(chain.joints[0]).parent
    moving = {str(first.name)} | {str(b.name) for b in first.find_all(mujoco.mjtObj.mjOBJ_BODY)}
    for body in spec.bodies:
        if body.name == "world":
            continue
        moves = str(body.name) in moving
        body.gravcomp = 1.0 if moves else 0.0
        drawn = [g for g in body.geoms if not (g.contype or g.conaffinity)]
        for geom in body.geoms:
            if geom in drawn:
                geom.group = 1
                continue
            # Shapes that only touch are drawn where nothing else is.
            geom.group = 3 if drawn else 1
            geom.contype = ARM if moves else 0
            geom.conaffinity = FIXED | OBJECT if moves else OBJECT | HAND
