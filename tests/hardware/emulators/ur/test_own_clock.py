"""The emulated controller waits by its own clock, and goes on from where its arm is."""

import numpy as np

from hardware.emulators.plant import KinematicPlant
from hardware.emulators.ur.config import UrEmulatorConfig
from hardware.emulators.ur.controller import UrEmulator
from tests.hardware.lab import HOME


def test_a_machine_that_holds_the_controller_up_trips_no_watchdog():
    emulator = UrEmulator(KinematicPlant(np.array(HOME)), UrEmulatorConfig())
    emulator.dashboard.answer("load practice.urp")
    assert emulator.dashboard.answer("play") == "Starting program"
    emulator.status.watchdog_s = 0.1
    now_ns = 0
    for _ in range(40):
        # One tick of two milliseconds, for which its machine took a second.
        now_ns += 1_000_000_000
        emulator.control(now_ns)
    assert emulator.status.program
    for _ in range(15):
        now_ns += 2_000_000
        emulator.control(now_ns)
    assert not emulator.status.program
    (stop,) = [e for e in emulator.log.events if e.kind == "program_stopped"]
    assert "watchdog" in stop.detail


class HeldUp(KinematicPlant):
    """An arm that presses on something, .1 rad from where it is sent."""

    def joint_positions(self):
        return super().joint_positions() - 0.1


def test_unlocked_it_goes_on_from_where_the_arm_is():
    """Else the next set-point, which begins there, would be a sudden change again, for ever."""
    emulator = UrEmulator(HeldUp(np.array(HOME)), UrEmulatorConfig())
    emulator.dashboard.answer("load practice.urp")
    emulator.dashboard.answer("play")
    emulator.protective_stop("it presses")
    for tick in range(10):
        emulator.control(tick * 2_000_000)
    assert emulator.status.paused
    assert emulator.unlock(force=True)
    np.testing.assert_allclose(emulator.motion.q, np.array(HOME) - 0.1)
