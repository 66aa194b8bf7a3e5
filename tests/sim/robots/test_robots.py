"""Every robot is the published one: frames in MuJoCo, known poses, masses, and scenes that run."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest

from hardware.emulators.ur.motion import JointMotion, MotionLimits
from hardware.emulators.ur.state import RobotStatus, state_values
from hardware.emulators.ur.tool import ToolSpace
from robolearn.arms.models import ARMS, PANDA, SO101, UR5E, XARM7
from robolearn.geometry import pose_from_rpy, rot_x, rot_z, rotation_from_rotvec
from robolearn.types import Command
from sim.env.scene_env import SceneEnv
from sim.plants.pusht import PlantConfig, PyBulletPlant
from sim.robots.registry import ROBOTS
from sim.scene.load import SCENES, load_scene

FILES = {
    "panda": "panda.xml",
    "so101": "so101.xml",
    "ur5e": "ur5e_gripper.xml",
    "xarm7": "xarm7.xml",
}
SCENE_OF = {
    "panda": "panda_table",
    "so101": "so101_table",
    "ur5e": "ur5e_table",
    "xarm7": "xarm7_table",
}

# The tables as their sources print them; (a, alpha, d) per joint. Franka Control Interface and
# UFACTORY user manual: Craig's convention. Universal Robots: the standard one.
Q = math.pi / 2
MODIFIED = {
    "panda": (
        [
            *[(0, 0, 0.333), (0, -Q, 0), (0, Q, 0.316), (0.0825, Q, 0), (-0.0825, -Q, 0.384)],
            *[(0, Q, 0), (0.088, Q, 0)],
        ],
        0.107,
    ),
    "xarm7": (
        [
            *[(0, 0, 0.267), (0, -Q, 0), (0, Q, 0.293), (0.0525, Q, 0), (0.0775, Q, 0.3425)],
            *[(0, Q, 0), (0.076, -Q, 0.097)],
        ],
        0.0,
    ),
}
UR = [
    (0, Q, 0.1625),
    (-0.425, 0, 0),
    (-0.3922, 0, 0),
    (0, Q, 0.1333),
    (0, -Q, 0.0997),
    (0, 0, 0.0996),
]
# TheRobotStudio/SO-ARM100, so101_new_calib.urdf: joint origins, then the frame between the jaws.
SO101_ORIGINS = [
    (0.0207909, -0.0230745, 0.0948817, -math.pi, 0, Q),
    (-0.0303992, -0.0182778, -0.0542, -Q, -Q, 0),
    (-0.11257, -0.028, 0, 0, 0, Q),
    (-0.1349, 0.0052, 0, 0, 0, -Q),
    (0, -0.0611, 0.0181, Q, 0, math.pi),
]
SO101_TIP = (-0.0079, -0.000218121, -0.0981274)


def shift(x=0.0, z=0.0) -> np.ndarray:
    T = np.eye(4)
    T[0, 3], T[2, 3] = x, z
    return T


def turn(R: np.ndarray) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = R
    return T


def published(name: str, q: np.ndarray) -> np.ndarray:
    """The flange by the published table, multiplied out one elementary transform at a time."""
    T = np.eye(4)
    if name in MODIFIED:
        rows, flange = MODIFIED[name]
        for (a, alpha, d), angle in zip(rows, q.tolist(), strict=True):
            T = T @ turn(rot_x(float(alpha))) @ shift(x=a) @ turn(rot_z(angle)) @ shift(z=d)
        return T @ shift(z=flange)
    if name == "ur5e":
        for (a, alpha, d), angle in zip(UR, q.tolist(), strict=True):
            T = T @ turn(rot_z(angle)) @ shift(z=d) @ shift(x=a) @ turn(rot_x(float(alpha)))
        return T
    for origin, angle in zip(SO101_ORIGINS, q.tolist(), strict=True):
        T = T @ pose_from_rpy([float(v) for v in origin]) @ turn(rot_z(angle))
    tip = np.eye(4)
    tip[:3, 3] = SO101_TIP
    # Ours: z out of the hand, y across the jaws; the URDF's frame has other axes there.
    tip[:3, :3] = [[0, 1, 0], [1, 0, 0], [0, 0, -1]]
    return T @ tip


@pytest.mark.parametrize("name", sorted(FILES))
def test_mujoco_and_kinematics_agree_with_the_published_table(name: str) -> None:
    arm = ARMS[name]
    model = mujoco.MjModel.from_xml_string(ROBOTS[FILES[name]]())
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for _ in range(10):
        q = rng.uniform(arm.low, arm.high)
        data.qpos[: arm.dof] = q
        mujoco.mj_kinematics(model, data)
        frames = arm.frames(q)
        for i in range(arm.dof):
            body = data.body(f"link_{i + 1}")
            np.testing.assert_allclose(body.xpos, frames[i + 1][:3, 3], atol=1e-9)
            np.testing.assert_allclose(body.xmat.reshape(3, 3), frames[i + 1][:3, :3], atol=1e-9)
        flange = data.body("flange")
        expected = published(name, q)
        np.testing.assert_allclose(flange.xpos, expected[:3, 3], atol=1e-9)
        np.testing.assert_allclose(flange.xmat.reshape(3, 3), expected[:3, :3], atol=1e-9)
        np.testing.assert_allclose(arm.fk(q), expected, atol=1e-9)


def test_documented_poses() -> None:
    # UFACTORY: with all joints at zero the xArm7's flange is at (206, 0, 120.5) mm, pointing down.
    T = XARM7.fk(np.zeros(7))
    np.testing.assert_allclose(T[:3, 3], (0.206, 0.0, 0.1205), atol=1e-9)
    np.testing.assert_allclose(T[:3, 2], (0, 0, -1), atol=1e-9)
    # The SO-101's middle position: the hand looks forwards, level, along -y of its base.
    np.testing.assert_allclose(SO101.fk(np.zeros(5))[:3, 2], (0, -1, 0), atol=1e-9)


def test_the_emulated_controller_of_the_ur5e_reports_the_same_pose() -> None:
    model = load_scene("pusht_ur5e").compile()
    data = mujoco.MjData(model)
    plant = PyBulletPlant(PlantConfig())
    rng = np.random.default_rng(0)
    try:
        for _ in range(5):
            q = rng.uniform(-2.0, 2.0, 6)
            plant.set_joints(q)
            motion = JointMotion(q, MotionLimits())
            state = state_values(plant, motion, RobotStatus(), 0.0, np.zeros(3), ToolSpace(UR5E))
            pose = np.array(state["actual_TCP_pose"])
            data.qpos[:6] = q
            mujoco.mj_kinematics(model, data)
            site = data.site("tool")
            np.testing.assert_allclose(site.xpos, pose[:3], atol=1e-6)
            R = rotation_from_rotvec(pose[3:])
            np.testing.assert_allclose(data.body("flange").xmat.reshape(3, 3), R, atol=1e-6)
    finally:
        plant.close()


@pytest.mark.parametrize("name", sorted(FILES))
def test_masses_limits_and_torques(name: str) -> None:
    arm = ARMS[name]
    model = mujoco.MjModel.from_xml_string(ROBOTS[FILES[name]]())
    for i, link in enumerate(arm.links):
        assert model.body(f"link_{i + 1}").mass[0] == pytest.approx(link.mass_kg)
        joint = model.joint(arm.joint_names[i])
        np.testing.assert_allclose(joint.range, (arm.low[i], arm.high[i]))
        torque = model.actuator(arm.joint_names[i]).forcerange[1]
        assert torque == pytest.approx(arm.max_torque[i])
    assert sum(link.mass_kg for link in PANDA.links) == pytest.approx(16.06, abs=0.01)


def test_every_generated_file_of_the_scenes_is_current() -> None:
    for name, build in ROBOTS.items():
        copies = sorted(SCENES.glob(f"*/{name}"))
        assert copies, name
        for path in copies:
            assert path.read_text() == build(), f"write sim.robots.ROBOTS['{name}']() to {path}"


@pytest.mark.parametrize("name", sorted(SCENE_OF))
def test_each_robot_holds_still_and_its_fingers_meet_at_zero(name: str) -> None:
    env = SceneEnv(load_scene(SCENE_OF[name]))
    env.reset(env.sample_condition(0), np.random.default_rng(0))
    start = env.observe()
    arm = start.value("arm/joint_position")
    tool = start.value("tool/pose")
    (command,) = [a.name for a in env.spec.actions if a.name != "gripper/width"]
    action = arm if command == "arm/joint_position" else np.array([*tool[:3], 0.0])
    widths = []
    for k in range(50):
        env.apply(Command(k, {command: action, "gripper/width": np.zeros(1)}, 0, "test"))
        env.advance()
        widths.append(env.observe().value("gripper/width")[0])
    end = env.observe()
    np.testing.assert_allclose(end.value("arm/joint_position"), arm, atol=3e-3)
    np.testing.assert_allclose(end.value("tool/pose")[:3], tool[:3], atol=1e-3)
    assert abs(widths[-1]) < 2e-3
    assert env.outcome().reason == ""
