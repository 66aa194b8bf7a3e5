import dataclasses
import time
from collections import deque

import numpy as np
import pytest

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.config import MappingConfig
from hardware.teleop.device import DeviceReading, TablePoint
from hardware.teleop.devices.keyboard import status_line
from hardware.teleop.session.attended import AttendedEnv
from hardware.teleop.session.config import SessionConfig
from hardware.teleop.session.session import TeleopSession
from robolearn.errors import SpecMismatchError
from robolearn.pusht import BLOCK
from robolearn.spec import SignalSpec
from robolearn.types import Condition, Observation, Outcome, Sample
from tests.contracts import AgentContract
from tests.mocks import ACTION, CONDITION, SPEC, TOOL, Listener, PointEnv, observation

FAST = dataclasses.replace(SPEC, rate_hz=1000.0)
REACH_M = MappingConfig().reach_m


class Hand:
    """A scripted device: one target and one batch of keys per call."""

    name, lease_s = "hand", 0.5

    def __init__(self, targets=(), keys=(), age_s=0.0):
        self.targets, self.batches, self.age_s = deque(targets), deque(keys), age_s
        self.views, self.began, self.closed = [], [], False

    def begin(self, opening):
        self.began.append(opening)

    def poll(self):
        target = self.targets.popleft() if self.targets else None
        age = round(self.age_s * 1e9)
        point = None if target is None else TablePoint(np.array(target))
        return DeviceReading(time.monotonic_ns() - age, True, point is not None, point)

    def pressed(self):
        return self.batches.popleft() if self.batches else ()

    def show(self, view):
        self.views.append(view)

    def close(self):
        self.closed = True


class TestTeleopAgent(AgentContract):
    def make(self):
        return TeleopAgent(Hand([(0.1 + 0.001 * i, 0.2) for i in range(10)]), SPEC)


def test_the_tool_is_taken_from_near_and_held_when_let_go():
    near, far = (0.1, 0.2 + 0.9 * REACH_M), (0.4, 0.4)
    agent = TeleopAgent(Hand([far, near, far, None, far, near]), SPEC)
    here = observation(0, tool__xy_table=np.array([0.1, 0.2]))
    commands = [agent.decide(here, None) for _ in range(6)]
    assert [c.source for c in commands] == [
        "hold", "human:hand", "human:hand", "hold", "hold", "human:hand"
    ]  # fmt: skip
    assert commands[0].action[TOOL].tolist() == [0.1, 0.2]
    assert commands[2].action[TOOL].tolist() == list(far)
    # Letting go stops the tool where it is.
    assert commands[3].action[TOOL].tolist() == [0.1, 0.2]


def test_old_readings_and_nonsense_count_as_let_go():
    here = observation(0, tool__xy_table=np.array([0.1, 0.2]))
    stale = TeleopAgent(Hand([(0.1, 0.2)], age_s=1.0), SPEC)
    assert stale.decide(here, None).source == "hold"
    broken = TeleopAgent(Hand([(np.nan, 0.2)]), SPEC)
    assert broken.decide(here, None).source == "hold"


def test_targets_stay_in_range():
    agent = TeleopAgent(Hand([(0.1, 0.2), (9.0, -9.0)]), SPEC)
    here = observation(0, tool__xy_table=np.array([0.1, 0.2]))
    agent.decide(here, None)
    assert agent.decide(here, None).action[TOOL].tolist() == [0.512, 0.0]


def test_other_embodiments_are_refused():
    other = dataclasses.replace(SPEC, actions=(dataclasses.replace(ACTION, mode="relative"),))
    with pytest.raises(SpecMismatchError, match="absolute"):
        TeleopAgent(Hand(), other)


class BlockEnv(PointEnv):
    """The point env with a block that follows the tool, fast enough for tests."""

    spec = dataclasses.replace(
        FAST, signals=(*FAST.signals, SignalSpec(BLOCK, (3,), "m", 1000.0, angular=(2,)))
    )

    def observe(self):
        seen = super().observe()
        block = Sample(seen.t_ns, np.array([*self.xy, 0.0]))
        return Observation(seen.t_ns, {**seen.samples, BLOCK: block})


class Keeper(Listener):
    def __init__(self):
        super().__init__()
        self.verdicts = []

    def spare(self):
        """It is kept anyway."""

    def keep(self):
        self.verdicts.append("keep")
        return f"ep_{len(self.verdicts):06d}"

    def discard(self):
        self.verdicts.append("discard")


def session(hand, *, episodes=1, max_steps=5, env=None):
    keeper, starts = Keeper(), []

    def condition(seed):
        starts.append(seed)
        return Condition(f"c{seed}", seed, {TOOL: (0.1, 0.2)})

    config = SessionConfig(episodes, max_steps, 3, "walk", "point", condition, {"a": 1}, 0.001)
    run = TeleopSession(AttendedEnv(env or BlockEnv()), hand, keeper, config)
    return run, keeper, starts


def test_start_watch_keep():
    # Keys: dropped before "ready", start, five ticks, keep.
    hand = Hand([(0.1, 0.2)] * 5, [("keep",), ("start",), *[()] * 5, ("start", "keep")])
    run, keeper, _ = session(hand)
    assert run.run() == ("ep_000001",)
    assert [v.phase for v in hand.views] == ["ready", *["running"] * 5, "review", "done"]
    assert "1 episode saved" in hand.views[-1].message
    assert keeper.headers[0].provenance == {"a": 1}
    assert keeper.headers[0].agent == "human:hand"
    assert {t.command.source for t in keeper.ticks} == {"human:hand"}
    assert keeper.ends[0].reason == "time_limit"
    assert hand.began == [None]


def test_a_key_stops_the_episode_and_decides():
    keys = [(), ("start",), (), ("discard",), (), (), ("start",), ("keep",)]
    hand = Hand([(0.1, 0.2)] * 20, keys)
    run, keeper, starts = session(hand, max_steps=50)
    assert run.run() == ("ep_000002",)
    assert keeper.verdicts == ["discard", "keep"]
    assert [e.reason for e in keeper.ends] == ["operator", "operator"]
    assert all(e.truncated and not e.terminal for e in keeper.ends)
    assert len(set(starts)) == 2


def test_quit_saves_nothing_more():
    run, keeper, _ = session(Hand([], [(), ("quit",)]), episodes=3)
    assert run.run() == ()
    assert not keeper.headers
    hand = Hand([], [(), ("start",), ("quit",)])
    run, keeper, _ = session(hand, episodes=3)
    assert run.run() == ()
    assert keeper.verdicts == ["discard"]


def test_attended_env_keeps_the_outcome_of_the_task():
    class Done(BlockEnv):
        def outcome(self):
            return Outcome(True, 1.0, 1.0, terminal=True, reason="success")

    env = AttendedEnv(Done())
    env.reset(CONDITION, np.random.default_rng(0))
    env.end("operator")
    assert env.outcome().reason == "success"
    for _ in range(3):
        env.advance()
    assert env.timing.hz > 0
    env.close()


def test_status_line_fits():
    hand = Hand([(0.1, 0.2)] * 5, [(), ("start",)])
    run, *_ = session(hand, max_steps=2)
    hand.batches.extend([(), (), ("keep",)])
    run.run()
    for view in hand.views:
        assert len(status_line(view)) <= 140
        assert len(status_line(view, 79)) <= 79
    assert "running" in status_line(hand.views[-3])
