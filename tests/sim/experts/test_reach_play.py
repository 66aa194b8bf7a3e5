"""Play of reach: it leaves the straight way, and comes to the goal all the same."""

from __future__ import annotations

import numpy as np

from robolearn.runtime import run_episode
from robolearn.types import Condition, EpisodeHeader, Outcome, Tick
from sim.experts.registry import build_expert, build_player
from sim.tasks.reach import GOAL, JOINTS
from sim.worlds import make_world

START, END = (-0.5, -0.95, 0.8, 0.5, 0.0), (0.5, -0.95, 0.8, 0.5, 0.0)


class Watcher:
    """Keeps where the joints were."""

    def __init__(self) -> None:
        self.places: list[np.ndarray] = []

    def on_start(self, episode: EpisodeHeader) -> None: ...
    def on_tick(self, tick: Tick) -> None:
        self.places.append(np.asarray(tick.observation.value(JOINTS)))

    def on_end(self, outcome: Outcome) -> None: ...
    def on_abort(self, error: BaseException) -> None: ...


def test_play_goes_beside_the_way_and_arrives() -> None:
    env = make_world("so101_reach")
    beside: dict[str, list[float]] = {"play": [], "expert": []}
    good = 0
    for seed in range(6):
        condition = Condition(f"c{seed}", seed, {JOINTS: START, GOAL: END})
        for name, build in (("play", build_player), ("expert", build_expert)):
            seen = Watcher()
            done = run_episode(env, build("reach", env.spec), None, [seen], condition, max_steps=60)
            good += done.outcome.success and name == "play"
            places = np.stack(seen.places)[:, 1:]
            beside[name].append(float(np.abs(places - np.array(START)[1:]).max()))
    env.close()
    assert good >= 5
    assert np.median(beside["play"]) > 0.15
    assert max(beside["expert"]) < 0.06
