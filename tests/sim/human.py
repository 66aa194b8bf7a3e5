"""The bundled human recordings as episodes, imported once per test session."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.data.episode import Episode
from robolearn.data.importers.diffusion_policy import import_diffusion_policy
from robolearn.data.store.store import EpisodeStore


@functools.cache
def human_episodes(count: int) -> tuple[Episode, ...]:
    """The first ``count`` episodes."""
    with tempfile.TemporaryDirectory() as folder:
        store = EpisodeStore.create(Path(folder) / "human")
        import_diffusion_policy(pusht_demonstrations_path(), store, limit=count)
        return tuple(store.read(info.id) for info in store.list())
