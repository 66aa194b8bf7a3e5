"""Runs the one loop: collecting, evaluating and deploying all use it.

    observe -> request/submit -> poll -> decide -> apply -> advance -> drain -> tell subscribers

:class:`EpisodeRun` is one episode cut into two half-ticks, so that the same code serves one env
(:func:`run_episode`) and many envs in lockstep with one batched forward pass
(:func:`run_lockstep`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robolearn.contracts import Agent, ArrivesLate, Env, Inference, Subscriber
from robolearn.types import (
    Condition,
    EpisodeHeader,
    Observation,
    Outcome,
    ResetReport,
    SampleBatch,
    Tick,
)


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """What the loop knows at the end of an episode."""

    outcome: Outcome
    score: float
    return_: float
    steps: int
    duration_s: float
    reset: ResetReport
    inference_ns: tuple[int, ...]
    overrun_ns: tuple[int, ...]


class EpisodeRun:
    """One episode in progress: :meth:`ask` then :meth:`act`, until :attr:`done`."""

    def __init__(
        self,
        env: Env,
        agent: Agent,
        inference: Inference | None,
        subscribers: Sequence[Subscriber],
        condition: Condition,
        *,
        max_steps: int,
        task: str,
        env_name: str,
        env_id: int = 0,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        self.env, self.agent, self.inference = env, agent, inference
        self.subscribers, self.env_id, self.max_steps = subscribers, env_id, max_steps
        self.reset = env.reset(condition, np.random.default_rng(condition.seed))
        agent.reset(condition.seed)
        self.step = 0
        self.score = self.return_ = 0.0
        self.outcome = env.outcome()
        self.done = False
        self._latencies: list[int] = []
        self._overruns: list[int] = []
        self._observation: Observation | None = None
        self._start_ns = env.now_ns()
        self._period_ns = round(1e9 / env.spec.rate_hz)
        self._simulated = env.capabilities.faster_than_real_time
        header = EpisodeHeader(
            task=task,
            agent=agent.name,
            env=env_name,
            reset=self.reset,
            start_wall_ns=time.time_ns(),
            provenance=dict(provenance or {}),
        )
        for subscriber in subscribers:
            subscriber.on_start(header)

    def ask(self) -> None:
        """First half of a tick: observe, and submit what the agent wants inferred."""
        self._observation = self.env.observe()
        request = self.agent.request(self._observation)
        if request is not None and self.inference is not None:
            self.inference.submit(self.env_id, request)

    def act(self) -> None:
        """Second half: poll, decide, apply, advance, drain, tell the subscribers."""
        observation = self._observation
        if observation is None:
            raise RuntimeError("act() before ask()")
        reply = None
        if self.inference is not None:
            reply = self.inference.poll(self.env_id, self.env.now_ns())
        command = self.agent.decide(observation, reply)
        self.env.apply(command)
        before_ns = self.env.now_ns()
        # A command is due at the start of its tick; the loop is late when the tick is used up.
        overrun = before_ns - command.due_ns - self._period_ns if not self._simulated else 0
        self.env.advance()
        drained: SampleBatch = self.env.drain()
        self.outcome = self.env.outcome()
        self.score = max(self.score, self.outcome.progress)
        self.return_ += self.outcome.reward
        self.step += 1
        if self.step >= self.max_steps and not self.outcome.terminal:
            self.outcome = _time_limit(self.outcome)
        if (self.outcome.terminal or self.outcome.truncated) and isinstance(self.env, ArrivesLate):
            late = self.env.late(observation.t_ns)
            drained = drained if late is None else drained.then(late)
        latency = reply.latency_ns if reply is not None else 0
        if reply is not None:
            self._latencies.append(latency)
        self._overruns.append(max(0, overrun))
        tick = Tick(
            self.step - 1, observation, command, drained, self.outcome, latency, max(0, overrun)
        )
        for subscriber in self.subscribers:
            subscriber.on_tick(tick)
        if self.outcome.terminal or self.outcome.truncated:
            self.done = True
            for subscriber in self.subscribers:
                subscriber.on_end(self.outcome)

    def abort(self, error: BaseException) -> None:
        """Tell the subscribers that the episode was cut short."""
        for subscriber in self.subscribers:
            subscriber.on_abort(error)

    def result(self) -> EpisodeResult:
        """Call when :attr:`done`."""
        return EpisodeResult(
            outcome=self.outcome,
            score=self.score,
            return_=self.return_,
            steps=self.step,
            duration_s=(self.env.now_ns() - self._start_ns) * 1e-9,
            reset=self.reset,
            inference_ns=tuple(self._latencies),
            overrun_ns=tuple(self._overruns),
        )


def run_episode(
    env: Env,
    agent: Agent,
    inference: Inference | None,
    subscribers: Sequence[Subscriber],
    condition: Condition,
    *,
    max_steps: int,
    task: str = "",
    env_name: str = "",
    provenance: Mapping[str, Any] | None = None,
) -> EpisodeResult:
    """Run one episode from ``condition`` until it ends or ``max_steps`` control ticks passed."""
    run = EpisodeRun(
        env,
        agent,
        inference,
        subscribers,
        condition,
        max_steps=max_steps,
        task=task,
        env_name=env_name or env.spec.name,
        provenance=provenance,
    )
    try:
        while not run.done:
            run.ask()
            run.act()
    except BaseException as error:
        run.abort(error)
        raise
    return run.result()


def run_lockstep(runs: Sequence[EpisodeRun]) -> list[EpisodeResult]:
    """Run several simulated episodes tick by tick, so that their requests form one batch."""
    active = list(runs)
    try:
        while active:
            for run in active:
                run.ask()
            for run in active:
                run.act()
            active = [run for run in active if not run.done]
    except BaseException as error:
        for run in active:
            run.abort(error)
        raise
    return [run.result() for run in runs]


def _time_limit(outcome: Outcome) -> Outcome:
    return Outcome(
        success=outcome.success,
        progress=outcome.progress,
        reward=outcome.reward,
        terminal=False,
        truncated=True,
        reason=outcome.reason or outcome.trouble or "time_limit",
        metrics=outcome.metrics,
        trouble=outcome.trouble,
    )
