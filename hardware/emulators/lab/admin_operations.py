"""Carries out what a person in the room of a virtual lab does and sees: the common operations."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hardware.emulators.lab.admin import Operation, Reply, number, object_pose
from hardware.emulators.loop import EmulatorLoop
from hardware.emulators.plant import Plant
from hardware.emulators.ur.log import ControllerLog
from robolearn.arms.shapes import JointRows
from robolearn.errors import DataError, RobotError, did_you_mean
from robolearn.shapes import Times

REACH_M = 2.0


class Room:
    """Operations of every lab, whatever is served in it; ``log`` is what reached the controller."""

    def __init__(self, plant: Plant, log: ControllerLog, loop: EmulatorLoop) -> None:
        self._plant, self._log, self._loop = plant, log, loop

    @property
    def operations(self) -> Mapping[str, Operation]:
        """By name."""
        return {
            "place": self._place,
            "truth": self._truth,
            "log": self._tell_log,
            "reference": self._tell_reference,
        }

    def stats(self) -> dict[str, float]:
        """Ticks, late ticks, CPU time [s], simulated time [s]."""
        loop = self._loop
        return {
            "ticks": float(loop.ticks),
            "late": float(loop.late),
            "skipped": float(loop.skipped),
            "cpu_s": time.process_time(),
            "time_s": self._plant.time_s,
        }

    def _place(self, request: Mapping[str, Any], reply: Reply) -> None:
        name, pose = request.get("name"), object_pose(request, "pose")
        names = self._plant.object_names
        if name not in names:
            raise DataError(
                f"no object {name!r}.{did_you_mean(str(name), names)} There are: {list(names)}"
            )
        at = pose[: 2 if len(pose) == 3 else 3]
        if len(pose) > len(self._plant.true_pose(str(name))):
            raise DataError(f"'{name}' stays on the table; give its pose as [x, y, yaw]")
        if np.abs(at).max() > REACH_M:
            raise DataError(f"{at.tolist()} m is beyond the room ({REACH_M:g} m)")
        if self._log.moving:
            raise RobotError("the arm moves; stop it before reaching in")
        self._plant.place_object(str(name), pose)
        reply.ok({})

    def _truth(self, request: Mapping[str, Any], reply: Reply) -> None:
        del request
        poses = {n: self._plant.true_pose(n).tolist() for n in self._plant.object_names}
        q = self._plant.joint_positions().tolist()
        reply.ok({"t_ns": time.monotonic_ns(), "q": q, "poses": poses})

    def _tell_reference(self, request: Mapping[str, Any], reply: Reply) -> None:
        since_ns = int(number({"since_ns": 0, **request}, "since_ns", 0.0, 2.0**62))
        t_ns, q = self._log.references(since_ns)
        reply.ok(_packed(t_ns, q))

    def _tell_log(self, request: Mapping[str, Any], reply: Reply) -> None:
        since_ns = int(number({"since_ns": 0, **request}, "since_ns", 0.0, 2.0**62))
        limit = int(number({"limit": 20_000, **request}, "limit", 0.0, 2e5))
        t_ns, q = self._log.setpoints(since_ns)
        first = max(0, len(t_ns) - limit)
        events = [[e.t_ns, e.kind, e.detail] for e in self._log.events if e.t_ns > since_ns]
        reply.ok(
            {
                "count": self._log.count,
                "moving": self._log.moving,
                "events": events,
                **_packed(t_ns[first:], q[first:]),
            }
        )


def _packed(t_ns: Times, q: JointRows) -> dict[str, str]:
    return {
        "t_ns": base64.b64encode(t_ns.tobytes()).decode(),
        "q": base64.b64encode(q.tobytes()).decode(),
    }


def slowness(request: Mapping[str, Any]) -> tuple[float, float]:
    """Of the fault ``slow``: what a round of the loop takes (``amount``), and for how long [s]."""
    return number(request, "amount", 0.0, 2.0), number(request, "seconds", 0.0, 60.0)


def cause_fault(
    faults: Mapping[str, Callable[[], object]], request: Mapping[str, Any], reply: Reply
) -> None:
    """Run the fault that a request names; raises :class:`DataError` with those that exist."""
    kind = str(request.get("kind"))
    if kind not in faults:
        known = sorted(faults)
        raise DataError(f"no fault '{kind}'.{did_you_mean(kind, known)} Known: {known}")
    faults[kind]()
    reply.ok({})
