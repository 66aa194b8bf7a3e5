import dataclasses

import numpy as np
import pytest

from robolearn.agents.chunk import ChunkAgent
from robolearn.agents.replay import ReplayAgent
from robolearn.inference.local import BatchedInference, InProcessInference
from robolearn.runtime import EpisodeRun, run_episode, run_lockstep
from robolearn.types import (
    Capabilities,
    Condition,
    Outcome,
    SampleBatch,
    SampleBlock,
    SentBlock,
)
from tests.mocks import (
    CONDITION,
    PERIOD_NS,
    POLICY_SPEC,
    SPEC,
    TOOL,
    Listener,
    PointEnv,
    WalkPolicy,
)

PATH = np.linspace([0.1, 0.2], [0.5, 0.2], 9)


def replay(path=PATH):
    return ReplayAgent({TOOL: path}, SPEC.actions)


def test_the_loop_tells_everything_in_order():
    env, listener = PointEnv(), Listener()
    result = run_episode(
        env, replay(), None, [listener], CONDITION, max_steps=5, task="walk", provenance={"x": 1}
    )
    header = listener.headers[0]
    assert (header.task, header.agent, header.env) == ("walk", "replay", "point")
    assert header.provenance == {"x": 1}
    assert header.reset.achieved[TOOL].tolist() == [0.1, 0.2]
    assert [t.index for t in listener.ticks] == list(range(5))
    assert [t.observation.t_ns for t in listener.ticks] == [
        1_000_000_000 + i * PERIOD_NS for i in range(5)
    ]
    # A tick shows what was seen before the command, and the outcome after it.
    assert np.array_equal([t.observation.value(TOOL) for t in listener.ticks][1:], PATH[:4])
    assert listener.ticks[3].outcome.progress == PATH[3][0]
    assert [t.drained.sent.seq.tolist() for t in listener.ticks] == [[i] for i in range(5)]
    assert listener.ends == [listener.ticks[-1].outcome]
    assert not listener.aborts
    assert result.steps == 5
    assert result.duration_s == pytest.approx(0.5)


def test_time_limit_truncates_and_success_terminates():
    result = run_episode(PointEnv(), replay(), None, [], CONDITION, max_steps=4)
    assert result.outcome.truncated
    assert result.outcome.reason == "time_limit"
    result = run_episode(PointEnv(goal_x=0.3), replay(), None, [], CONDITION, max_steps=300)
    assert (result.outcome.terminal, result.outcome.truncated) == (True, False)
    assert result.outcome.reason == "success"
    # Terminal on the last allowed step is success, not a time limit.
    again = run_episode(PointEnv(goal_x=0.3), replay(), None, [], CONDITION, max_steps=result.steps)
    assert again.outcome.reason == "success"


def test_score_is_the_best_progress_and_return_the_sum():
    there_and_back = np.array([[0.2, 0.0], [0.4, 0.0], [0.1, 0.0]])
    result = run_episode(PointEnv(), replay(there_and_back), None, [], CONDITION, max_steps=3)
    assert result.score == pytest.approx(0.4)
    assert result.return_ == pytest.approx(0.7)
    assert result.outcome.progress == pytest.approx(0.1)


def test_latencies_are_those_of_the_replies():
    agent = ChunkAgent(POLICY_SPEC, SPEC, name="walk")
    listener = Listener()
    inference = InProcessInference(WalkPolicy())
    result = run_episode(PointEnv(), agent, inference, [listener], CONDITION, max_steps=16)
    assert len(result.inference_ns) == 2
    assert [t.inference_ns > 0 for t in listener.ticks] == ([True] + [False] * 7) * 2
    assert result.overrun_ns == (0,) * 16


class LateEnv(PointEnv):
    """The samples of a tick come with the next one, those of the last when they are asked for."""

    def __init__(self):
        super().__init__()
        self.asked: tuple[int, ...] = ()
        empty = SampleBlock(np.zeros(0, np.int64), np.zeros((0, 2)), np.zeros(0, np.bool_))
        self.kept = {TOOL: empty}

    def drain(self):
        new, old = super().drain(), self.kept
        self.kept = dict(new.signals)
        return SampleBatch(old, new.sent)

    def late(self, until_ns):
        self.asked += (until_ns,)
        none = np.zeros(0, np.int64)
        return SampleBatch(self.kept, SentBlock(none, none, {TOOL: np.zeros((0, 2))}))


