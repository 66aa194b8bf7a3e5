import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

import numpy as np
import pytest

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.device import Rate, Steps, Thing, View
from hardware.teleop.devices.keyboard import STEP_M, STEP_RAD, KeyboardDevice
from hardware.teleop.terminal.codes import Key, decode, split_codes
from robolearn.errors import ConfigError
from tests.hardware.teleop.terminals import EmulatedTerminal
from tests.mocks import SPEC, observation
from tests.waiting import TIMEOUT_S, paced, wait_until


@pytest.fixture
def plain():
    """A terminal that tells presses only, and the device that reads it."""
    with EmulatedTerminal(kitty=False) as terminal:
        device = KeyboardDevice(terminal.written.append, terminal.slave)
        yield terminal, device
        device.close()
        device.close()


@pytest.fixture
def kitty():
    """A terminal that tells releases, and the device that reads it."""
    with EmulatedTerminal(kitty=True) as terminal:
        device = KeyboardDevice(terminal.written.append, terminal.slave)
        wait_until(lambda: device.tells_releases)
        yield terminal, device
        device.close()


def stepped(device, total):
    return wait_until(lambda: np.allclose(device.poll().motion.total, total), what=str(total))


def deflected(device, *twist):
    wanted = [*twist, *[0.0] * (6 - len(twist))]
    return wait_until(lambda: np.allclose(device.poll().motion.twist, wanted), what=str(wanted))


def test_without_releases_a_key_is_a_step(plain):
    terminal, device = plain
    assert isinstance(device.poll().motion, Steps)
    assert device.poll().clutch
    terminal.type(b"\x1b[A\x1b[A\x1bOCdwW\x1b[")
    stepped(device, [3.2 * STEP_M, -2 * STEP_M, 0, 0, 0, 0])
    terminal.type(b"B")
    stepped(device, [2.2 * STEP_M, -2 * STEP_M, 0, 0, 0, 0])
    terminal.type(b"rrFjlLo")
    stepped(device, [2.2 * STEP_M, -2 * STEP_M, 1.8 * STEP_M, STEP_RAD, 0, -0.2 * STEP_RAD])


def test_keys_are_told_apart(plain):
    terminal, device = plain
    keys = []
    terminal.type(b" \nxzqb10thm\x1b")
    wait_until(lambda: keys.extend(device.pressed()) or len(keys) == 11)
    assert keys == [
        "start", "keep", "discard", "quit", "redo", "success", "failure", "takeover",
        "handback", "marker", "stop",
    ]  # fmt: skip
    assert device.pressed() == ()
    assert "arrow keys" in terminal.written[0]


def test_without_releases_a_latched_speed_ends_by_key_by_focus_and_by_itself(plain):
    terminal, device = plain
    terminal.type(b"v")
    wait_until(lambda: isinstance(device.poll().motion, Rate))
    terminal.type(b"w")
    deflected(device, 1.0)
    terminal.type(b".")
    deflected(device, 0.0)
    terminal.type(b"a")
    deflected(device, 0.0, 1.0)
    terminal.focus(False)
    wait_until(lambda: not device.poll().present)
    assert not device.poll().motion.twist.any()
    terminal.focus(True)
    terminal.type(b"s")
    deflected(device, -1.0)
    # Nothing more is typed: no longer than its lease.
    deflected(device, 0.0)


def test_the_gripper_turns_around(plain):
    terminal, device = plain
    terminal.type(b"g")
    terminal.type(b"m")
    wait_until(lambda: device.pressed() == ("marker",))
    # Where there is no gripper, or control has not begun, the key does nothing.
    assert device.poll().gripper is None
    device.begin(0.97)
    assert device.poll().gripper == 1.0
    terminal.type(b"g")
    wait_until(lambda: device.poll().gripper == 0.0)
    device.begin(None)
    assert device.poll().gripper is None


def test_with_releases_a_held_key_is_a_speed(kitty):
    terminal, device = kitty
    assert not device.poll().motion.twist.any()
    terminal.press("w", "a")
    deflected(device, 1.0, 1.0)
    terminal.repeat("a")
    terminal.release("w")
    deflected(device, 0.0, 1.0)
    terminal.press("right")
    deflected(device, 0.0)
    terminal.release("a", "right")
    terminal.press("r", shift=True)
    wait_until(lambda: 0.0 < device.poll().motion.twist[2] < 0.5)
    terminal.release("r")
    deflected(device, 0.0)
    terminal.press("space", "enter", "q")
    keys = []
    wait_until(lambda: keys.extend(device.pressed()) or len(keys) == 3)
    assert keys == ["start", "keep", "quit"]


def test_a_key_that_is_held_while_the_focus_goes_is_released(kitty):
    terminal, device = kitty
    terminal.press("w")
    deflected(device, 1.0)
    terminal.focus(False)
    wait_until(lambda: not device.poll().present)
    assert not device.poll().motion.twist.any()
    # What the window repeats after its focus came back was not pressed here.
    terminal.focus(True)
    terminal.repeat("w")
    wait_until(lambda: device.poll().present)
    assert not device.poll().motion.twist.any()


