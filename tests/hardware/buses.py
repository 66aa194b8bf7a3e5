"""Serial arms for tests: emulated servos on a pty, served by a thread of this process."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np

from hardware.drivers.serial_bus.calibration import (
    ArmCalibration,
    ServoCalibration,
    save_calibration,
)
from hardware.drivers.serial_bus.dynamixel import DynamixelConfig
from hardware.drivers.serial_bus.feetech import FeetechConfig
from hardware.emulators.loop import EmulatorLoop
from hardware.emulators.plant import KinematicPlant
from hardware.emulators.servos.dynamixel import DynamixelDialect
from hardware.emulators.servos.feetech import FeetechDialect
from hardware.emulators.servos.line import PtyLine
from hardware.emulators.servos.servos import ServoBus, ServoConfig

DT_S = 0.005
JOINTS = ("pan", "lift", "elbow", "wrist", "roll", "gripper")
START = np.array([0.1, -0.4, 0.5, -0.2, 0.3, 0.2])
OFFSETS = (12, -7, 100, 0, 31, -55)
DIRECTIONS = (1, -1, 1, 1, -1, 1)
KINDS = {
    "feetech": (FeetechDialect, FeetechConfig),
    "dynamixel": (DynamixelDialect, DynamixelConfig),
}


class BusArm:
    """Six emulated servos and what drives them; use as a context manager."""

    def __init__(self, kind: str, folder: Path, wire_time: bool = False) -> None:
        dialect, self._config_class = KINDS[kind]
        self.loop = EmulatorLoop(DT_S)
        self.plant = KinematicPlant(START)
        servos = [
            ServoConfig(
                *(i + 1, i, DIRECTIONS[i], 2048 + 10 * i, OFFSETS[i]), low=500 + i, high=3600 + i
            )
            for i in range(6)
        ]
        self.bus = ServoBus(self.plant, dialect(), servos)
        self.port = folder / "bus"
        self.line = PtyLine(
            self.loop, self.bus.receive, baud=1_000_000, link=self.port, wire_time=wire_time
        )
        self.calibration = ArmCalibration(
            "test",
            tuple(
                ServoCalibration(JOINTS[i], i + 1, s.low, s.high, OFFSETS[i], s.zero, DIRECTIONS[i])
                for i, s in enumerate(servos)
            ),
        )
        save_calibration(self.calibration, folder / "arm.yaml")
        self.config = self._config_class(
            port=str(self.port),
            calibration=folder / "arm.yaml",
            joints=JOINTS[:5],
            gripper="gripper",
            # A test machine is busy: threads sleep for longer than a wire does.
            reply_slack_s=0.08,
            silence_s=1.0,
            watchdog_s=0.4,
        )
        self.loop.add_tick(self._tick)
        self._stopped = threading.Event()
        self._orders = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.robots = []

    def make(self, **changes):
        """A robot that is closed with this arm."""
        self.robots.append(replace(self.config, **changes).build())
        return self.robots[-1]

    def do(self, order) -> None:
        """Run something on the emulator's thread and wait."""
        done = threading.Event()
        self._orders.append((order, done))
        assert done.wait(5.0)

    def whole_tick(self) -> None:
        """Until the servos tell what was done before."""
        self.do(lambda: None)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        for robot in self.robots:
            robot.close()
        self._stopped.set()
        self._thread.join(5.0)
        self.line.unplug()
        self.loop.close()

    def _serve(self) -> None:
        self.loop.run(self._stopped.is_set)

    def _tick(self, now_ns: int, periods: int) -> None:
        while self._orders:
            order, done = self._orders.pop(0)
            order()
            done.set()
        # One long step for all periods that a busy machine missed: no time to catch up is lost.
        self.bus.control(now_ns, DT_S * periods)
        self.plant.step(DT_S * periods)
        self.bus.publish(now_ns)
