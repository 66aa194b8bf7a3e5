"""Depth is captured with pictures, judged while the arm stands there, and reconstructed from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.cell.motion import JOINT_POSITION
from hardware.commissioning.reach import Reach
from hardware.devices.camera import Frame
from hardware.emulators.depth import DepthSensorConfig, measured
from hardware.env.real_env import RealEnv
from robolearn.arms.models import named_arm
from robolearn.calibration.boards import BoardFinder, View
from robolearn.capture.check import check_capture
from robolearn.capture.config import CaptureArm, CaptureLens, Matrix
from robolearn.capture.folder import read_capture
from robolearn.capture.write import CaptureWriter
from robolearn.errors import (
    CameraError,
    ConfigError,
    DataError,
    RobotConnectionError,
    RobotError,
    SpecMismatchError,
    StaleSignalError,
)
from robolearn.geometry import Pose, inverse, pose, rot_z
from robolearn.operations.capture.options import CaptureOptions
from robolearn.operations.capture.plan import planned
from robolearn.operations.capture.scan import TableScan
from robolearn.operations.capture.shooting import Shooting
from robolearn.types import SampleBatch, SampleBlock, SentBlock
from sim.reconstruction.pipeline import place_scan
from tests.boxes_seen import depth_of

CELL = Path("configs/hardware/lab_ur5e_pick_place_camera.yaml")
SIZE, FOCAL_PX = (96, 72), 80.0
SCAN = "scan_wrist"
T_FLANGE_CAMERA = pose(rot_z(0.4), (0.05, 0.02, 0.06))
TARGET = np.array([0.5, 0.0, 0.1])
SENSOR = DepthSensorConfig(noise_px=0.04)
LENS_K = np.array([[FOCAL_PX, 0.0, 47.5], [0.0, FOCAL_PX, 35.5], [0.0, 0.0, 1.0]])


class FakeTime:
    """Passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def time(self) -> float:
        return self.now_s + 1e9

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return round(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Bench(RealEnv):
    """An arm that is where it is told to be; a camera on its flange above a speckled table, whose
    depth ``spoil`` changes, and which raises what it ``says``.
    """

    def __init__(self, clock: FakeTime) -> None:
        self.clock, self.arm = clock, named_arm("ur5e")
        self.q = np.array([0.0, -1.5, 1.8, -1.8, -1.57, 0.0])
        self.rng = np.random.default_rng(3)
        self.spoil: Callable[[np.ndarray, int], np.ndarray] = lambda mm, _: mm
        self.newest: Frame | None = None
        self.says: Callable[[], None] = lambda: None
        self.connects: Callable[[], None] = lambda: None
        self.taken, self.record = 0, list[tuple[int, np.ndarray]]()
        # Of a box on the table, from its lowest to its highest corner.
        self.box: tuple[np.ndarray, np.ndarray] | None = None
        self.cameras = SimpleNamespace(camera=lambda _: (self, None))
        self.supervisor = SimpleNamespace(state=lambda: SimpleNamespace(joint_position=self.q))

    def goto(self, waypoints: Sequence[np.ndarray]) -> None:
        self.q = waypoints[-1]

    def drain(self) -> SampleBatch:
        self.record.append((self.clock.monotonic_ns(), self.q))
        times, rows = zip(*self.record, strict=True)
        self.record.clear()
        block = SampleBlock(np.array(times), np.array(rows), np.ones(len(rows), bool))
        return SampleBatch(
            {JOINT_POSITION: block}, SentBlock(np.zeros(0, int), np.zeros(0, int), {})
        )

    def connect(self) -> None:
        self.connects()

    def latest(self) -> Frame:
        self.says()
        # 30 pictures per second.
        t_ns = self.clock.monotonic_ns() // 33_000_000 * 33_000_000
        if self.newest is not None and t_ns == self.newest.t_ns:
            return self.newest
        self.record.append((t_ns, self.q))
        image, metres = table_seen(T := self.arm.fk(self.q) @ T_FLANGE_CAMERA)
        if self.box is not None:
            down = pose(None, (0.0, 0.0, -TARGET[2]))
            low, high = (corner - [0.0, 0.0, TARGET[2]] for corner in self.box)
            metres = depth_of(low, high, down @ T, LENS_K, SIZE)
        mm = measured(metres, FOCAL_PX, SENSOR, self.rng)
        self.taken += 1
        self.newest = Frame(self.taken, t_ns, t_ns, np.nan, image, self.spoil(mm, self.taken))
        return self.newest


def table_seen(T_base_camera: Pose) -> tuple[np.ndarray, np.ndarray]:
    """Speckles on the plane through the target, and the depth [m] of every pixel."""
    v, u = np.mgrid[: SIZE[1], : SIZE[0]].astype(np.float64)
    rays = np.stack([(u - 47.5) / FOCAL_PX, (v - 35.5) / FOCAL_PX, np.ones_like(u)], axis=-1)
    ahead = rays @ T_base_camera[:3, :3].T
    metres = (TARGET[2] - T_base_camera[2, 3]) / ahead[..., 2]
    at = T_base_camera[:2, 3] + metres[..., None] * ahead[..., :2]
    dark = (np.floor(at / 0.03).sum(axis=-1) % 2).astype(bool)
    image = np.where(dark, 40, 200).astype(np.uint8)
    return np.repeat(image[..., None], 3, axis=2), metres.astype(np.float32)


def begun(folder: Path, *, depth: bool = True) -> CaptureWriter:
    """A capture of a cell whose camera on the flange is known."""
    cell = load_cell(CELL)
    cameras = tuple(
        dataclasses.replace(
            c,
            stream=dataclasses.replace(c.stream, width=SIZE[0], height=SIZE[1], depth=depth),
            lens=None,
        )
        for c in cell.cameras
    )
    options = CaptureOptions(on_flange=("wrist",))
    config = planned(dataclasses.replace(cell, cameras=cameras), options)
    lens = CaptureLens((FOCAL_PX, FOCAL_PX), (47.5, 35.5))
    wrist = dataclasses.replace(
        config.cameras["wrist"], lens=lens, T_mount_camera=rows(T_FLANGE_CAMERA)
    )
    table = CaptureArm("ur5e", rows(pose(None, -TARGET)))
    config = dataclasses.replace(
        config, cameras={**config.cameras, "wrist": wrist}, arm=table, board=None
    )
    return CaptureWriter(folder, config, resume=True)


def rows(T: Pose) -> Matrix:
    return tuple(tuple(float(v) for v in row) for row in T)  # type: ignore[return-value]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    clock = FakeTime()
    monkeypatch.setattr("robolearn.operations.capture.shooting.time", clock)
    return Bench(clock)


def scan(bench: Bench, writer: CaptureWriter, wanted: int) -> list[str]:
    """What is told while a table is scanned, and what should be repeated."""
    told: list[str] = []
    shooting = Shooting(bench, bench.arm, writer)  # type: ignore[arg-type]
    reach = Reach(bench.arm, np.full(6, -6.0), np.full(6, 6.0), None)
    entry = next(s for s in writer.config.sets if s.name == SCAN)
    rng = np.random.default_rng(1)
    advice = TableScan(
        shooting, reach, entry, T_FLANGE_CAMERA, pose(None, TARGET), rng, told.append
    ).take(wanted)
    shooting.store_noise()
    return [*told, advice] if advice else told


def test_a_scan_with_depth_is_what_a_reconstruction_starts_from(
    tmp_path: Path, bench: Bench
) -> None:
    last = np.zeros(0)

    def keep(mm: np.ndarray, _: int) -> np.ndarray:
        nonlocal last
        last = mm
        return mm

    bench.spoil = keep
    told = scan(bench, begun(tmp_path / "c"), 8)
    assert told == [f"wrist: scan {k + 1} of 8" for k in range(8)]
    capture = read_capture(tmp_path / "c")
    assert not check_capture(capture).findings
    newest = capture.of("scan")[-1]
    # As it came, to the last bit.
    assert np.array_equal(np.rint(1e3 * newest.depth_m()), last)
    placed = place_scan(capture)
    assert len(placed.frames) == 8
    assert abs(placed.table.height_m) < 0.002
    assert placed.table.tilt_deg < 0.3
    # The sensor's noise at .4 m: .04 px of 10 px of disparity; less than what is taken for granted.
    assert placed.noise_m == 0.002


def test_a_scan_looks_at_all_sides_of_what_stands_beside_its_middle(
    tmp_path: Path, bench: Bench
) -> None:
    low = np.add(TARGET, [-0.10, 0.20, 0.0])
    high = np.add(low, 0.04)
    bench.box = (low, high)
    told = scan(bench, begun(tmp_path / "c"), 16)
    assert told[-1] == "wrist: scan 16 of 16"
    frames = read_capture(tmp_path / "c").of("scan")
    middle = 0.5 * (low + high)
    walls = np.zeros(4, dtype=int)
    for f in frames:
        assert f.T_base_tool is not None
        T = f.T_base_tool @ T_FLANGE_CAMERA
        away = T[:3, 3] - middle
        local = inverse(T) @ [*middle, 1.0]
        at = (LENS_K @ local[:3])[:2] / local[2]
        in_picture = ((at > 6) & (at < np.array(SIZE) - 6)).all()
        # Looked at from beside it by more than 20 degrees, and not from far above.
        beside = np.array([away[0], -away[0], away[1], -away[1]]) / np.linalg.norm(away)
        walls += (beside > np.sin(np.radians(20.0))) & bool(in_picture)
    assert (walls >= 2).all(), walls


def test_noise_beyond_the_usual_is_measured(tmp_path: Path, bench: Bench) -> None:
    rng = np.random.default_rng(0)
    bench.spoil = lambda mm, _: np.where(mm, mm + rng.normal(0, 6, mm.shape), 0).astype(np.uint16)
    scan(bench, begun(tmp_path / "c"), 3)
    depth = read_capture(tmp_path / "c").config.cameras["wrist"].depth
    assert depth is not None
    assert depth.noise_m == pytest.approx(0.0062, abs=0.0006)


def swings(mm: np.ndarray, taken: int) -> np.ndarray:
    return mm + np.uint16(30 * (taken % 7))


def nearly_blind(mm: np.ndarray, _: int) -> np.ndarray:
    seen = np.zeros_like(mm)
    seen[:10] = mm[:10]
    return seen


@pytest.mark.parametrize(
    ("spoil", "message", "kept"),
    [
        (lambda mm, _: mm * np.uint16(10), "other units.*divide depth.scale_m by about 10", 3),
        (lambda mm, _: mm // np.uint16(10), "0.0.* m away, expected 0.1 to 10 m", 0),
        (nearly_blind, "only 1.% of the picture has depth, at least 30%", 0),
        (swings, "depth still moves in the picture while the arm stands", 0),
    ],
)
def test_depth_of_no_use_ends_a_scan_while_somebody_is_there(
    spoil: Callable[[np.ndarray, int], np.ndarray],
    message: str,
    kept: int,
    tmp_path: Path,
    bench: Bench,
) -> None:
    bench.spoil = spoil
    with pytest.raises(DataError, match=message):
        scan(bench, begun(tmp_path / "c"), 12)
    frames = read_capture(tmp_path / "c").of("scan")
    assert len(frames) == kept


@pytest.mark.parametrize("error", [CameraError, SpecMismatchError])
def test_a_capture_goes_on_after_its_depth_camera_stopped(
    error: type[RobotError], tmp_path: Path, bench: Bench
) -> None:
    until_s = bench.clock.now_s + 1.6

    def stops() -> None:
        if bench.clock.now_s > until_s:
            raise error("camera 'wrist': no depth")

    bench.says = stops
    with pytest.raises(error, match="no depth"):
        scan(bench, begun(tmp_path / "c"), 12)
    bench.says = lambda: None
    there = len(read_capture(tmp_path / "c").of("scan"))
    assert there >= 2
    assert scan(bench, begun(tmp_path / "c"), 5)[0] == f"wrist: scan {there + 1} of 5"
    assert not check_capture(read_capture(tmp_path / "c")).errors
    with pytest.raises(ConfigError, match="holds another capture"):
        begun(tmp_path / "c", depth=False)


def test_a_pause_of_the_depth_is_waited_for(tmp_path: Path, bench: Bench) -> None:
    blind_until_s = bench.clock.now_s + 8.0

    def pauses() -> None:
        if bench.clock.now_s < blind_until_s:
            raise CameraError("camera 'wrist' measures no depth anywhere")

    bench.says = pauses
    left_out, *rest = scan(bench, begun(tmp_path / "c"), 2)
    assert rest == ["wrist: scan 1 of 2", "wrist: scan 2 of 2"]
    # What it was like at the pose cannot be told any more.
    assert left_out.endswith(
        "measures no depth anywhere (from elsewhere it sees: the pose is left out)"
    )


def test_a_lost_camera_is_connected_again_until_patience_ends(tmp_path: Path, bench: Bench) -> None:
    lost, refused = [True], [3]

    def says() -> None:
        if lost:
            raise StaleSignalError("camera 'wrist': nothing arrived for 2 s")

    def connects() -> None:
        refused[0] -= 1
        if refused[0] >= 0:
            raise RobotConnectionError("camera 'wrist' does not answer")
        lost.clear()

    bench.says, bench.connects = says, connects
    assert scan(bench, begun(tmp_path / "c"), 1) == ["wrist: scan 1 of 1"]
    lost.append(True)
    refused[0] = 1000
    with pytest.raises(RobotConnectionError, match=r"no good picture for 15 s: .* does not answer"):
        scan(bench, begun(tmp_path / "c"), 2)
    assert len(read_capture(tmp_path / "c").of("scan")) == 1


def test_a_pose_from_which_nothing_is_far_enough_is_left_out(tmp_path: Path, bench: Bench) -> None:
    """The arm goes back to where depth was measured, to tell a near pose from a dead sensor."""
    shooting = Shooting(bench, bench.arm, begun(tmp_path / "c"))  # type: ignore[arg-type]
    good, near = bench.q.copy(), bench.q + 0.1
    shooting.goto(good)

    def says() -> None:
        if np.array_equal(bench.q, near):
            raise CameraError("camera 'wrist' measures no depth anywhere")

    bench.says, begun_s = says, bench.clock.now_s
    taken = shooting.take_at(near, "wrist", None)
    assert "measures no depth anywhere" in taken.problem
    assert "from elsewhere it sees" in taken.problem
    # Not for long: going back tells whether it is the pose.
    assert bench.clock.now_s - begun_s < 6.0
    np.testing.assert_array_equal(taken.T_base_flange, bench.arm.fk(near))
    np.testing.assert_array_equal(bench.q, good)
    assert "from elsewhere" not in shooting.take_at(good, "wrist", None).problem
    bench.says = lambda: (_ for _ in ()).throw(CameraError("camera 'wrist' is dead"))
    with pytest.raises(CameraError, match="is dead"):
        shooting.take_at(near, "wrist", None)


class BoardThere(BoardFinder):
    """Finds the same corners in every picture."""

    def __init__(self) -> None:
        pass

    def find(self, image: np.ndarray) -> View:
        del image
        return View(np.eye(3), np.array([[10.0, 10.0], [20.0, 10.0], [20.0, 30.0]]))


def test_a_board_nearer_than_depth_is_measured_is_good_without_it(
    tmp_path: Path, bench: Bench
) -> None:
    bench.spoil = nearly_blind
    shooting = Shooting(bench, bench.arm, begun(tmp_path / "c"))
    shooting.goto(bench.q)
    taken = shooting.take("wrist", BoardThere())
    assert (taken.problem, taken.depth_m) == ("", None)
    shooting.keep("handeye_wrist", taken)
    assert read_capture(tmp_path / "c").of("handeye")[0].depth_file is None
