"""Says which numbers of an arm's model are unknown, and writes them into the model.

Per joint: stiffness and damping of the servo (kp, kd), the joint's own viscous damping, dry
friction, and the rotor's inertia (armature). Of the whole arm: the mass that the tool carries, the
delay from a set-point to the servo, and the lag of what smooths set-points on the way (a critically
damped filter, as controllers have it). Of the two dampings a motion without forward-fed speed
tells only the sum; with it (as here) also what is not fed forward, as a lag.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import JointFlags, Joints
from robolearn.shapes import Flags
from sim.control.servos import Gains, apply_gains
from sim.plants.mount import ArmMount, find_mount, loaded
from sim.scene.config import Scene
from sim.scene.payload import PAYLOAD, set_payload

# One number per unknown, as it is searched; of several sets of them.
Unknowns = Float64[NDArray[np.float64], " p"]
UnknownRows = Float64[NDArray[np.float64], "v p"]

Kind = Literal[
    "stiffness",
    "servo_damping",
    "damping",
    "friction",
    "armature",
    "payload",
    "smoothing",
    "delay",
]
JOINT_KINDS: tuple[Kind, ...] = ("stiffness", "servo_damping", "damping", "friction", "armature")
UNITS: dict[Kind, str] = {
    "stiffness": "N m/rad",
    "servo_damping": "N m s/rad",
    "damping": "N m s/rad",
    "friction": "N m",
    "armature": "kg m^2",
    "payload": "kg",
    "smoothing": "s",
    "delay": "s",
}
# Searched as logarithms: positive, and known to a factor rather than to a number.
_LOGARITHMIC: tuple[Kind, ...] = ("stiffness", "servo_damping", "armature")
# How far from the scene's value a parameter may be: standard deviation of what is believed before
# any data, as a factor (e^1), ...
_BELIEF_LOG = 1.0
# ... as a share of the largest torque for friction, of the servo's damping for damping, in kg, s.
_BELIEF_FRICTION, _BELIEF_DAMPING, _BELIEF_PAYLOAD_KG, _BELIEF_DELAY_S = 0.1, 0.3, 2.0, 0.1
_BELIEF_SMOOTHING_S = 0.03
_FARTHEST = 3.0
_LONGEST_DELAY_S, _LONGEST_SMOOTHING_S = 0.3, 0.15
# Steps of finite differences in units of the belief, of delays [s]. A wrist's stiffness, friction
# and armature scaled together change its motion by a thousandth of what each does alone: over steps
# ten times as long each effect bends that much by itself, and a scale that nothing tells seems
# known.
_STEP, _STEP_S = 0.002, 5e-5


@dataclass(frozen=True, slots=True)
class Parameter:
    """One unknown. ``start``, ``low``, ``high`` and ``belief`` (standard deviation before any data)
    are in the coordinate of the search, :meth:`value` is the number of the model.
    """

    kind: Kind
    # Its joint's index; -1: of the whole arm.
    joint: int
    # With the joint's name, for people.
    name: str
    start: float
    low: float
    high: float
    belief: float

    @property
    def logarithmic(self) -> bool:
        """Whether the coordinate is the value's logarithm."""
        return self.kind in _LOGARITHMIC

    @property
    def step(self) -> float:
        """For a finite difference."""
        return _STEP_S if self.kind in ("delay", "smoothing") else _STEP * self.belief

    def value(self, x: float) -> float:
        """Of the model, in :data:`UNITS`."""
        return float(np.exp(x)) if self.logarithmic else float(x)


