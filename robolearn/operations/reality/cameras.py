"""Looks at a workcell in process: a cell's cameras on a simulated clock, and the tags they see.

What a camera makes of the light is the lab's (``hardware/emulators/sensor.py``), what it sees the
lab's drawing with the same hidden lens and mount; only wires, threads and the real clock are left
out. Poses by tags are found in the pictures as they arrive, by the detector of a real cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.cell.config import CellConfig
from hardware.devices.camera_config import CameraConfig
from hardware.devices.pose_gate import PoseGate
from hardware.drivers.aruco_tracker import TagDetector, TagFinder, TagTrackerConfig
from hardware.emulators.sensor import Arrived, Exposure, PictureStream
from robolearn.errors import ConfigError, did_you_mean
from robolearn.operations.lab.cameras import Drawing, LabCameraConfig, Workcell, drawing
from robolearn.operations.lab.workcell import LabConfig
from robolearn.operations.reality.driven_arm import DrivenArm
from robolearn.seeding import child_seed
from robolearn.shapes import Picture
from robolearn.spec import SignalSpec


@dataclass(frozen=True, slots=True)
class Seen:
    """A sample of ``signal`` that arrived, captured at ``t_ns``."""

    signal: str
    t_ns: int
    value: Any


class RealityCameras:
    """The cameras of a cell that are drawn by its lab; nothing is drawn before an episode."""

    def __init__(self, cell: CellConfig, lab: LabConfig, seed: int) -> None:
        """Raises :class:`ConfigError` for a camera of the cell that its lab does not have."""
        tracked = {t.camera for t in cell.trackers.values()}
        wanted = [c for c in cell.cameras if c.signal or c.stream.name in tracked]
        self._cameras = [_Camera(c, _of(c.stream.name, lab), seed) for c in wanted]
        by_name = {c.shown.stream.name: c for c in self._cameras}
        for signal, tracker in cell.trackers.items():
            if tracker.tags is not None:
                by_name[tracker.camera].follow(signal, tracker.tags)

    @property
    def signals(self) -> tuple[SignalSpec, ...]:
        """Pictures and depth that the cell shows, in order."""
        return tuple(s for c in self._cameras for s in c.shown.specs)

    @property
    def tracked(self) -> tuple[str, ...]:
        """Signals whose poses are found by tags."""
        return tuple(name for c in self._cameras for name in c.tracked)

    def begin(self, arm: DrivenArm, seed: int) -> None:
        """An episode with this arm begins; ``seed``: of its noise. Nothing is under way."""
        for camera in self._cameras:
            camera.begin(arm, seed)

    def tick(self, now_ns: int) -> Iterator[Seen]:
        """What arrived by ``now_ns``, every camera's in order."""
        for camera in self._cameras:
            yield from camera.tick(now_ns)

    def close(self) -> None:
        """Free what draws; safe to call twice."""
        for camera in self._cameras:
            camera.close()


class _Camera:
    """One camera: how the cell has it, and what stands for it."""

    def __init__(self, shown: CameraConfig, lab: LabCameraConfig, seed: int) -> None:
        self.shown, self._lab = shown, lab
        # As the lab names it: the same lens and mount are hidden in both forms.
        self._seed = child_seed(seed, f"camera {lab.device.name}")
        self._stream: PictureStream | None = None
        self._view: Drawing | None = None
        self._finders: dict[str, _Tagged] = {}

    @property
    def tracked(self) -> tuple[str, ...]:
        return tuple(self._finders)

    def follow(self, signal: str, config: TagTrackerConfig) -> None:
        if self.shown.lens is None:
            raise ConfigError(
                f"trackers: '{signal}' is found by tags in camera '{self.shown.stream.name}', which"
                " has no lens: it needs its calibration"
            )
        self._finders[signal] = _Tagged(signal, config, TagFinder(config, self.shown.lens))

    def begin(self, arm: DrivenArm, seed: int) -> None:
        view = self._drawing(arm.workcell)

        def draw(now_ns: int) -> Exposure:
            plant = arm.plant
            poses = {name: plant.true_pose(name) for name in plant.object_names}
            look = view.look(plant.joint_positions(), poses, arm.opening_m)
            return self._lab.exposure(now_ns, look)

        rng = np.random.default_rng(child_seed(self._seed, "pictures", seed))
        self._stream = PictureStream(self._lab.device, draw, rng)
        for finder in self._finders.values():
            finder.gate.forget()

    def tick(self, now_ns: int) -> Iterator[Seen]:
        for arrived in [] if self._stream is None else self._stream.tick(now_ns):
            yield from self._read(arrived)

    def close(self) -> None:
        if self._view is not None:
            self._view.close()
        self._view = self._stream = None

    def _drawing(self, workcell: Workcell) -> Drawing:
        if self._view is None:
            workcell.require_drawn(self._lab)
            self._view = drawing(self._lab, workcell, self._seed)
        return self._view

    def _read(self, arrived: Arrived) -> Iterator[Seen]:
        shown, t_ns = self.shown, arrived.t_ns
        if shown.signal:
            yield Seen(shown.signal_name, t_ns, shown.shown(arrived.image))
        if shown.signal and shown.stream.depth and arrived.depth is not None:
            yield Seen(shown.depth_spec.name, t_ns, shown.measured(arrived.depth))
        for signal, tagged in self._finders.items():
            pose = tagged.find(arrived.image, t_ns)
            if pose is not None:
                yield Seen(signal, t_ns, pose)


class _Tagged:
    """Finds one object by its tags, and believes what a real cell would."""

    def __init__(self, signal: str, config: TagTrackerConfig, finder: TagFinder) -> None:
        self._config, self._finder = config, finder
        self._detector = TagDetector(config.dictionary)
        self.gate = PoseGate(signal, config.plausible, config.max_age_s)

    def find(self, image: Picture, t_ns: int) -> Any:
        """The pose ``[3]``; None where none is seen or believed."""
        fit = self._finder.find(self._detector.detect(image))
        if fit is None or fit.residual_m > self._config.max_residual_m:
            return None
        return fit.pose if self.gate.accepts(t_ns, fit.pose) else None


def _of(name: str, lab: LabConfig) -> LabCameraConfig:
    """The lab's camera of that name."""
    found = {c.device.name: c for c in lab.cameras}
    if name not in found:
        raise ConfigError(
            f"the cell has a camera '{name}', its lab has none of that"
            f" name.{did_you_mean(name, found)} lab.cameras: {list(found)}"
        )
    return found[name]
