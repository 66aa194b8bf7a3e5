"""Runs a policy that answers with chunks of actions: when to ask, and which action is due.

    ticks         0  1  2  3  4  5  6  7  8  9 10 11        execute = 4, lead_ticks = 2
    request       ^           ^           ^
    reply for 0   0  1  2  3  4  5 (6  7 ... spare, used only while a late reply is awaited)
    reply for 4               .  .  2  3  4  5              arrives two ticks later, starts at 2

An action is chosen by time, never by arrival: index = (now - time of the request's newest
observation - time held since) / period, to the nearest tick. Actions in whose place others were
executed are stale and skipped, not caught up with. Holding makes none stale: an arm that stood
since its request is where that saw it, and a first plan begins at its 0 when it comes.

With a ``command_latency_s`` an action for time t is sent that much earlier: at every tick the plan
is read so far ahead, between two ticks in proportion (``robolearn/timing/latencies.py``).

A robot may tick ``n`` times as fast as the policy: then each action lasts ``n`` ticks, requests may
start at any of them, and histories still show one observation per period of the policy.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.agents.actions import clip_action, clip_slight, hold_action
from robolearn.agents.ensembling import TemporalEnsemble
from robolearn.agents.realtime import DelayEstimate, continuation
from robolearn.contracts import PolicySpec
from robolearn.errors import ConfigError, InferenceError
from robolearn.history import history_at
from robolearn.seeding import child_seed
from robolearn.spec import ActionSpec, EmbodimentSpec, TaskSpace, require_compatible
from robolearn.timing.latencies import blend
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput, Signals


class ChunkAgent:
    """A policy in its execution wrapper.

    ``execute`` actions pass between two requests; a request is sent ``lead_ticks`` before the plan
    runs out, so that inference may take that long without a gap. Without a plan the last action is
    held (at the start: the current position), with source ``hold``. Actions a little outside
    the embodiment's range are clipped to it; those beyond its tolerance are sent as they are, and
    the robot refuses them. With ``realtime`` a request carries what is left of the plan, so that
    the next chunk continues it (real-time chunking, ``robolearn/agents/realtime.py``).
    ``command_latency_s``: actions are sent ahead by it. With ``ensemble`` a policy is asked at
    every action, and what is done is a mean of all its chunks that cover a time
    (``robolearn/agents/ensembling.py``).
    """

    def __init__(
        self,
        spec: PolicySpec,
        embodiment: EmbodimentSpec,
        *,
        name: str,
        execute: int | None = None,
        lead_ticks: int = 0,
        realtime: bool = False,
        ensemble: float | None = None,
        command_latency_s: float = 0.0,
    ) -> None:
        self._ratio = ticks_per_action(spec.task_space, embodiment)
        usual = spec.execute if ensemble is None else 1
        self._execute = usual if execute is None else execute
        self._tick_ns = round(1e9 / (self._ratio * spec.task_space.rate_hz))
        # Whole ticks and the share of one more by which actions are sent ahead.
        ahead = round(1e9 * command_latency_s) / self._tick_ns
        self._ahead, self._share = int(ahead), ahead - int(ahead)
        self._sooner = self._ahead + (self._share > 0.0)
        lead = -(-(lead_ticks + self._sooner) // self._ratio)
        if self._execute < 1 or lead_ticks < 0 or self._execute + lead > spec.horizon or ahead < 0:
            raise ConfigError(
                f"execute ({self._execute}) + lead_ticks ({lead_ticks}) and command latency"
                f" ({1e3 * command_latency_s:g} ms), together {lead} action(s), must be"
                f" in 1..{spec.horizon}, the policy's horizon; lower one of them"
            )
        self._spec, self._name, self._lead, self._realtime = spec, name, lead_ticks, realtime
        self._ensemble = None
        if ensemble is not None:
            self._ensemble = TemporalEnsemble(spec.task_space, spec.horizon, ensemble)
        # The ranges are those of the robot at hand, not of the one the data came from.
        wanted = [a.name for a in spec.task_space.actions]
        self._actions = embodiment.task_space([], wanted).actions
        self._columns = _plan_columns(self._actions, embodiment)
        self._history: deque[Observation] = deque(maxlen=(spec.n_obs - 1) * self._ratio + 1)
        self.reset(0)

    @property
    def name(self) -> str:
        """Who decides, for provenance."""
        return self._name

    def reset(self, seed: int) -> None:
        """Forget history and plan; request ``i`` is sampled with ``child_seed(seed, i)``."""
        self._seed, self._requests, self._seq = seed, 0, 0
        self._history.clear()
        self._delay = DelayEstimate(self._lead)
        self._last: Signals | None = None
        self._forget_plan()

    def interrupt(self, sent: Signals) -> None:
        """Somebody else drove: plan, request and ensemble are void, ``sent`` is held until an
        answer to what is seen now; the history goes on.
        """
        names = [a.name for a in self._actions]
        self._last = {n: sent[n] for n in names} if set(names) <= set(sent) else None
        self._forget_plan()

    def _forget_plan(self) -> None:
        self._plan: NDArray[np.float64] | None = None
        self._parts: Signals = {}
        self._spare = np.zeros((0, 0))
        self._plan_t_ns = 0
        self._awaited: int | None = None
        self._stood = StandingTime(self._ahead, self._tick_ns)
        if self._ensemble is not None:
            self._ensemble.reset()

    def request(self, observation: Observation) -> PolicyInput | None:
        """Remember the observation; ask when at most ``lead_ticks`` of the plan remain."""
        self._history.append(observation)
        self._stood.tick(observation.t_ns)
        remaining = 0
        if self._plan is not None:
            until = self._execute * self._ratio + self._lead
            remaining = until - self._ticks_of(observation.t_ns)
        if self._awaited is not None or remaining > self._lead:
            return None
        seed = child_seed(self._seed, self._requests)
        self._requests += 1
        self._awaited = observation.t_ns
        self._stood.mark()
        asked = policy_input(list(self._history), self._spec, seed, self._ratio)
        return self._continued(asked) if self._realtime else asked

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The action that is due now, and those that follow it."""
        if reply is not None:
            self._accept(reply, observation.t_ns)
        tick = self._ticks_of(observation.t_ns) + self._ahead
        index = tick // self._ratio
        plan: NDArray[np.float64] | None = None
        if self._plan is not None and 0 <= index < len(self._plan):
            action: Signals = self._sent(self._plan, tick)
            plan, source = self._spare[index + 1 :], "policy"
        else:
            action, source = self._last or hold_action(self._actions, observation), "hold"
        self._stood.sent(held=source == "hold")
        self._last = action
        self._seq += 1
        return Command(
            seq=self._seq - 1,
            action=action,
            due_ns=observation.t_ns,
            source=source,
            plan=plan if plan is not None and len(plan) else None,
        )

    def _ticks_of(self, now_ns: int) -> int:
        """Ticks since the time of the plan's first action."""
        return round((now_ns - self._plan_t_ns) / self._tick_ns)

    def _sent(self, plan: NDArray[np.float64], tick: int) -> Signals:
        """What is sent for ``tick`` of the plan and a share of the next."""
        at = tick // self._ratio
        after = min((tick + 1) // self._ratio, len(plan) - 1)
        if self._share == 0.0 or at == after:
            return {name: rows[at, ...] for name, rows in self._parts.items()}
        space = self._spec.task_space
        return space.split(blend(space, plan[at], plan[after], self._share))

    def _continued(self, asked: PolicyInput) -> PolicyInput:
        """The request with what is left of the plan, a part of it sure to be executed."""
        horizon, size = self._spec.horizon, self._spec.task_space.action_size
        rest = np.zeros((0, size))
        if self._plan is not None:
            rest = self._plan[max(0, self._ticks_of(int(asked.t_ns[0])) // self._ratio) :]
            # What the robot refuses is nothing to go on with.
            parts = clip_action(self._actions, self._spec.task_space.split(rest))
            rest = _rows(parts)
        # What is sent ahead is past before the answer comes.
        committed = -(-(self._delay.ticks + self._sooner) // self._ratio)
        prefix, weight = continuation(rest, committed, horizon)
        return dataclasses.replace(asked, prefix=prefix[None], prefix_weight=weight[None])

    def _accept(self, reply: PolicyOutput, now_ns: int) -> None:
        t_ns = int(reply.t_ns[0])
        # An answer to anything but the request in flight is left over from an earlier episode.
        if t_ns != self._awaited:
            return
        self._awaited = None
        self._delay.add(round((now_ns - t_ns) / self._tick_ns))
        chunk = reply.actions[0, 0]
        if chunk.shape[-1] != self._spec.task_space.action_size or not np.isfinite(chunk).all():
            raise InferenceError(
                f"policy '{self._name}' answered with shape {chunk.shape} or non-finite values;"
                f" expected finite [horizon, {self._spec.task_space.action_size}]"
            )
        parts = self._spec.task_space.split(np.asarray(chunk, dtype=np.float64))
        self._plan_t_ns = t_ns + self._stood.since_mark_ns
        plan = _rows(clip_slight(self._actions, parts))
        if self._ensemble is not None:
            inside = _rows(clip_action(self._actions, parts))
            # A mean would hide what is far outside: such an action stays as it was answered.
            far = (plan != inside).any(axis=1, keepdims=True)
            plan = np.where(far, plan, self._ensemble.add(self._plan_t_ns, inside))
        self._plan = plan
        # Once per plan instead of at every tick.
        self._parts = self._spec.task_space.split(plan)
        self._spare = plan[:, self._columns]


def _rows(parts: Signals) -> NDArray[np.float64]:
    """Actions ``[k, *shape]`` by name as rows ``[k, action_size]``."""
    # Not -1: of no rows, as when a plan is all past, numpy could not tell.
    columns = [v.reshape(len(v), math.prod(v.shape[1:])) for v in parts.values()]
    return np.concatenate(columns, axis=1)


class StandingTime:
    """For how long a robot had nothing to execute since a request.

    What is sent takes effect ``ahead`` ticks later: a request sees the effect of what was sent so
    long before. Before its first tick a robot stands.
    """

    def __init__(self, ahead: int, tick_ns: int) -> None:
        self._past: deque[int] = deque((-tick_ns * k for k in range(ahead, 0, -1)), ahead + 1)
        self._total_ns, self._mark_ns = 0, 0
        self._now_ns: int | None = None
        self._held = False

    def tick(self, now_ns: int) -> None:
        """A tick begins."""
        if self._held and self._now_ns is not None:
            self._total_ns += now_ns - self._now_ns
        self._now_ns = now_ns
        self._past.append(self._total_ns)

    def sent(self, *, held: bool) -> None:
        """What this tick sends: an action of a plan, or the last one again."""
        self._held = held

    def mark(self) -> None:
        """A request goes out at this tick."""
        self._mark_ns = self._past[0]

    @property
    def since_mark_ns(self) -> int:
        """The time held in what takes effect from the request on, until now."""
        return self._total_ns - self._mark_ns


def _plan_columns(actions: Sequence[ActionSpec], embodiment: EmbodimentSpec) -> NDArray[np.int64]:
    """Which columns of a policy's flat action make the embodiment's order: that of plans."""
    at: dict[str, NDArray[np.int64]] = {}
    first = 0
    for action in actions:
        at[action.name] = np.arange(first, first + action.size)
        first += action.size
    return np.concatenate([at[a.name] for a in embodiment.actions if a.name in at])


def ticks_per_action(space: TaskSpace, embodiment: EmbodimentSpec) -> int:
    """How many control ticks one action of a policy lasts; :class:`SpecMismatchError` with a diff
    unless the task space fits and the robot's rate is a multiple of the policy's.
    """
    ratio = round(embodiment.rate_hz / space.rate_hz)
    if ratio >= 1 and abs(ratio * space.rate_hz - embodiment.rate_hz) < 1e-6:
        space = dataclasses.replace(space, rate_hz=embodiment.rate_hz)
    require_compatible(space, embodiment)
    return ratio


def policy_input(
    history: list[Observation], spec: PolicySpec, seed: int, stride: int = 1
) -> PolicyInput:
    """What the policy sees at the newest of ``history`` (consecutive ticks, oldest first;
    ``stride`` of them make one period of the policy).

    A tick shows the newest sample that had arrived by then, so the look-up runs over tick times:
    a dataset that reads the same values at the same ticks gets the same bits.
    """
    ticks = np.array([o.t_ns for o in history], dtype=np.int64)
    last = len(history) - 1
    query = ticks[np.maximum(last - stride * np.arange(spec.n_obs - 1, -1, -1), 0)]
    names = [s.name for s in spec.task_space.observations]
    samples = {n: (ticks, np.stack([np.asarray(o.value(n)) for o in history])) for n in names}
    seen: dict[str, NDArray[Any]] = history_at(samples, query)
    return PolicyInput(
        observations={n: v[None] for n, v in seen.items()},
        t_ns=ticks[-1:],
        seed=np.array([seed], dtype=np.int64),
    )
