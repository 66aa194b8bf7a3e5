"""A video of an episode drawn from its recorded poses: goal, block, tool, commanded target."""

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

_GOAL, _BLOCK = (144, 238, 144), (119, 136, 153)
_TOOL, _TARGET, _INK = (65, 105, 225), (220, 60, 60), (60, 60, 60)


def write_video(episode: Episode, path: Path, size: int = 384) -> int:
    """Write one mp4 at the control rate; returns the number of frames."""
    from sim.video import write_mp4

    blocks, tools = episode.observed(BLOCK), episode.observed(TOOL)
    targets = episode.action[TOOL]
    frames = (
        draw(blocks[k], tools[k], targets[k], float(episode.progress[: k + 1].max()), size)
        for k in range(episode.steps)
    )
    return write_mp4(path, frames, episode.meta.embodiment.rate_hz)


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
