"""Serves the gripper of a virtual lab: emulated socket, faults, and the truth by the side door."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hardware.emulators.lab.admin import Reply, number
from hardware.emulators.plant import FingerPlant
from hardware.emulators.robotiq import FAULTS, RobotiqEmulator, RobotiqEmulatorConfig


class LabGripper:
    """One Robotiq gripper that moves the fingers of a plant."""

    def __init__(
        self, fingers: FingerPlant, config: RobotiqEmulatorConfig, objects: Sequence[str]
    ) -> None:
        self.emulator = RobotiqEmulator(fingers, activated=config.activated)
        self._fingers, self._objects = fingers, objects

    def tell(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Operation ``gripper``: the true width, and how high the objects are [m]."""
        del request
        heights = {name: self._fingers.object_height(name) for name in self._objects}
        reply.ok({"width_m": self._fingers.width(), "heights_m": heights})

    def faults(self, request: Mapping[str, Any]) -> dict[str, Callable[[], object]]:
        """Faults on command, ``gripper_<kind>``; ``amount`` as in ``RobotiqEmulator.fault``."""
        amount = int(number({"amount": 0, **request}, "amount", 0, 1e6))
        return {
            f"gripper_{kind}": lambda kind=kind: self.emulator.fault(kind, amount)
            for kind in FAULTS
        }
