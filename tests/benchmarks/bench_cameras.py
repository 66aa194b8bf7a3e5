"""Cameras: the lab's pictures against PyBullet's renderer, poses by tags, latencies against the
plain cross-correlation; ratios in the same run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from hardware.drivers.aruco_tracker import TagDetector, TagFinder, TagTrackerConfig
from hardware.drivers.cameras.mjpeg import decode
from hardware.emulators.sensor import CameraEmulatorConfig, respond
from hardware.teleop.page.pictures import jpeg_of
from robolearn.calibration.latency import TimeSeries, latency
from robolearn.calibration.lens import LensConfig
from robolearn.data.store.picture_codec import JPEG_QUALITY, FrameCodec, is_plain_jpeg
from robolearn.geometry import pose, quat_from_rotation, rot_z
from robolearn.operations.lab.cameras import LabCameraConfig, drawing
from robolearn.operations.lab.workcell import build_plant, load_lab
from robolearn.pusht import wrap_angle
from sim.plants.plant_view import PlantView
from sim.plants.pusht import PlantConfig, PyBulletPlant
from sim.plants.table_view import TAG_HEIGHT_M, TableView, TableViewConfig
from tests.benchmarks.turns import at_least
from tests.robolearn.calibration.test_calibration import record

Row = dict[str, object]
WIDTH, HEIGHT = 640, 480
CELL = Path(__file__).parents[2] / "configs" / "hardware" / "lab_ur5e_pick_place_camera.yaml"


def rows(long: bool = False) -> list[Row]:
    """All rows; ``long``: more poses and records."""
    some = 40 if long else 15
    return [*_pictures(some), *costs(some), *_latencies(64 if long else 16)]


def _pictures(count: int) -> list[Row]:
    physics, config = PlantConfig(), TableViewConfig()
    view = TableView(
        config,
        T_base_table=pose(rot_z(physics.heading_rad), physics.origin_m),
        tool_length_m=physics.tool_length_m,
        width=WIDTH,
        height=HEIGHT,
    )
    bullet = PlantView(PyBulletPlant(replace(physics, spread=0.0)))
    seen = view.calibration()
    T = seen.T_body_camera
    lens = LensConfig(
        (float(seen.K[0, 0]), float(seen.K[1, 1])),
        (float(seen.K[0, 2]), float(seen.K[1, 2])),
        tuple(T[:3, 3].tolist()),
        tuple(quat_from_rotation(T[:3, :3]).tolist()),
    )
    finder = TagFinder(TagTrackerConfig("top", config.tags, TAG_HEIGHT_M), lens)
    detector = TagDetector("4x4_50")
    rng, sensor = np.random.default_rng(0), CameraEmulatorConfig()
    home = np.array(physics.home)
    ours, theirs, finding, off, turned = [], [], [], [], []
    view.look(home, {"block": np.zeros(3)})
    for _ in range(count):
        at = np.array([*rng.uniform(0.12, 0.39, 2), rng.uniform(-3.1, 3.1)])
        start = time.process_time()
        image = view.look(home, {"block": at}).picture
        ours.append(time.process_time() - start)
        start = time.process_time()
        bullet.draw("top", WIDTH, HEIGHT, home, {"block": at})
        theirs.append(time.process_time() - start)
        data = cv2.imencode(".jpg", respond(image, sensor, rng), [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
        start = time.process_time()
        image = np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)
        fit = finder.find(detector.detect(image))
        finding.append(time.process_time() - start)
        if fit is not None:
            off.append(float(np.hypot(*(fit.pose - at)[:2])))
            turned.append(abs(float(np.degrees(wrap_angle(fit.pose[2] - at[2])))))
    view.close()
    bullet.close()
    mine, other = float(np.median(ours)), float(np.median(theirs))
    found = f"{len(off)} of {count} found"
    return [
        at_least(
            "picture of the lab, 640 x 480", "ms CPU", 1e3 * mine, 1e3 * other, other / mine, 3.0
        ),
        at_least("pose by tags, mean", "mm", 1e3 * float(np.mean(off)), None, None, None, found),
        at_least("pose by tags, worst", "mm", 1e3 * max(off), None, None, None, found),
        at_least("yaw by tags, mean", "deg", float(np.mean(turned)), None, None, None, found),
        at_least("yaw by tags, worst", "deg", max(turned), None, None, None, found),
        at_least("finding the tags", "ms CPU", 1e3 * float(np.median(finding)), None, None, None),
    ]


def costs(count: int) -> list[Row]:
    """CPU of every stage of a picture of 640 x 480 from the lab's scene to the store and the page.

    The last row is what two cameras take at 30 Hz, of a core, beside what they would take if their
    own JPEGs were not kept; lab, supervisor and the rest of the session come beside them.
    """
    config = load_lab(CELL)
    plant, workcell = build_plant(config, 1)
    plant.close()
    poses = {name: np.array(at) for name, at in workcell.objects}
    sensor, rng = CameraEmulatorConfig(width=WIDTH, height=HEIGHT), np.random.default_rng(0)
    camera = LabCameraConfig(sensor, of_scene="top", drawn=0.5, quality="fast")
    view = drawing(camera, workcell)
    q = np.array(workcell.home)
    found = {
        "drawing, at half of the size": _cpu(
            lambda: view.look(q + 0.05 * rng.standard_normal(6), poses, 0.05), count
        )
    }
    look = view.look(q, poses, 0.05)
    view.close()
    picture = camera.exposure(0, look).picture
    seen = respond(picture, sensor, rng)
    jpeg = cv2.imencode(".jpg", seen, [cv2.IMWRITE_JPEG_QUALITY, sensor.quality])[1].tobytes()
    codec = FrameCodec("jpeg", JPEG_QUALITY)
    found |= {
        "enlarging": _cpu(lambda: camera.exposure(0, look), count),
        "noise of the sensor": _cpu(lambda: respond(picture, sensor, rng), count),
        "JPEG of the camera": _cpu(
            lambda: cv2.imencode(".jpg", seen, [cv2.IMWRITE_JPEG_QUALITY, sensor.quality]), count
        ),
        "decoding in the session": _cpu(lambda: decode(jpeg, "top"), count),
        "is it frozen": _cpu(lambda: np.array_equal(seen, picture | 0), count),
        "may it be kept as it is": _cpu(lambda: is_plain_jpeg(jpeg, seen.shape), count),
    }
    # What is made again where the camera's own file is not kept.
    again = {
        "JPEG of the store": _cpu(lambda: codec.encode(seen), count),
        "JPEG of the page": _cpu(lambda: jpeg_of(seen), count),
    }
    rows = [
        at_least(f"picture: {k}", "ms CPU", v, None, None, None) for k, v in (found | again).items()
    ]
    each = sum(found.values())
    # The page shows two of three: a picture per tick of 20 Hz.
    more = again["JPEG of the store"] + again["JPEG of the page"] * 2 / 3
    kept, made = 0.06 * each, 0.06 * (each + more)
    return [
        *rows,
        at_least("two cameras at 30 Hz, files kept", "cores", kept, made, made / kept, None),
    ]


def _cpu(work: Callable[[], object], count: int) -> float:
    """CPU of one call [ms]; with all threads, and whatever else runs on the machine."""
    work()
    start = time.process_time()
    for _ in range(count):
        work()
    return 1e3 * (time.process_time() - start) / count


def _latencies(count: int) -> list[Row]:
    """Bias of 10 s records of a delay of 120 ms, signal to noise 10."""
    ours, plain = [], []
    for seed in range(count):
        asked, seen = record(0.120, seed, 10.0)
        ours.append(latency(asked, seen).latency_s - 0.120)
        plain.append(_plain(asked, seen) - 0.120)
    bias, usual = abs(float(np.mean(ours))), abs(float(np.mean(plain)))
    spread = f"scatter of one record {1e3 * np.std(ours):.2f} against {1e3 * np.std(plain):.2f} ms"
    return [at_least("bias of a latency", "ms", 1e3 * bias, 1e3 * usual, usual / bias, 3.0, spread)]


def _plain(asked: TimeSeries, seen: TimeSeries) -> float:
    """The peak of the cross-correlation of positions on a 1 kHz grid [s]."""
    t = np.arange(asked.t_s[0], asked.t_s[-1], 1e-3)
    a, b = (np.interp(t, s.t_s, s.value[:, 0]) for s in (asked, seen))
    a, b = a - a.mean(), b - b.mean()
    spectrum = np.fft.rfft(b, 2 * len(t)) * np.conj(np.fft.rfft(a, 2 * len(t)))
    return float(np.argmax(np.fft.irfft(spectrum)[: len(t) // 10])) * 1e-3


if __name__ == "__main__":
    print(json.dumps(rows(), indent=2))
