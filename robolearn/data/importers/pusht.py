"""Brings Push-T recordings in pixels (Diffusion Policy) to the metric table frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode, EpisodeMeta, episode_from_arrays
from robolearn.data.importers.frames import FrameSource
from robolearn.data.provenance import git_revision, library_versions
from robolearn.errors import DataError
from robolearn.geometry import PlanarPoses
from robolearn.pusht import (
    BLOCK,
    GOAL,
    RATE_HZ,
    SUCCESS_COVERAGE,
    TOOL,
    Pose,
    block_signal,
    coverage,
    goal_params,
    pose_from_px,
    table_from_px,
    target_action,
    tool_signal,
    wrap_angle,
)
from robolearn.shapes import AnyFloats
from robolearn.spec import EmbodimentSpec
from robolearn.types import Condition, Outcome, Signals

# When recordings agree on a goal: this many, this near to each other; and how much of the goal
# they must cover to have meant it.
FEWEST, TOGETHER_M, TOGETHER_RAD, AT_GOAL = 3, 0.02, 0.2, 0.75
STATE_SIZE = 5
ACTION_SIZE = 2


def is_pusht(low_dim: Mapping[str, Any]) -> bool:
    """Recognised by shapes: ``state [N, 5]`` within the picture and ``action [N, 2]``."""
    state, action = low_dim.get("state"), low_dim.get("action")
    return (
        state is not None
        and action is not None
        and state.shape[1:] == (STATE_SIZE,)
        and action.shape[1:] == (ACTION_SIZE,)
    )


def metric_rows(rows: Signals) -> dict[str, AnyFloats]:
    """``state`` and ``action`` in pixels as the flat keys that an export of another task has."""
    state = rows["state"].astype(np.float64)
    return {
        TOOL.replace("/", "."): table_from_px(state[:, :2]),
        BLOCK.replace("/", "."): pose_from_px(state[:, 2:]),
        "action": table_from_px(rows["action"]),
    }


def pusht_embodiment(frames: tuple[FrameSource, ...] = ()) -> EmbodimentSpec:
    """The agent of the recordings: a disc that follows its target on a 0.512 m table."""
    return EmbodimentSpec(
        name="pusht_human",
        signals=(
            tool_signal(),
            block_signal(),
            *(frame.spec for frame in frames),
        ),
        actions=(target_action(),),
        rate_hz=RATE_HZ,
    )


def check_goal(ends_px: PlanarPoses, goal: Pose, where: object) -> None:
    """Raise :class:`DataError` where most recordings end with the T at one place, not at ``goal``.

    ``ends_px [E, 3]``: the block's last pose of every episode (px, px, rad). Recordings that end
    here and there (play, failures) say nothing about a goal, nor do fewer than three.
    """
    ends = pose_from_px(ends_px)
    if len(ends) < FEWEST:
        return
    apart_m = np.linalg.norm(ends[:, None, :2] - ends[None, :, :2], axis=-1)
    apart_rad = np.abs(wrap_angle(ends[:, None, 2] - ends[None, :, 2]))
    near = (apart_m < TOGETHER_M) & (apart_rad < TOGETHER_RAD)
    middle = int(near.sum(axis=1).argmax())
    count = int(near[middle].sum())
    if count < max(FEWEST, 0.5 * len(ends)):
        return
    turns = wrap_angle(ends[near[middle], 2] - ends[middle, 2])
    xy = np.median(ends[near[middle], :2], axis=0)
    x, y, yaw = (*xy.tolist(), float(wrap_angle(ends[middle, 2] + np.median(turns))))
    covered = coverage((x, y, yaw), goal)
    if covered < AT_GOAL:
        raise DataError(
            f"{where}: in {count} of {len(ends)} episodes the T ends at x {x:.3f} m, y {y:.3f} m,"
            f" yaw {yaw:.3f} rad, which covers {covered:.0%} of the goal"
            f" {', '.join(f'{v:.3f}' for v in goal)}: rewards would be wrong. If that is the"
            f" recordings' goal, give --goal={x:.3f},{y:.3f},{yaw:.3f}"
        )


def pusht_episode(
    rows: Signals,
    index: int,
    provenance: Mapping[str, Any],
    frames: tuple[FrameSource, ...] = (),
    goal: Pose = GOAL,
) -> Episode:
    """One demonstration from ``state [T, 5]`` (agent x, y, block x, y [px], angle [rad]) and
    ``action [T, 2]`` [px].

    ``goal``: where the T should be, in the table frame. Reward and progress of a step are those of
    the state that follows it, as in the loop; the state
    after the last action was not recorded, so the last step repeats the last state's.
    """
    state = rows["state"].astype(np.float64)
    tool = table_from_px(state[:, :2])
    block = pose_from_px(state[:, 2:])
    following = np.concatenate([block[1:], block[-1:]])
    covered = np.array([coverage(pose, goal) for pose in following])
    progress = np.minimum(1.0, covered / SUCCESS_COVERAGE)
    success = bool((covered > SUCCESS_COVERAGE).any())
    poses = {
        TOOL: tuple(float(v) for v in tool[0]),
        BLOCK: tuple(float(v) for v in block[0]),
    }
    meta = EpisodeMeta(
        kind="demonstration",
        task="pusht",
        embodiment=pusht_embodiment(frames),
        condition=Condition(f"pusht-human-{index:03d}", index, poses),
        achieved=poses,
        outcome=Outcome(
            success=success,
            progress=float(progress[-1]),
            reward=float(progress[-1]),
            terminal=success,
            truncated=not success,
            reason="success" if success else "end_of_recording",
            metrics={"coverage": float(covered[-1])},
        ),
        agent="human",
        env="gym_pusht",
        task_text="Push the T-shaped block onto the T-shaped target.",
        provenance=dict(provenance)
        | {"reward": "progress of the state after the step"}
        | goal_params(None if goal == GOAL else goal),
        git_revision=git_revision(),
        versions=library_versions(),
    )
    observations: dict[str, NDArray[Any]] = {TOOL: tool, BLOCK: block}
    return episode_from_arrays(
        meta,
        observations | {frame.spec.name: frame.no_rows() for frame in frames},
        {TOOL: table_from_px(rows["action"])},
        progress=progress,
    )
