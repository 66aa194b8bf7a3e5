"""The lab's engine tells the force on the body that was asked for, its friction included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hardware.cell.load import load_cell
from robolearn.arms.models import UR5E
from sim.plants.bullet_engine import BulletEngine
from sim.plants.pusht import PlantConfig, PyBulletPlant


@pytest.mark.parametrize("box_first", [True, False])
def test_friction_holds_against_what_pulls(box_first: bool) -> None:
    engine = BulletEngine(240.0)
    engine.restart()
    p, at = engine.p, engine.id

    def body(mass: float, half: float, z: float) -> int:
        shape = p.createCollisionShape(p.GEOM_BOX, halfExtents=[half, half, 0.1], **at)
        return int(p.createMultiBody(mass, shape, -1, [0.0, 0.0, z], **at))

    made = [body(*v) for v in ((1.0, 0.1, 0.1), (0.0, 1.0, -0.1))[:: 1 if box_first else -1]]
    box, table = made if box_first else made[::-1]
    p.setGravity(1.0, 0.0, -9.8, **at)
    for _ in range(100):
        p.stepSimulation(**at)
    for asked, expected in ((box, [-1.0, 0.0, 9.8]), (table, [1.0, 0.0, -9.8])):
        engine.mount(asked, [])
        np.testing.assert_allclose(engine.contact_force((-1,)), expected, atol=0.05)
    engine.close()


@pytest.mark.parametrize("steps", [1, 5])
def test_a_push_is_felt_alike_however_seldom_the_drives_are_told(steps: int) -> None:
    # Told once in five engine steps and driven at once, the tool would knock the block and never
    # be felt to touch it at the end of a period.
    config = PlantConfig(block_pose=(0.256, 0.32, 0.0), table_friction=0.4, spread=0.0)
    plant, dt_s = PyBulletPlant(config), steps / 500.0
    table = load_cell(Path("configs/hardware/lab_ur5e.yaml")).table
    assert table is not None
    q = table.mapping().joints(UR5E, np.array([0.256, 0.18]), near=np.array(config.home))
    plant.set_joints(q)
    felt: list[float] = []
    moved: list[float] = []
    for k in range(round(1.2 / dt_s)):
        t_s = (k + 1) * dt_s
        xy = np.array([0.256, 0.18 + 0.08 * t_s])
        goal = table.mapping().joints(UR5E, xy, near=q)
        plant.set_joint_targets(goal, (goal - q) / dt_s)
        plant.step(dt_s)
        q = goal
        if t_s > 0.9:
            felt.append(float(np.linalg.norm(plant.tool_force()[:2])))
            moved.append(plant.true_pose("block")[1])
    speed = (moved[-1] - moved[0]) / ((len(moved) - 1) * dt_s)
    plant.close()
    assert speed == pytest.approx(0.08, rel=0.1)
    # What friction with the table holds against it, less what turns aside.
    assert np.mean(felt) == pytest.approx(0.4 * config.block_mass_kg * 9.81, rel=0.3)
