"""A store of one episode whose tool is late behind its commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robolearn.data.episode import episode_from_arrays
from robolearn.data.store.store import EpisodeStore
from tests.episodes import TOOL, small_episode
from tests.robolearn.calibration.test_calibration import motion

LATE_S = 0.14


def late_store(path: Path) -> Path:
    """The store at ``path``."""
    t = np.arange(0.0, 15.0, 0.1)
    asked = np.stack([motion(t, 1), motion(t, 2)], axis=1)
    late = np.stack([motion(t - LATE_S, 1), motion(t - LATE_S, 2)], axis=1)
    template = small_episode()
    made = episode_from_arrays(template.meta, {TOOL: late}, {TOOL: asked}, progress=np.zeros(150))
    with EpisodeStore.create(path).writer() as writer:
        writer.append(made)
    return path
