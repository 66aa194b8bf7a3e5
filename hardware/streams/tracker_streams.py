"""Streams what a cell tracks: by signal, how its object is found, and the tracker while it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from hardware.devices.tracker import Tracker, UdpStream, UdpTrackerConfig, object_of
from hardware.drivers.aruco_tracker import TagTrackerConfig, TagWatch
from hardware.streams.camera_streams import CameraStreams
from hardware.streams.signal_buffer import SignalBuffer
from robolearn.errors import ConfigError, StaleSignalError
from robolearn.geometry import POSE_COMPONENTS
from robolearn.pusht import block_signal
from robolearn.spec import SignalSpec

UDP_RATE_HZ = 60.0
_POSE_UNIT = "m, quaternion wxyz"


@dataclass(frozen=True, slots=True)
class StandardError:
    """How far off a measured pose may be: standard deviations against where the object is."""

    # Of every coordinate of its position [m].
    position_m: float
    # Of its rotation about every axis [rad].
    rotation_rad: float


@dataclass(frozen=True, slots=True)
class TrackedConfig:
    """One tracked object; by either ``udp`` or ``tags``."""

    # By a tracking system that sends datagrams.
    udp: UdpTrackerConfig | None = None
    # By its tags in a camera's picture.
    tags: TagTrackerConfig | None = None
    # How exact it is: trials keep it, ``evaluate --like`` draws starts by it; null: nobody knows.
    standard_error: StandardError | None = None

    def __post_init__(self) -> None:
        if (self.udp is None) == (self.tags is None):
            raise ConfigError(
                "robot.trackers: a signal has either 'udp' (a tracking system's stream) or 'tags'"
                " (tags in a camera's picture), and only one of them"
            )

    @property
    def camera(self) -> str:
        """The camera that sees the tags; "" without tags."""
        return "" if self.tags is None else self.tags.camera

    @property
    def source(self) -> str:
        """What is asked for it, in words."""
        if self.udp is not None:
            return f"{self.udp.address}:{self.udp.port}"
        return f"camera '{self.camera}'"

    def object(self, signal: str) -> str:
        """What the tracking system, or the lab, calls the object of a signal."""
        return (self.udp.object if self.udp is not None else "") or object_of(signal)

    def signal(self, name: str, camera_rates: Mapping[str, float]) -> SignalSpec:
        """The signal of that name; ``camera_rates`` by camera [Hz]."""
        rate_hz = camera_rates.get(self.camera, UDP_RATE_HZ)
        if self.udp is not None and self.udp.values == len(POSE_COMPONENTS):
            shape = (len(POSE_COMPONENTS),)
            return SignalSpec(
                name, shape, _POSE_UNIT, rate_hz, components=POSE_COMPONENTS, frame="table"
            )
        return dataclasses.replace(block_signal(rate_hz), name=name)


def require_trackers(configs: Mapping[str, TrackedConfig]) -> None:
    """Raise ConfigError for names that are no poses, and for two signals of one object."""
    taken: dict[tuple[str, str], str] = {}
    for signal, config in configs.items():
        if not signal.endswith("/pose") or signal.count("/") != 1 or signal == "/pose":
            raise ConfigError(
                f"robot.trackers: '{signal}' is no signal of a tracked object; expected"
                " '<object>/pose', as in 'block/pose'"
            )
        found = [f"object '{config.object(signal)}'"]
        if config.tags is not None:
            found = [f"tag {t.id} of {config.tags.dictionary}" for t in config.tags.tags]
        for what in found:
            other = taken.setdefault((config.source, what), signal)
            if other != signal:
                raise ConfigError(
                    f"robot.trackers: '{other}' and '{signal}' both follow {what} at"
                    f" {config.source}; name another one ('udp: object:', 'tags: tags:')"
                )


class TrackedStreams:
    """Owns the trackers of a cell. Signals of one port share its socket, signals of one camera its
    pictures. Raises ConfigError for a port in use and a camera without a lens.
    """

    def __init__(self, configs: Mapping[str, TrackedConfig], cameras: CameraStreams) -> None:
        self._trackers: dict[str, Tracker] = {}
        ports: dict[tuple[str, int], UdpStream] = {}
        watches: dict[str, TagWatch] = {}
        with ExitStack() as undo:
            undo.callback(self.close)
            for signal, config in configs.items():
                if config.udp is not None:
                    place = (config.udp.address, config.udp.port)
                    if place not in ports:
                        ports[place] = UdpStream(*place)
                    self._trackers[signal] = ports[place].follow(signal, config.udp)
                elif config.tags is not None:
                    if config.camera not in watches:
                        watches[config.camera] = _watch(config.camera, cameras)
                    follow = watches[config.camera].follow
                    self._trackers[signal] = follow(signal, config.tags)
            undo.pop_all()

    def __iter__(self) -> Iterator[Tracker]:
        """The trackers, in the config's order."""
        return iter(self._trackers.values())

    @property
    def implausible(self) -> int:
        """How many measurements of all objects were not believed so far."""
        return sum(tracker.counts.implausible for tracker in self)

    def require_fresh(self) -> None:
        """Raise the typed error of the first object that is missing or stale; it names it."""
        for tracker in self:
            tracker.latest()

    def forget(self) -> None:
        """Objects may have been moved by hand: only what is measured from now on counts."""
        for tracker in self:
            tracker.forget()

    def wait(self, timeout_s: float) -> None:
        """Until every object was measured lately; the error names all that were not."""
        late: list[StaleSignalError] = []
        for tracker in self:
            try:
                tracker.wait(0.0 if late else timeout_s)
            except StaleSignalError as error:
                late.append(error)
        if late:
            raise StaleSignalError("; ".join(str(error) for error in late)) from late[0]

    def restart(self, buffers: Mapping[str, SignalBuffer]) -> None:
        """An episode starts with the newest measurement of each."""
        for signal, tracker in self._trackers.items():
            tracker.drain()
            pose = tracker.latest()
            buffers[signal].add(pose.t_ns, pose.pose)

    def collect(self, buffers: Mapping[str, SignalBuffer]) -> None:
        """Put every new measurement into its signal's buffer."""
        for signal, tracker in self._trackers.items():
            for pose in tracker.drain():
                buffers[signal].add(pose.t_ns, pose.pose)

    def close(self) -> None:
        """Release every stream; safe to call twice."""
        for tracker in self:
            tracker.close()


def _watch(name: str, cameras: CameraStreams) -> TagWatch:
    camera, config = cameras.camera(name)
    if config.lens is None:
        raise ConfigError(
            f"camera '{name}' finds tags and needs its calibration: add 'lens' (docs/cameras.md"
            " says how to measure it)"
        )
    return TagWatch(camera, config.lens, name)
