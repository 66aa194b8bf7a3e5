"""Reads from episodes how a scene's gripper was commanded and where its fingers were."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robolearn.config import from_dict
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from sim.control.arms import WHERE, ArmsConfig
from sim.identification.gripper_motion import FingerMotion, FoundGripper, found_gripper
from sim.scene.config import Scene


def recorded_gripper(
    store: EpisodeStore, ids: Sequence[str], scene: Scene
) -> tuple[FoundGripper | None, tuple[str, ...]]:
    """Delay and speed of the first arm's gripper, and what was left out; None where the scene has
    no gripper.
    """
    if scene.config.control.get("kind") != "arms":
        return None, ()
    gripper = from_dict(ArmsConfig, scene.config.control, where=WHERE).arms[0].gripper
    if gripper is None:
        return None, ()
    signal = gripper.action
    motions: list[FingerMotion] = []
    left_out: list[str] = []
    for name in ids:
        spec = store.meta(name).embodiment
        if signal not in {s.name for s in spec.signals} & {a.name for a in spec.actions}:
            left_out.append(f"episode {name} has no '{signal}' that is commanded and measured")
            continue
        episode = store.read(name, {signal})
        seen, sent = episode.streams[signal], episode.sent
        start_ns = int(episode.tick_t_ns[0]) if episode.steps else 0
        # Only times that a later sample does not repeat.
        there = np.flatnonzero(seen.valid & np.append(np.diff(seen.t_ns) > 0, True))
        motion = FingerMotion(
            f"episode {name}",
            (sent.t_ns - start_ns) * 1e-9,
            sent.action[signal].reshape(len(sent.t_ns)).astype(np.float64),
            (seen.t_ns[there] - start_ns) * 1e-9,
            seen.value[there].reshape(len(there)).astype(np.float64),
        )
        motions.append(motion)
    try:
        found = found_gripper(signal, motions, gripper.drive)
    except DataError as error:
        raise DataError(f"the gripper cannot be identified: {error}") from error
    said = tuple(f"of the gripper left out: {text}" for text in left_out)
    return found, said