class ArmModel:
    """A scene's arm alone: nothing collides, other bodies rest where they are."""

    def __init__(self, scene: Scene) -> None:
        """Raises :class:`ConfigError` for a scene without an arm."""
        self.scene = scene
        plain = scene.compile()
        self.mount: ArmMount = find_mount(scene.config, plain)
        self.arm: SerialArm = self.mount.arm
        with_load = loaded(scene, plain, self.mount)
        self.model = _floating(with_load, self.mount).compile()
        # Bodies are in the same order, but for the payload.
        mount = find_mount(scene.config, self.model)
        n = self.arm.dof
        self.qpos, self.dofs, self.actuators = mount.qpos[:n], mount.dofs[:n], mount.actuators[:n]
        if mount.gains is not None:
            apply_gains(self.model, self.actuators, mount.gains)
        self.model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
        self.data = mujoco.MjData(self.model)
        carried = mujoco.mj_name2id(plain, mujoco.mjtObj.mjOBJ_BODY, PAYLOAD)
        self._payload_kg = float(plain.body_mass[carried]) if carried >= 0 else 0.0
        set_payload(self.model, self._payload_kg)
        mujoco.mj_setConst(self.model, self.data)
        self.parameters: tuple[Parameter, ...] = tuple(self._unknown())
        self.start: Unknowns = np.array([p.start for p in self.parameters])
        self.low: Unknowns = np.array([p.low for p in self.parameters])
        self.high: Unknowns = np.array([p.high for p in self.parameters])
        self.belief: Unknowns = np.array([p.belief for p in self.parameters])

    def moving(self, moved: JointFlags) -> Flags:
        """Which parameters motions of these joints can tell ``[p]``."""
        return np.array([p.joint < 0 or bool(moved[p.joint]) for p in self.parameters])

    def write(self, model: mujoco.MjModel, x: Unknowns) -> None:
        """Write the unknowns ``x [p]`` into a copy of :attr:`model`."""
        values = {k: np.zeros(self.arm.dof) for k in JOINT_KINDS}
        for p, at in zip(self.parameters, x.tolist(), strict=True):
            if p.joint >= 0:
                values[p.kind][p.joint] = p.value(at)
            elif p.kind == "payload":
                set_payload(model, p.value(at))
        gains = Gains(tuple(values["stiffness"].tolist()), tuple(values["servo_damping"].tolist()))
        apply_gains(model, self.actuators, gains)
        model.dof_damping[self.dofs] = values["damping"]
        model.dof_frictionloss[self.dofs] = values["friction"]
        model.dof_armature[self.dofs] = values["armature"]
        mujoco.mj_setConst(model, self.data)

    def delay_s(self, x: Unknowns) -> float:
        """The delay among the unknowns [s]."""
        return float(x[-1])

    def smoothing_s(self, x: Unknowns) -> float:
        """The lag of the filter among the unknowns [s]."""
        return float(x[-2])

    def lead_s(self, x: Unknowns) -> Joints:
        """``[j]`` [s]: a servo's set-point is ahead by this times its speed."""
        stiffness, damping = (
            np.array(
                [
                    p.value(v)
                    for p, v in zip(self.parameters, x.tolist(), strict=True)
                    if p.kind == kind
                ]
            )
            for kind in ("stiffness", "servo_damping")
        )
        return damping / stiffness

    def _unknown(self) -> list[Parameter]:
        model, dofs = self.model, self.dofs
        kp = model.actuator_gainprm[self.actuators, 0]
        kv = -model.actuator_biasprm[self.actuators, 2]
        torque = np.array(self.arm.max_torque)
        values: dict[Kind, tuple[Joints, Joints]] = {
            "stiffness": (kp, kp),
            "servo_damping": (np.maximum(kv, 1e-3 * kp), kv),
            "damping": (model.dof_damping[dofs], _BELIEF_DAMPING * np.maximum(kv, 1e-3 * kp)),
            "friction": (model.dof_frictionloss[dofs], _BELIEF_FRICTION * torque),
            "armature": (np.maximum(model.dof_armature[dofs], 1e-3), torque),
        }
        found: list[Parameter] = []
        for kind, (joint, title) in itertools.product(JOINT_KINDS, enumerate(self.arm.joint_names)):
            start, belief = (float(v[joint]) for v in values[kind])
            name = f"{kind} of {title}".replace("_", " ")
            if kind in _LOGARITHMIC:
                at = float(np.log(start))
                far = _FARTHEST * _BELIEF_LOG
                found.append(Parameter(kind, joint, name, at, at - far, at + far, _BELIEF_LOG))
            else:
                high = start + _FARTHEST * belief
                found.append(Parameter(kind, joint, name, start, 0.0, high, belief))
        scene = self.scene.config
        delay = scene.control_delay_s
        return [
            *found,
            Parameter(
                "payload",
                -1,
                "payload",
                self._payload_kg,
                0.0,
                3 * _BELIEF_PAYLOAD_KG,
                _BELIEF_PAYLOAD_KG,
            ),
            Parameter(
                "smoothing",
                -1,
                "smoothing of set-points",
                scene.control_smoothing_s,
                0.0,
                _LONGEST_SMOOTHING_S,
                _BELIEF_SMOOTHING_S,
            ),
            Parameter("delay", -1, "command delay", delay, 0.0, _LONGEST_DELAY_S, _BELIEF_DELAY_S),
        ]


def _floating(scene: Scene, mount: ArmMount) -> Scene:
    """Nothing but the arm feels its weight: what lies on the table must not fall through it. What
    is only seen is left out, and so are loose objects, since no step has to move them: nothing
    touches them, and the arm's motion has the same bits without.
    """
    first = mount.joints[0]

    def edit(spec: mujoco.MjSpec) -> None:
        own = {b.name for b in spec.joint(first).parent.find_all(mujoco.mjtObj.mjOBJ_BODY)}
        own.add(spec.joint(first).parent.name)
        for body in spec.bodies:
            if body.name not in own:
                body.gravcomp = 1.0
        loose = [b for b in spec.worldbody.bodies if b.name not in own and _loose(spec, b)]
        weightless = [g for g in spec.geoms if g.mass == 0.0]
        # Contacts are off; pairs and cameras may name what goes.
        for thing in (*spec.pairs, *spec.cameras, *spec.lights, *weightless, *loose):
            spec.delete(thing)

    return dataclasses.replace(scene, edits=(*scene.edits, edit))


def _loose(spec: mujoco.MjSpec, body: mujoco.MjsBody) -> bool:
    """Whether a body of the world moves, and nothing of the model holds, drives or measures it."""
    below = [body, *body.find_all(mujoco.mjtObj.mjOBJ_BODY)]
    joints = [j for b in below for j in b.joints]
    named = {b.name for b in below} | {j.name for j in joints}
    named |= {s.name for b in below for s in b.sites} | {g.name for b in below for g in b.geoms}
    held = [a.target for a in spec.actuators] + [s.objname for s in spec.sensors]
    held += [n for e in spec.equalities for n in (e.name1, e.name2)]
    held += [n for e in spec.excludes for n in (e.bodyname1, e.bodyname2)]
    return bool(joints) and not spec.tendons and not named.intersection(held)
