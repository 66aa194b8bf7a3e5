import functools
import multiprocessing
import os
import signal

import numpy as np
import psutil
import pytest

from robolearn.agents.chunk import ChunkAgent
from robolearn.errors import ConfigError, InferenceError
from robolearn.inference.local import (
    BatchedInference,
    InProcessInference,
    WorkerInference,
    stack_requests,
)
from robolearn.runtime import EpisodeRun, run_episode, run_lockstep
from robolearn.types import PolicyInput
from tests.contracts import InferenceContract
from tests.mocks import (
    CONDITION,
    PERIOD_NS,
    POLICY_SPEC,
    SPEC,
    TOOL,
    BuildFaulty,
    BuildWalk,
    FaultyPolicy,
    Listener,
    PointEnv,
    WalkPolicy,
    request_at,
)
from tests.robolearn.inference.killed_parent import run_until_killed
from tests.waiting import pass_time, wait_until


class TestInProcess(InferenceContract):
    def make(self):
        return InProcessInference(WalkPolicy())


class TestBatched(InferenceContract):
    def make(self):
        return BatchedInference(WalkPolicy())


@functools.cache
def shared_worker():
    return WorkerInference(BuildWalk())


class TestWorker(InferenceContract):
    closes = False

    def make(self):
        return shared_worker()


@pytest.fixture(scope="module", autouse=True)
def _stop_shared_worker():
    yield
    if shared_worker.cache_info().currsize:
        shared_worker().close()


@pytest.mark.parametrize("kind", [InProcessInference, BatchedInference])
@pytest.mark.parametrize("delay", [0, 1, 3])
def test_delay_is_exact_in_ticks(kind, delay):
    inference = kind(WalkPolicy(), delay_ticks=delay)
    inference.submit(0, request_at(10 * PERIOD_NS))
    for tick in range(delay):
        assert inference.poll(0, (10 + tick) * PERIOD_NS) is None
    assert inference.poll(0, (10 + delay) * PERIOD_NS) is not None
    assert inference.poll(0, (11 + delay) * PERIOD_NS) is None


def test_negative_delay_is_refused():
    with pytest.raises(ConfigError, match="at least 0"):
        BatchedInference(WalkPolicy(), delay_ticks=-1)


def test_lockstep_runs_share_one_forward_pass():
    policy = WalkPolicy()
    inference = BatchedInference(policy)
    runs = [
        EpisodeRun(
            PointEnv(),
            ChunkAgent(POLICY_SPEC, SPEC, name="walk"),
            inference,
            [],
            CONDITION,
            max_steps=20,
            task="walk",
            env_name="point",
            env_id=i,
        )
        for i in range(5)
    ]
    results = run_lockstep(runs)
    assert policy.batches == [5, 5, 5]
    assert {r.steps for r in results} == {20}


def test_batched_and_single_answers_agree():
    batched, single = BatchedInference(WalkPolicy()), InProcessInference(WalkPolicy())
    for env_id in range(4):
        request = request_at(PERIOD_NS, x=0.1 * env_id, seed=env_id)
        batched.submit(env_id, request)
        single.submit(env_id, request)
    for env_id in range(4):
        a, b = batched.poll(env_id, PERIOD_NS), single.poll(env_id, PERIOD_NS)
        assert a is not None
        assert b is not None
        assert np.array_equal(a.actions, b.actions)


def test_requests_of_one_batch_must_carry_the_same_signals():
    other = PolicyInput({"a/b": np.zeros((1, 2, 1))}, np.array([0]), np.array([0]))
    with pytest.raises(InferenceError, match="different signals"):
        stack_requests([request_at(0), other])
    with pytest.raises(InferenceError, match="no requests"):
        stack_requests([])


@pytest.mark.parametrize(
    ("fault", "text"), [("nan", "non-finite"), ("shape", "expected"), ("time", "asked for")]
)
def test_bad_answers_are_refused(fault, text):
    inference = InProcessInference(FaultyPolicy(fault))
    inference.submit(0, request_at(0))
    with pytest.raises(InferenceError, match=text):
        inference.poll(0, 0)


def wait_for_failure(worker):
    worker.submit(0, request_at(0))
    wait_until(lambda: worker.poll(0, 0) and False, 20.0, what="the worker's failure")


@pytest.mark.parametrize(
    ("fault", "text"),
    [("exit", "exit code 3"), ("raise", "no gradient today"), ("nan", "non-finite")],
)
def test_worker_failures_are_reported(fault, text):
    worker = WorkerInference(BuildFaulty(fault))
    with pytest.raises(InferenceError, match=text):
        wait_for_failure(worker)
    worker.close()
    assert not psutil.pid_exists(worker.pid)


def test_killed_and_stalled_workers_are_noticed():
    worker = WorkerInference(BuildFaulty("stall"), timeout_s=0.1)
    with pytest.raises(InferenceError, match=r"did not answer within 0\.1 s"):
        wait_for_failure(worker)
    assert not psutil.pid_exists(worker.pid)
    killed = WorkerInference(BuildWalk())
    os.kill(killed.pid, signal.SIGKILL)
    with pytest.raises(InferenceError, match="exit code -9"):
        wait_for_failure(killed)
    killed.close()
    with pytest.raises(InferenceError, match="closed"):
        killed.submit(0, request_at(0))


def test_builder_errors_reach_the_caller():
    with pytest.raises(InferenceError, match=r"weights\.safetensors"):
        WorkerInference(BuildFaulty("build"))


def test_worker_knows_its_spec_and_answers_as_in_process():
    worker = shared_worker()
    assert worker.spec == POLICY_SPEC
    direct = InProcessInference(WalkPolicy())
    a, b = (answer(i, request_at(3, x=0.25, seed=9)) for i in (worker, direct))
    assert np.array_equal(a.actions, b.actions)
    assert a.latency_ns > 0


def answer(inference, request):
    inference.submit(0, request)
    return wait_until(lambda: inference.poll(0, int(request.t_ns[0])), 20.0, what="a reply")


def test_waiting_requests_are_replaced_by_newer_ones():
    worker = shared_worker()
    for t_ns in range(5):
        worker.submit(0, request_at(t_ns))
    assert answer(worker, request_at(99)).t_ns.tolist() == [99]
    assert worker.poll(0, 0) is None


def test_no_orphan_when_the_parent_is_killed():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    parent = context.Process(target=run_until_killed, args=(theirs,))
    parent.start()
    theirs.close()
    worker = psutil.Process(int(ours.recv_bytes()))
    parent.kill()
    parent.join()
    gone, _ = psutil.wait_procs([worker], timeout=10)
    assert gone
    ours.close()


def test_episode_with_a_dying_worker_is_aborted():
    worker, listener = WorkerInference(BuildFaulty("exit", after=1)), Listener()
    agent = ChunkAgent(POLICY_SPEC, SPEC, name="walk")

    class PacedEnv(PointEnv):
        def advance(self):
            super().advance()
            pass_time(0.005, "a world in real time")

    with pytest.raises(InferenceError, match="died"):
        run_episode(PacedEnv(), agent, worker, [listener], CONDITION, max_steps=2000)
    assert len(listener.aborts) == 1
    assert not listener.ends
    worker.close()


def test_observation_shapes_survive_the_pipe():
    request = request_at(5)
    reply = answer(shared_worker(), request)
    assert reply.actions.shape == (1, 1, 16, 2)
    assert request.observations[TOOL].shape == (1, 2, 2)
