"""A place that a signal may be in: boxes and balls against the obvious, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robolearn.errors import ConfigError, DataError
from robolearn.region import Region


def test_a_box_and_a_ball_of_some_numbers() -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, (200, 3))
    box = Region("a", low=(-0.5, 0.0), high=(0.5, 0.7), index=(2, 0))
    wanted = [-0.5 <= z <= 0.5 and 0.0 <= x <= 0.7 for x, _, z in values]
    assert box.holds(values).tolist() == wanted
    ball = Region("a", centre=(0.1, 0.2, 0.0), radius=0.6)
    wanted = [sum((v - c) ** 2 for v, c in zip(p, ball.centre, strict=True)) <= 0.36
              for p in values]  # fmt: skip
    assert ball.holds(values).tolist() == wanted
    assert 0 < sum(wanted) < 200
    # A number alone is a signal, too; edges belong to the region.
    assert Region("a", low=(0.0,), high=(1.0,)).holds(np.array([0.0, 1.0, 1.1])).tolist() == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "either low and high"),
        ({"low": (0.0,), "high": (1.0,), "centre": (0.0,), "radius": 1.0}, "either low and high"),
        ({"low": (0.0,), "high": (0.0,)}, "and rise"),
        ({"low": (0.0,)}, "of one length"),
        ({"centre": (0.0,)}, "a radius above 0"),
        ({"radius": 1.0}, "needs a centre"),
        ({"centre": (0.0,), "radius": 1.0, "index": (0, 1)}, "one index from 0 per number"),
        ({"centre": (float("nan"),), "radius": 1.0}, "finite"),
    ],
)
def test_what_is_no_region_is_explained(params: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Region("tool/xy_table", **params)


def test_a_signal_of_another_size_is_explained() -> None:
    region = Region("tool/xy_table", centre=(0.0, 0.0, 0.0), radius=1.0)
    with pytest.raises(DataError, match="has 2 numbers, its region names 3"):
        region.holds(np.zeros((4, 2)))
