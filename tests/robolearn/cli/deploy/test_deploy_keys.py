"""The operator's keys on a pseudo-terminal."""

import os
import subprocess
import sys
import termios
import threading

import pytest

from robolearn.cli.deploy.keys import Keys
from robolearn.cli.deploy.terminal import TerminalOperator
from robolearn.operations.cell.placing import PromptPlacement
from robolearn.operations.cell.scoring import KeyScorer
from robolearn.pusht import BLOCK
from robolearn.types import Condition, Outcome
from tests.waiting import wait_until


@pytest.fixture
def desk():
    operator, terminal = os.openpty()
    keys = Keys(terminal)
    yield operator, keys, terminal
    keys.close()
    os.close(operator)
    os.close(terminal)


class Half:
    """Half done."""

    def reset(self):
        pass

    def judge(self, values):
        return Outcome(False, 0.5, 0.5)


def test_space_and_escape_stop_at_once_and_again(desk):
    operator, keys, _ = desk
    stops = []

    def stop():
        stops.append(threading.current_thread().name)
        raise RuntimeError("the supervisor is gone")

    keys.start(stop)
    os.write(operator, b"x ")
    wait_until(lambda: len(stops) == 1)
    os.write(operator, b"\x1b")
    wait_until(lambda: len(stops) == 2)
    assert set(stops) == {"keys"}


@pytest.mark.parametrize("mode", [os.O_RDONLY, os.O_RDWR])
def test_the_terminal_is_given_back_when_the_program_is_killed(desk, mode):
    _, _, terminal = desk
    before = termios.tcgetattr(terminal)
    script = (
        "import sys, time\n"
        "from robolearn.cli.deploy.keys import Keys\n"
        "Keys(0).start(print)\n"
        "print('there', flush=True)\n"
        "time.sleep(60)\n"
    )
    given = os.open(os.ttyname(terminal), mode | os.O_NOCTTY)
    program = subprocess.Popen([sys.executable, "-c", script], stdin=given, stdout=subprocess.PIPE)
    os.close(given)
    assert program.stdout is not None
    assert program.stdout.readline() == b"there\n"
    assert not termios.tcgetattr(terminal)[3] & termios.ICANON
    program.kill()
    program.wait()
    program.stdout.close()
    wait_until(lambda: termios.tcgetattr(terminal) == before)


def test_the_terminal_is_given_back_as_it_was(desk):
    _, keys, terminal = desk
    before = termios.tcgetattr(terminal)
    keys.start(lambda: None)
    assert not termios.tcgetattr(terminal)[3] & termios.ICANON
    keys.close()
    keys.close()
    assert termios.tcgetattr(terminal) == before


@pytest.mark.parametrize(
    ("key", "success", "terminal", "reason"),
    [("s", True, True, "success"), ("F", False, False, "failure"), ("q", False, False, "operator")],
)
def test_keys_score_over_the_task(desk, key, success, terminal, reason):
    operator, keys, _ = desk
    keys.start(lambda: None)
    scorer = KeyScorer(Half(), keys)
    assert scorer.judge({}).reason == ""
    os.write(operator, key.encode())
    wait_until(keys.verdict)
    outcome = scorer.judge({})
    assert (outcome.success, outcome.terminal, outcome.reason) == (success, terminal, reason)
    assert outcome.terminal or outcome.truncated
    scorer.reset()
    assert scorer.judge({}) == Outcome(False, 0.5, 0.5)
    assert KeyScorer(None, keys).judge({}).progress == 0.0


def test_enter_says_that_the_block_is_placed(desk, capsys):
    theirs, keys, _ = desk
    keys.start(lambda: None)
    threading.Timer(0.2, os.write, (theirs, b"\n")).start()
    condition = Condition("c", 0, {BLOCK: (0.1, 0.2, 0.0)})
    operator = TerminalOperator(yes=False, quiet=True)
    operator._keys, operator._listening = keys, True
    assert PromptPlacement(operator)(condition) == "placed by the operator"
    assert "x 0.100 m" in capsys.readouterr().err
    threading.Timer(0.2, os.write, (theirs, b"\n")).start()
    turned = (0.1, 0.2, 0.02, 0.8, 0.0, 0.0, 0.6)
    condition = Condition("c", 0, {"cube/pose": turned, "tool/pose": turned})
    assert PromptPlacement(operator)(condition) == "placed by the operator"
    said = capsys.readouterr().err
    assert "place the cube at x 0.100 m, y 0.200 m, z 0.020 m, 74 deg, step back" in said
