"""Settings that must be in the environment before numpy, torch or MuJoCo are imported."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

for name, value in {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "OPENBLAS_NUM_THREADS": "1",
    "MUJOCO_GL": "egl",
    "SDL_VIDEODRIVER": "dummy",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}.items():
    os.environ.setdefault(name, value)

from hypothesis import settings  # noqa: E402 - the environment comes first

from tests import checked_calls  # noqa: E402

checked_calls.install()

# A busy machine must not fail a property: examples have no time limit. The same examples in every
# run, so that a change is judged by itself; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("house", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))

# A shell starts background jobs with Ctrl-C ignored, nohup ignores a terminal's end, and children
# inherit that: the tests that press Ctrl-C or close the terminal of a child need what a foreground
# process has.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tests that judge times of devices: make test runs them one after the other, and the others yield.
# (Two lanes of them beside each other were tried: they make each other late, and gain nothing, as
# the others take as long on two cores.)
TIMED = (
    "tests/hardware",
    "tests/robolearn/cli/deploy",
    "tests/robolearn/cli/hardware",
    "tests/robolearn/operations/cell",
    "tests/robolearn/operations/deploy",
    "tests/benchmarks",
    "tests/test_tutorial",
)
# Tests of devices whose only clock is the test's own: how busy the machine is changes nothing.
VIRTUAL = (
    "tests/hardware/cell/",
    "tests/hardware/commissioning/test_hidden_delays",
    "tests/hardware/commissioning/test_reach",
    "tests/hardware/devices/test_driver_config",
    "tests/hardware/devices/test_pose_gate",
    "tests/hardware/emulators/test_drivetrain",
    "tests/hardware/streams/test_signal_buffer",
    "tests/hardware/supervisor/test_fault_verdict",
    "tests/hardware/supervisor/test_link_pause",
    "tests/hardware/supervisor/test_supervisor.py",
    "tests/hardware/supervisor/test_supervisor_joints",
    "tests/hardware/supervisor/test_supervisor_tool",
    "tests/hardware/supervisor/test_wrench",
    "tests/hardware/supervisor/watch/",
    "tests/hardware/teleop/page/test_certificate",
    "tests/hardware/teleop/page/test_driver",
    "tests/hardware/teleop/page/test_web_interfaces",
    "tests/hardware/teleop/test_measured_actions",
    "tests/hardware/teleop/test_seen",
    "tests/robolearn/operations/cell/test_release",
    "tests/robolearn/operations/deploy/test_stops",
)
# What --fast leaves out besides: whole commands, trainings, pictures, processes that are killed.
LONG = (
    "tests/eval/report",
    "tests/eval/statistics/test_families",
    "tests/eval/statistics/test_planning",
    "tests/eval/test_",
    "tests/eval/trials",
    "tests/golden/test_algorithms",
    "tests/golden/test_worlds",
    "tests/policies/critics",
    "tests/policies/imitation",
    "tests/policies/offline_rl",
    "tests/policies/test_",
    "tests/robolearn/cli",
    "tests/robolearn/data/exporters",
    "tests/robolearn/data/importers",
    "tests/robolearn/data/reading/test_mixture",
    "tests/robolearn/data/recording/test_recorded_pictures",
    "tests/robolearn/data/store/test_confine",
    "tests/robolearn/data/store/test_decoded",
    "tests/robolearn/data/store/test_object_store",
    "tests/robolearn/data/store/test_store_",
    "tests/robolearn/data/view",
    "tests/robolearn/inference",
    "tests/robolearn/operations",
    "tests/robolearn/test_table",
    "tests/robolearn/training",
    "tests/sim/adapters",
    "tests/sim/experts",
    "tests/sim/identification",
    "tests/sim/perturbations",
    "tests/sim/plants",
    "tests/sim/rendering",
    "tests/sim/tasks/test_manipulation_scenes",
    "tests/sim/tasks/test_pusht_task",
    "tests/sim/test_",
    "tests/test_docs",
    "tests/test_python_page",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--fast``: for people who change a line."""
    parser.addoption("--fast", action="store_true", help="units, contracts and golden numbers only")
    parser.addoption(
        "--timed",
        choices=("only", "without"),
        help="tests that judge times of devices, or all others",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end: nobody looks through it for garbage, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup() -> None:
    """Every test has its own first calls."""
    checked_calls.begin_test()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Choose by ``--fast`` and ``--timed``; what is not chosen is not imported either."""
    if collection_path.suffix != ".py":
        return None
    name = collection_path.relative_to(config.rootpath).as_posix()
    if config.getoption("--fast"):
        return True if name.startswith((*TIMED, *LONG)) else None
    chosen = config.getoption("--timed")
    timed = name.startswith(TIMED) and not name.startswith(VIRTUAL)
    return True if chosen and timed == (chosen == "without") else None
