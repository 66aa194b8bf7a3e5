"""What happens between two episodes of a person: resets, stops, warnings, the same start again."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from typing import Any, cast

import numpy as np
import pytest

from hardware.teleop.device import DeviceReading, Guided, Key, View
from hardware.teleop.session.attended import Arm, AttendedEnv, LoopTiming
from hardware.teleop.session.config import SessionConfig
from hardware.teleop.session.session import TeleopSession
from robolearn.data.markers import MARKER
from robolearn.errors import (
    RobotConnectionError,
    RobotError,
    SafetyStopError,
    StaleSignalError,
    StartError,
    StoreError,
)
from robolearn.machine.interrupt import hang_up, remembered
from robolearn.types import Command, Condition, Observation, Outcome, ResetReport, Sample
from tests.hardware.teleop.test_teleop import FAST, Hand, Keeper
from tests.mocks import CONDITION, TOOL, PointEnv
from tests.waiting import wait_until


class Cell(PointEnv):
    """The point env as a cell: its arm moves in a reset, holds, stops, and is told so."""

    spec = FAST

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = dataclasses.replace(self.capabilities, faster_than_real_time=False)
        self.said: list[str] = []
        self.latched = ""
        self.stop_at = self.stiff_at = -1
        self.trouble: deque[Exception] = deque()

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        self.require_running()
        self.said.append(f"reset {condition.id}")
        if self.trouble:
            raise self.trouble.popleft()
        return super().reset(condition, rng)

    def begin(self, condition: Condition, *, guided: bool = False) -> ResetReport:
        self.require_running()
        self.said.append("begin guided" if guided else "begin")
        return super().reset(condition, np.random.default_rng(0))

    def observe(self) -> Observation:
        self.require_running()
        return super().observe()

    def apply(self, command: Command) -> None:
        self.require_running()
        super().apply(command)

    def advance(self) -> None:
        super().advance()
        if len(self.commands) == self.stop_at:
            self.stop_at, self.latched = -1, "the arm ran into something"
        self.require_running()

    def require_running(self) -> None:
        if self.latched:
            raise SafetyStopError(self.latched)

    slowed = ""

    @property
    def guided_until(self) -> str:
        return "a limit came near" if len(self.commands) == self.stiff_at else ""

    def look(self) -> Observation:
        return super().observe()

    def hold(self) -> None:
        self.require_running()
        self.said.append("hold")

    def home(self) -> None:
        self.said.append("home")

    def estop(self) -> None:
        self.said.append("estop")
        self.latched = "emergency stop"

    def clear_stop(self) -> None:
        self.said.append("clear")
        self.latched = ""


class Fast(PointEnv):
    spec = FAST


class Reacts(Hand):
    """A person who presses what the screen calls for: a list of keys for each phase."""

    def __init__(self, **keys: list[Any]) -> None:
        super().__init__([(0.1, 0.2)] * 500)
        self.answers = {phase: deque(pressed) for phase, pressed in keys.items()}
        self.due: tuple[Key, ...] = ()

    def show(self, view: View) -> None:
        super().show(view)
        waiting = self.answers.get(view.phase)
        if waiting:
            key = waiting.popleft()
            self.due = (key,) if key else ()

    def pressed(self) -> tuple[Key, ...]:
        due, self.due = self.due, ()
        return due


class Reviewer:
    lost_frames = 0

    def __init__(self, *warnings: tuple[str, ...]) -> None:
        self.warnings, self.count = deque(warnings), 0

    def judge(self) -> tuple[str, ...]:
        return self.warnings.popleft() if self.warnings else ()

    def kept(self, episode: str, solved: bool | None) -> None:
        self.count += 1
        self.said = solved


def session(env: Any, hand: Hand, **more: Any) -> tuple[TeleopSession, Keeper]:
    keeper = Keeper()

    def start(seed: int) -> Condition:
        return Condition(f"c{seed % 1000}", seed, {TOOL: (0.1, 0.2)})

    arm = env if isinstance(env, Arm) else None
    play, episodes = more.pop("play", False), more.pop("episodes", 1)
    recorder = more.pop("recorder", keeper)
    config = SessionConfig(episodes, more.pop("max_steps", 6), 3, "walk", "point", start, {}, 1e-4)
    config = dataclasses.replace(config, **more.pop("config", {}))
    attended = AttendedEnv(cast("Any", env), arm, play=play, guided=more.pop("guided", False))
    return TeleopSession(attended, hand, recorder, config, **more), keeper


def starts(cell: Cell) -> list[str]:
    return [s for s in cell.said if s.startswith("reset")]


def phases(hand: Hand) -> list[str]:
    found = [v.phase for v in hand.views]
    return [p for k, p in enumerate(found) if k == 0 or found[k - 1] != p]


def test_an_arm_is_reset_once_for_an_attempt_and_the_same_start_comes_again_on_redo() -> None:
    cell = Cell()
    hand = Reacts(ready=["start"] * 3, review=["redo", "discard", "keep"])
    run, keeper = session(cell, hand)
    assert run.run() == ("ep_000003",)
    assert keeper.verdicts == ["discard", "discard", "keep"]
    first, again, other = starts(cell)
    assert first == again != other
    # Looked at while it holds; commands are followed from the start key on.
    assert cell.said[:3] == [first, "hold", "begin"]
    assert phases(hand)[:4] == ["resetting", "ready", "running", "review"]
    assert dict(hand.views[-1].counts) == {"discarded": 2, "no success": 1}


def test_a_stop_ends_the_episode_which_may_be_kept_and_a_key_goes_on() -> None:
    cell = Cell()
    cell.stop_at = 3
    hand = Reacts(ready=["start", "start"], review=["keep", "keep"], stopped=["start"])
    run, keeper = session(cell, hand, episodes=2)
    assert len(run.run()) == 2
    assert [e.reason for e in keeper.ends] == ["safety_stop", "time_limit"]
    assert phases(hand)[:5] == ["resetting", "ready", "running", "review", "stopped"]
    stopped = next(v for v in hand.views if v.phase == "stopped")
    assert stopped.error == "the arm ran into something"
    assert "start" in stopped.keys
    assert cell.said.count("clear") == 1
    assert hand.views[-1].error == ""
    assert not run.stopped


def test_an_arm_that_may_not_go_on_yet_says_why_until_a_key_clears_it() -> None:
    cell = Cell()
    cell.stop_at = 3
    asked: list[str] = []

    def clear() -> str:
        asked.append("clear")
        if len(asked) == 1:
            return "the controller keeps it locked"
        if len(asked) == 2:
            raise RobotError("no panel answers")
        cell.latched = ""
        return ""

    hand = Reacts(ready=["start", "quit"], review=["keep"], stopped=["start"] * 3)
    run, _ = session(cell, hand, episodes=2, clear=clear)
    assert len(run.run()) == 1
    errors = [v.error for v in hand.views if v.phase == "stopped"]
    assert list(dict.fromkeys(errors)) == [
        "the arm ran into something",
        "the controller keeps it locked",
        "no panel answers",
    ]
    # By this way alone.
    assert len(asked) == 3
    assert "clear" not in cell.said
    assert not run.stopped


class AtTheArm(Reacts):
    """Somebody who guides the arm, and is at the keys at so many looks."""

    def __init__(self, looks: int, **keys: list[Any]) -> None:
        super().__init__(**keys)
        self.looks = looks

    def poll(self) -> DeviceReading:
        self.looks -= 1
        here = self.looks >= 0
        return DeviceReading(time.monotonic_ns(), here, here, Guided())


def test_an_attempt_of_a_guided_arm_ends_where_it_gives_way_no_more() -> None:
    cell = Cell()
    cell.stiff_at = 3
    hand = AtTheArm(99, ready=["start", "start"], review=["keep"], running=["", "", "", "keep"])
    run, keeper = session(cell, hand, episodes=2, guided=True)
    assert len(run.run()) == 2
    assert [e.reason for e in keeper.ends] == ["freedrive_ended", "operator"]
    assert cell.said[:3] == [starts(cell)[0], "hold", "begin guided"]
    asked = {v.phase: v.message for v in hand.views}
    assert "Hold the arm: at the start key it gives way" in asked["ready"]
    assert asked["review"].startswith("The arm holds: a limit came near.")
    assert {t.command.source for t in keeper.ticks} == {"human:hand"}
    assert not run.stopped


def test_a_guided_arm_holds_once_nobody_is_at_the_keys() -> None:
    cell = Cell()
    hand = AtTheArm(3, ready=["start", "quit"], review=["keep"])
    run, keeper = session(cell, hand, guided=True)
    assert len(run.run()) == 1
    assert [e.reason for e in keeper.ends] == ["freedrive_ended"]
    assert [t.command.source for t in keeper.ticks] == [*["human:hand"] * 3, "hold"]
    assert cell.said[2:] == ["begin guided", "hold", "home"]
    said = next(v.message for v in hand.views if v.phase == "review")
    assert said.startswith("The arm holds: nobody is at the keys.")


class GoesHome(Cell):
    """It takes its time on the way, and stops where it is told to."""

    def home(self) -> None:
        super().home()
        wait_until(lambda: self.latched, what="a stop")
        self.require_running()


def test_the_stop_key_works_while_the_arm_goes_home_at_the_end() -> None:
    cell = GoesHome()

    class SeesItMove(Reacts):
        def pressed(self) -> tuple[Key, ...]:
            return () if "home" not in cell.said and self.due == ("stop",) else super().pressed()

    hand = SeesItMove(ready=["quit"], resetting=["", "stop"])
    run, _ = session(cell, hand)
    with pytest.raises(SafetyStopError, match="emergency stop"):
        run.run()
    assert cell.said[-2:] == ["home", "estop"]
    assert run.stopped
    *_, home, done = hand.views
    assert (home.phase, home.message, home.keys) == ("resetting", "The arm goes home.", ("stop",))
    assert (done.phase, done.message, done.error) == (
        "done",
        "The arm is not at home. 0 episodes saved.",
        "emergency stop",
    )


def test_an_arm_is_at_home_before_the_session_is_over_unless_a_stop_is_latched() -> None:
    cell = Cell()
    run, _ = session(cell, Reacts(ready=["quit"]))
    run.run()
    assert cell.said[-1] == "home"
    stopped = Cell()
    run, _ = session(stopped, Reacts(ready=["stop"], stopped=["quit"]))
    run.run()
    assert "home" not in stopped.said


def test_the_stop_key_works_in_every_phase() -> None:
    cell = Cell()
    # In ready, then while it runs.
    hand = Reacts(ready=["stop", "start", "quit"], running=["stop"], review=["discard"],
                  stopped=["start", "start"])  # fmt: skip
    run, keeper = session(cell, hand)
    assert run.run() == ()
    assert cell.said.count("estop") == 2
    assert cell.said.count("clear") == 2
    assert [e.reason for e in keeper.ends] == ["safety_stop"]


def test_the_stop_key_works_while_the_arm_moves_to_the_start() -> None:
    class Slow(Cell):
        def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
            report = super().reset(condition, rng)
            if len(starts(self)) == 1:
                # As a guided move that only a stop ends.
                while not self.latched:
                    pass
            self.require_running()
            return report

    cell = Slow()

    class SeesItMove(Reacts):
        def pressed(self) -> tuple[Key, ...]:
            return super().pressed() if starts(cell) else ()

    hand = SeesItMove(resetting=["stop"], stopped=["start"], ready=["quit"])
    run, _ = session(cell, hand)
    assert run.run() == ()
    assert cell.said[:2] == [starts(cell)[0], "estop"]
    assert phases(hand) == ["resetting", "stopped", "resetting", "ready", "resetting", "done"]


def test_a_start_that_is_missed_is_said_and_tried_again() -> None:
    cell = Cell()
    cell.trouble.append(StartError("cube/pose is off by 40 mm"))
    hand = Reacts(stopped=["start"], ready=["start"], review=["keep"])
    run, _ = session(cell, hand)
    assert len(run.run()) == 1
    assert "off by 40 mm" in next(v for v in hand.views if v.phase == "stopped").error
    # Nothing was latched, so nothing is cleared.
    assert "clear" not in cell.said
    assert len(set(starts(cell))) == 1


def test_objects_are_placed_by_the_person_in_the_middle_of_a_reset() -> None:
    class Placed(Cell):
        asked = 0

        def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
            self.asked += 1
            run.place("place the cube at x 0.1 m")
            return super().reset(condition, rng)

    cell = Placed()
    hand = Reacts(placing=["start", "quit"], ready=["start"], review=["discard"])
    run, _ = session(cell, hand)
    assert run.run() == ()
    placing = next(v for v in hand.views if v.phase == "placing")
    assert placing.message.startswith("place the cube at x 0.1 m")
    # Who ends it while being asked does not have to say it twice.
    assert phases(hand)[-3:] == ["placing", "resetting", "done"]
    assert cell.asked == 2
    with pytest.raises(StartError, match="nobody can be asked now"):
        run.place("something")


def test_whoever_waits_sees_what_moves_meanwhile() -> None:
    class Watched(Cell):
        looks = 0

        def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
            report = super().reset(condition, rng)
            run.place("place the cube")
            return report

        def look(self) -> Observation:
            self.looks += 1
            if self.looks == 2:
                raise StaleSignalError("the cube is covered by a hand")
            x = np.array([0.01 * self.looks, 0.0])
            return Observation(self.now_ns(), {TOOL: Sample(self.now_ns(), x)})

    hand = Reacts(placing=[*[""] * 3, "start"], ready=["", "", "start"], review=["", "keep"])
    run, _ = session(Watched(), hand)
    assert len(run.run()) == 1
    seen = {p: [v.tool and v.tool.at[0] for v in hand.views if v.phase == p] for p in phases(hand)}
    assert seen["placing"] == [0.01, 0.01, 0.03, 0.04]
    assert seen["ready"][1:] == [0.05, 0.06]
    assert seen["review"][1:] == [0.07]


def test_a_cell_that_is_gone_ends_the_session() -> None:
    cell = Cell()
    cell.trouble.append(RobotConnectionError("the supervisor is gone"))
    hand = Reacts()
    run, _ = session(cell, hand)
    with pytest.raises(RobotConnectionError):
        run.run()
    # Whoever stands at a page is told, too.
    assert (hand.views[-1].phase, hand.views[-1].error) == ("done", "the supervisor is gone")


def test_a_full_disk_is_told_to_whoever_keeps_an_episode() -> None:
    class Full(Keeper):
        def keep(self) -> str:
            raise StoreError("the disk is full; this was not saved")

    hand = Reacts(ready=["start"], review=["keep"])
    run, _ = session(Cell(), hand, recorder=Full())
    with pytest.raises(StoreError, match="disk is full"):
        run.run()
    last = hand.views[-1]
    assert (last.phase, last.message) == ("done", "It could not go on. 0 episodes saved.")
    assert last.error == "the disk is full; this was not saved"


class Slow(Keeper):
    """A disk that is done when the arm has begun to move to the so manieth start."""

    def __init__(self, cell: Cell, resets: int, trouble: str = "") -> None:
        super().__init__()
        self.cell, self.resets, self.trouble = cell, resets, trouble

    def keep(self) -> str:
        wait_until(lambda: len(starts(self.cell)) == self.resets)
        if self.trouble:
            raise StoreError(self.trouble)
        return super().keep()


def test_the_arm_goes_to_the_next_start_while_the_disk_is_written() -> None:
    cell, hand = Cell(), Reacts(ready=["start"] * 2, review=["keep"] * 2)
    keeper = Slow(cell, 2)
    run, _ = session(cell, hand, recorder=keeper, episodes=2)
    assert run.run() == ("ep_000001", "ep_000002")
    # Ready is who has the last one, and the last of all is there before the arm goes home.
    saved = [(v.phase, v.saved) for v in hand.views if v.phase in ("resetting", "ready")]
    assert [n for p, n in saved if p == "ready"] == [0, 1]
    assert saved[-1] == ("resetting", 2)
    assert cell.said[-1] == "home"
    assert "Saved as ep_000001." in next(v for v in hand.views if v.saved == 1).message


def test_from_the_key_that_keeps_on_nothing_that_ends_the_program_takes_the_episode() -> None:
    class Spares(Keeper):
        def spare(self) -> None:
            self.verdicts.append(f"spare {'later' if self.ends else 'at once'}")

    for keys, said in (
        ({"running": ["keep"]}, ["spare at once", "spare later", "keep"]),
        ({"review": ["keep"]}, ["spare later", "keep"]),
        ({"running": ["discard"]}, ["discard"]),
    ):
        keeper = Spares()
        hand = Reacts(ready=["start", "quit"], **keys)
        run, _ = session(Fast(), hand, recorder=keeper)
        run.run()
        assert keeper.verdicts == said


@pytest.mark.parametrize("phase", ["running", "review"])
def test_a_terminal_that_is_gone_is_no_decision_to_forget_an_episode(phase: str) -> None:
    class Gone(Reacts):
        def pressed(self) -> tuple[Key, ...]:
            keys = super().pressed()
            if "quit" in keys:
                hang_up()
            return keys

    run, keeper = session(Fast(), Gone(ready=["start"], **{phase: ["quit"]}))
    with remembered(), pytest.raises(KeyboardInterrupt):
        run.run()
    assert keeper.verdicts == []
    # One who presses that key forgets it.
    run, keeper = session(Fast(), Reacts(ready=["start"], **{phase: ["quit"]}))
    with remembered():
        assert run.run() == ()
    assert keeper.verdicts == ["discard"]


def test_what_the_person_says_is_written_with_the_episode() -> None:
    class Way(Cell):
        """Which is long enough for the disk."""

        def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
            report = super().reset(condition, rng)
            if len(starts(self)) == 2:
                wait_until(lambda: reviewer.count == 1)
            return report

    reviewer = Reviewer()
    hand = Reacts(ready=["start", "quit"], review=["success", "keep"])
    run, _ = session(Way(), hand, reviewer=reviewer, episodes=2)
    assert run.run() == ("ep_000001",)
    assert reviewer.said is True


def test_what_is_kept_is_saved_when_the_cell_is_lost_on_the_way_to_the_next_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Lost(Cell):
        def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
            report = super().reset(condition, rng)
            if len(starts(self)) == 2:
                raise RobotConnectionError("the supervisor is gone")
            return report

    for trouble in ("", "the disk is full"):
        cell, hand = Lost(), Reacts(ready=["start"], review=["keep"])
        keeper = Slow(cell, 2, trouble)
        run, _ = session(cell, hand, recorder=keeper, episodes=2)
        with pytest.raises(RobotConnectionError, match="supervisor is gone"):
            run.run()
        assert keeper.verdicts == ([] if trouble else ["keep"])
        count = 0 if trouble else 1
        assert f"{count} episode{'s' if not count else ''} saved." in hand.views[-1].message
    assert "the last episode was not saved: the disk is full" in caplog.text


def test_a_stop_on_the_way_to_the_next_start_leaves_what_was_kept() -> None:
    cell = Cell()
    hand = Reacts(ready=["start"], review=["keep"], stopped=["quit"])
    keeper = Slow(cell, 2)

    def stop_then(_: View) -> None:
        if len(starts(cell)) == 1 and hand.views[-1].phase == "resetting" and keeper.headers:
            cell.trouble.append(SafetyStopError("the arm ran into something"))

    run, _ = session(cell, hand, recorder=keeper, episodes=2, config={"on_view": stop_then})
    assert run.run() == ("ep_000001",)
    assert phases(hand)[2:] == ["running", "review", "resetting", "stopped", "done"]
    assert next(v.saved for v in hand.views if v.phase == "stopped") == 1


def test_what_is_wrong_is_shown_before_an_episode_is_kept() -> None:
    hand = Reacts(ready=["start"] * 2, running=["keep", "", "", "keep"], review=["keep"])
    reviewer = Reviewer(("too short: hold on",), ())
    run, keeper = session(Fast(), hand, reviewer=reviewer, episodes=2, max_steps=50)
    assert len(run.run()) == 2
    assert keeper.verdicts == ["keep", "keep"]
    # Asked once more for the first, which is short; the second is saved by its one key.
    assert phases(hand) == ["ready", "running", "review", "ready", "running", "done"]
    assert next(v for v in hand.views if v.phase == "review").warnings == ("too short: hold on",)
    assert reviewer.count == 2


def test_the_person_judges_by_keys() -> None:
    hand = Reacts(ready=["start"] * 2, running=["success", *[""] * 2, "failure"])
    run, keeper = session(Fast(), hand, episodes=2, max_steps=50)
    run.run()
    assert [(e.success, e.reason, e.terminal) for e in keeper.ends] == [
        (True, "success", True), (False, "failure", False)
    ]  # fmt: skip
    assert dict(hand.views[-1].counts) == {"success": 1, "no success": 1}


def test_what_the_person_says_in_the_review_stands_for_the_outcome() -> None:
    hand = Reacts(ready=["start"], review=["failure", "success", "keep"])
    reviewer = Reviewer()
    run, _ = session(Fast(), hand, reviewer=reviewer)
    run.run()
    assert reviewer.said is True
    assert dict(hand.views[-1].counts) == {"success": 1}


def test_markers_are_samples_of_a_signal_of_their_own() -> None:
    hand = Reacts(ready=["start"], running=["", "marker", "", "marker", "keep"])
    run, keeper = session(Fast(), hand, play=True, max_steps=50)
    run.run()
    blocks = [t.drained.signals[MARKER.name] for t in keeper.ticks]
    numbers = np.concatenate([b.value[:, 0] for b in blocks])
    times = np.concatenate([b.t_ns for b in blocks])
    assert numbers.tolist() == [0.0, 1.0, 2.0]
    assert (np.diff(times) > 0).all()
    # What an observation shows was drained by then.
    for k, tick in enumerate(keeper.ticks):
        shown = tick.observation.samples[MARKER.name].t_ns
        assert shown in np.concatenate([b.t_ns for b in blocks[: k + 1]])
    assert max(v.markers for v in hand.views) == 2
    assert keeper.headers[0].reset.requested.id


def test_play_goes_on_when_the_task_is_solved() -> None:
    class Solved(Fast):
        def outcome(self) -> Outcome:
            return Outcome(True, 1.0, 1.0, terminal=True, reason="success")

    hand = Reacts(ready=["start"], running=[*[""] * 8, "keep"])
    run, keeper = session(Solved(), hand, play=True, max_steps=0)
    assert len(run.run()) == 1
    assert len(keeper.ticks) == 11
    assert (keeper.ends[0].reason, keeper.ends[0].success) == ("operator", True)


def test_without_markers_the_signals_are_those_of_the_env() -> None:
    env = AttendedEnv(PointEnv())
    env.reset(CONDITION, np.random.default_rng(0))
    env.mark()
    assert env.spec == PointEnv.spec
    assert MARKER.name not in env.observe().samples


def test_driving_without_recording_asks_for_nothing_and_ends_by_a_key() -> None:
    hand = Reacts(ready=["start", "start"], running=["redo", "", "", "quit"])
    run, _ = session(Fast(), hand, recorder=None, max_steps=0, episodes=1)
    assert run.run() == ()
    assert phases(hand) == ["ready", "running", "ready", "running", "done"]
    assert not any(v.recording for v in hand.views)
    assert hand.views[-1].message == "Nothing was recorded."


def test_what_slows_an_arm_in_a_scene_is_shown_as_that_of_a_cell():
    words = deque(["", "slowed: near a singularity", ""])
    env = AttendedEnv(PointEnv(), slowed=lambda: words[0])

    class Looks(Reacts):
        def show(self, view):
            super().show(view)
            if view.phase == "running" and len(words) > 1:
                words.popleft()

    hand = Looks(ready=["start", "quit"], review=["discard"])
    config = SessionConfig(
        1, 5, 3, "walk", "point", lambda seed: Condition("c", seed, {TOOL: (0.1, 0.2)}), {}, 1e-4
    )
    TeleopSession(env, hand, None, config).run()
    shown = [v.slowed for v in hand.views if v.phase == "running"]
    assert "slowed: near a singularity" in shown
    assert shown[-1] == ""
    assert not any(v.slowed for v in hand.views if v.phase != "running")


def test_the_disk_is_looked_at_between_episodes_and_now_and_then_in_one() -> None:
    looked: list[int] = []

    def free() -> int:
        looked.append(1)
        return 7_000_000_000

    hand = Reacts(ready=["start"], review=["keep"])
    run, _ = session(Fast(), hand, max_steps=120, config={"disk_free": free})
    run.run()
    assert hand.views[0].disk_free == 7_000_000_000
    assert len(looked) < 8
    assert [v.elapsed_s for v in hand.views if v.phase == "running"][-1] == pytest.approx(0.12)


def test_rate_and_jitter_come_from_when_ticks_came() -> None:
    timing = LoopTiming(20.0)
    assert (timing.hz, timing.jitter_s) == (0.0, 0.0)
    for k in range(101):
        timing.tick(50_000_000 * k + (4_000_000 if k % 2 else 0))
    assert timing.hz == pytest.approx(20.0)
    assert timing.jitter_s == pytest.approx(0.004)
    timing.restart()
    assert timing.hz == 0.0


def test_how_old_the_hands_word_is_at_the_command_is_told() -> None:
    """Of a page whose messages come late; of one that nobody holds nothing is told."""

    class Late(Reacts):
        held = True

        def poll(self) -> DeviceReading:
            return dataclasses.replace(
                super().poll(), t_ns=time.monotonic_ns() - 30_000_000, clutch=self.held
            )

    class Gone(Late):
        held = False

    late, gone = (kind(ready=["start"], review=["keep"]) for kind in (Late, Gone))
    for hand in (late, gone):
        session(Fast(), hand)[0].run()
    ages = [v.input_age_s for v in late.views if v.phase == "running"]
    assert all(age is not None and 0.03 <= age < 1.0 for age in ages)
    assert late.views[0].input_age_s is None
    assert {v.input_age_s for v in gone.views} == {None}
