"""Says which bodies touch: what a demonstration never touched, nothing made from it should."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import mujoco
import numpy as np

from robolearn.contracts import Env


@runtime_checkable
class TouchingEnv(Env, Protocol):
    """An env that can say what touches."""

    def contacts(self) -> frozenset[tuple[str, str]]:
        """Pairs of bodies that touch now, by name, each in alphabetical order."""
        ...


def touching(model: mujoco.MjModel, data: mujoco.MjData) -> frozenset[tuple[str, str]]:
    """Pairs of bodies whose shapes overlap in ``data.contact``."""
    deep = np.asarray(data.contact.dist) < 0.0
    pairs = model.geom_bodyid[np.asarray(data.contact.geom)[deep]].reshape(-1, 2)
    names = [
        sorted(mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, b) or str(b) for b in pair)
        for pair in {(int(a), int(b)) for a, b in pairs}
    ]
    return frozenset((first, second) for first, second in names)
