"""The emulated controller's watchdog waits by the controller's clock, not by its machine's."""

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
