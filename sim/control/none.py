"""Moves nothing: the control of a scene without a robot, such as a table that was scanned."""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np

from robolearn.types import Command, SentBlock
from sim.scene.config import SceneConfig
from sim.scene.samples import SentLog
from sim.shapes import Indices


class NoController:
    """``control`` of kind ``none``; the scene has no actions."""

    def __init__(self, config: SceneConfig, model: mujoco.MjModel) -> None:
        del model
        self._every = config.substeps
        self._sent = SentLog({})

    @property
    def every(self) -> int:
        """Once per tick."""
        return self._every

    @property
    def places(self) -> frozenset[str]:
        """None."""
        return frozenset()

    @property
    def own_delay(self) -> Indices:
        """None."""
        return np.array([], dtype=np.intp)

    @property
    def slowed(self) -> str:
        """Nothing."""
        return ""

    def reset(
        self, model: mujoco.MjModel, data: mujoco.MjData, poses: Mapping[str, tuple[float, ...]]
    ) -> None:
        """Nothing to place."""
        del model, data, poses
        self._sent.clear()

    def set_target(self, command: Command, t_ns: int) -> None:
        """Nothing to command."""
        self._sent.add(command.seq, t_ns, {})

    def substep(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Nothing to move."""

    def sent(self) -> SentBlock:
        """One row per command."""
        return self._sent.drain()
