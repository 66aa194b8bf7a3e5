"""A few places on a table, and recordings that know one way each.

        U - W - X         A -right-> B -down-> E
        |       |         B -right-> C
        A - B - C         A -up----> U -right-> W -right-> X -right-> C
            |
            E             who has arrived stays a while

From A, a recording went to C the long way. The short one is half of one and half of another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from policies.critics.hindsight import HindsightConfig
from robolearn.contracts import Policy
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.learning import FutureSpec
from robolearn.spec import SignalSpec
from robolearn.training.loop import FitConfig, fit
from robolearn.types import PolicyInput
from tests.learning_mocks import SPACE, TOOL, ArraySource, random_episode

GOAL = "goal/tool"
Place = tuple[float, float]
PLACES = {"A": (0.1, 0.25), "B": (0.25, 0.25), "C": (0.4, 0.25), "E": (0.25, 0.1)}
PLACES |= {"U": (0.1, 0.4), "W": (0.25, 0.4), "X": (0.4, 0.4)}
RIGHT, UP, DOWN, STAY = (0.4, 0.25), (0.25, 0.4), (0.25, 0.1), (0.1, 0.25)
STEPS = {
    "A": {RIGHT: "B", UP: "U"},
    "B": {DOWN: "E", RIGHT: "C"},
    "U": {RIGHT: "W"},
    "W": {RIGHT: "X"},
    "X": {RIGHT: "C"},
    **{place: {STAY: place} for place in "CE"},
}
# Where a recording begins, and what is done.
WAYS = [("A", RIGHT, DOWN)] * 20 + [("B", RIGHT)] * 20 + [("A", UP, RIGHT, RIGHT, RIGHT)] * 30

ROADS = dataclasses.replace(
    SPACE, observations=(SPACE.observations[0], SignalSpec(GOAL, (2,), "m", 10.0, frame="table"))
)
# The actor pursues goals of other recordings as well, as OGBench's does on its stitching data.
GOALS = HindsightConfig(((GOAL, TOOL),), actor=FutureSpec(rest=0.5, random=0.5))
SMALL: dict[str, Any] = {
    "horizon": 1,
    "width": 32,
    "depth": 2,
    "batch_size": 64,
    "lr": 1e-2,
    "tau": 0.1,
    "discount": 0.7,
    "goals": GOALS,
}


def recordings() -> ArraySource:
    """One episode per way."""
    found = []
    for place, *ways in WAYS:
        passed, done = [place], [*ways, STAY, STAY]
        for way in done[:-1]:
            passed.append(STEPS[passed[-1]][way])
        found.append(([PLACES[name] for name in passed], done))
    return walks(found, "crossroads")


def walks(found: Sequence[tuple[list[Place], list[Place]]], name: str) -> ArraySource:
    """Recordings of where one was, and what was done there."""
    episodes = (
        dataclasses.replace(
            random_episode(f"e{k}", len(done), k),
            observations={TOOL: np.array(passed), GOAL: np.zeros((len(passed), 2))},
            actions=np.array(done),
        )
        for k, (passed, done) in enumerate(found)
    )
    return ArraySource(tuple(episodes), name, ROADS)


def learned(config: Any, folder: Path, steps: int, source: ArraySource | None = None) -> Any:
    """The trained algorithm."""
    torch.manual_seed(0)
    data = EpisodeDataset(flatten(source or recordings()), config.batches(), 0)
    built = config.build(ROADS, data.stats(), None)
    fit(built, data, FitConfig(steps=steps, warmup=10, clip=10.0), folder, seed=0)
    return built


def walked(policy: Policy, start: str, goal: str) -> str:
    """The places that are passed on the way: of the ways from a place, the answer's nearest."""
    path = start
    while path[-1] != goal and len(path) < 5:
        action = answered(policy, PLACES[path[-1]], PLACES[goal])
        ways = STEPS[path[-1]]
        path += ways[min(ways, key=lambda way: float(np.linalg.norm(action - np.array(way))))]
    return path


def answered(policy: Policy, place: Place, goal: Place) -> np.ndarray:
    """What the policy does at ``place``, told ``goal``."""
    seen = {TOOL: np.array(place).reshape(1, 1, 2), GOAL: np.array(goal).reshape(1, 1, 2)}
    request = PolicyInput(seen, np.zeros(1, np.int64), np.zeros(1, np.int64))
    return policy.sample(request).actions[0, 0, 0]
