"""Replays recorded actions: agents that need no policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robolearn.agents.actions import clip_slight, hold_action
from robolearn.contracts import Agent, Interruptible
from robolearn.errors import DataError
from robolearn.spec import ActionSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput, Signals


class WrappedAgent:
    """Another agent; who inherits changes what it asks or what it decides."""

    def __init__(self, inner: Agent) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """As the wrapped agent."""
        return self._inner.name

    def reset(self, seed: int) -> None:
        """As the wrapped agent."""
        self._inner.reset(seed)

    def request(self, observation: Observation) -> PolicyInput | None:
        """As the wrapped agent."""
        return self._inner.request(observation)

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """As the wrapped agent."""
        return self._inner.decide(observation, reply)

    def interrupt(self, sent: Signals) -> None:
        """As the wrapped agent; who plans nothing ahead is not interrupted in anything."""
        if isinstance(self._inner, Interruptible):
            self._inner.interrupt(sent)


class ReplayAgent:
    """Sends recorded actions open loop, one per tick, and then holds the last one.

    ``actions[name]`` is ``[T, *shape]`` for every action of ``specs``; values a little
    outside the range that the env accepts are clipped, others are the env's to refuse.
    """

    def __init__(
        self,
        actions: Signals,
        specs: Sequence[ActionSpec],
        *,
        name: str = "replay",
        source: str = "replay",
    ) -> None:
        self._specs, self._name, self._source = tuple(specs), name, source
        lengths = {s.name: len(actions[s.name]) for s in specs if s.name in actions}
        if set(lengths) != {s.name for s in specs} or len(set(lengths.values())) != 1:
            raise DataError(
                f"a replay needs {[s.name for s in specs]} of one length,"
                f" got { {n: v.shape for n, v in actions.items()} }"
            )
        self._flat: NDArray[np.float64] = np.concatenate(
            [np.asarray(actions[s.name], np.float64).reshape(-1, s.size) for s in specs], axis=1
        )
        self._tick = 0

    @property
    def name(self) -> str:
        """Who decides, for provenance."""
        return self._name

    @property
    def steps(self) -> int:
        """Number of recorded actions."""
        return len(self._flat)

    def reset(self, seed: int) -> None:
        """Back to the first action (a replay has no randomness)."""
        del seed
        self._tick = 0

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The next recorded action; ``plan`` shows the following ones."""
        del reply
        tick, self._tick = self._tick, self._tick + 1
        row = min(tick, self.steps - 1)
        plan = self._flat[row + 1 :] if tick < self.steps else self._flat[:0]
        return Command(
            seq=tick,
            action=self._action(row, observation),
            due_ns=observation.t_ns,
            source=self._source if tick < self.steps else "hold",
            plan=plan if len(plan) else None,
        )

    def _action(self, row: int, observation: Observation) -> Signals:
        if row < 0:
            return hold_action(self._specs, observation)
        values: dict[str, NDArray[np.float64]] = {}
        start = 0
        for spec in self._specs:
            values[spec.name] = self._flat[row, start : start + spec.size].reshape(spec.shape)
            start += spec.size
        return clip_slight(self._specs, values)
