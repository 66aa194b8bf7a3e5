"""The env contract over the simulated worlds of this package."""

from __future__ import annotations

from robolearn.contracts import Env
from robolearn.types import Condition
from sim.tasks.pusht import PushT
from sim.worlds import make_world
from tests.contracts import EnvContract


class TestPushtReference(EnvContract):
    exact = 1e-12

    def make(self) -> Env:
        return make_world("pusht_reference")

    def condition(self, seed: int) -> Condition:
        return PushT().sample_condition(seed)


class TestGymPusht(EnvContract):
    def make(self) -> Env:
        return make_world("gym_pusht")

    def condition(self, seed: int) -> Condition:
        return PushT().sample_condition(seed)
