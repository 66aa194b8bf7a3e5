"""Contracts as tests: every implementation subclasses the class of its contract."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from robolearn.contracts import Agent, Env, Inference, Policy
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError, SpecMismatchError, StoreLockedError
from robolearn.types import (
    Command,
    Condition,
    Observation,
    Outcome,
    PolicyInput,
    PolicyOutput,
    SampleBatch,
)
from tests.episodes import assert_same, small_episode
from tests.learning_mocks import random_request
from tests.mocks import CONDITION, PointEnv, request_at
from tests.waiting import wait_until


class InferenceContract:
    """Every place where a policy may run. Subclasses provide :meth:`make`, whose policy answers
    requests of ``tests.mocks.request_at``.
    """

    closes = True

    def make(self) -> Inference:
        raise AssertionError("a subclass makes the inference")

    def reply(self, inference: Inference, env_id: int, now_ns: int) -> PolicyOutput:
        output = wait_until(
            lambda: inference.poll(env_id, now_ns), 30.0, what=f"a reply for env {env_id}"
        )
        assert output is not None
        return output

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


class PolicyContract:
    """Every trained network. Subclasses provide :meth:`make`, a policy over the task space of
    ``tests.learning_mocks``, or over another one and :meth:`request`.
    """

    def make(self) -> Policy:
        raise AssertionError("a subclass makes the policy")

    def request(self, batch: int, n_obs: int) -> PolicyInput:
        return random_request(batch, n_obs)

    def test_shapes_and_units(self) -> None:
        policy = self.make()
        spec = policy.spec
        output = policy.sample(self.request(3, spec.n_obs), n=2)
        assert output.actions.shape == (3, 2, spec.horizon, spec.task_space.action_size)
        assert output.actions.dtype == np.float64
        assert output.scores.shape == (3, 2)
        assert np.isfinite(output.actions).all()
        assert output.t_ns.tolist() == [0, 1, 2]
        assert output.latency_ns > 0

    def test_the_same_request_gives_the_same_bits(self) -> None:
        policy = self.make()
        request = self.request(3, policy.spec.n_obs)
        first, second = policy.sample(request), policy.sample(request)
        np.testing.assert_array_equal(first.actions, second.actions)

    def test_another_seed_gives_another_chunk(self) -> None:
        policy = self.make()
        request = self.request(2, policy.spec.n_obs)
        other = dataclasses.replace(request, seed=request.seed + 1)
        assert not np.array_equal(policy.sample(request).actions, policy.sample(other).actions)

    def test_a_row_does_not_depend_on_its_batch(self) -> None:
        policy = self.make()
        request = self.request(5, policy.spec.n_obs)
        whole = policy.sample(request, n=2).actions
        for i in range(5):
            single = PolicyInput(
                {k: v[i : i + 1] for k, v in request.observations.items()},
                request.t_ns[i : i + 1],
                request.seed[i : i + 1],
                task=request.task[i : i + 1],
            )
            np.testing.assert_allclose(policy.sample(single, n=2).actions[0], whole[i], atol=1e-5)

    def test_best_first(self) -> None:
        policy = self.make()
        scores = policy.sample(self.request(4, policy.spec.n_obs), n=3).scores
        assert (np.diff(scores, axis=1) <= 0).all()

    def test_observations_are_not_changed(self) -> None:
        policy = self.make()
        request = self.request(2, policy.spec.n_obs)
        before = {k: v.copy() for k, v in request.observations.items()}
        policy.sample(request)
        for name, values in before.items():
            np.testing.assert_array_equal(values, request.observations[name])

    def test_a_request_of_another_task_space_is_explained(self) -> None:
        policy = self.make()
        request = self.request(2, policy.spec.n_obs)
        name, values = next(iter(request.observations.items()))
        renamed = {k: v for k, v in request.observations.items() if k != name}
        with pytest.raises(SpecMismatchError, match=f"needs '{name}'"):
            policy.sample(dataclasses.replace(request, observations=renamed))
        short = dict(request.observations) | {name: values[:, :1]}
        with pytest.raises(SpecMismatchError, match="should be"):
            policy.sample(dataclasses.replace(request, observations=short))
        bad = dict(request.observations) | {name: np.full_like(values, np.nan)}
        with pytest.raises(SpecMismatchError, match="not finite"):
            policy.sample(dataclasses.replace(request, observations=bad))


class EnvContract:
    """Every env. Subclasses provide :meth:`make` and :meth:`condition`.

    ``exact``: the start is achieved to this [m, rad]; ``simulated``: time passes only in
    ``advance`` and the same commands give the same bits.
    """

    exact = 1e-9
    simulated = True

    def make(self) -> Env:
        raise AssertionError("a subclass makes the env")

    def condition(self, seed: int) -> Condition:
        raise AssertionError("a subclass says where episodes start")

    def start(self, seed: int = 0) -> Env:
        env = self.make()
        env.reset(self.condition(seed), np.random.default_rng(seed))
        return env

    def command(self, env: Env, seq: int) -> Command:
        """A slow circle within the action's range, from the seed ``seq``."""
        action: dict[str, np.ndarray] = {}
        for spec in env.spec.actions:
            low, high = np.array(spec.low), np.array(spec.high)
            phase = 0.3 * seq + np.arange(spec.size).reshape(spec.shape) * np.pi / 2
            action[spec.name] = (low + high) / 2 + 0.2 * (high - low) * np.cos(phase)
        return Command(seq=seq, action=action, due_ns=env.now_ns(), source="contract")

    def ticks(self, env: Env, count: int) -> list[tuple[Observation, SampleBatch, Outcome]]:
        out: list[tuple[Observation, SampleBatch, Outcome]] = []
        for seq in range(count):
            observation = env.observe()
            env.apply(self.command(env, seq))
            env.advance()
            out.append((observation, env.drain(), env.outcome()))
        return out

    def test_observations_have_what_the_spec_says(self) -> None:
        env = self.start()
        for observation, _, _ in self.ticks(env, 3):
            assert set(observation.samples) == {s.name for s in env.spec.signals}
            for signal in env.spec.signals:
                sample = observation.samples[signal.name]
                assert sample.value.shape == signal.shape
                assert str(sample.value.dtype) == signal.dtype
                assert np.isfinite(sample.value).all()
                assert sample.t_ns <= observation.t_ns
        env.close()

    def test_the_start_is_measured(self) -> None:
        env = self.make()
        if env.capabilities.settable_poses:
            condition = self.condition(3)
            report = env.reset(condition, np.random.default_rng(3))
            assert report.requested == condition
            assert set(report.achieved) == set(condition.poses)
            for name, pose in condition.poses.items():
                error = np.abs(np.asarray(report.achieved[name]) - np.array(pose))
                for k in env.spec.signal(name).angular:
                    error[k] = min(error[k], abs(2 * np.pi - error[k]))
                assert error.max() <= self.exact, f"{name}: {error}"
        env.close()

    def test_time_passes_tick_by_tick(self) -> None:
        env = self.start()
        period = round(1e9 / env.spec.rate_hz)
        times = [o.t_ns for o, _, _ in self.ticks(env, 4)] + [env.now_ns()]
        if self.simulated:
            assert np.diff(times).tolist() == [period] * 4
        else:
            assert (np.diff(times) > 0).all()
        env.close()

    def test_drain_has_every_observed_sample_once_and_in_order(self) -> None:
        env = self.start()
        seen: dict[str, list[int]] = {s.name: [] for s in env.spec.signals}
        for observation, batch, _ in self.ticks(env, 5):
            for signal in env.spec.signals:
                block = batch.signals[signal.name]
                assert block.value.shape == (len(block.t_ns), *signal.shape)
                assert block.valid.shape == block.t_ns.shape
                seen[signal.name] += block.t_ns.tolist()
                sample = observation.samples[signal.name]
                at = seen[signal.name].index(sample.t_ns) - (
                    len(seen[signal.name]) - len(block.t_ns)
                )
                if at >= 0:
                    assert np.array_equal(block.value[at], sample.value)
        for name, times in seen.items():
            assert (np.diff(times) > 0).all(), f"{name}: {times}"
        env.close()

    def test_what_was_sent_comes_back_by_number(self) -> None:
        env = self.start()
        numbers: list[int] = []
        for _, batch, _ in self.ticks(env, 4):
            numbers += batch.sent.seq.tolist()
            for action in env.spec.actions:
                assert batch.sent.action[action.name].shape == (
                    len(batch.sent.seq),
                    *action.shape,
                )
        assert sorted(set(numbers)) == numbers or (np.diff(numbers) >= 0).all()
        assert set(numbers) <= set(range(4))
        assert {0, 1, 2} <= set(numbers)
        env.close()

    def test_an_observation_does_not_change_later(self) -> None:
        env = self.start()
        observation = env.observe()
        before = {n: s.value.copy() for n, s in observation.samples.items()}
        self.ticks(env, 3)
        assert all(np.array_equal(before[n], observation.value(n)) for n in before)
        env.close()

    def test_the_same_commands_give_the_same_bits(self) -> None:
        if not self.simulated:
            return
        env = self.start(1)
        first = self.ticks(env, 15)
        env.reset(self.condition(2), np.random.default_rng(2))
        self.ticks(env, 5)
        env.reset(self.condition(1), np.random.default_rng(1))
        again = self.ticks(env, 15)
        other = self.start(1)
        fresh = self.ticks(other, 15)
        for a, b, c in zip(first, again, fresh, strict=True):
            for name, sample in a[0].samples.items():
                assert np.array_equal(sample.value, b[0].value(name))
                assert np.array_equal(sample.value, c[0].value(name))
            assert a[2] == b[2] == c[2]
        env.close()
        other.close()

    def test_unusable_actions_are_refused(self) -> None:
        env = self.start()
        good = self.command(env, 0)
        for spec in env.spec.actions:
            ok = np.asarray(good.action[spec.name])
            above = np.array(spec.high) + 0.01
            bad = [np.full_like(ok, np.nan), np.full_like(ok, np.inf), ok[..., :-1], above]
            bad += [ok.astype(str), 1j * ok]
            for value in bad:
                action = {**good.action, spec.name: value}
                with pytest.raises(DataError):
                    env.apply(dataclasses.replace(good, action=action))
            with pytest.raises(DataError, match="lacks"):
                env.apply(dataclasses.replace(good, action={}))
        env.close()

    def test_poses_that_cannot_be_set_are_refused(self) -> None:
        env = self.make()
        condition = self.condition(0)
        rng = np.random.default_rng(0)
        for name, pose in condition.poses.items():
            for value in (tuple(float("nan") for _ in pose), (*pose, 0.0)):
                poses = {**condition.poses, name: value}
                with pytest.raises(DataError):
                    env.reset(dataclasses.replace(condition, poses=poses), rng)
        poses = {**condition.poses, "moon/pose": (0.0, 0.0)}
        with pytest.raises(DataError, match="moon/pose"):
            env.reset(dataclasses.replace(condition, poses=poses), rng)
        env.close()

    def test_outcomes_are_within_their_ranges(self) -> None:
        env = self.start()
        for _, _, outcome in self.ticks(env, 3):
            assert 0.0 <= outcome.progress <= 1.0
            assert np.isfinite(outcome.reward)
            assert outcome.reason == "" or outcome.terminal or outcome.truncated
        env.close()

    def test_it_must_be_reset_first(self) -> None:
        env = self.make()
        with pytest.raises(DataError, match="reset"):
            env.observe()
        env.close()

    def test_close_twice(self) -> None:
        env = self.start()
        env.close()
        env.close()


