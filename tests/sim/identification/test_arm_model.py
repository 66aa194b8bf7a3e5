"""What an arm's model leaves out changes nothing."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest

from sim.control.servos import apply_gains
from sim.identification.arm_model import ArmModel
from sim.plants.mount import find_mount, loaded
from sim.scene.load import load_scene
from sim.scene.payload import set_payload


@pytest.mark.parametrize("name", ["pusht_ur5e", "stacking"])
def test_loose_objects_are_left_out_and_no_bit_of_the_motion_changes(name: str) -> None:
    scene = load_scene(name)
    lean = ArmModel(scene)
    plain = scene.compile()
    mount = find_mount(scene.config, plain)

    def floating(spec: mujoco.MjSpec) -> None:
        for body in spec.worldbody.bodies:
            loose = not body.find_all(mujoco.mjtObj.mjOBJ_BODY) and len(list(body.joints)) > 0
            body.gravcomp = 1.0 if loose else 0.0
        for pair in spec.pairs:
            spec.delete(pair)

    with_load = loaded(scene, plain, mount)
    whole = dataclasses.replace(with_load, edits=(*with_load.edits, floating)).compile()
    assert lean.model.nv < whole.nv
    if mount.gains is not None:
        apply_gains(whole, find_mount(scene.config, whole).actuators[: lean.arm.dof], mount.gains)
    whole.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    rows = []
    for model in (whole, lean.model):
        at = find_mount(scene.config, model)
        n = lean.arm.dof
        data = mujoco.MjData(model)
        set_payload(model, 0.3)
        model.dof_frictionloss[at.dofs[:n]] = 1.0
        mujoco.mj_setConst(model, data)
        mujoco.mj_resetData(model, data)
        start = data.qpos[at.qpos[:n]].copy()
        row = []
        for k in range(300):
            data.ctrl[at.actuators[:n]] = start + 0.2 * np.sin(0.02 * k * np.arange(1, n + 1))
            mujoco.mj_step(model, data)
            row.append(data.qpos[at.qpos[:n]].copy())
        rows.append(np.array(row))
    assert np.ptp(rows[0], axis=0).min() > 0.01
    np.testing.assert_array_equal(rows[0], rows[1])
