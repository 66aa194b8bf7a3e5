"""Finds how far the hand of a scene's robot was open in pictures, which no capture records.

One number for all pictures of a set, in which the hand does not move: the opening at which the
robot's silhouettes agree best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.config import from_dict
from sim.control.arms import ArmsConfig, GripperConfig
from sim.reconstruction.frames import PosedFrame
from sim.reconstruction.views import SceneViewer
from sim.scene.config import SceneConfig

# Openings that are tried at first, and between the best and its neighbours; pictures that say it.
_TRIED, _HALVED, _PICTURES = 6, 2, 5
# An opening that explains the pictures better by less is not told from the model's own.
_BETTER = 0.005


@dataclass(frozen=True, slots=True)
class Opening:
    """Where the hand's joints were, by name ("as the model rests": none); ``said``: how far it was
    open, in a sentence ("": nothing was found).
    """

    joints: Mapping[str, float]
    said: str


def hand_opening(
    scene: SceneConfig,
    viewer: SceneViewer,
    shown: Sequence[tuple[PosedFrame, Mapping[str, float]]],
) -> Opening:
    """By pictures of one set, and where the robot's other joints were in each."""
    hand = _hand(scene)
    if hand is None or not shown:
        return Opening({}, "")
    some = shown[:: max(1, -(-len(shown) // _PICTURES))]
    low, high = viewer.joint_range(hand.joints[0])

    def agrees(joints: Mapping[str, float]) -> float:
        every = [viewer.robot_alone(f, {**q, **joints}).robot for f, q in some]
        known = [v for v in every if np.isfinite(v)]
        return float(np.median(known)) if known else np.nan

    at_rest, found = agrees({}), dict[float, float]()
    tried = np.linspace(0.0, 1.0, _TRIED).tolist()
    step = 1.0 / (_TRIED - 1)
    for _ in range(1 + _HALVED):
        for share in tried:
            if 0.0 <= share <= 1.0:
                found[share] = agrees(dict.fromkeys(hand.joints, low + share * (high - low)))
        best = max(found, key=lambda share: np.nan_to_num(found[share], nan=-1.0))
        step *= 0.5
        tried = [best - step, best + step]
    best = max(found, key=lambda share: np.nan_to_num(found[share], nan=-1.0))
    if not found[best] > np.nan_to_num(at_rest, nan=-1.0) + _BETTER:
        return Opening({}, "")
    wide_m = hand.ratio * best * (high - low)
    text = (
        f"how far the hand was open in '{some[0][0].frame.set.name}' is not recorded: its fingers"
        f" are drawn {1e3 * wide_m:.0f} mm apart, where pictures show them (IoU"
        f" {found[best]:.3f}; as the model rests {at_rest:.3f})"
    )
    return Opening(dict.fromkeys(hand.joints, low + best * (high - low)), text)


def _hand(config: SceneConfig) -> GripperConfig | None:
    """Of a scene with one arm."""
    if config.control.get("kind") != "arms":
        return None
    arms = from_dict(ArmsConfig, config.control, where=f"scene '{config.name}'").arms
    return arms[0].gripper if len(arms) == 1 else None
