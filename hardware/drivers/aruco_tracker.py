"""Finds object poses by printed tags in a camera's picture (ArUco, AprilTag; OpenCV's detector).

The object lies flat, so its tags lie in a known plane: corners are taken along their rays to that
plane and the pose is the rigid fit of all corners of all tags (Kabsch). A plane has no ambiguity;
poses of single tags from their perspective flip (``cv2.solvePnP``, IPPE). The capture time is the
picture's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field

import cv2
import numpy as np

from hardware.devices.camera import Camera, Frame
from hardware.devices.pose_gate import PlausibleMotion, PoseGate
from hardware.devices.tracker import TrackedPose, TrackerCounts
from hardware.shapes import TagCorners
from robolearn.calibration.fiducials import Tag, corners, dictionary, require_tags
from robolearn.calibration.lens import LensConfig
from robolearn.errors import ConfigError, RobotError, StaleSignalError
from robolearn.geometry import PlanarPose, XYRows
from robolearn.shapes import Picture

log = logging.getLogger(__name__)
_QUEUE = 4096


@dataclass(frozen=True, slots=True)
class TagTrackerConfig:
    """Which camera, which tags, and where they are on the object."""

    # Name of a camera of this cell that has a ``lens``.
    camera: str
    # Tags on the object.
    tags: tuple[Tag, ...]
    # Height of the tags' plane over the table [m].
    height_m: float
    # Dictionary of the tags.
    dictionary: str = "4x4_50"
    # Older measurements raise StaleSignalError [s].
    max_age_s: float = 0.3
    # Fits with a worse mean distance of corners are refused [m].
    max_residual_m: float = 0.004
    # How the object can move; null: every good fit is believed.
    plausible: PlausibleMotion | None = field(default_factory=PlausibleMotion)

    def __post_init__(self) -> None:
        require_tags(self.tags, self.dictionary)
        if not (self.max_age_s > 0 and self.max_residual_m > 0):
            raise ConfigError(
                "max_age_s and max_residual_m must be positive, got"
                f" {self.max_age_s}, {self.max_residual_m}"
            )


@dataclass(frozen=True, slots=True)
class TagFit:
    """Pose ``[3]`` (x, y, yaw), mean distance of the fitted corners [m], number of tags seen."""

    pose: PlanarPose
    residual_m: float
    tags: int


Seen = dict[int, TagCorners]
"""Corners ``[4, 2]`` [px] of the tags in a picture, by id."""


class TagDetector:
    """Finds the tags of one dictionary in a picture; no state but OpenCV's."""

    def __init__(self, name: str) -> None:
        settings = cv2.aruco.DetectorParameters()
        settings.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
        settings.cornerRefinementWinSize = 3
        self._detector = cv2.aruco.ArucoDetector(dictionary(name), settings)

    def detect(self, image: Picture) -> Seen:
        """The tags in an RGB picture."""
        grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        found, ids, _ = self._detector.detectMarkers(grey)
        numbers = [] if ids is None else ids.ravel()
        return {
            int(tag_id): np.asarray(points, dtype=np.float64).reshape(4, 2)
            for points, tag_id in zip(found, numbers, strict=True)
        }


class TagFinder:
    """Where one object is, by its tags in a picture."""

    def __init__(self, config: TagTrackerConfig, lens: LensConfig) -> None:
        self._config, self._lens = config, lens
        _ = lens.T_table_camera  # refuses a camera that moves with the arm, before anything starts
        self._corners = {t.id: corners(t) for t in config.tags}

    def find(self, corners: Seen) -> TagFit | None:
        """The fit to all of the object's tags; None when none is seen."""
        mine = [i for i in corners if i in self._corners]
        if not mine:
            return None
        pixels = np.concatenate([corners[i] for i in mine])
        on_table = self._lens.on_plane(pixels, self._config.height_m)
        known = np.concatenate([self._corners[i] for i in mine])
        pose, residual_m = fit_planar(known, on_table)
        return TagFit(pose, residual_m, len(mine))


class TagWatch:
    """Looks at every new picture of a camera on a thread of its own (the newest, when late), once
    for all objects with tags.
    """

    def __init__(self, camera: Camera, lens: LensConfig, name: str) -> None:
        self.camera, self._lens = camera, lens
        self._followers: tuple[TagTracker, ...] = ()
        self._detectors: dict[str, TagDetector] = {}
        self._closed = False
        self.failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"tags {name}", daemon=True)

    def follow(self, signal: str, config: TagTrackerConfig) -> TagTracker:
        """A tracker of one object."""
        tracker = TagTracker(signal, config, self, TagFinder(config, self._lens))
        if config.dictionary not in self._detectors:
            made = {config.dictionary: TagDetector(config.dictionary)}
            self._detectors = {**self._detectors, **made}
        self._followers = (*self._followers, tracker)
        if not self._thread.is_alive():
            self._thread.start()
        return tracker

    def leave(self, tracker: TagTracker) -> None:
        """One tracker less; the last one ends the thread (the camera is its owner's)."""
        self._followers = tuple(f for f in self._followers if f is not tracker)
        if not self._followers:
            self._closed = True
            self._thread.join(2.0)

    def _run(self) -> None:
        index, looked_ns = -1, 0
        while not self._closed:
            try:
                frame = self.camera.wait(index, 0.2)
            except RobotError:
                # The camera's own error reaches whoever asks; here there is nothing to look at. A
                # camera that was connected again counts from the beginning.
                index = -1
                time.sleep(0.02)
                continue
            index = frame.index
            if frame.t_ns <= looked_ns:
                continue
            looked_ns = frame.t_ns
            try:
                self._look(frame)
            except (cv2.error, ValueError, np.linalg.LinAlgError) as error:
                self.failed = error
                log.exception("looking for tags")
                return

    def _look(self, frame: Frame) -> None:
        followers, detectors = self._followers, self._detectors
        corners = {name: detector.detect(frame.image) for name, detector in detectors.items()}
        for follower in followers:
            follower.take(corners[follower.config.dictionary], frame.t_ns)