class StoreContract:
    """Every episode store. Subclasses provide :meth:`make`, a new, empty store."""

    def make(self, tmp_path: Path) -> EpisodeStore:
        raise AssertionError("subclasses make a store")

    def test_an_appended_episode_reads_back_bit_for_bit(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        episodes = [small_episode(k, image=k == 1) for k in range(3)]
        with store.writer() as writer:
            ids = [writer.append(e) for e in episodes]
        assert ids == ["ep_000000", "ep_000001", "ep_000002"]
        for episode_id, episode in zip(ids, episodes, strict=True):
            read = store.read(episode_id)
            assert read.id == episode_id
            assert_same(read, episode)
            assert store.meta(episode_id) == episode.meta

    def test_ids_continue_after_the_last_one(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        for k in range(3):
            with store.writer() as writer:
                assert writer.append(small_episode(k)) == f"ep_{k:06d}"
        assert store.ids() == ("ep_000000", "ep_000001", "ep_000002")

    def test_listing_tells_the_length_and_the_outcome(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        assert store.list() == ()
        with store.writer() as writer:
            writer.append(small_episode(4, steps=7))
        (info,) = store.list()
        assert (info.id, info.steps, info.kind, info.task) == (
            "ep_000000",
            7,
            "demonstration",
            "point",
        )
        assert info.success
        assert info.duration_s == pytest.approx(0.7)
        assert info.score == small_episode(4, steps=7).progress.max()

    def test_the_content_hash_depends_on_the_content_alone(self, tmp_path: Path) -> None:
        first, second = self.make(tmp_path / "a"), self.make(tmp_path / "b")
        assert first.content_hash() == second.content_hash()
        hashes = []
        for store in (first, second):
            with store.writer() as writer:
                writer.append(small_episode(1))
            hashes.append(store.content_hash())
            with store.writer() as writer:
                writer.append(small_episode(2))
        assert hashes[0] == hashes[1]
        assert first.content_hash() == second.content_hash() != hashes[0]

    def test_a_second_writer_is_refused_at_once_and_the_first_goes_on(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        with store.writer() as writer:
            with pytest.raises(StoreLockedError, match="being written"), store.writer():
                pass
            writer.append(small_episode())
        with store.writer() as writer:
            writer.append(small_episode())

    def test_a_refused_episode_leaves_nothing(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        bad = dataclasses.replace(small_episode(), reward=np.full(12, np.nan))
        with store.writer() as writer:
            with pytest.raises(DataError, match="NaN"):
                writer.append(bad)
            assert writer.append(small_episode(1)) == "ep_000000"
        assert store.ids() == ("ep_000000",)
