"""The mirror: an involution that keeps the task as it is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from policies.chunks.mirror import Mirror, MirrorConfig
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import SpecMismatchError
from robolearn.learning import Batch, BatchSpec
from robolearn.pusht import GOAL, coverage
from tests.learning_mocks import BLOCK, SPACE, TOOL, random_flat

# The symmetry of Push-T, as in configs/train.
CONFIG = MirrorConfig((0.256, 0.256), 45.0, -90.0, (TOOL,), (BLOCK,))


def batch() -> Batch:
    spec = BatchSpec(2, 3, 6, ("transition",), 0.9, 2)
    return EpisodeDataset(random_flat(), spec, 0).batch(0)


def test_mirroring_twice_changes_nothing() -> None:
    mirror, rows = Mirror(CONFIG, SPACE), torch.ones(6, dtype=torch.bool)
    first = batch()
    twice = mirror(mirror(first, rows), rows)
    torch.testing.assert_close(twice.actions, first.actions)
    for name in (TOOL, BLOCK):
        torch.testing.assert_close(twice.observations[name], first.observations[name])
    assert first.next_observations is not None
    assert twice.next_observations is not None
    torch.testing.assert_close(twice.next_observations[BLOCK], first.next_observations[BLOCK])


def test_only_the_chosen_rows_change() -> None:
    rows = torch.tensor([True, False, True, False, False, False])
    first = batch()
    changed = Mirror(CONFIG, SPACE)(first, rows)
    assert torch.equal(changed.actions[~rows], first.actions[~rows])
    assert not torch.equal(changed.actions[rows], first.actions[rows])
    # Across the diagonal x and y change places.
    torch.testing.assert_close(changed.actions[rows], first.actions[rows].flip(-1))


@given(st.floats(0.15, 0.35), st.floats(0.15, 0.35), st.floats(-3.1, 3.1))
def test_coverage_and_goal_are_kept(x: float, y: float, yaw: float) -> None:
    mirror = Mirror(CONFIG, SPACE)
    pose = torch.tensor([[x, y, yaw], list(GOAL)], dtype=torch.float64)
    image = mirror.reflect(BLOCK, pose).numpy()
    assert coverage(image[0]) == pytest.approx(coverage(pose[0].numpy()), abs=1e-6)
    np.testing.assert_allclose(image[1], GOAL, atol=1e-6)


def test_every_signal_must_be_named() -> None:
    with pytest.raises(SpecMismatchError, match="'block/pose'"):
        Mirror(dataclasses.replace(CONFIG, poses=()), SPACE)
