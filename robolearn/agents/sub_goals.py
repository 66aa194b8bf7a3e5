"""Pursues sub-goals one at a time: the memory of a policy that sees the last moments only.

A condition says by the marks ``goal/wanted`` (1: wanted) what an episode is about;
``goal/achieved`` tells at every tick which of them hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from robolearn.agents.replay import WrappedAgent
from robolearn.contracts import Agent, PolicySpec
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.types import Observation, PolicyInput, Sample

WANTED, ACHIEVED = "goal/wanted", "goal/achieved"


class GoalsInTurn(WrappedAgent):
    """Shows the policy one wanted sub-goal at a time: the next one when it was reached, or after
    ``patience_s`` without that; what was not reached has its turn again later. ``order``: whose
    turn is first; those that it does not name follow as they are numbered.

    What held once is done, whether it still holds (a button springs back). When all are done, or
    none is wanted, the policy is shown what is observed. Raises :class:`SpecMismatchError` for a
    policy that does not observe both signals of marks.
    """

    def __init__(
        self, inner: Agent, spec: PolicySpec, patience_s: float, order: Sequence[int] = ()
    ) -> None:
        super().__init__(inner)
        if not patience_s > 0:
            raise ConfigError(f"goals in turn: expected more than 0 s for each, got {patience_s}")
        shapes = {s.name: s.shape for s in spec.task_space.observations}
        marks = [shapes.get(name) for name in (WANTED, ACHIEVED)]
        if marks[0] is None or marks[0] != marks[1] or len(marks[0]) != 1:
            raise SpecMismatchError(
                f"goals in turn: the policy must observe '{WANTED}' and '{ACHIEVED}', one number"
                f" per sub-goal each; it observes {shapes}"
            )
        self._patience_ns, self._size = round(patience_s * 1e9), marks[0][0]
        if len(set(order)) != len(order) or not set(order) <= set(range(self._size)):
            raise ConfigError(
                f"goals in turn: expected different sub-goals of 0 to {self._size - 1}, got"
                f" {list(order)}"
            )
        self._turns = [*order, *(k for k in range(self._size) if k not in order)]
        self._forget()

    def reset(self, seed: int) -> None:
        """Nothing has been reached."""
        super().reset(seed)
        self._forget()

    def request(self, observation: Observation) -> PolicyInput | None:
        """The wrapped agent's request, with the sub-goal whose turn it is."""
        return super().request(self._shown(observation))

    def _forget(self) -> None:
        self._done = np.zeros(self._size, dtype=np.bool_)
        self._turn, self._since_ns = -1, 0

    def _shown(self, observation: Observation) -> Observation:
        wanted, held = observation.samples[WANTED], observation.value(ACHIEVED) > 0.5
        self._done |= held
        due = (wanted.value > 0.5) & ~self._done
        left = [turn for turn, mark in enumerate(self._turns) if due[mark]]
        if not left:
            return observation
        waited_ns = observation.t_ns - self._since_ns
        if self._turn not in left or waited_ns >= self._patience_ns:
            self._turn = next((turn for turn in left if turn > self._turn), left[0])
            self._since_ns = observation.t_ns
        marks = np.zeros_like(wanted.value)
        marks[self._turns[self._turn]] = 1.0
        samples = {**observation.samples, WANTED: Sample(wanted.t_ns, marks)}
        return dataclasses.replace(observation, samples=samples)
