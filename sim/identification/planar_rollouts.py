"""Rolls out one planar scene open loop, many short times, with changing parameters.

One model is compiled once; parameters are written into its fields, and each rollout starts from
recorded poses. Nothing here recompiles or allocates per step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from robolearn.data.episode import Episode
from robolearn.errors import SceneError
from robolearn.geometry import PlanarPose
from robolearn.pusht import BLOCK, TOOL, wrap_angle
from sim.scene.config import Scene, require_name
from sim.shapes import TickPoints, TickPoses

# A block that moves less than this in a tick rests [m]; recordings have float32 pixels.
REST_M = 2e-5
# How far it may move in a window's first tick [m].
TOUCH_M = 1e-3


@dataclass(frozen=True, slots=True)
class Physics:
    """What identification may change.

    ``friction``: contact friction coefficient; ``gyration_m2``: squared radius of gyration [m^2],
    the ratio of rotational to linear table damping; ``com_m``: distance of the centre of mass from
    the block's origin along its stem [m]; ``compliance``: (1 - d) / d of the contact's impedance d
    at first touch (MuJoCo ``solimp``), 0 is rigid.
    """

    friction: float
    gyration_m2: float
    com_m: float
    compliance: float


@dataclass(frozen=True, slots=True)
class Track:
    """A recorded episode as rollouts need it: ``tool [T, 2]``, ``block [T, 3]``, ``action [T, 2]``
    and the tool's velocity ``[T, 2]``, table frame.
    """

    episode: str
    tool: TickPoints
    block: TickPoses
    action: TickPoints
    velocity: TickPoints


class PlanarRollouts:
    """Rolls a planar scene (bodies ``tool``, ``block``; joints as in ``pusht_naive``) out."""

    def __init__(self, scene: Scene) -> None:
        self.model = scene.compile()
        self.data = mujoco.MjData(self.model)
        self._substeps = scene.config.substeps
        self.rate_hz = scene.config.rate_hz
        joint, geom = mujoco.mjtObj.mjOBJ_JOINT, mujoco.mjtObj.mjOBJ_GEOM
        names = ("tool_x", "tool_y", "block_x", "block_y", "block_yaw")
        where = f"{scene.name} (identification)"
        joints = [require_name(self.model, joint, n, where) for n in names]
        if list(self.model.jnt_qposadr[joints]) != [0, 1, 2, 3, 4] or self.model.nq != 5:
            raise SceneError(f"{where}: expected exactly the joints {names}, in this order")
        self._hinge = joints[-1]
        self._block = require_name(self.model, mujoco.mjtObj.mjOBJ_BODY, "block", where)
        self._geoms = [i for i in range(self.model.ngeom) if int(self.model.geom_contype[i]) != 0]
        require_name(self.model, geom, "tool", where)

    def physics(self) -> Physics:
        """The parameters that the model has now."""
        m, block, hinge = self.model, self._block, self._hinge
        dmin = float(m.geom_solimp[self._geoms[0], 0])
        return Physics(
            friction=float(m.geom_friction[self._geoms[0], 0]),
            gyration_m2=float(m.body_inertia[block, 2] / m.body_mass[block]),
            com_m=-float(m.jnt_pos[hinge, 1]),
            compliance=(1.0 - dmin) / dmin,
        )

    def set_physics(self, physics: Physics) -> None:
        """Write parameters into the model and update what MuJoCo derives from them."""
        m, block, hinge = self.model, self._block, self._hinge
        m.geom_friction[self._geoms, 0] = physics.friction
        dmin, dmax = impedance(physics.compliance)
        m.geom_solimp[self._geoms, 0] = dmin
        m.geom_solimp[self._geoms, 1] = dmax
        m.body_inertia[block] = m.body_mass[block] * physics.gyration_m2
        # Bounding boxes are relative to the centre of mass; stale ones would hide contacts.
        boxes = slice(
            int(m.body_bvhadr[block]), int(m.body_bvhadr[block]) + int(m.body_bvhnum[block])
        )
        m.bvh_aabb[boxes, 1] += m.body_ipos[block, 1] + physics.com_m
        m.body_ipos[block, 1] = -physics.com_m
        m.jnt_pos[hinge, 1] = -physics.com_m
        linear = float(m.dof_damping[int(m.jnt_dofadr[hinge]) - 1])
        m.dof_damping[int(m.jnt_dofadr[hinge])] = linear * physics.gyration_m2
        mujoco.mj_setConst(m, self.data)

    def track(self, episode: Episode) -> Track:
        """A recorded episode, with the tool's velocity from its servo alone.

        The tool feels no force, so its motion follows from the actions: from rest at the start.
        """
        tool = np.asarray(episode.observed(TOOL), dtype=np.float64)
        action = np.asarray(episode.action[TOOL], dtype=np.float64)
        velocity = np.zeros_like(tool)
        model, data = self.model, self.data
        mujoco.mj_resetData(model, data)
        flags, model.opt.disableflags = (
            int(model.opt.disableflags),
            int(model.opt.disableflags) | int(mujoco.mjtDisableBit.mjDSBL_CONTACT),
        )
        data.qpos[:2] = tool[0]
        for k in range(len(tool) - 1):
            data.ctrl[:2] = action[k]
            mujoco.mj_step(model, data, nstep=self._substeps)
            velocity[k + 1] = data.qvel[:2]
        model.opt.disableflags = flags
        block = np.asarray(episode.observed(BLOCK), dtype=np.float64)
        return Track(episode.id, tool, block, action, velocity)

    def roll(self, track: Track, start: int, ticks: int) -> TickPoses:
        """Block poses ``[ticks + 1, 3]`` from the recorded state at ``start``, open loop.

        A diverged rollout repeats its last finite pose.
        """
        model, data = self.model, self.data
        mujoco.mj_resetData(model, data)
        com = -float(model.jnt_pos[self._hinge, 1])
        data.qpos[:2] = track.tool[start]
        data.qvel[:2] = track.velocity[start]
        data.qpos[2:5] = _to_joints(track.block[start], com)
        poses = np.empty((ticks + 1, 3))
        poses[0] = data.qpos[2:5]
        ctrl, qpos = data.ctrl, data.qpos
        for k in range(ticks):
            ctrl[:2] = track.action[start + k]
            mujoco.mj_step(model, data, nstep=self._substeps)
            poses[k + 1] = qpos[2:5]
        bad = ~np.isfinite(poses).all(axis=1)
        if bad.any():
            poses[bad] = poses[int(np.argmax(bad)) - 1]
        return _from_joints(poses, com)

    def ticks(self, seconds: float) -> int:
        """Control ticks in a time."""
        return round(seconds * self.rate_hz)


def impedance(compliance: float) -> tuple[float, float]:
    """``solimp`` at first touch and at full depth; the second is half as compliant."""
    return 1.0 / (1.0 + compliance), 1.0 / (1.0 + 0.5 * compliance)


def pushes(tracks: Sequence[Track], ticks: int, least_m: float) -> list[tuple[int, int]]:
    """Windows ``(track, start)`` of ``ticks``, without overlap, in which the block moves.

    A window starts while the block rests: how far two soft contacts have already given way cannot
    be recorded, so a start in the middle of a push would begin with an error.
    """
    found: list[tuple[int, int]] = []
    for i, track in enumerate(tracks):
        step = np.linalg.norm(np.diff(track.block[:, :2], axis=0), axis=1)
        before = np.concatenate([[0.0], step])
        start = 0
        while start + ticks < len(track.block):
            rests = before[start] < REST_M and step[start] < TOUCH_M
            moved = np.linalg.norm(track.block[start + ticks, :2] - track.block[start, :2])
            if rests and moved > least_m:
                found.append((i, start))
                start += ticks
            else:
                start += 1
    return found


def _to_joints(pose: PlanarPose, com_m: float) -> PlanarPose:
    # The hinge sits at the centre of mass (0, -com) of the body frame.
    x, y, yaw = (float(v) for v in pose)
    c, s = math.cos(yaw), math.sin(yaw)
    return np.array([x + s * com_m, y - c * com_m + com_m, yaw])


def _from_joints(joints: TickPoses, com_m: float) -> TickPoses:
    yaw = joints[:, 2]
    return np.stack(
        [
            joints[:, 0] - np.sin(yaw) * com_m,
            joints[:, 1] + np.cos(yaw) * com_m - com_m,
            wrap_angle(yaw),
        ],
        axis=1,
    )
