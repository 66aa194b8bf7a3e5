"""Writes Push-T as Diffusion Policy does: pixels, float32, ``state``, ``keypoint``, ``img``.

    state    [N, 5]           tool x, y, block x, y [px], block angle [rad], 0 to 2 pi
    action   [N, 2]           target x, y [px]
    keypoint [N, 9, 2]        points of the block [px]
    img      [N, 96, 96, 3]   float32 0..255, the camera ``top/image``

so that the loaders of that project (``pusht_dataset.py``, ``pusht_image_dataset.py``) read it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode
from robolearn.data.exporters.common import Plan, actions_of, flat_key, observed
from robolearn.pusht import BLOCK, TOOL, px_from_pose, px_from_table
from robolearn.shapes import AnyRows
from robolearn.spec import EmbodimentSpec

CAMERA = "top/image"
# The recording's keypoints in the block's frame [px]: median over its 25,650 rows (the scatter is
# 0.03 px), measured in pusht_cchi_v7_replay.zarr.
KEYPOINTS_PX = (
    (9.2698, 90.0410), (-60.9835, -1.1867), (60.9128, -1.3934), (-0.2705, 25.5436),
    (-14.0649, 122.8159), (39.0027, 32.8574), (-39.9664, 32.7297), (-16.8243, 62.8632),
    (23.5415, -1.7003),
)  # fmt: skip


def is_pusht(task: str, embodiment: EmbodimentSpec) -> bool:
    """Whether episodes of ``task`` are the tool, the block and the target of Push-T."""
    shapes = {s.name: (s.shape, s.frame) for s in embodiment.signals}
    commands = [(a.name, a.shape, a.mode, a.frame) for a in embodiment.actions]
    return (
        task == "pusht"
        and shapes.get(TOOL) == ((2,), "table")
        and shapes.get(BLOCK) == ((3,), "table")
        and commands == [(TOOL, (2,), "absolute", "table")]
    )


def pusht_columns(episode: Episode, plan: Plan) -> dict[str, AnyRows]:
    """The columns above, then all other signals under their own names."""
    specs = {s.name: s for s in (*plan.states, *plan.cameras)}
    tool, block = observed(episode, specs[TOOL]), observed(episode, specs[BLOCK])
    pose = px_from_pose(block)
    columns: dict[str, NDArray[Any]] = {
        "state": np.concatenate([px_from_table(tool), pose], axis=1).astype(np.float32),
        "action": px_from_table(actions_of(episode)).astype(np.float32),
        "keypoint": _keypoints(pose).astype(np.float32),
    }
    for name, spec in specs.items():
        if name == CAMERA:
            columns["img"] = observed(episode, spec).astype(np.float32)
        elif name not in (TOOL, BLOCK):
            columns[flat_key(name)] = observed(episode, spec)
    return columns


def _keypoints(pose_px: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[N, 9, 2]`` from block poses ``[N, 3]`` [px, px, rad clockwise]."""
    points = np.array(KEYPOINTS_PX)
    c, s = np.cos(pose_px[:, 2]), np.sin(pose_px[:, 2])
    turn = np.stack([np.stack([c, -s], axis=-1), np.stack([s, c], axis=-1)], axis=-2)
    return points @ turn.transpose(0, 2, 1) + pose_px[:, None, :2]
