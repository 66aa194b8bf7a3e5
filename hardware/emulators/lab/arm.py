"""Assembles a virtual arm: one plant behind one emulated controller, and the lab's side door.

The controllers: servos on a pty (:class:`BusController`), ``xarm.py``. The workcell with table,
tracker and cameras is ``lab.py``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hardware.emulators.lab.admin import AdminServer, Reply, number
from hardware.emulators.lab.admin_operations import Room, cause_fault, slowness
from hardware.emulators.loop import EmulatorLoop
from hardware.emulators.plant import Plant
from hardware.emulators.servos.line import PtyLine
from hardware.emulators.servos.servos import ServoBus
from hardware.emulators.tracker import TrackerEmulator
from hardware.emulators.ur.log import ControllerLog
from robolearn.errors import DataError

Fault = Callable[[Mapping[str, Any]], None]


@runtime_checkable
class ArmController(Protocol):
    """An emulated controller of one arm."""

    @property
    def log(self) -> ControllerLog:
        """What reached it."""
        ...

    @property
    def faults(self) -> Mapping[str, Fault]:
        """Faults on command by name; each gets the request's arguments."""
        ...

    def control(self, now_ns: int, dt_s: float) -> None:
        """One control period: commands to the plant."""
        ...

    def publish(self, now_ns: int) -> None:
        """After the step: measured values to the clients."""
        ...

    def close(self) -> None:
        """Close what it serves; safe to call twice."""
        ...


class BusController:
    """Servos on a pty: :class:`ServoBus` behind a :class:`PtyLine`."""

    def __init__(self, loop: EmulatorLoop, bus: ServoBus, *, baud: int, link: Path | None) -> None:
        self.bus = bus
        self.line = PtyLine(loop, bus.receive, baud=baud, link=link)
        self.log = bus.log
        self.faults: Mapping[str, Fault] = {
            "mute": lambda r: setattr(self.line, "mute", bool(r.get("on", True))),
            "unplug": lambda _: self.line.unplug(),
            "plug": lambda _: self.line.plug(),
            "garbage": lambda r: self.line.garbage(
                np.random.default_rng(0).bytes(int(number(r, "size", 1, 65536)))
            ),
            "corrupt": lambda r: setattr(bus, "corrupt_replies", int(number(r, "count", 0, 1e6))),
            "absent": lambda r: bus.set_absent(self._servo(r), bool(r.get("on", True))),
            "error": lambda r: bus.set_error(self._servo(r), int(number(r, "bits", 0, 127))),
        }

    def control(self, now_ns: int, dt_s: float) -> None:
        """Goals to the joints."""
        self.bus.control(now_ns, dt_s)

    def publish(self, now_ns: int) -> None:
        """Measured values into the control tables."""
        self.bus.publish(now_ns)

    def close(self) -> None:
        """Remove the pty."""
        self.line.unplug()

    def _servo(self, request: Mapping[str, Any]) -> int:
        servo = int(number(request, "servo", 0, 252))
        if servo not in self.bus.ids:
            raise DataError(f"no servo {servo}; there are: {list(self.bus.ids)}")
        return servo


class ArmLab:
    """Serves one arm until told to stop; ``make_controller(loop)`` opens what clients see."""

    def __init__(
        self,
        plant: Plant,
        make_controller: Callable[[EmulatorLoop], ArmController],
        *,
        address: str,
        token: str,
        rate_hz: float = 500.0,
        admin_port: int = 0,
        tracker: TrackerEmulator | None = None,
        arm: Plant | None = None,
    ) -> None:
        """``arm``: the plant as its controller sees it (``drivetrain.py``)."""
        self._tracker = tracker
        self._plant, self._dt_s = plant, 1.0 / rate_hz
        self._arm = plant if arm is None else arm
        self.loop = EmulatorLoop(self._dt_s)
        self.controller = make_controller(self.loop)
        room = self._room = Room(plant, self.controller.log, self.loop)
        admin = AdminServer(
            token, {**room.operations, "fault": self._op_fault, "stats": self._op_stats}
        )
        self.admin_port = admin.serve(self.loop, address, admin_port)
        self.loop.add_tick(self._tick)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until ``stopped()``."""
        self.loop.run(stopped)

    def close(self) -> None:
        """Release sockets and the plant; safe to call twice."""
        self.controller.close()
        self.loop.close()
        if self._tracker is not None:
            self._tracker.close()
        self._plant.close()

    def _tick(self, now_ns: int, periods: int) -> None:
        for _ in range(periods):
            self.controller.control(now_ns, self._dt_s)
            self._arm.step(self._dt_s)
        self.controller.publish(now_ns)
        if self._tracker is not None:
            self._tracker.tick(now_ns)

    def _op_fault(self, request: Mapping[str, Any], reply: Reply) -> None:
        own = self.controller.faults
        faults: dict[str, Callable[[], None]] = {
            "slow": lambda: self.loop.slow(*slowness(request)),
            "clock_jump": self._no_clock,
        }
        for name, fault in own.items():
            faults[name] = functools.partial(fault, request)
        if self._tracker is not None:
            faults["tracker_blind"] = functools.partial(self._blind, request)
        cause_fault(faults, request, reply)

    def _no_clock(self) -> None:
        raise DataError(
            "clock_jump: answers of this controller carry no time stamps, there is no clock to set"
        )

    def _blind(self, request: Mapping[str, Any]) -> None:
        seconds = number(request, "seconds", 0.0, 3600.0)
        if self._tracker is not None:
            self._tracker.blind(time.monotonic_ns() + round(seconds * 1e9))

    def _op_stats(self, request: Mapping[str, Any], reply: Reply) -> None:
        del request
        reply.ok(self._room.stats())