def test_what_is_under_way_when_an_episode_ends_belongs_to_it():
    env, listener, usual = LateEnv(), Listener(), Listener()
    run_episode(env, replay(), None, [listener], CONDITION, max_steps=5)
    run_episode(PointEnv(), replay(), None, [usual], CONDITION, max_steps=5)
    assert env.asked == (listener.ticks[-1].observation.t_ns,)

    def times(heard):
        return [t for tick in heard.ticks for t in tick.drained.signals[TOOL].t_ns.tolist()]

    assert times(listener) == times(usual)
    assert listener.ticks[-1].drained.sent.seq.tolist() == [4]


def test_pictures_keep_their_files_when_more_come():
    def block(*files):
        n = max(1, len(files))
        return SampleBlock(
            np.arange(n), np.zeros((n, 2, 2, 3), np.uint8), np.ones(n, np.bool_), files
        )

    assert block().then(block()).files == ()
    assert block(b"a", b"b").then(block()).files == (b"a", b"b", b"")
    assert block().then(block(b"a")).files == (b"", b"a")
    assert len(block(b"a", b"b").then(block()).value) == 3


class SlowEnv(PointEnv):
    """A real-time env whose every tick is a quarter of a period late."""

    capabilities = Capabilities(True, True, False)

    def apply(self, command):
        super().apply(command)
        self.t_ns += PERIOD_NS + PERIOD_NS // 4


def test_overruns_count_time_beyond_the_tick():
    result = run_episode(SlowEnv(), replay(), None, [], CONDITION, max_steps=3)
    assert result.overrun_ns == (PERIOD_NS // 4,) * 3


class BreakingEnv(PointEnv):
    def advance(self):
        super().advance()
        if self.t_ns >= 1_000_000_000 + 3 * PERIOD_NS:
            raise KeyboardInterrupt


def test_an_error_reaches_subscribers_and_the_caller():
    listener = Listener()
    with pytest.raises(KeyboardInterrupt):
        run_episode(BreakingEnv(), replay(), None, [listener], CONDITION, max_steps=10)
    assert len(listener.ticks) == 2
    assert isinstance(listener.aborts[0], KeyboardInterrupt)
    assert not listener.ends


def lockstep(count, **kinds):
    inference = BatchedInference(WalkPolicy())
    listeners = [Listener() for _ in range(count)]
    runs = [
        EpisodeRun(
            kinds.get(f"env{i}", PointEnv)(),
            ChunkAgent(POLICY_SPEC, SPEC, name="walk"),
            inference,
            [listeners[i]],
            Condition(f"c{i}", i, {TOOL: (0.1 * i, 0.2)}),
            max_steps=10 + i,
            task="walk",
            env_name="point",
            env_id=i,
        )
        for i in range(count)
    ]
    return runs, listeners


def test_lockstep_gives_what_single_runs_give():
    runs, listeners = lockstep(3)
    together = run_lockstep(runs)
    for i, result in enumerate(together):
        alone_listener = Listener()
        alone = run_episode(
            PointEnv(),
            ChunkAgent(POLICY_SPEC, SPEC, name="walk"),
            InProcessInference(WalkPolicy()),
            [alone_listener],
            Condition(f"c{i}", i, {TOOL: (0.1 * i, 0.2)}),
            max_steps=10 + i,
        )
        assert (result.score, result.steps) == (alone.score, alone.steps)
        for a, b in zip(listeners[i].ticks, alone_listener.ticks, strict=True):
            assert np.array_equal(a.command.action[TOOL], b.command.action[TOOL])


def test_lockstep_error_aborts_those_that_still_run():
    runs, listeners = lockstep(2, env1=BreakingEnv)
    with pytest.raises(KeyboardInterrupt):
        run_lockstep(runs)
    assert [len(listener.aborts) for listener in listeners] == [1, 1]


def test_act_needs_ask_first():
    (run,), _ = lockstep(1)
    with pytest.raises(RuntimeError, match="before ask"):
        run.act()


def test_truncation_by_the_env_keeps_its_reason():
    class Stopped(PointEnv):
        def outcome(self):
            return dataclasses.replace(
                super().outcome(), truncated=self.t_ns > 1_200_000_000, reason="safety_stop"
            )

    result = run_episode(Stopped(), replay(), None, [], CONDITION, max_steps=50)
    assert result.outcome.reason == "safety_stop"
    assert result.steps == 3
    assert isinstance(result.outcome, Outcome)
