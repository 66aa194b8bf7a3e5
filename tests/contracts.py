"""Contracts as tests: every implementation subclasses the class of its contract."""

from __future__ import annotations

import time

import numpy as np

from robolearn.contracts import Agent, Env, Inference
from robolearn.types import Command, PolicyOutput
from tests.mocks import CONDITION, PointEnv, request_at


class InferenceContract:
    """Every place where a policy may run. Subclasses provide :meth:`make`, whose policy answers
    requests of ``tests.mocks.request_at``.
    """

    closes = True

    def make(self) -> Inference:
        raise AssertionError("a subclass makes the inference")

    def reply(self, inference: Inference, env_id: int, now_ns: int) -> PolicyOutput:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            output = inference.poll(env_id, now_ns)
            if output is not None:
                return output
            time.sleep(0.001)
        raise AssertionError(f"no reply for env {env_id}")

    def test_nothing_is_answered_before_it_was_asked(self) -> None:
        assert self.make().poll(77, 0) is None

    def test_a_reply_comes_once_and_repeats_the_time(self) -> None:
        inference = self.make()
        inference.submit(0, request_at(5))
        output = self.reply(inference, 0, 5)
        assert output.t_ns.tolist() == [5]
        assert output.latency_ns >= 0
        assert inference.poll(0, 6) is None

    def test_envs_are_kept_apart(self) -> None:
        inference = self.make()
        for env_id in (3, 1, 2):
            inference.submit(env_id, request_at(10, x=0.1 * env_id, seed=env_id))
        for env_id in (1, 2, 3):
            actions = self.reply(inference, env_id, 10).actions
            assert actions.shape[0] == 1
            assert abs(actions[0, 0, 0, 0] - 0.1 * env_id) < 0.05

    def test_a_newer_request_replaces_an_unanswered_one(self) -> None:
        inference = self.make()
        inference.submit(0, request_at(5))
        inference.submit(0, request_at(6))
        assert self.reply(inference, 0, 6).t_ns.tolist() == [6]
        assert inference.poll(0, 7) is None

    def test_sampling_is_a_function_of_the_request(self) -> None:
        inference = self.make()
        replies: list[PolicyOutput] = []
        for _ in range(2):
            inference.submit(0, request_at(5, seed=11))
            replies.append(self.reply(inference, 0, 5))
        assert np.array_equal(replies[0].actions, replies[1].actions)

    def test_close_twice(self) -> None:
        if self.closes:
            inference = self.make()
            inference.close()
            inference.close()


class AgentContract:
    """Every agent. Subclasses provide :meth:`make` and :meth:`env`; the agent must be able to run
    ten ticks of that env.
    """

    def make(self) -> Agent:
        raise AssertionError("a subclass makes the agent")

    def env(self) -> Env:
        return PointEnv()

    def inference(self) -> Inference | None:
        return None

    def commands(self, seed: int) -> list[Command]:
        agent, env, inference = self.make(), self.env(), self.inference()
        env.reset(CONDITION, np.random.default_rng(seed))
        agent.reset(seed)
        out: list[Command] = []
        for _ in range(10):
            observation = env.observe()
            request = agent.request(observation)
            reply = None
            if inference is not None:
                if request is not None:
                    inference.submit(0, request)
                reply = inference.poll(0, env.now_ns())
            out.append(agent.decide(observation, reply))
            env.apply(out[-1])
            env.advance()
            env.drain()
        env.close()
        return out

    def test_it_has_a_name(self) -> None:
        assert self.make().name

    def test_commands_are_numbered_and_carry_the_actions_of_the_env(self) -> None:
        commands = self.commands(1)
        assert [c.seq for c in commands] == list(range(10))
        for command in commands:
            assert command.source
            for action in self.env().spec.actions:
                value = np.asarray(command.action[action.name])
                assert value.shape == action.shape
                assert np.isfinite(value).all()
            assert command.plan is None or (command.plan.ndim == 2 and len(command.plan) > 0)

    def test_due_times_increase_by_the_tick(self) -> None:
        due = [c.due_ns for c in self.commands(1)]
        assert (np.diff(due) == round(1e9 / self.env().spec.rate_hz)).all()

    def test_same_seed_same_commands(self) -> None:
        for a, b in zip(self.commands(4), self.commands(4), strict=True):
            assert all(np.array_equal(a.action[n], b.action[n]) for n in a.action)
