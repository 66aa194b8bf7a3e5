"""A video of an episode drawn from its recorded poses: from above, and the arm beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode
from robolearn.pusht import (
    BLOCK,
    GOAL,
    TABLE_SIZE_M,
    TOOL,
    TOOL_RADIUS_M,
    tee_polygons,
    transform_points,
)

JOINTS = "arm/joint_position"
_GOAL, _BLOCK = (144, 238, 144), (119, 136, 153)
_TOOL, _TARGET, _INK = (65, 105, 225), (220, 60, 60), (60, 60, 60)


def write_video(
    episode: Episode, path: Path, *, size: int = 384, workcell: Path | None = None
) -> int:
    """Write one mp4; returns the number of frames.

    With ``workcell``, a robot config with a ``lab:`` section, the virtual arm is drawn beside the
    view from above, and every second tick is shown (drawing costs more than the control period).
    """
    from sim.video import write_mp4

    arm = _ArmView(workcell, size) if workcell is not None and JOINTS in episode.streams else None
    stride = 1 if arm is None else 2
    try:
        frames = (_frame(episode, k, size, arm) for k in range(0, episode.steps, stride))
        return write_mp4(path, frames, episode.meta.embodiment.rate_hz / stride)
    finally:
        if arm is not None:
            arm.close()


def _frame(episode: Episode, k: int, size: int, arm: _ArmView | None) -> NDArray[np.uint8]:
    block, tool = episode.observed(BLOCK)[k], episode.observed(TOOL)[k]
    score = float(episode.progress[: k + 1].max())
    above = draw(block, tool, episode.action[TOOL][k], score, size)
    if arm is None:
        return above
    beside = arm.draw(episode.observed(JOINTS)[k], block)
    return np.concatenate([beside, above], axis=1)


class _ArmView:
    """The lab's workcell in perspective, from recorded joints and block poses."""

    def __init__(self, workcell: Path, size: int) -> None:
        from robolearn.cli.lab import lab_view, load_lab
        from sim.plant import BLOCK as PLANT_BLOCK

        self._view, self._size, self._block = lab_view(load_lab(workcell)), size, PLANT_BLOCK

    def draw(self, q: NDArray[np.float64], block: NDArray[np.float64]) -> NDArray[np.uint8]:
        """One picture ``[size, size, 3]``."""
        return self._view.draw("perspective", self._size, self._size, q, {self._block: block})

    def close(self) -> None:
        """Release the engine."""
        self._view.close()


def draw(block: Any, tool: Any, target: Any, score: float, size: int) -> NDArray[np.uint8]:
    """One picture ``[size, size, 3]`` RGB from above, as in the recordings."""
    import cv2

    picture = np.full((size, size, 3), 255, dtype=np.uint8)
    scale = size / TABLE_SIZE_M

    def px(points: Any) -> NDArray[np.int32]:
        p = np.atleast_2d(np.asarray(points, dtype=np.float64)) * scale
        return np.round(np.stack([p[:, 0], size - p[:, 1]], axis=-1)).astype(np.int32)

    for pose, colour in ((GOAL, _GOAL), (block, _BLOCK)):
        for corners in tee_polygons():
            cv2.fillPoly(picture, [px(transform_points(corners, pose))], colour, cv2.LINE_AA)
    x, y = px(tool)[0].tolist()
    cv2.circle(picture, (x, y), round(TOOL_RADIUS_M * scale), _TOOL, -1, cv2.LINE_AA)
    tx, ty = px(target)[0].tolist()
    cv2.drawMarker(picture, (tx, ty), _TARGET, cv2.MARKER_CROSS, 10, 2)
    text = f"score {score:.2f}"
    cv2.putText(picture, text, (8, size - 10), cv2.FONT_HERSHEY_SIMPLEX, 0.5, _INK, 1, cv2.LINE_AA)
    return picture
