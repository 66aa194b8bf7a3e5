import dataclasses
import fcntl
import os
import sys
import termios
import time
from collections import deque

import numpy as np
import pytest

from hardware.teleop.agent import REACH_M, TeleopAgent
from hardware.teleop.device import Reading
from hardware.teleop.keyboard import STEP_M, KeyboardDevice, split_codes, status_line
from hardware.teleop.session import AttendedEnv, SessionConfig, TeleopSession
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.pusht import BLOCK
from robolearn.spec import SignalSpec
from robolearn.types import Condition, Observation, Outcome, Sample
from tests.contracts import AgentContract
from tests.mocks import ACTION, CONDITION, SPEC, TOOL, Listener, PointEnv, observation
from tests.waiting import wait_until

FAST = dataclasses.replace(SPEC, rate_hz=1000.0)


class Hand:
    """A scripted device: one target and one batch of keys per call."""

    name = "hand"

    def __init__(self, targets=(), keys=(), age_s=0.0):
        self.targets, self.batches, self.age_s = deque(targets), deque(keys), age_s
        self.views, self.began, self.closed = [], [], False

    def begin(self, tool):
        self.began.append(tool.copy())

    def poll(self):
        target = self.targets.popleft() if self.targets else None
        age = round(self.age_s * 1e9)
        return Reading(time.monotonic_ns() - age, None if target is None else np.array(target))

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
    run = TeleopSession(env or BlockEnv(), hand, keeper, config)
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
    assert hand.began[0].tolist() == [0.1, 0.2]


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
    env.stop = True
    assert env.outcome().reason == "success"
    for _ in range(3):
        env.advance()
    assert env.measured_hz > 0
    env.close()


def _typed(terminal):
    """How many bytes can be read from it."""
    told = fcntl.ioctl(terminal, termios.FIONREAD, bytes(4))
    return int.from_bytes(told, sys.byteorder)


@pytest.fixture
def terminal():
    master, slave = os.openpty()
    written: list[str] = []
    device = KeyboardDevice(written.append, slave)
    device.begin(np.array([0.2, 0.2]))

    def type_keys(data):
        os.write(master, data)
        wait_until(lambda: _typed(slave) == len(data))

    yield device, type_keys, written
    device.close()
    device.close()
    os.close(master)
    os.close(slave)


def test_arrow_keys_and_letters_move_the_target(terminal):
    device, type_keys, _ = terminal
    type_keys(b"\x1b[A\x1b[A\x1bOCdwW\x1b[")
    target = device.poll().target
    assert target.tolist() == pytest.approx([0.2 + 2 * STEP_M, 0.2 + 3 * STEP_M + 0.001])
    type_keys(b"B")
    assert device.poll().target[1] == pytest.approx(0.2 + 2 * STEP_M + 0.001)
    type_keys(b"a" * 60)
    assert device.poll().target[0] == 0.0


def test_keys_are_told_apart(terminal):
    device, type_keys, written = terminal
    type_keys(b" \nxz\x1bq")
    assert device.pressed() == ("start", "keep", "discard", "quit")
    assert device.pressed() == ()
    assert "arrow keys" in written[0]


def test_status_line_fits(terminal):
    device, _, written = terminal
    hand = Hand([(0.1, 0.2)] * 5, [(), ("start",)])
    run, *_ = session(hand, max_steps=2)
    hand.batches.extend([(), (), ("keep",)])
    run.run()
    for view in hand.views:
        device.show(view)
        assert len(status_line(view)) <= 140
    assert "running" in written[-3]


def test_without_a_terminal_the_error_says_what_to_do():
    read, write = os.pipe()
    with pytest.raises(ConfigError, match="--agent browser"):
        KeyboardDevice(print, read)
    os.close(read)
    os.close(write)


def test_split_codes_waits_for_the_rest_of_a_sequence():
    assert split_codes(b"a\x1b[Ab\x1b[") == ([b"a", b"\x1b[A", b"b"], b"\x1b[")
    assert split_codes(b"\x1bx") == ([b"\x1b", b"x"], b"")
    assert split_codes(b"") == ([], b"")
