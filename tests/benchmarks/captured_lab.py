"""Captures a lab in process: all of ``robolearn capture`` but wires, clock and supervisor.

Which poses are taken, what is judged and kept, and the calibration are the product's; the arm is
where it is told to be, and the cameras are the lab's, with their hidden lenses, places and sensors.
For a machine that is too busy for a lab in real time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from hardware.cell.load import load_cell
from hardware.cell.motion import JOINT_POSITION
from hardware.commissioning.reach import Reach
from hardware.devices.camera import Frame
from hardware.drivers.cameras.mjpeg import decode
from hardware.emulators.sensor import Sensor
from hardware.env.real_env import RealEnv
from robolearn.arms.models import named_arm
from robolearn.capture.write import CaptureWriter
from robolearn.operations.capture.options import CaptureOptions
from robolearn.operations.capture.plan import planned, still_cell
from robolearn.operations.capture.shooting import Shooting
from robolearn.operations.capture.take import CellCaptured, Taker, calibrated_rig
from robolearn.operations.cell.operator import CellOperator
from robolearn.operations.lab.cameras import LabCameraConfig, drawing
from robolearn.operations.lab.workcell import build_plant, load_lab
from robolearn.seeding import child_seed
from robolearn.types import SampleBatch, SampleBlock, SentBlock
from sim.plants.person import Doing, Person
from tests.waiting import pass_time

# From one picture to the next, as far as whoever asks for them can tell [s].
_WAIT_S = 0.16


class LabBench(RealEnv):
    """The arm and the cameras of a lab, in this thread; nothing is opened and nothing moves."""

    def __init__(self, robot: Path, seed: int) -> None:
        cell, lab = load_cell(robot), load_lab(robot)
        still = still_cell(cell)
        self.cell, self.still, self.arm = cell, still, named_arm(cell.arm)
        plant, workcell = build_plant(lab, seed)
        self._poses = {name: plant.true_pose(name) for name in plant.object_names}
        self._workcell = workcell
        plant.close()
        self.q = np.array(still.rest)
        self._sees = {
            c.device.name: _Eye(self, c, drawing(c, workcell, child_seed(seed, c.device.name)))
            for c in lab.cameras
        }
        self._record: list[tuple[int, np.ndarray]] = []
        self._people = {
            c.device.name: Person(
                c.carried, workcell.board, child_seed(seed, "person"), workcell.tool_length_m
            )
            for c in lab.cameras
        }
        self._lab_cameras = lab.cameras
        self.cameras: Any = SimpleNamespace(camera=lambda name: (self._sees[name], None))
        self.supervisor: Any = SimpleNamespace(
            state=lambda: SimpleNamespace(joint_position=self.q.copy())
        )

    def home(self) -> None:
        """Where the arm rests."""
        self.q = np.array(self.still.rest)

    def goto(self, waypoints: Sequence[np.ndarray]) -> None:
        """It is there at once."""
        self.q = np.array(waypoints[-1])

    def drain(self) -> SampleBatch:
        """Where the arm was when pictures were taken."""
        now = (time.monotonic_ns(), self.q)
        times, rows = zip(*(*self._record, now), strict=True)
        self._record.clear()
        block = SampleBlock(np.array(times), np.array(rows), np.ones(len(rows), bool))
        sent = SentBlock(np.zeros(0, int), np.zeros(0, int), {})
        return SampleBatch({JOINT_POSITION: block}, sent)

    def look(self, camera: LabCameraConfig, view: Any) -> Any:
        """What comes into a camera."""
        self._record.append((t_ns := time.monotonic_ns(), self.q))
        held = self._people[camera.device.name].arranged(
            t_ns, self._poses, self._workcell.T_table_flange(self.q)
        )
        view.arrange(held.T_table_camera, held.T_table_board)
        return camera.exposure(t_ns, view.look(self.q, held.poses, 0.085))

    def hands(self, doing: str, thing: str) -> None:
        """The lab's person moves board and objects."""
        for camera in self._lab_cameras:
            self._workcell.require_doable(camera, doing)
            self._people[camera.device.name].begin(cast("Doing", doing), thing, 0)

    def close(self) -> None:
        """Free what draws."""
        for eye in self._sees.values():
            eye.view.close()


class _Eye:
    """One camera, asked for its newest picture."""

    def __init__(self, bench: LabBench, config: LabCameraConfig, view: Any) -> None:
        self._bench, self._config, self.view = bench, config, view
        self._sensor = Sensor(config.device, np.random.default_rng(7))
        self._taken = 0

    def latest(self) -> Frame:
        """A picture of now."""
        pass_time(_WAIT_S, "cameras send pictures one after the other")
        exposure = self._bench.look(self._config, self.view)
        taken = self._sensor.taken(exposure)
        image = decode(self._sensor.jpeg(taken.image), self._config.device.name)
        self._taken += 1
        t_ns = exposure.t_ns
        return Frame(self._taken, t_ns, t_ns, np.nan, image, taken.depth)


def capture_in_process(
    robot: Path, out: Path, options: CaptureOptions, seed: int = 0
) -> CellCaptured:
    """As ``capture_cell`` does with the lab of a cell's file."""
    bench = LabBench(robot, seed)
    config = planned(bench.cell, options)
    writer = CaptureWriter(out, config, resume=True)
    operator = CellOperator(lambda _: None)
    shooting, reach = Shooting(bench, bench.arm, writer), Reach.of(bench.still)
    tell = lambda text: print(text, flush=True)  # noqa: E731
    taker = Taker(bench.cell, config, options, operator, tell, reach, shooting)
    try:
        if options.in_hand or options.board_on == "both":
            taker.hands = bench.hands
        taker.boards()
        calibrated, problem = calibrated_rig(out, tell)
        taker.in_hand(calibrated)
        taker.scans(calibrated)
        taker.backgrounds()
        shooting.store_noise()
    finally:
        bench.close()
    counts = {entry.name: writer.count(entry.name) for entry in config.sets}
    return CellCaptured(out, counts, tuple(taker.advice), calibrated, problem)
