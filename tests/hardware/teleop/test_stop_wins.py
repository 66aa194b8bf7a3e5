"""A stop counts whatever was pressed beside it, on every device and in every phase."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hardware.teleop.combined import WithKeys
from hardware.teleop.device import Key, Surroundings, TeleopDevice, View
from hardware.teleop.devices.browser import BrowserDevice
from hardware.teleop.devices.gamepad import Gamepad
from hardware.teleop.devices.keyboard import KeyboardDevice
from hardware.teleop.devices.spacemouse import SpaceMouse, SpaceMouseConfig
from hardware.teleop.page.layout import layout_of
from tests.hardware.teleop.inputs import Pad, Puck
from tests.hardware.teleop.pages import ARM, page
from tests.hardware.teleop.terminals import EmulatedTerminal
from tests.hardware.teleop.test_session import Cell, Reacts, Reviewer, phases, session
from tests.hardware.teleop.test_teleop import Keeper
from tests.waiting import wait_until

KEYS: tuple[Key, ...] = ("start", "keep", "discard", "redo", "quit", "success", "failure")


class Batches(Reacts):
    """A person who presses several keys at once."""

    def show(self, view: View) -> None:
        super().show(view)
        if self.due and isinstance(self.due[0], tuple):
            (self.due,) = self.due


@pytest.mark.parametrize("beside", [("start", "stop"), ("stop", "start"), ("redo", "stop")])
def test_nothing_starts_by_a_key_that_came_with_a_stop(beside: tuple[Key, ...]) -> None:
    cell = Cell()
    hand = Batches(ready=[beside], stopped=["quit"])
    run, keeper = session(cell, hand)
    assert run.run() == ()
    assert "estop" in cell.said
    assert phases(hand) == ["resetting", "ready", "stopped", "done"]
    assert keeper.headers == []
    assert run.stopped


def test_a_stop_that_came_with_the_decision_stops_and_the_decision_counts() -> None:
    cell = Cell()
    hand = Batches(ready=["start"], review=[("keep", "stop")], stopped=["quit"])
    run, keeper = session(cell, hand, episodes=2)
    assert len(run.run()) == 1
    assert cell.said.count("estop") == 1
    assert keeper.verdicts == ["keep"]
    assert phases(hand)[2:] == ["running", "review", "stopped", "done"]


@pytest.mark.parametrize("beside", [("start", "stop"), ("stop", "start")])
def test_a_stop_is_not_cleared_by_a_key_that_came_with_another_one(
    beside: tuple[Key, ...],
) -> None:
    cell = Cell()
    hand = Batches(ready=["stop"], stopped=[beside, "quit"])
    run, _ = session(cell, hand)
    assert run.run() == ()
    assert cell.said.count("estop") == 2
    assert "clear" not in cell.said


@pytest.mark.parametrize("key", KEYS[1:])
def test_whatever_ends_an_attempt_a_stop_beside_it_stops(key: Key) -> None:
    class Running(Batches):
        def show(self, view: View) -> None:
            super().show(view)
            if view.phase == "running" and view.step == 2:
                self.due = (key, "stop")

    cell = Cell()
    hand = Running(ready=["start"], review=["discard"], stopped=["quit"])
    run, _ = session(cell, hand)
    run.run()
    assert "estop" in cell.said
    assert "home" not in cell.said
    assert phases(hand)[2:] == ["running", "review", "stopped", "done"]


def test_a_stop_that_is_asked_for_while_one_is_cleared_is_not_cleared() -> None:
    cell = Cell()
    hand = Batches(ready=["stop"], stopped=["start", "quit"])

    def clear() -> str:
        hand.due = ("stop",)
        cell.clear_stop()
        return ""

    run, _ = session(cell, hand, clear=clear)
    assert run.run() == ()
    assert cell.latched == "emergency stop"
    assert phases(hand)[-2:] == ["stopped", "done"]
    assert len(starts := [s for s in cell.said if s.startswith("reset")]) == 1, starts


def test_a_stop_before_the_start_is_shown_is_not_lost() -> None:
    """Between the last look of the reset and the first one of whoever waits."""
    cell = Cell()

    class Late(Batches):
        asked = False

        def pressed(self) -> tuple[Key, ...]:
            if cell.said[-1:] == ["hold"] and watched() == "" and not self.asked:
                self.asked = True
                return ("start", "stop")
            return super().pressed()

    hand = Late(stopped=["quit"])
    run, _ = session(cell, hand)

    def watched() -> str:
        """The thread that reads keys meanwhile, while there is one."""
        return next((t.name for t in threading.enumerate() if t.name == "stop-key"), "")

    assert run.run() == ()
    assert hand.asked
    assert cell.said[-1] == "estop"
    assert phases(hand) == ["resetting", "stopped", "done"]


@pytest.mark.parametrize("busy", ["judge", "keep", "keep, the arm is there", "discard"])
def test_a_stop_is_not_kept_waiting_by_a_slow_disk(busy: str) -> None:
    cell = Cell()
    decided: Any = "discard" if busy == "discard" else "keep"
    hand = Batches(ready=["start"], review=[decided], stopped=["quit"])

    def slowly() -> None:
        hand.due = ("stop",)
        wait_until(lambda: "estop" in cell.said)

    class Slow(Keeper):
        def keep(self) -> str:
            if "there" in busy:
                wait_until(lambda: cell.said.count("hold") == 2)
            if "keep" in busy:
                slowly()
            return super().keep()

        def discard(self) -> None:
            if busy == "discard":
                slowly()
            super().discard()

    class Judge(Reviewer):
        def judge(self) -> tuple[str, ...]:
            if busy == "judge":
                slowly()
            return super().judge()

    keeper = Slow()
    run, _ = session(cell, hand, recorder=keeper, reviewer=Judge(), episodes=2)
    run.run()
    assert keeper.verdicts == [decided]
    assert phases(hand)[-2:] == ["stopped", "done"]


@contextlib.contextmanager
def terminal(*, kitty: bool) -> Iterator[tuple[KeyboardDevice, Any]]:
    names: dict[Key, str] = {"start": "space", "keep": "enter", "discard": "x", "redo": "b",
                             "quit": "q", "success": "1", "failure": "0"}  # fmt: skip
    with EmulatedTerminal(kitty=kitty) as emulated:
        device = KeyboardDevice(emulated.written.append, emulated.slave)
        wait_until(lambda: device.tells_releases is kitty)

        def press(keys: tuple[Key, ...]) -> None:
            for key in keys:
                emulated.press("escape" if key == "stop" else names[key])

        try:
            yield device, press
        finally:
            device.close()


@contextlib.contextmanager
def opened(kind: str) -> Iterator[tuple[TeleopDevice, Any]]:
    """A device, and what presses keys on it."""
    with contextlib.ExitStack() as stack:
        if kind == "browser":
            device = stack.enter_context(
                contextlib.closing(BrowserDevice(layout_of(Surroundings(spec=ARM))))
            )
            opened_page = stack.enter_context(page(device))
            yield device, lambda keys: [opened_page.say("key", key=key) for key in keys]
            return
        keys, press = stack.enter_context(terminal(kitty=kind != "plain keyboard"))
        if kind == "spacemouse":
            puck = stack.enter_context(Puck())
            hand: TeleopDevice = SpaceMouse(SpaceMouseConfig(), puck.open)
        elif kind == "gamepad":
            hand = Gamepad(stack.enter_context(Pad()).open)
        else:
            yield keys, press
            return
        yield stack.enter_context(contextlib.closing(WithKeys(hand, keys))), press


@pytest.mark.parametrize(
    "kind", ["plain keyboard", "kitty keyboard", "browser", "spacemouse", "gamepad"]
)
@pytest.mark.parametrize("many", [1, 12])
def test_a_device_loses_no_stop_among_other_keys(kind: str, many: int) -> None:
    found: list[Key] = []
    with opened(kind) as (device, press):
        press(KEYS * many)
        press(("stop",))

        def told() -> bool:
            found.extend(device.pressed())
            return "stop" in found

        wait_until(told, what=f"{kind}: a stop behind {many * len(KEYS)} keys")
        # None is made up.
        assert found.count("stop") == 1
