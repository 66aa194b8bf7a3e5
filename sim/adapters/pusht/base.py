"""Shares tool, block and verdict among the Push-T worlds outside MuJoCo."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.pusht import BLOCK, GOAL, TOOL
from robolearn.shapes import Picture
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Outcome, Signals
from sim.adapters.stepped import Poses, SteppedEnv
from sim.tasks.pusht import PushT

IMAGE = "top/image"


class PushTEnv(SteppedEnv):
    """An engine places tool and block, follows a target, steps, reads and draws.

    With ``image_size`` [px] the picture from above is observed too (:data:`IMAGE`).
    """

    def __init__(
        self, spec: EmbodimentSpec, image_size: int = 0, goal: Sequence[float] = GOAL
    ) -> None:
        if image_size:
            shape = (image_size, image_size, 3)
            image = SignalSpec(IMAGE, shape, rate_hz=spec.rate_hz, dtype="uint8")
            spec = dataclasses.replace(spec, signals=(*spec.signals, image))
        super().__init__(spec, (TOOL, BLOCK))
        self._task, self._image_size = PushT(goal=goal), image_size

    @abstractmethod
    def _place(self, poses: Poses) -> None:
        """Put tool and block at the given poses, at rest; what is not named, where it starts."""

    @abstractmethod
    def _move_to(self, target: NDArray[np.float64]) -> None:
        """From now on the tool goes to ``target [2]`` (table frame, [m])."""

    @abstractmethod
    def _poses(self) -> Poses:
        """Where tool and block are."""

    @abstractmethod
    def _picture(self, width: int, height: int) -> NDArray[np.uint8]:
        """From above ``[height, width, 3]``."""

    @property
    def task(self) -> str:
        """Name of the task."""
        return self._task.name

    @property
    def task_params(self) -> dict[str, Any]:
        """The goal, where it is not gym-pusht's."""
        return {} if self._task.goal == GOAL else {"goal": list(self._task.goal)}

    @property
    def max_steps(self) -> int:
        """Time limit of the task's protocol [control steps]."""
        return self._task.max_steps

    def sample_condition(self, seed: int) -> Condition:
        """The start that gym-pusht draws for the same seed."""
        return self._task.sample_condition(seed)

    def render(self, width: int, height: int) -> Picture:
        """Picture from above ``[height, width, 3]``."""
        self._samples.require()
        return self._picture(width, height)

    def _start(self, condition: Condition, poses: Poses) -> None:
        del condition  # The poses say everything.
        self._place(poses)
        self._task.reset()

    def _follow(self, action: Poses) -> None:
        self._move_to(action[TOOL])

    def _read(self) -> Signals:
        values: dict[str, NDArray[Any]] = dict(self._poses())
        if self._image_size:
            values[IMAGE] = self._observed_picture(self._image_size)
        return values

    def _observed_picture(self, size: int) -> NDArray[np.uint8]:
        """What the camera sees, without anything drawn into it for people."""
        return self._picture(size, size)

    def _judge(self) -> Outcome:
        return self._task.judge(self._samples.values())
