import os
from collections import deque

from hardware.teleop.listening import Listener
from tests.waiting import wait_until


def test_a_report_that_cannot_be_understood_is_the_end_of_what_was_told(caplog):
    theirs, ours = os.pipe()
    taken, lost = deque(), []

    def take(data):
        taken.append(data)
        if data == b"strange":
            raise ValueError("strange")

    device = Listener("puck", lambda: os.dup(theirs), take, lambda: lost.append(1))
    os.write(ours, b"a report")
    wait_until(lambda: taken)
    assert not lost
    os.write(ours, b"strange")
    wait_until(lambda: lost)
    # It is opened again, and listened to.
    os.write(ours, b"another")
    wait_until(lambda: taken[-1] == b"another")
    assert "a report could not be read" in caplog.text
    device.close()
    device.close()
    os.close(theirs)
    os.close(ours)
