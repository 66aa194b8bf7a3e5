"""The lab's engine tells the force on the body that was asked for, its friction included."""

from __future__ import annotations

import numpy as np
import pytest

from sim.plants.bullet_engine import BulletEngine


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
