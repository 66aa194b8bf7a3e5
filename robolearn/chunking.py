"""Running a policy that answers with chunks of actions: when to ask, and which action is due.

    ticks         0  1  2  3  4  5  6  7  8  9 10 11        execute = 4, lead_ticks = 2
    request       ^           ^           ^
    reply for 0   0  1  2  3  4  5 (6  7 ... spare, used only while a late reply is awaited)
    reply for 4               .  .  2  3  4  5              arrives two ticks later, starts at 2

An action is chosen by time, never by arrival: index = round((now - time of the request's newest
observation) / period). Stale actions are skipped, not caught up with.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.actions import clip_action, hold_action
from robolearn.contracts import PolicySpec
from robolearn.errors import ConfigError, InferenceError
from robolearn.history import history_at
from robolearn.seeding import child_seed
from robolearn.spec import EmbodimentSpec, require_compatible
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput, Signals


class ChunkAgent:
    """A policy in its execution wrapper.

    ``execute`` ticks pass between two requests; a request is sent ``lead_ticks`` before the plan
    runs out, so that inference may take that long without a gap. Without a plan the last action is
    held (at the start: the current position), with source ``hold``. Actions are clipped to the
    embodiment's range.
    """

    def __init__(
        self,
        spec: PolicySpec,
        embodiment: EmbodimentSpec,
        *,
        name: str,
        execute: int | None = None,
        lead_ticks: int = 0,
    ) -> None:
        require_compatible(spec.task_space, embodiment)
        self._execute = spec.execute if execute is None else execute
        if self._execute < 1 or lead_ticks < 0 or self._execute + lead_ticks > spec.horizon:
            raise ConfigError(
                f"execute ({self._execute}) + lead_ticks ({lead_ticks}) must be in"
                f" 1..{spec.horizon}, the policy's horizon; lower one of them"
            )
        self._spec, self._name, self._lead = spec, name, lead_ticks
        # The ranges are those of the robot at hand, not of the one the data came from.
        wanted = [a.name for a in spec.task_space.actions]
        self._actions = embodiment.task_space([], wanted).actions
        self._period_ns = round(1e9 / spec.task_space.rate_hz)
        self._history: deque[Observation] = deque(maxlen=spec.n_obs)
        self.reset(0)

    @property
    def name(self) -> str:
        """Who decides, for provenance."""
        return self._name

    def reset(self, seed: int) -> None:
        """Forget history and plan; request ``i`` is sampled with ``child_seed(seed, i)``."""
        self._seed, self._requests, self._seq = seed, 0, 0
        self._history.clear()
        self._plan: NDArray[np.float64] | None = None
        self._plan_t_ns = 0
        self._awaited: int | None = None
        self._last: Signals | None = None

    def request(self, observation: Observation) -> PolicyInput | None:
        """Remember the observation; ask when at most ``lead_ticks`` of the plan remain."""
        self._history.append(observation)
        remaining = 0
        if self._plan is not None:
            remaining = self._execute + self._lead - self._index(observation.t_ns)
        if self._awaited is not None or remaining > self._lead:
            return None
        seed = child_seed(self._seed, self._requests)
        self._requests += 1
        self._awaited = observation.t_ns
        return policy_input(list(self._history), self._spec, seed)

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The action that is due now, and those that follow it."""
        if reply is not None:
            self._accept(reply)
        index = self._index(observation.t_ns)
        plan: NDArray[np.float64] | None = None
        if self._plan is not None and 0 <= index < len(self._plan):
            action: Signals = self._spec.task_space.split(self._plan[index])
            plan, source = self._plan[index + 1 :], "policy"
        else:
            action, source = self._last or hold_action(self._actions, observation), "hold"
        self._last = action
        self._seq += 1
        return Command(
            seq=self._seq - 1,
            action=action,
            due_ns=observation.t_ns,
            source=source,
            plan=plan if plan is not None and len(plan) else None,
        )

    def _index(self, now_ns: int) -> int:
        return round((now_ns - self._plan_t_ns) / self._period_ns)

    def _accept(self, reply: PolicyOutput) -> None:
        t_ns = int(reply.t_ns[0])
        # An answer to anything but the request in flight is left over from an earlier episode.
        if t_ns != self._awaited:
            return
        self._awaited = None
        chunk = reply.actions[0, 0]
        if chunk.shape[-1] != self._spec.task_space.action_size or not np.isfinite(chunk).all():
            raise InferenceError(
                f"policy '{self._name}' answered with shape {chunk.shape} or non-finite values;"
                f" expected finite [horizon, {self._spec.task_space.action_size}]"
            )
        parts = self._spec.task_space.split(np.asarray(chunk, dtype=np.float64))
        clipped = clip_action(self._actions, parts)
        self._plan_t_ns = t_ns
        self._plan = np.concatenate([v.reshape(len(chunk), -1) for v in clipped.values()], axis=1)


def policy_input(history: list[Observation], spec: PolicySpec, seed: int) -> PolicyInput:
    """What the policy sees at the newest of ``history`` (consecutive ticks, oldest first).

    A tick shows the newest sample that had arrived by then, so the look-up runs over tick times:
    a dataset that reads the same values at the same ticks gets the same bits.
    """
    ticks = np.array([o.t_ns for o in history], dtype=np.int64)
    last = len(history) - 1
    query = ticks[np.maximum(np.arange(last - spec.n_obs + 1, last + 1), 0)]
    names = [s.name for s in spec.task_space.observations]
    samples = {n: (ticks, np.stack([np.asarray(o.value(n)) for o in history])) for n in names}
    seen: dict[str, NDArray[Any]] = history_at(samples, query)
    return PolicyInput(
        observations={n: v[None] for n, v in seen.items()},
        t_ns=ticks[-1:],
        seed=np.array([seed], dtype=np.int64),
    )