def test_a_terminal_that_went_silent_is_no_proof_of_a_hand(kitty):
    terminal, device = kitty
    terminal.press("w")
    deflected(device, 1.0)
    before = terminal.pings
    wait_until(lambda: terminal.pings > before + 1)
    alive = device.poll().t_ns
    wait_until(lambda: device.poll().t_ns > alive)
    terminal.frozen = True
    # As when the network of a remote shell stalls: the reading grows old, the mapping lets go.
    wait_until(lambda: time.monotonic_ns() - device.poll().t_ns > device.lease_s * 1e9)


def test_control_c_is_a_signal_again(kitty):
    terminal, _ = kitty
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        terminal.type(b"\x1b[99;5u")
        wait_until(lambda: False, 5.0)


def test_a_terminal_that_does_not_hold_the_modes_counts_as_one_without():
    with EmulatedTerminal(kitty=True, holds=1) as terminal:
        device = KeyboardDevice(terminal.written.append, terminal.slave)
        wait_until(lambda: terminal.stack == [0, 1])
        terminal.type(b"m")
        wait_until(lambda: device.pressed() == ("marker",))
        assert not device.tells_releases
        device.close()
        wait_until(lambda: terminal.stack == [0])


def test_the_line_fits_the_window_and_says_what_to_do_first(plain):
    terminal, device = plain
    fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 60, 0, 0))
    tool = Thing("tool", (0.1, 0.2, 0.3))
    device.show(View("running", tool, step=7, max_steps=1200, note="let go of it first"))
    wait_until(lambda: terminal.written[-1].startswith("\r\x1b[K"))
    line = terminal.written[-1].removeprefix("\r\x1b[K")
    assert len(line) == 59
    assert "let go of it first" in line


def test_the_shell_does_not_get_a_terminal_that_is_half_ours(plain):
    terminal, device = plain
    stopped = []
    before = signal.signal(signal.SIGTSTP, lambda *_: stopped.append(1))
    terminal.type(b"\x1am")
    wait_until(lambda: device.pressed() == ("marker",))
    signal.signal(signal.SIGTSTP, before)
    assert not stopped


def test_a_flood_of_keys_is_not_owed(plain):
    terminal, device = plain
    agent = TeleopAgent(device, SPEC)
    here = observation(0, tool__xy_table=np.array([0.1, 0.2]))
    agent.decide(here, None)
    for _ in range(30):
        terminal.type(b"w" * 100)
    wait_until(lambda: device.poll().motion.total[0] > 14.9)
    # So far and no further from where the tool is: nothing of the flood comes later.
    assert agent.decide(here, None).action["tool/xy_table"] == pytest.approx([0.1, 0.23])
    assert agent.decide(here, None).action["tool/xy_table"] == pytest.approx([0.1, 0.23])


TEXT = b"x 1\nqrrr" + b"w" * 9000


def test_text_that_is_pasted_is_nobodys_keys(plain):
    terminal, device = plain
    wait_until(lambda: terminal.tells_pastes)
    terminal.type(b"\x1b[200~" + TEXT + b"\x1b[201~b")
    wait_until(lambda: device.pressed() == ("redo",))
    stepped(device, [0.0] * 6)
    # A stop in the middle is one, and a paste that was cut off ends by itself.
    terminal.type(b"\x1b[200~qq")
    terminal.press("escape")
    wait_until(lambda: device.pressed() == ("stop",))
    for _ in paced(1.0, 10):
        terminal.press("x")
        if "discard" in device.pressed():
            break
    else:
        pytest.fail("the paste went on")


def test_where_keys_are_told_with_releases_text_is_none(kitty):
    """Nobody would ever release it, whether it is marked as pasted or not."""
    terminal, device = kitty
    terminal.press("a")
    deflected(device, 0, 1)
    # Nor does a paste keep a key that is let go of meanwhile.
    terminal.type(b"\x1b[200~" + TEXT)
    terminal.release("a")
    terminal.type(b"\x1b[201~" + TEXT)
    terminal.press("b")
    wait_until(lambda: device.pressed() == ("redo",))
    deflected(device)


def test_a_terminal_that_takes_nothing_delays_nobody_and_shows_the_newest_line():
    taken, said, told = threading.Event(), [], threading.current_thread()

    def write(text):
        if text.startswith("\r"):
            assert threading.current_thread() is not told
            taken.wait(TIMEOUT_S)
            said.append(text)

    with EmulatedTerminal(kitty=False) as terminal:
        device = KeyboardDevice(write, terminal.slave)
        for step in range(50):
            device.show(View("running", step=step))
        assert not said
        taken.set()
        device.close()
    # At most the one that waited, and the last.
    assert len(said) <= 2
    assert "  49/0" in said[-1]


