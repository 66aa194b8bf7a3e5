"""What a sitting says while somebody drives waits for nobody."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from hardware.teleop.device import View
from robolearn.cli.shared.sitting import Sitting
from tests.waiting import TIMEOUT_S


def test_who_has_agreed_recovers_what_was_killed_also_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    for yes in (True, False):
        recover = Sitting("collect runs/own", yes=yes, store="runs/own").listener().on_recoverable
        assert recover is not None
        assert recover(()) is yes


class Stopped(io.StringIO):
    """A terminal that takes nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.taken, self.driver = threading.Event(), threading.current_thread()

    def write(self, text: str) -> int:
        assert threading.current_thread() is not self.driver
        self.taken.wait(TIMEOUT_S)
        return super().write(text)


def test_lines_wait_for_a_terminal_that_takes_nothing_and_the_loop_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = Stopped()
    monkeypatch.setattr(sys, "stderr", stopped)
    sitting = Sitting("teleoperate pick_place", plain=True, to_stderr=True)
    listener = sitting.listener()
    assert listener.on_device is not None
    assert listener.on_status is not None
    assert listener.on_saved is not None
    assert not listener.on_device("keyboard")
    listener.on_status(View("ready", message="Press start."))
    listener.on_saved("ep_000001")
    listener.on_status(View("running"))
    stopped.taken.set()
    sitting.close()
    assert stopped.getvalue().splitlines() == [
        "ready: Press start.",
        "saved episode ep_000001",
        "recording",
    ]
