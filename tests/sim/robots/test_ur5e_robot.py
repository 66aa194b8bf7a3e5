"""The UR5e of the scene is the published one: frames, masses, servos."""

from __future__ import annotations

import mujoco
import numpy as np

from robolearn.arms.models import UR5E
from sim.robots.ur5e import LEAD_S, arm_mjcf
from sim.scene.load import SCENES, load_scene

NAMES = ("link_1", "link_2", "link_3", "link_4", "link_5", "flange")


def test_the_committed_include_is_the_generated_one() -> None:
    committed = (SCENES / "pusht_ur5e" / "ur5e.xml").read_text(encoding="utf-8")
    assert committed == arm_mjcf(), "write sim.robots.ur5e.arm_mjcf() to the scene's ur5e.xml"


def test_mujoco_and_kinematics_agree_in_every_frame() -> None:
    model = load_scene("pusht_ur5e").compile()
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(20):
        q = rng.uniform(UR5E.low, UR5E.high)
        data.qpos[:6] = q
        mujoco.mj_kinematics(model, data)
        for name, T in zip(NAMES, UR5E.frames(q)[1:], strict=True):
            body = data.body(name)
            worst = max(
                worst,
                float(np.abs(body.xpos - T[:3, 3]).max()),
                float(np.abs(body.xmat.reshape(3, 3) - T[:3, :3]).max()),
            )
    assert worst < 1e-6


def test_masses_limits_and_servos() -> None:
    model = load_scene("pusht_ur5e").compile()
    for i, (name, link) in enumerate(zip(NAMES, UR5E.links, strict=True)):
        body = model.body(name)
        assert body.mass[0] == link.mass_kg
        np.testing.assert_allclose(body.ipos, link.com, atol=1e-12)
        np.testing.assert_allclose(sorted(body.inertia), sorted(_principal(link.inertia)), 1e-6)
        joint = model.joint(UR5E.joint_names[i])
        np.testing.assert_allclose(joint.range, [UR5E.low[i], UR5E.high[i]], rtol=1e-9)
        actuator = model.actuator(UR5E.joint_names[i])
        np.testing.assert_allclose(actuator.forcerange[1], UR5E.max_torque[i])
        np.testing.assert_allclose(-actuator.biasprm[2] / actuator.gainprm[0], LEAD_S)


def _principal(inertia: tuple[float, ...]) -> np.ndarray:
    xx, yy, zz, xy, xz, yz = inertia
    return np.linalg.eigvalsh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