class TagTracker:
    """One object of a :class:`TagWatch`."""

    def __init__(
        self, signal: str, config: TagTrackerConfig, watch: TagWatch, finder: TagFinder
    ) -> None:
        self.config, self._signal = config, signal
        self._watch, self._finder = watch, finder
        self._lock = threading.Lock()
        self._newest: TrackedPose | None = None
        self._new: deque[TrackedPose] = deque(maxlen=_QUEUE)
        self._forgot_ns = 0
        self._gate = PoseGate(signal, config.plausible, config.max_age_s)
        self._taken = self._refused = self._lost = 0

    @property
    def name(self) -> str:
        """The signal."""
        return self._signal

    @property
    def counts(self) -> TrackerCounts:
        """Pictures with a pose, with a bad fit, without a tag, with a pose that cannot be."""
        with self._lock:
            return TrackerCounts(self._taken, self._refused, self._lost, self._gate.refused)

    def latest(self) -> TrackedPose:
        """The newest measurement; the camera's own error when it has one."""
        self._watch.camera.latest()
        failed = self._watch.failed
        if failed is not None:
            raise RobotError(f"tracker of '{self.name}': {failed}") from failed
        with self._lock:
            newest, counts = self._newest, (self._taken, self._refused, self._lost)
            jumped = self._gate.refusal
        limit_s = self.config.max_age_s
        age_s = float("inf") if newest is None else (time.monotonic_ns() - newest.t_ns) * 1e-9
        if newest is None or age_s > limit_s:
            state = "no measurement yet" if newest is None else f"newest is {age_s:.3f} s old"
            if jumped:
                state += f", for what came since cannot be: {jumped}"
            raise StaleSignalError(
                f"tracker of '{self.name}' by camera '{self.config.camera}': {state} (limit"
                f" {limit_s:g} s); {counts[0]} pictures with a pose, {counts[1]} with a bad fit,"
                f" {counts[2]} without one of the tags {[t.id for t in self.config.tags]}. Check"
                " that the camera sees a tag, that they are sharp, and the dictionary"
            )
        return newest

    def wait(self, timeout_s: float) -> TrackedPose:
        """The newest measurement, waiting up to ``timeout_s`` for a fresh one."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self.latest()
            except StaleSignalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def drain(self) -> list[TrackedPose]:
        """All measurements since the last call."""
        with self._lock:
            out = list(self._new)
            self._new.clear()
        return out

    def forget(self) -> None:
        """What is measured from now on counts, wherever the object is."""
        with self._lock:
            self._forgot_ns = time.monotonic_ns()
            self._newest = None
            self._new.clear()
            self._gate.forget()

    def close(self) -> None:
        """Leave the camera's watch."""
        self._watch.leave(self)

    def take(self, corners: Seen, t_ns: int) -> None:
        """The tags of a picture that was taken at ``t_ns``."""
        fit = self._finder.find(corners)
        with self._lock:
            if fit is None:
                self._lost += 1
            elif fit.residual_m > self.config.max_residual_m:
                self._refused += 1
            elif self._newest is not None and t_ns <= self._newest.t_ns:
                return
            elif t_ns > self._forgot_ns and self._gate.accepts(t_ns, fit.pose):
                self._taken += 1
                self._newest = TrackedPose(t_ns, time.monotonic_ns(), fit.pose)
                self._new.append(self._newest)


def fit_planar(points: XYRows, measured: XYRows) -> tuple[PlanarPose, float]:
    """The pose (x, y, yaw) that moves ``points [n, 2]`` onto ``measured [n, 2]`` in the sense of
    least squares, and the mean distance that is left [m] (Kabsch 1976, in two dimensions).
    """
    p, s = points - points.mean(axis=0), measured - measured.mean(axis=0)
    yaw = np.arctan2(float((p[:, 0] * s[:, 1] - p[:, 1] * s[:, 0]).sum()), float((p * s).sum()))
    c, si = np.cos(yaw), np.sin(yaw)
    R = np.array([[c, -si], [si, c]])
    at = measured.mean(axis=0) - R @ points.mean(axis=0)
    left = points @ R.T + at - measured
    return np.array([at[0], at[1], yaw]), float(np.linalg.norm(left, axis=1).mean())
