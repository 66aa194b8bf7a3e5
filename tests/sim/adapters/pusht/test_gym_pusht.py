"""The pictures of gym-pusht, drawn by a shorter way than its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Condition
from sim.worlds import make_world

pytest.importorskip("gym_pusht")


@pytest.fixture(params=[96, 33])
def world(request: pytest.FixtureRequest) -> Iterator[tuple[object, int]]:
    with contextlib.closing(make_world(f"gym_pusht,camera=top,size={request.param}")) as env:
        yield env, request.param


def test_a_picture_is_the_worlds_own_bit_for_bit(world) -> None:
    env, size = world
    for k, pose in enumerate([(0.2, 0.35, 0.7), (0.31, 0.2, -2.0), (0.1, 0.1, 3.0)]):
        start = Condition(f"c{k}", k, {TOOL: (0.1 + 0.1 * k, 0.3), BLOCK: pose})
        env.reset(start, np.random.default_rng(k))
        seen = env.observe().value("top/image")
        # After a reset there is no command, whose cross this one shows.
        env.gym.visualization_width = env.gym.visualization_height = size
        theirs = np.asarray(env.gym.render())
        assert seen.shape == (size, size, 3)
        assert seen.dtype == np.uint8
        np.testing.assert_array_equal(seen, theirs)
        # Something is drawn: the table, the goal, the T and the tool.
        assert len(np.unique(theirs.reshape(-1, 3), axis=0)) > 3
