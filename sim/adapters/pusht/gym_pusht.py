"""Adapts gym-pusht 0.1.8, the world that the human recordings come from.

Pixels stay inside this file; actions and signals are SI in the table frame. Nothing is drawn
unless asked, so it steps faster than through its pixel observations.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import warnings
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from robolearn.errors import MissingDependencyError
from robolearn.pusht import (
    BLOCK,
    GOAL,
    RATE_HZ,
    TOOL,
    block_signal,
    pose_from_px,
    px_from_pose,
    px_from_table,
    table_from_px,
    target_action,
    tool_signal,
)
from robolearn.spec import EmbodimentSpec
from sim.adapters.pusht.base import PushTEnv
from sim.adapters.stepped import Poses
from sim.world_name import WorldName, only_top

# Where gym-pusht puts the block and the agent when nothing is asked for [px].
DEFAULT_PX = {TOOL: (256.0, 400.0), BLOCK: (256.0, 300.0, 0.0)}

SPEC = EmbodimentSpec(
    name="gym_pusht",
    signals=(
        tool_signal(),
        block_signal(),
    ),
    actions=(target_action(),),
    rate_hz=RATE_HZ,
)


class GymPushTEnv(PushTEnv):
    """The original simulator; starts exactly (1e-9) at the requested pose."""

    def __init__(self, image_size: int = 0, goal: Sequence[float] = GOAL) -> None:
        super().__init__(SPEC, image_size, goal)
        # The wrapped world, for what this one has no word for (its own random starts).
        self.gym = _build()
        self._pygame: Any = importlib.import_module("pygame")
        versions = {n: importlib.metadata.version(n) for n in ("gym-pusht", "pymunk")}
        self._engine = f"gym-pusht {versions['gym-pusht']} (pymunk {versions['pymunk']})"
        self._target: NDArray[np.float64] = np.zeros(2)

    @classmethod
    def named(cls, name: WorldName) -> GymPushTEnv:
        """From a parsed world name."""
        return cls(only_top(name), name.goal() or GOAL)

    @property
    def engine(self) -> str:
        """Physics engine and versions."""
        return self._engine

    @property
    def scene_hash(self) -> str:
        """Digest of the versions and of another goal, which describe this world completely."""
        text = f"{self._engine} {self.task_params}" if self.task_params else self._engine
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _place(self, poses: Poses) -> None:
        agent = px_from_table(poses[TOOL]) if TOOL in poses else np.array(DEFAULT_PX[TOOL])
        block = px_from_pose(poses[BLOCK]) if BLOCK in poses else np.array(DEFAULT_PX[BLOCK])
        # The public reset sets the position before the angle, which shifts the block; otherwise
        # this is what it does. The one step moves nothing (all velocities are zero) but finds the
        # contacts of an overlapping start, as in the recordings.
        self.gym._setup()  # noqa: SLF001
        if self.task_params:
            self.gym.goal_pose = px_from_pose(self._task.goal)
        self.gym.agent.position = tuple(agent.tolist())
        self.gym.block.angle = float(block[2])
        self.gym.block.position = tuple(block[:2].tolist())
        self.gym.space.step(self.gym.dt)
        self.gym._last_action = None  # noqa: SLF001
        self._target = np.array(self.gym.agent.position)

    def _move_to(self, target: NDArray[np.float64]) -> None:
        self._target = px_from_table(target)

    def _step(self) -> None:
        # Ten physics steps of 10 ms.
        self.gym.step(self._target)

    def _poses(self) -> Poses:
        block = self.gym.block
        return {
            TOOL: table_from_px(np.array(self.gym.agent.position)),
            BLOCK: pose_from_px(np.array([*block.position, block.angle])),
        }

    def _picture(self, width: int, height: int) -> NDArray[np.uint8]:
        self.gym.visualization_width, self.gym.visualization_height = width, height
        return np.asarray(self.gym.render(), dtype=np.uint8)

    def _observed_picture(self, size: int) -> NDArray[np.uint8]:
        # As in the recordings: the other picture shows the command as a cross. The world's own way
        # copies the surface column by column, which takes twice as long as drawing it.
        surface = self.gym._draw()  # noqa: SLF001
        width, height = surface.get_size()
        rows = np.frombuffer(self._pygame.image.tobytes(surface, "RGB"), dtype=np.uint8)
        pixels = cv2.resize(rows.reshape(height, width, 3), (size, size))
        return np.asarray(pixels, dtype=np.uint8)

    def close(self) -> None:
        """Nothing is held; safe to call twice."""
        self.gym.close()


def _build() -> Any:
    # pygame greets on standard output, which belongs to --json.
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        with warnings.catch_warnings():
            # pkg_resources (pygame) and SWIG types warn on import; not ours to fix.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", UserWarning)
            from gym_pusht.envs.pusht import PushTEnv
    except ImportError as error:
        if ".so" in str(error):
            # A system library that one of its dependencies needs; the package itself is there.
            raise
        raise MissingDependencyError(
            f"the world 'gym_pusht' needs gym-pusht 0.1.8 and pymunk < 7 ({error});"
            " run: pip install -c constraints.txt gym-pusht"
        ) from error
    return PushTEnv(obs_type="state", render_mode="rgb_array")
