"""Runs the lab's cameras: a process each, which draws (MuJoCo) and serves (MJPEG over HTTP).

The lab's thread leaves the state of the world in shared memory and never waits for a picture.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.emulators.mjpeg import CameraEmulator, CameraEmulatorConfig
from hardware.supervisor.shared_memory import Ring, RingHandle
from robolearn.arms.models import UR5E
from robolearn.arms.shapes import Joints
from robolearn.errors import RobolearnError, RobotConnectionError
from robolearn.geometry import PlanarPose, Pose
from robolearn.seeding import child_seed
from sim.plants.pusht import BLOCK
from sim.plants.table_view import TableView, TableViewConfig

log = logging.getLogger(__name__)
_SLOTS, _START_S = 16, 60.0


@dataclass(frozen=True, slots=True)
class LabCameraConfig:
    """One camera of a virtual workcell: ``device`` is what serves, ``view`` what it sees."""

    device: CameraEmulatorConfig = field(default_factory=CameraEmulatorConfig)
    view: TableViewConfig = field(default_factory=TableViewConfig)


@dataclass(frozen=True, slots=True)
class Workcell:
    """What every picture shows, and how it stands before the first step."""

    # The table's frame in the arm's base frame ``[4, 4]``.
    T_base_table: Pose
    # From the flange to the tool's tip [m].
    tool_length_m: float
    # Joint angles [rad].
    home: tuple[float, ...]
    # The T on the table: x, y [m], yaw [rad].
    block_pose: tuple[float, ...]


class CameraProcess:
    """A camera that runs elsewhere; satisfies ``hardware.emulators.lab.workcell.LabCamera``."""

    def __init__(
        self, config: LabCameraConfig, workcell: Workcell, address: str, seed: int
    ) -> None:
        self.config = config
        self._ring = Ring.create(_SLOTS, UR5E.dof + 3)
        self._named = True
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_camera,
            args=(config, workcell, address, seed, self._ring.handle, theirs),
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self.port = config.device.port

    @property
    def name(self) -> str:
        """The camera's name."""
        return self.config.device.name

    def wait(self) -> None:
        """Until it serves; raises what hindered it."""
        answer: Any = f"camera '{self.name}' did not start within {_START_S:g} s"
        try:
            if self._pipe.poll(_START_S):
                answer = self._pipe.recv()
        except EOFError:
            answer = (
                f"the process of camera '{self.name}' ended (exit code {self._process.exitcode})"
            )
        # Attached or gone: the name is needed no more, and nothing is left behind on a kill.
        self._forget_name()
        if isinstance(answer, str):
            raise RobotConnectionError(answer)
        self.port = int(answer)

    def see(self, t_ns: int, q: Joints, poses: Sequence[PlanarPose]) -> None:
        """Leave the state for the camera."""
        self._ring.put(t_ns, np.concatenate([q, *poses]))

    def fault(self, kind: str, seconds: float, amount: float) -> None:
        """Pass a fault on."""
        self._pipe.send((kind, seconds, amount))

    def close(self) -> None:
        """End the process; safe to call twice."""
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()
        self._forget_name()
        self._ring.close()

    def _forget_name(self) -> None:
        if self._named:
            self._ring.unlink()
            self._named = False


def start_cameras(
    configs: Sequence[LabCameraConfig], workcell: Workcell, address: str, seed: int
) -> list[CameraProcess]:
    """Start all, then wait for all: each takes seconds to begin."""
    cameras: list[CameraProcess] = []
    try:
        for config in configs:
            own = child_seed(seed, f"camera {config.device.name}")
            cameras.append(CameraProcess(config, workcell, address, own))
        for camera in cameras:
            camera.wait()
    except BaseException:
        for camera in cameras:
            camera.close()
        raise
    return cameras


def _camera(
    config: LabCameraConfig,
    workcell: Workcell,
    address: str,
    seed: int,
    handle: RingHandle,
    pipe: Connection[Any, Any],
) -> None:
    """The camera's process: until the lab ends."""
    from robolearn.machine.process import exit_with_parent

    exit_with_parent()
    ring = handle.attach()
    home = np.array([*workcell.home, *workcell.block_pose])
    view = TableView(
        config.view,
        T_base_table=workcell.T_base_table,
        tool_length_m=workcell.tool_length_m,
        width=config.device.width,
        height=config.device.height,
        block=BLOCK,
    )

    def draw() -> tuple[int, NDArray[np.uint8]]:
        row = ring.latest()
        state = home if row is None else row.value
        t_ns = 0 if row is None else row.t_ns
        return t_ns, view.draw(state[: UR5E.dof], {BLOCK: state[UR5E.dof :]})

    try:
        draw()
        emulator = CameraEmulator(config.device, address, draw, np.random.default_rng(seed))
    except RobolearnError as error:
        view.close()
        pipe.send(str(error))
        return
    pipe.send(emulator.port)

    def stopped() -> bool:
        try:
            while pipe.poll():
                emulator.fault(*pipe.recv())
        except (EOFError, OSError):
            return True
        return False

    emulator.run(stopped)
    emulator.close()
    view.close()
