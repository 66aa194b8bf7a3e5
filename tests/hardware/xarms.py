"""An xArm for tests: the emulated controller, served by a thread of this process."""

import threading
from dataclasses import replace

import numpy as np

from hardware.drivers.xarm.gripper import XArmGripperConfig
from hardware.drivers.xarm.robot import XArmConfig
from hardware.emulators.loop import EmulatorLoop
from hardware.emulators.plant import KinematicPlant
from hardware.emulators.xarm.controller import XArmController, XArmEmulatorConfig
from hardware.emulators.xarm.gripper import XArmGripperEmulator, XArmGripperEmulatorConfig
from tests.hardware.lab import address

DT_S = 0.005
START = np.array([0.1, -0.3, 0.2, 0.5, 0.1, 0.4, -0.2])


class XArm:
    """An emulated controller with its gripper, served by a thread of this process; use as a context
    manager.
    """

    def __init__(self, last=60, firmware=(3, 4, 3)):
        self.address = address(last)
        self.loop = EmulatorLoop(DT_S)
        self.plant = KinematicPlant(START)
        config = XArmEmulatorConfig(rate_hz=1 / DT_S)
        self.gripper = XArmGripperEmulator(XArmGripperEmulatorConfig(firmware))
        self.controller = XArmController(self.loop, self.plant, config, self.address, self.gripper)
        self.loop.add_tick(self._tick)
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=lambda: self.loop.run(self._stopped.is_set), daemon=True
        )
        self.orders, self.robots = [], []

    def make(self, **changes):
        config = XArmConfig(self.address, silence_s=1.0, answer_s=0.25)
        self.robots.append(replace(config, **changes).build())
        return self.robots[-1]

    def make_gripper(self, **changes):
        config = XArmGripperConfig(self.address, answer_s=0.25, rate_hz=50.0)
        self.robots.append(replace(config, **changes).build())
        return self.robots[-1]

    def do(self, order):
        done = threading.Event()
        self.orders.append((order, done))
        assert done.wait(5.0)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        for robot in self.robots:
            robot.close()
        self._stopped.set()
        self._thread.join(5.0)
        self.controller.close()
        self.loop.close()

    def _tick(self, now_ns, periods):
        while self.orders:
            order, done = self.orders.pop(0)
            order()
            done.set()
        self.controller.control(now_ns, DT_S * periods)
        self.plant.step(DT_S * periods)
        self.controller.publish(now_ns)
