"""Push-T recordings in pixels (Diffusion Policy) to the metric table frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode, EpisodeMeta, episode_from_arrays
from robolearn.data.importers.frames import FrameSource
from robolearn.data.provenance import git_revision, library_versions
from robolearn.pusht import (
    BLOCK,
    RATE_HZ,
    SUCCESS_COVERAGE,
    TOOL,
    block_signal,
    coverage,
    pose_from_px,
    table_from_px,
    target_action,
    tool_signal,
)
from robolearn.spec import EmbodimentSpec
from robolearn.types import Condition, Outcome

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


def metric_rows(rows: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
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


def pusht_episode(
    rows: Mapping[str, NDArray[Any]],
    index: int,
    provenance: Mapping[str, Any],
    frames: tuple[FrameSource, ...] = (),
) -> Episode:
    """One demonstration from ``state [T, 5]`` (agent x, y, block x, y [px], angle [rad]) and
    ``action [T, 2]`` [px].

    Reward and progress of a step are those of the state that follows it, as in the loop; the state
    after the last action was not recorded, so the last step repeats the last state's.
    """
    state = rows["state"].astype(np.float64)
    tool = table_from_px(state[:, :2])
    block = pose_from_px(state[:, 2:])
    following = np.concatenate([block[1:], block[-1:]])
    covered = np.array([coverage(pose) for pose in following])
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
        provenance=dict(provenance) | {"reward": "progress of the state after the step"},
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
