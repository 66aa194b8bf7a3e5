"""Serves a virtual lab until it is told to stop."""

from __future__ import annotations

import gc
import json
import logging
import os
import secrets
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hardware.cell.load import load_sections
from hardware.emulators.drivetrain import behind
from hardware.emulators.lab.launch import LabAddress
from hardware.emulators.lab.workcell import VirtualLab
from robolearn.errors import ConfigError
from robolearn.files import write_atomic
from robolearn.operations.lab.arm import is_arm_lab, make_arm_lab
from robolearn.operations.lab.cameras import CameraProcess, Workcell, start_cameras
from robolearn.operations.lab.options import LabOptions
from robolearn.operations.lab.view import ViewProcess
from robolearn.operations.lab.workcell import LabConfig, build_fingers, build_plant, load_lab
from robolearn.spec import to_json

log = logging.getLogger(__name__)

TOKEN_VARIABLE = "ROBOLEARN_LAB_TOKEN"  # noqa: S105  (the name of a variable)
# Below the supervisor's: a late world is better than a late supervisor.
FIFO_PRIORITY = 30


@dataclass(frozen=True, slots=True)
class Serving:
    """A lab that serves: where, and one line per device for a person."""

    where: LabAddress
    devices: tuple[str, ...]


def serve_lab(
    config: Path,
    options: LabOptions,
    *,
    ready: Callable[[Serving], None],
    stop: Callable[[], bool],
    follow: int | None = None,
) -> None:
    """Serve the lab of a hardware config; ``ready`` is called once clients may connect. Returns
    when ``stop()`` is true, or the file descriptor ``follow`` is closed by its other end.

    ConfigError for a lab that cannot be built, RobotConnectionError for a port that is taken.
    """
    token = os.environ.get(TOKEN_VARIABLE) or secrets.token_hex(16)
    ended = _Ended(follow, stop)
    if is_arm_lab(load_sections(config)):
        _serve_arm(config, options, token, ready, ended)
    else:
        _serve_workcell(load_lab(config, options.world), options, token, ready, ended)


def _serve_workcell(
    config: LabConfig,
    options: LabOptions,
    token: str,
    ready: Callable[[Serving], None],
    ended: _Ended,
) -> None:
    address, seed = options.address, options.seed
    plant, workcell = build_plant(config, seed)
    view: ViewProcess | None = None
    cameras: list[CameraProcess] = []
    lab: VirtualLab | None = None
    try:
        fingers = build_fingers(config, plant)
        view = ViewProcess(config) if config.world != "kinematic" else None
        cameras = start_cameras(config.cameras, workcell, address, seed)
        lab = VirtualLab(
            plant,
            config.devices,
            address=address,
            token=token,
            seed=seed,
            render=view.render if view else None,
            cameras=cameras,
            fingers=fingers,
            arm=behind(plant, config.drivetrain, seed),
        )
        if view:
            view.attach(lab.loop.selector)
        ended.watch(lab.loop.selector)
        if config.real_time:
            _take_real_time_priority()
        if options.truth is not None:
            _write_truth(options.truth, config, workcell, cameras)
        ready(_workcell(config, lab, address, token, {c.name: c.port for c in cameras}))
        # What exists now lives as long as the process: keep the collector away from it.
        gc.freeze()
        lab.run(ended)
    finally:
        if view:
            view.close()
        for camera in cameras:
            camera.close()
        if lab:
            lab.close()
        plant.close()


def _serve_arm(
    config: Path,
    options: LabOptions,
    token: str,
    ready: Callable[[Serving], None],
    ended: _Ended,
) -> None:
    address = options.address
    lab, built = make_arm_lab(
        config, world=options.world, address=address, token=token, seed=options.seed
    )
    try:
        ended.watch(lab.loop.selector)
        if built.real_time:
            _take_real_time_priority()
        devices = built.devices
        place = f"{address}, port 502" if devices.kind == "xarm" else str(devices.link)
        where = LabAddress(
            address=address,
            admin_port=lab.admin_port,
            tracker_port=devices.tracker.port if devices.tracker else 0,
            token=token,
            world=built.world,
        )
        description = (
            f"{built.arm} behind {devices.kind}: {place}",
            f"admin: {address}:{lab.admin_port}",
        )
        ready(Serving(where, description))
        gc.freeze()
        lab.run(ended)
    finally:
        lab.close()


def _workcell(
    config: LabConfig, lab: VirtualLab, address: str, token: str, cameras: dict[str, int]
) -> Serving:
    tracker_port, gripper = config.devices.tracker.port, config.devices.gripper
    devices = [f"robot: {address}, RTDE 30004, dashboard 29999, scripts 30003"]
    if gripper is not None:
        devices.append(f"gripper: {address}:{gripper.port}")
    devices.append(f"tracker: UDP to {address}:{tracker_port}; admin: {address}:{lab.admin_port}")
    films = [c.device.name for c in config.cameras if c.film]
    devices += [
        f"camera {name}: http://{address}:{port}/{name}{' (a film)' if name in films else ''}"
        for name, port in cameras.items()
    ]
    where = LabAddress(
        address=address,
        admin_port=lab.admin_port,
        tracker_port=tracker_port,
        token=token,
        cameras=cameras,
        world=config.world,
        films=films,
    )
    return Serving(where, tuple(devices))


def _write_truth(
    path: Path, config: LabConfig, workcell: Workcell, cameras: Sequence[CameraProcess]
) -> None:
    """What a calibration should find: the cameras, the table, the board."""
    seen = {c.name: None if c.truth is None else c.truth.to_json() for c in cameras}
    found = {"cameras": seen, "T_base_table": workcell.T_base_table.tolist()}
    board = config.board
    if board is not None:
        found["board"] = to_json(board) | {"T_where_board": board.T_where_board.tolist()}
    try:
        write_atomic(path, json.dumps(found, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"truth: '{path}' cannot be written: {error.strerror}") from error


class _Ended:
    """Whether a lab should end: it was told to, or whoever started it is gone."""

    def __init__(self, follow: int | None, stop: Callable[[], bool]) -> None:
        self._follow, self._stop, self._gone = follow, stop, False

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Look at the other end from the lab's loop."""
        if self._follow is not None:
            selector.register(self._follow, selectors.EVENT_READ, self._readable)

    def __call__(self) -> bool:
        return self._gone or self._stop()

    def _readable(self, _mask: int) -> None:
        if self._follow is not None and not os.read(self._follow, 4096):
            self._gone = True


def _take_real_time_priority() -> None:
    try:
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(FIFO_PRIORITY))
    except OSError as error:
        log.warning("no real-time priority (%s): the lab is late when the machine is busy", error)
