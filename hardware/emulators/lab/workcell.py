"""Serves a virtual workcell: one plant behind an emulated controller, tracker, and side door.

One thread at the controller's rate. The composition root hands in the plant and, if pictures are
wanted, a renderer that works elsewhere (a picture takes many control periods).
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hardware.emulators.lab.admin import AdminServer, Reply, number
from hardware.emulators.lab.admin_operations import Room, cause_fault, slowness
from hardware.emulators.lab.gripper import LabGripper
from hardware.emulators.loop import EmulatorLoop
from hardware.emulators.mjpeg import FAULTS as CAMERA_FAULTS
from hardware.emulators.plant import FingerPlant, Plant
from hardware.emulators.robotiq import RobotiqEmulatorConfig
from hardware.emulators.tracker import TrackerEmulator, TrackerEmulatorConfig
from hardware.emulators.ur.controller import UrEmulator, UrEmulatorConfig
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError, DataError, RobotError, did_you_mean
from robolearn.geometry import ObjectPose
from robolearn.seeding import child_seed
from robolearn.shapes import Picture

# render(view, width, height, q, poses, opening_m, done): calls done(rgb or a problem) later, never
# blocks; opening_m of the fingers, None where the arm has none.
Rendered = Callable[[Picture | str], None]
Render = Callable[[str, int, int, Joints, Mapping[str, ObjectPose], float | None, Rendered], None]
VIEWS = ("top", "perspective")
# Time of a state that cameras may expose [ns]: often enough for any camera.
_SEEN_NS = 4_000_000


@dataclass(frozen=True, slots=True)
class DevicesConfig:
    """The emulated devices. ``admin_port`` 0 takes any free port."""

    controller: UrEmulatorConfig = field(default_factory=UrEmulatorConfig)
    tracker: TrackerEmulatorConfig = field(default_factory=TrackerEmulatorConfig)
    gripper: RobotiqEmulatorConfig | None = None
    admin_port: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.admin_port < 65536:
            raise ConfigError(
                f"admin_port must be 0 (any free one) to 65535, got {self.admin_port}"
            )


@runtime_checkable
class LabCamera(Protocol):
    """An emulated camera that draws and serves elsewhere."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """What became of its pictures, by ``hardware.emulators.mjpeg.COUNTED``."""
        ...

    def see(
        self, t_ns: int, q: Joints, poses: Sequence[ObjectPose], opening_m: float | None
    ) -> None:
        """The state at ``t_ns``: joints ``[6]``, the objects' poses, how far apart the fingers are
        (None: there are none); never blocks.
        """
        ...

    def fault(self, kind: str, seconds: float, amount: float) -> None:
        """Cause a fault of ``CameraEmulator.fault``; never blocks."""
        ...

    def by_hand(self, doing: str, thing: str, t_ns: int) -> None:
        """A person carries it, or turns the board with ``thing`` before it, from ``t_ns`` on; never
        blocks. DataError for what nobody can do.
        """
        ...


class VirtualLab:
    """Serves the devices of one workcell until told to stop."""

    def __init__(
        self,
        plant: Plant,
        config: DevicesConfig,
        *,
        address: str,
        token: str,
        seed: int,
        render: Render | None = None,
        cameras: Sequence[LabCamera] = (),
        fingers: FingerPlant | None = None,
        arm: Plant | None = None,
    ) -> None:
        """``arm``: the plant as its controller sees it (``drivetrain.py``)."""
        self.config, self.address = config, address
        self._cameras = {c.name: c for c in cameras}
        self._seen_ns = 0
        self.loop = EmulatorLoop(1.0 / config.controller.rate_hz)
        self._arm = plant if arm is None else arm
        self.robot = UrEmulator(self._arm, config.controller)
        rng = np.random.default_rng(child_seed(seed, "tracker"))
        self.tracker = TrackerEmulator(plant, address, config.tracker, rng)
        self._plant, self._render, self._fingers = plant, render, fingers
        self._dt_s = 1.0 / config.controller.rate_hz
        self.robot.serve(self.loop, address)
        self._gripper: LabGripper | None = None
        if config.gripper is not None and fingers is not None:
            self._gripper = LabGripper(fingers, config.gripper, plant.object_names)
            self._gripper.emulator.serve(self.loop, address, config.gripper.port)
        room = self._room = Room(plant, self.robot.log, self.loop)
        admin = AdminServer(
            token,
            {
                **room.operations,
                **({} if self._gripper is None else {"gripper": self._gripper.tell}),
                "hand": self._op_hand,
                "picture": self._op_picture,
                "by_hand": self._op_by_hand,
                "fault": self._op_fault,
                "stats": self._op_stats,
            },
        )
        self.admin_port = admin.serve(self.loop, address, config.admin_port)
        self.loop.add_tick(self._tick)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until ``stopped()``."""
        self.loop.run(stopped)

    def close(self) -> None:
        """Release sockets and the plant; safe to call twice."""
        self.loop.close()
        self.tracker.close()
        self._plant.close()

    def _tick(self, now_ns: int, periods: int) -> None:
        for left in range(periods, 0, -1):
            self.robot.control(now_ns, left)
            self._arm.step(self._dt_s)
        self.robot.publish(now_ns)
        self.tracker.tick(now_ns)
        if self._cameras and now_ns - self._seen_ns >= _SEEN_NS:
            self._seen_ns = now_ns
            q = self._plant.joint_positions()
            poses = [self._plant.true_pose(n) for n in self._plant.object_names]
            opening_m = self._opening_m()
            for camera in self._cameras.values():
                camera.see(now_ns, q, poses, opening_m)

    def _opening_m(self) -> float | None:
        return None if self._fingers is None else self._fingers.width()

    def _op_picture(self, request: Mapping[str, Any], reply: Reply) -> None:
        view = request.get("view", "top")
        if view not in VIEWS:
            raise DataError(f"no view {view!r}; there are: {list(VIEWS)}")
        width, height = (int(number(request, k, 16.0, 1024.0)) for k in ("width", "height"))
        if self._render is None:
            raise RobotError("this lab has no renderer")

        def done(rgb: Picture | str) -> None:
            if isinstance(rgb, str):
                reply.refuse(f"no picture: {rgb}")
                return
            data = base64.b64encode(rgb.tobytes()).decode()
            reply.ok({"shape": list(rgb.shape), "rgb": data})

        poses = {n: self._plant.true_pose(n) for n in self._plant.object_names}
        q, opening_m = self._plant.joint_positions(), self._opening_m()
        self._render(view, width, height, q, poses, opening_m, done)

    def _op_hand(self, request: Mapping[str, Any], reply: Reply) -> None:
        """A person takes the flange and pulls it to a point of the base frame ``to`` [m], with at
        most ``force`` [N]; without ``to`` the hand lets go.
        """
        to, hand = request.get("to"), self.robot.hand
        if to is None:
            hand.let_go()
        elif isinstance(to, list) and len(to) == 3:
            point = np.array([number({"to": v}, "to", -3.0, 3.0) for v in to])
            hand.pull(point, number(request, "force", 0.0, 200.0), self._arm.joint_positions())
        else:
            raise DataError(f"'to' must be [x, y, z] in m, got {to!r}")
        reply.ok({})

    def _op_by_hand(self, request: Mapping[str, Any], reply: Reply) -> None:
        """A person does something by hand (``doing``) with a ``camera`` and an ``object``."""
        doing, thing = str(request.get("doing")), str(request.get("object", ""))
        names = self._plant.object_names
        if thing and thing not in names:
            raise DataError(
                f"no object '{thing}' in this lab.{did_you_mean(thing, names)} There are:"
                f" {list(names)}"
            )
        self._camera(request).by_hand(doing, thing, time.monotonic_ns())
        reply.ok({})

    def _op_stats(self, request: Mapping[str, Any], reply: Reply) -> None:
        del request
        tracker = {"tracker_sent": self.tracker.sent, "tracker_dropped": self.tracker.dropped}
        cameras = {name: dict(camera.counts) for name, camera in self._cameras.items()}
        reply.ok({**self._room.stats(), **tracker, "cameras": cameras})

    def _op_fault(self, request: Mapping[str, Any], reply: Reply) -> None:
        faults: dict[str, Callable[[], object]] = {
            "protective_stop": lambda: self.robot.protective_stop("fault on command"),
            "unlock": lambda: self.robot.unlock(force=True),
            "emergency_stop": self.robot.emergency_stop,
            "clock_jump": lambda: self._jump_clock(number(request, "seconds", -1e6, 1e6)),
            "slow": lambda: self.loop.slow(*slowness(request)),
            "drop_links": self.robot.drop_links,
            "hang": lambda: self.robot.hang(number(request, "seconds", 0.0, 60.0)),
            "delay": lambda: self.robot.delay(number(request, "seconds", 0.0, 10.0)),
            "overload": lambda: self.robot.overload(number(request, "amount", 0.0, 1000.0)),
            "garbage": lambda: self.robot.send_garbage(
                np.random.default_rng(0).bytes(int(number(request, "size", 1.0, 65536.0)))
            ),
            "tracker_blind": lambda: self.tracker.blind(
                time.monotonic_ns() + round(number(request, "seconds", 0.0, 3600.0) * 1e9)
            ),
        }
        for fault in CAMERA_FAULTS:
            faults[f"camera_{fault}"] = lambda fault=fault: self._camera_fault(fault, request)
        if self._gripper is not None:
            faults |= self._gripper.faults(request)
        cause_fault(faults, request, reply)

    def _jump_clock(self, seconds: float) -> None:
        self.robot.status.clock_ahead_s += seconds

    def _camera_fault(self, fault: str, request: Mapping[str, Any]) -> None:
        seconds = number(request, "seconds", 0.0, 3600.0)
        amount = number({"amount": 0.0, **request}, "amount", -1e6, 1e6)
        self._camera(request).fault(fault, seconds, amount)

    def _camera(self, request: Mapping[str, Any]) -> LabCamera:
        name, names = str(request.get("camera")), list(self._cameras)
        if name not in self._cameras:
            raise DataError(f"no camera '{name}'.{did_you_mean(name, names)} There are: {names}")
        return self._cameras[name]
