"""Runs a packaged scene in another engine: ``pybullet/pick_place``.

Signals, task, controller and command path are those of the scene (:class:`SceneEnv`); only the
physics between two control steps is Bullet's. MuJoCo's state mirrors it for kinematics, pictures
and verdicts. Servos are Bullet's (stiff) motors with the scene's force limits.

    controller -> data.ctrl -> Bullet's motors -> steps -> positions, velocities -> data
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from typing import Any

import mujoco
import numpy as np

from robolearn.geometry import Rotation, Vector, quat_from_rotation, rotation_from_quat
from robolearn.shapes import OwnFlags
from robolearn.types import Condition, ResetReport
from sim.adapters.bullet import model as bm
from sim.env.scene_env import SceneEnv
from sim.plants.bullet_engine import acting_on_first
from sim.plants.urdf import bullet
from sim.scene.config import Scene
from sim.scene.load import load_scene, scene_names
from sim.world_name import WorldName, choose, only

# Share of the position error that a motor removes per step, as in the lab.
MOTOR_GAIN = 0.35


class BulletSceneEnv(SceneEnv):
    """Deterministic like :class:`SceneEnv`; :class:`SceneError` for what Bullet cannot rebuild."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        bm.check_model(self.model, scene.config.name)
        self._p = bullet()
        self._client: int | None = None
        self._servos = bm.servos(self.model)
        # Bullet body and link of every MuJoCo body that moves, and Bullet's joint of every joint.
        self._bodies: dict[int, tuple[int, int]] = {}
        self._joints: dict[int, tuple[int, int]] = {}
        self._free: dict[int, int] = {}

    @classmethod
    def named(cls, name: WorldName) -> BulletSceneEnv:
        """From a parsed world name."""
        only(name, ())
        choose(name.family, "scene", name.thing, scene_names())
        return cls(load_scene(name.thing))

    @property
    def engine(self) -> str:
        """Physics engine and version."""
        return f"pybullet {importlib.metadata.version('pybullet')}"

    @property
    def scene_hash(self) -> str:
        """Digest of scene and engine."""
        text = f"{self.engine}\n{MOTOR_GAIN}\n{super().scene_hash}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """As in the scene, then Bullet is built anew: a used engine keeps impulses."""
        report = super().reset(condition, rng)
        self._rebuild()
        self._push_state()
        return report

    def link_pose(self, body: int) -> tuple[Vector, Rotation]:
        """Where Bullet has the frame of a MuJoCo body that moves: position, rotation ``[3, 3]``."""
        p, (unit, link) = self._p, self._bodies[body]
        if link < 0:
            return self._free_pose(body)
        state = p.getLinkState(unit, link, computeForwardKinematics=1, **self._id)
        return np.array(state[4]), rotation_from_quat(np.roll(np.array(state[5]), 1))

    def close(self) -> None:
        """Disconnect and release the renderers; safe to call twice."""
        super().close()
        self._disconnect()

    @property
    def _id(self) -> dict[str, int]:
        return {"physicsClientId": -1 if self._client is None else self._client}

    def _disconnect(self) -> None:
        if self._client is not None:
            self._p.disconnect(self._client)
            self._client = None

    def _integrate(self) -> None:
        p, model, data = self._p, self.model, self.data
        for servo in self._servos:
            unit, joint = self._joints[servo.joint]
            target = servo.offset + servo.factor * float(data.ctrl[servo.control])
            p.setJointMotorControl2(
                unit,
                joint,
                p.POSITION_CONTROL,
                targetPosition=target,
                positionGain=MOTOR_GAIN,
                velocityGain=1.0,
                force=servo.limit,
                **self._id,
            )
        for _ in range(self._chunk):
            p.stepSimulation(**self._id)
        data.time += self._chunk * model.opt.timestep
        self._pull_state()

    def _force_on(self, geoms: OwnFlags) -> Vector:
        """Of what Bullet's last step says."""
        model, force = self.model, np.zeros(3)
        links = {self._bodies[b] for b in set(model.geom_bodyid[geoms].tolist())}
        for c in self._p.getContactPoints(**self._id):
            on_a, on_b = ((c[i], c[i + 2]) in links for i in (1, 2))
            if on_a != on_b:
                force += acting_on_first(c) if on_a else -acting_on_first(c)
        return force

    def _rebuild(self) -> None:
        self._disconnect()
        p, model, data = self._p, self.model, self.data
        self._client = int(p.connect(p.DIRECT))
        p.setGravity(*model.opt.gravity.tolist(), **self._id)
        p.setTimeStep(model.opt.timestep, **self._id)
        p.setPhysicsEngineParameter(
            numSolverIterations=100, deterministicOverlappingPairs=1, **self._id
        )
        self._bodies, self._joints, self._free = {}, {}, {}
        solids: list[tuple[int, int, list[int]]] = []
        for geom in bm.static_geoms(model):
            urdf = bm.static_urdf(model, geom)
            R = data.geom_xmat[geom].reshape(3, 3)
            unit = self._load(urdf, data.geom_xpos[geom], R, fixed=True)
            self._surface(unit, -1, [geom], free=False)
            solids.append((unit, -1, [geom]))
        for root in bm.roots(model):
            solids += self._add_free(root) if self._is_free(root) else self._add_tree(root)
        self._filter(solids)

    def _add_free(self, root: int) -> list[tuple[int, int, list[int]]]:
        unit = self._load(bm.body_urdf(self.model, root), np.zeros(3), np.eye(3), fixed=False)
        geoms = bm.geoms_of(self.model, root)
        self._surface(unit, -1, geoms, free=True)
        self._free[root], self._bodies[root] = unit, (unit, -1)
        return [(unit, -1, geoms)]

    def _add_tree(self, root: int) -> list[tuple[int, int, list[int]]]:
        p, model = self._p, self.model
        parent = int(model.body_parentid[root])
        R = self.data.xmat[parent].reshape(3, 3)
        unit = self._load(bm.tree_urdf(model, root), self.data.xpos[parent], R, fixed=True)
        solids: list[tuple[int, int, list[int]]] = []
        for link in range(p.getNumJoints(unit, **self._id)):
            info = p.getJointInfo(unit, link, **self._id)
            joint, body = info[1].decode(), int(info[12].decode()[1:])
            self._bodies[body] = (unit, link)
            geoms = bm.geoms_of(model, body)
            self._surface(unit, link, geoms, free=False)
            if joint.startswith("j"):
                self._joints[int(joint[1:])] = (unit, link)
                self._drag(unit, link, int(model.jnt_dofadr[int(joint[1:])]))
            if geoms:
                solids.append((unit, link, geoms))
        return solids

    def _drag(self, unit: int, link: int, dof: int) -> None:
        """Damping and dry friction of a joint; Bullet's default motor becomes the friction."""
        p, model = self._p, self.model
        p.changeDynamics(unit, link, jointDamping=float(model.dof_damping[dof]), **self._id)
        dry = float(model.dof_frictionloss[dof])
        p.setJointMotorControl2(unit, link, p.VELOCITY_CONTROL, force=dry, **self._id)

    def _load(self, urdf: str, position: Vector, R: Rotation, *, fixed: bool) -> int:
        xyzw = np.roll(quat_from_rotation(np.asarray(R)), -1)
        client = self._id["physicsClientId"]
        return bm.load(self._p, client, urdf, np.asarray(position), xyzw, fixed=fixed)

    def _surface(self, unit: int, link: int, geoms: list[int], *, free: bool) -> None:
        self._p.changeDynamics(
            unit,
            link,
            lateralFriction=bm.friction(self.model, geoms, free=free),
            linearDamping=0.0,
            angularDamping=0.0,
            **self._id,
        )

    def _filter(self, solids: list[tuple[int, int, list[int]]]) -> None:
        for i, (unit, link, geoms) in enumerate(solids):
            for other_unit, other_link, others in solids[i + 1 :]:
                if unit != other_unit:
                    on = int(bm.meets(self.model, geoms, others))
                    self._p.setCollisionFilterPair(
                        unit, other_unit, link, other_link, on, **self._id
                    )

    def _is_free(self, body: int) -> bool:
        joint = int(self.model.body_jntadr[body])
        return bool(self.model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE)

    def _push_state(self) -> None:
        p, model, data = self._p, self.model, self.data
        for joint, (unit, index) in self._joints.items():
            q = float(data.qpos[model.jnt_qposadr[joint]])
            qd = float(data.qvel[model.jnt_dofadr[joint]])
            p.resetJointState(unit, index, q, qd, **self._id)
        for body, unit in self._free.items():
            # Bullet's frame of a free body is that of its inertia.
            R = data.xmat[body].reshape(3, 3)
            com = data.xpos[body] + R @ model.body_ipos[body]
            R_inertia = R @ rotation_from_quat(model.body_iquat[body])
            xyzw = np.roll(quat_from_rotation(R_inertia), -1)
            p.resetBasePositionAndOrientation(unit, com.tolist(), xyzw.tolist(), **self._id)
            p.resetBaseVelocity(unit, [0.0] * 3, [0.0] * 3, **self._id)

    def _free_pose(self, body: int) -> tuple[Vector, Rotation]:
        model = self.model
        com, xyzw = self._p.getBasePositionAndOrientation(self._free[body], **self._id)
        R_inertia = rotation_from_quat(np.roll(np.array(xyzw), 1))
        R = R_inertia @ rotation_from_quat(model.body_iquat[body]).T
        return np.array(com) - R @ model.body_ipos[body], R

    def _pull_state(self) -> None:
        p, model, data = self._p, self.model, self.data
        for joint, (unit, index) in self._joints.items():
            state: Any = p.getJointState(unit, index, **self._id)
            data.qpos[model.jnt_qposadr[joint]] = state[0]
            data.qvel[model.jnt_dofadr[joint]] = state[1]
        for body, unit in self._free.items():
            joint = int(model.body_jntadr[body])
            at, dof = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
            position, R = self._free_pose(body)
            linear, angular = p.getBaseVelocity(unit, **self._id)
            turning = np.array(angular)
            data.qpos[at : at + 3] = position
            data.qpos[at + 3 : at + 7] = quat_from_rotation(R)
            # Velocity of the body's origin in the world; turning in the body's frame.
            offset = R @ model.body_ipos[body]
            data.qvel[dof : dof + 3] = np.array(linear) - np.cross(turning, offset)
            data.qvel[dof + 3 : dof + 6] = R.T @ turning
