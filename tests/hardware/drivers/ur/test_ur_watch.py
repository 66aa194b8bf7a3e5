"""A controller is watched while ur_rtde connects: every way of not answering is told in time."""

import contextlib
import socket
import struct
import threading
import time

import pytest

from hardware.devices.robot import ConnectWatch
from hardware.drivers.ur.watch import RTDE_PORT, URWatch
from hardware.wire import rtde
from robolearn.errors import RobotConnectionError
from robolearn.timing.clocks import Rate
from tests.hardware.lab import address
from tests.waiting import pass_time, wait_until

LIMIT_S = 0.1
REPLIES = (
    rtde.frame(rtde.VERSION, b"\x01"),
    rtde.frame(rtde.OUTPUTS, b"\x01DOUBLE"),
    rtde.frame(rtde.TEXT, b"a message for people") + rtde.frame(rtde.START, b"\x01"),
)


class Controller:
    """Answers ``replies`` one by one, then sends ``stamps`` every 10 ms, then ``last``; then it
    closes the connection or says nothing more.
    """

    def __init__(self, last, replies=REPLIES, stamps=(), closes=False):
        self.address = address(41)
        self.socket = socket.create_server((self.address, RTDE_PORT))
        self.told = threading.Event()
        arguments = (replies, stamps, last, closes)
        self.thread = threading.Thread(target=self.serve, args=arguments)
        self.thread.start()

    def serve(self, replies, stamps, last, closes):
        client, _ = self.socket.accept()
        # The watch may leave while something is on its way to it.
        with client, contextlib.suppress(OSError):
            for reply in replies:
                client.recv(4096)
                client.sendall(reply)
            rate = Rate(100.0)
            for stamp in stamps:
                client.sendall(rtde.frame(rtde.DATA, struct.pack(">Bd", 1, stamp)))
                rate.wait()
            client.sendall(last)
            if not closes:
                self.told.wait(5.0)

    def end(self):
        self.told.set()
        self.thread.join()
        self.socket.close()


def told_by(controller):
    """What the watch says in the end, and after how long [s]."""
    watch, start = URWatch(controller.address, LIMIT_S), time.monotonic()
    assert isinstance(watch, ConnectWatch)
    try:
        problem = wait_until(watch.problem)
        assert not watch.alive
        return problem, time.monotonic() - start
    finally:
        watch.close()
        controller.end()


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize(
    ("last", "closes", "match"),
    [
        (b"", False, "clock stood still"),
        (b"", True, "broke the connection off"),
        (b"\xff" * 64, False, "no RTDE"),
        (b"\x00\x00\x00", False, "no RTDE"),
        (b"\x00\x09\x55\x00", False, "clock stood still"),
        (rtde.frame(rtde.DATA, b"\x01"), False, "unexpected message"),
    ],
)
def test_silence_drop_and_garbage_are_told_at_every_stage(stage, last, closes, match):
    problem, after_s = told_by(Controller(last, REPLIES[:stage], closes=closes))
    assert match in problem
    assert after_s < LIMIT_S + 0.5


def test_a_clock_that_stands_still_is_no_life_however_much_is_sent():
    problem, _ = told_by(Controller(b"", stamps=[1.0] * 40))
    assert "clock stood still" in problem


def test_nobody_there_and_refused_recipes_are_told():
    problem, _ = told_by(Controller(b"", (REPLIES[0], rtde.frame(rtde.OUTPUTS, b"\x00NOT_FOUND"))))
    assert "unexpected message" in problem
    watch = URWatch(address(42), LIMIT_S)
    with pytest.raises(RobotConnectionError, match=r"no UR controller answers.*robolearn lab"):
        watch.wait()
    watch.close()


def test_a_living_controller_is_seen_and_a_slow_connection_is_no_fault():
    controller = Controller(b"", stamps=[0.01 * k for k in range(30)])
    watch = URWatch(controller.address, LIMIT_S)
    watch.wait()
    assert watch.alive
    # What has arrived meanwhile counts.
    pass_time(2.0 * LIMIT_S, "nobody looks for twice the limit")
    assert watch.problem() == ""
    watch.close()
    controller.end()