def test_an_arrow_that_a_slow_line_cut_in_two_moves_nothing(plain):
    terminal, device = plain
    for rest in (b"[A", b"OC"):
        # Nobody can tell it from the key: it stops.
        terminal.type(b"\x1b")
        wait_until(lambda: device.pressed() == ("stop",))
        terminal.type(rest)
    terminal.type(b"w")
    stepped(device, [STEP_M, 0, 0, 0, 0, 0])
    # What tells something still does.
    terminal.type(b"\x1b")
    wait_until(lambda: device.pressed() == ("stop",))
    terminal.type(b"[O")
    wait_until(lambda: not device.poll().present)


def test_a_letter_with_alt_moves_nothing_and_an_escape_before_it_is_not_lost(plain):
    terminal, device = plain
    terminal.type(b"\x1bd\x1bqr")
    stepped(device, [0, 0, STEP_M, 0, 0, 0])
    assert device.pressed() == ("stop", "stop")


def test_control_s_does_not_stop_the_terminal(plain):
    terminal, device = plain
    assert not termios.tcgetattr(terminal.slave)[0] & termios.IXON
    terminal.type(b"\x13w")
    stepped(device, [STEP_M, 0, 0, 0, 0, 0])
    device.close()
    assert termios.tcgetattr(terminal.slave)[0] & termios.IXON


def test_the_terminal_is_given_back(kitty):
    terminal, device = kitty
    wait_until(lambda: terminal.tells_focus and terminal.stack == [0, 15])
    assert not termios.tcgetattr(terminal.slave)[3] & termios.ICANON
    device.close()
    wait_until(lambda: not terminal.tells_focus and terminal.stack == [0])
    assert not terminal.tells_pastes
    assert termios.tcgetattr(terminal.slave)[3] & termios.ICANON


@pytest.mark.parametrize("full_screen", [False, True])
def test_the_terminal_is_given_back_when_the_program_is_killed(full_screen):
    script = (
        "import time\n"
        "from hardware.teleop.devices.keyboard import KeyboardDevice\n"
        f"device = KeyboardDevice(print, 0, full_screen={full_screen})\n"
        "while not device.tells_releases: time.sleep(0.01)\n"
        "print('there', flush=True)\n"
        "time.sleep(60)\n"
    )
    with EmulatedTerminal(kitty=True) as terminal:
        program = subprocess.Popen(
            [sys.executable, "-c", script], stdin=terminal.slave, stdout=subprocess.PIPE
        )
        assert program.stdout is not None
        lines = iter(program.stdout.readline, b"")
        assert any(line == b"there\n" for line in lines)
        assert terminal.stack == [0, 15]
        program.send_signal(signal.SIGKILL)
        program.wait()
        program.stdout.close()
        wait_until(lambda: not terminal.tells_focus and terminal.stack == [0])
        assert not terminal.tells_pastes
        wait_until(lambda: termios.tcgetattr(terminal.slave)[3] & termios.ICANON)
        assert terminal.left_screen == full_screen


def test_a_terminal_that_is_gone_quits():
    with EmulatedTerminal(kitty=False) as terminal:
        device = KeyboardDevice(terminal.written.append, terminal.slave)
        os.close(terminal.slave)
        terminal.hang_up()
        wait_until(lambda: device.pressed() == ("quit",))
        assert not device.poll().present
        device.close()


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
    assert split_codes(b"\x1b[97;1:3u\x1b[1;1:1") == ([b"\x1b[97;1:3u"], b"\x1b[1;1:1")
    # What never ends is cut: a terminal's rubbish does not fill the memory.
    codes, rest = split_codes(b"\x1b[" + b"9" * 1000)
    assert codes
    assert len(rest) < 64


@pytest.mark.parametrize(
    ("code", "key"),
    [
        (b"w", Key("w")),
        (b"W", Key("w", shift=True)),
        (b"\x03", Key("c", ctrl=True)),
        (b"\x1bOD", Key("left")),
        (b"\x1b[97u", Key("a")),
        (b"\x1b[97:65;2:2u", Key("a", "repeat", shift=True)),
        (b"\x1b[97;65:3u", Key("a", "release")),
        (b"\x1b[99;5u", Key("c", ctrl=True)),
        (b"\x1b[1;1:3B", Key("down", "release")),
        (b"\x1b[1094::119;1:1u", Key("w")),
        (b"\x1b[57442;5u", None),
        (b"\x1b[97;1:9u", None),
        (b"\x1b[99999999999999999999u", None),
        (b"\x1b[;u", None),
        (b"\x1b[::;::u", None),
        (b"\xc3", None),
    ],
)
def test_codes_of_keys(code, key):
    assert decode(code) == key


def test_on_the_other_screen_the_device_writes_its_help_alone():
    with EmulatedTerminal(kitty=False) as terminal:
        said = []
        device = KeyboardDevice(said.append, terminal.slave, full_screen=True)
        device.show(View(phase="ready"))
        device.close()
    assert len(said) == 1
    assert "arrow keys" in said[0]
