"""Demonstrations of stacking are acted out anew, as those of pick-and-place are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robolearn.data.store.store import EpisodeStore
from robolearn.operations.collect import CollectConfig, collect
from robolearn.operations.stores.collect_options import CollectOptions
from robolearn.operations.stores.generate import generate
from robolearn.operations.stores.generate_options import GenerateConfig


def test_cubes_are_stacked_from_new_starts(tmp_path: Path) -> None:
    few = tmp_path / "few"
    collect(CollectConfig("stacking", seed=7), few, CollectOptions(agent="scripted", episodes=1))
    config = GenerateConfig(episodes=1, hold_s=0.3, seed=5)
    made = generate(few, tmp_path / "many", config)
    (name,) = made.ids
    source, store = EpisodeStore.open(few), EpisodeStore.open(made.store)
    (shown,) = source.ids()
    before, now = source.read(shown), store.read(name)
    assert (made.world, made.missing, made.used) == ("stacking", (), {shown: 1})
    assert {"red/pose", "green/pose"} <= set(" ".join(made.skills).split())
    assert (now.meta.task, now.success) == ("stacking", True)
    for cube in ("red/pose", "green/pose"):
        assert np.linalg.norm(now.observed(cube)[0, :2] - before.observed(cube)[0, :2]) > 0.005
    # One stands on the other at the end.
    high = sorted(float(now.observed(cube)[-1, 2]) for cube in ("red/pose", "green/pose"))
    assert high[1] - high[0] > 0.03
