"""A camera that is carried, a thing that is turned, a gripper that turns what it holds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import cv2
import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.commissioning.reach import Reach, looking_from
from hardware.devices.camera import Frame
from robolearn.capture.check import check_capture
from robolearn.capture.config import CaptureLens
from robolearn.capture.folder import read_capture
from robolearn.capture.write import CaptureWriter
from robolearn.cli.main import main
from robolearn.errors import ConfigError, DataError, RobotConnectionError, StaleSignalError
from robolearn.geometry import inverse, pose, pose_error, rot_x
from robolearn.operations.capture.by_hand import HandStage, planned_by_hand
from robolearn.operations.capture.held import HeldTour, held_poses
from robolearn.operations.capture.options import CaptureOptions, HandOptions
from robolearn.operations.capture.plan import held_set, planned
from robolearn.operations.capture.shooting import Shooting
from sim.reconstruction.apart.turned import turned_objects
from sim.reconstruction.frames import posed_frames
from tests.robolearn.operations.capture.test_depth import (
    Bench,
    FakeTime,
    bench,
)
from tests.sim.reconstruction.turning import FOCAL_PX, SIZE, K, Shot, on_turntable
from tests.sim.reconstruction.worlds import Thing

__all__ = ["bench"]  # a fixture
CELL = Path("configs/hardware/lab_ur5e_pick_place_camera.yaml")
BOARD = CaptureOptions(squares=(7, 5), square_m=0.03, marker_m=0.022)
POST = Thing(
    "post", "box", (("box", (0.02, 0.012, 0.03), (0, 0, 0.03)),), (0, 0, 0), (0.9, 0.2, 0.2), 0.1
)
CRUMB = dataclasses.replace(POST, parts=(("box", (0.004, 0.004, 0.004), (0, 0, 0.004)),))


class Carried:
    """Sends pictures as a camera in somebody's hand does; then nothing any more."""

    def __init__(self, clock: FakeTime, frames: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self._clock, self._frames, self._sent, self._first = clock, frames, 0, 0
        self.loses: tuple[int, ...] = ()
        self.connected = 0

    def connect(self) -> None:
        self.connected, self._first = self.connected + 1, self._sent
        self.loses = tuple(n for n in self.loses if n != self._sent)

    def wait(self, index: int, timeout_s: float) -> Frame:
        assert index in (self._sent - 1 - self._first, -1)
        if self._sent in self.loses:
            raise RobotConnectionError("the cable was pulled")
        if self._sent == len(self._frames):
            self._clock.now_s += timeout_s
            raise StaleSignalError("no picture within 2 s")
        self._clock.now_s += 0.03
        image, depth = self._frames[self._sent]
        self._sent += 1
        t_ns = self._clock.monotonic_ns()
        return Frame(self._sent - 1 - self._first, t_ns, t_ns, np.nan, image, depth)


def seen(shot: Shot) -> tuple[np.ndarray, np.ndarray]:
    return shot.picture, np.rint(1e3 * shot.depth).astype(np.uint16)


@pytest.fixture(scope="module")
def turned() -> list[tuple[np.ndarray, np.ndarray]]:
    return [seen(s) for s in on_turntable(POST, 9)]


@pytest.fixture(scope="module")
def bare() -> list[tuple[np.ndarray, np.ndarray]]:
    return [seen(s) for s in on_turntable(CRUMB, 9)]


def stage(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    hand: HandOptions,
    frames: list[tuple[np.ndarray, np.ndarray]],
    *,
    lens: bool = True,
    loses: tuple[int, ...] = (),
) -> tuple[list[str], str]:
    """What is told, and what should be done, when a camera sent ``frames``."""
    clock = FakeTime()
    monkeypatch.setattr("robolearn.operations.capture.by_hand.time", clock)
    camera = load_cell(CELL).cameras[0]
    stream = dataclasses.replace(
        camera.stream, name="phone", width=SIZE[0], height=SIZE[1], depth=True
    )
    described = dataclasses.replace(camera, stream=stream, lens=None)
    config = planned_by_hand("cell", described, BOARD, hand)
    known = CaptureLens((FOCAL_PX, FOCAL_PX), (K[0, 2], K[1, 2])) if lens else None
    phone = dataclasses.replace(config.cameras["phone"], lens=known)
    config = dataclasses.replace(config, cameras={"phone": phone})
    writer = CaptureWriter(folder, config, resume=True, grow=True)
    told: list[str] = []
    carried = Carried(clock, frames)
    carried.loses = loses
    advice = HandStage(carried, writer, config.sets[0], hand, told.append).fill()
    assert carried.connected >= len(loses)
    return told, advice


def test_a_turned_object_is_kept_once_from_every_side_and_fused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turned: list
) -> None:
    hand = HandOptions("turntable", "phone", "post", 8, 5.0)
    dark = (np.zeros_like(turned[0][0]), turned[0][1])
    blurred = (cv2.GaussianBlur(turned[0][0], (0, 0), 6.0), turned[0][1])
    # The first side again and again, then a jerk, a lamp that fails, a blur; then all sides.
    frames = [turned[0]] * 5 + [turned[3], turned[1], dark, dark, blurred, blurred]
    frames += [f for f in turned[1:] for _ in range(2)]
    told, advice = stage(tmp_path / "c", monkeypatch, hand, frames)
    assert not advice
    assert [t for t in told if " of 8" in t] == [f"phone: {k + 1} of 8" for k in range(8)]
    assert any("almost black" in t for t in told)
    assert any("blurred" in t for t in told)
    capture = read_capture(tmp_path / "c")
    assert capture.config.objects[0].name == "post"
    assert len(capture.frames) == 8
    made, said = turned_objects(capture, capture.frames)
    assert not said
    size = np.ptp(made["post"].scanned.vertices, axis=0)
    assert np.sort(size) == pytest.approx([0.024, 0.04, 0.06], abs=0.006)


def test_a_stage_that_was_left_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: list
) -> None:
    hand = HandOptions("scan", "phone", "", 8, 5.0)
    twice = [f for f in bare for _ in range(2)]
    told, advice = stage(tmp_path / "c", monkeypatch, hand, twice[:6])
    assert "3 of 8 pictures: nothing new for 5 s" in advice
    assert "the same command goes on" in advice
    assert "no picture within 2 s" in told
    # What was taken is known again: its sides count once.
    told, advice = stage(tmp_path / "c", monkeypatch, hand, twice)
    assert not advice
    assert told[0] == "phone: 4 of 8"
    capture = read_capture(tmp_path / "c")
    # Every picture tells by the board where it was taken.
    placed = posed_frames(capture, capture.frames)
    assert (placed.world, len(placed.frames)) == ("table", 8)


def test_a_camera_that_is_lost_is_connected_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: list
) -> None:
    hand = HandOptions("scan", "phone", "", 8, 30.0)
    twice = [f for f in bare for _ in range(2)]
    told, advice = stage(tmp_path / "c", monkeypatch, hand, twice, loses=(5, 9))
    # Of nine sides: what was shown before and after a loss is not two pictures of one place.
    assert "7 of 8 pictures" in advice
    assert told.count("the cable was pulled") >= 2
    told, advice = stage(tmp_path / "d", monkeypatch, hand, twice, loses=(4,))
    assert not advice


def test_a_lens_needs_the_board_all_over_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: list
) -> None:
    hand = HandOptions("lens", "phone", "", 8, 5.0)
    small = [
        (
            cv2.copyMakeBorder(
                cv2.resize(p, (200, 150)), 60, 30, 80, 40, cv2.BORDER_CONSTANT, value=(90, 90, 90)
            ),
            d,
        )
        for p, d in bare
    ]
    moved = [(np.roll(p, 4 * k, axis=1), d) for k, (p, d) in enumerate(small)]
    told, advice = stage(
        tmp_path / "c", monkeypatch, hand, [f for f in moved for _ in range(2)], lens=False
    )
    assert "the board was " in advice
    frames = read_capture(tmp_path / "c").frames
    # Pictures for a lens have no depth.
    assert frames
    assert all(f.depth_file is None for f in frames)
    assert all(f.set.board_on == "hand" for f in frames)
    assert told


def test_stages_grow_one_capture_and_another_board_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: list
) -> None:
    folder = tmp_path / "c"
    frames = [f for f in bare[:2] for _ in range(2)]
    stage(folder, monkeypatch, HandOptions("scan", "phone", "", 8, 1.0), frames)
    stage(folder, monkeypatch, HandOptions("turntable", "phone", "post", 8, 1.0), frames)
    capture = read_capture(folder)
    assert [s.name for s in capture.config.sets] == ["scan_phone", "object_post_phone"]
    assert {f.set.name for f in capture.frames} == {"scan_phone", "object_post_phone"}
    # An arm's record of another hour says nothing against them.
    (folder / "robot.csv").write_text("t_s,q1\n1.0,0.0\n2.0,0.1\n")
    assert "out of step" in check_capture(capture).errors[0]
    armed = dataclasses.replace(
        capture.frames[0],
        set=dataclasses.replace(capture.frames[0].set, name="handeye"),
        t_s=1.5,
        T_base_tool=np.eye(4),
    )
    both = dataclasses.replace(capture, frames=(*capture.frames, armed))
    assert not check_capture(both).errors
    other = dataclasses.replace(capture.config, board=planned_board((8, 6)))
    with pytest.raises(ConfigError, match="one board for all stages"):
        CaptureWriter(folder, other, resume=True, grow=True)
    cameras = {
        "phone": dataclasses.replace(capture.config.cameras["phone"], size=(64, 48), lens=None)
    }
    with pytest.raises(ConfigError, match=r"pictures of \(320, 240\) px, got \(64, 48\)"):
        CaptureWriter(
            folder, dataclasses.replace(capture.config, cameras=cameras), resume=True, grow=True
        )
    assert read_capture(folder).config == capture.config


def planned_board(squares: tuple[int, int]):
    camera = load_cell(CELL).cameras[0]
    hand = HandOptions("scan", camera.stream.name)
    return planned_by_hand("c", camera, dataclasses.replace(BOARD, squares=squares), hand).board


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--by-hand", "scan"], "which camera"),
        (["--by-hand", "scan", "--camera", "tpo"], "no camera 'tpo'. Did you mean 'top'"),
        (["--by-hand", "turntable", "--camera", "top"], "give 'object'"),
        (["--by-hand", "lens", "--camera", "top", "--object", "mug"], "object goes with"),
        (["--camera", "top"], "go with by_hand"),
        (["--by-hand", "scan", "--camera", "top", "--pictures", "2"], "pictures must be in"),
        (["--in-hand", "mug"], "board on the flange"),
        (["--in-hand", "mug", "--board-on", "both", "--on-flange", "wrist"], "measures depth"),
    ],
)
def test_what_the_user_can_fix(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--robot", str(CELL), "--out", str(tmp_path / "c"), "--yes"]
    assert main(["capture", *out, *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_a_camera_that_is_at_fault_is_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(*_args: object, **_options: object) -> None:
        raise StaleSignalError("camera 'top': nothing arrived for 2 s")

    monkeypatch.setattr("robolearn.operations.capture.by_hand.capture_by_hand", lost)
    words = ["--robot", str(CELL), "--out", str(tmp_path / "c"), "--by-hand", "scan"]
    assert main(["capture", *words, "--camera", "top"]) != 0
    assert "robolearn capture: camera 'top': nothing arrived" in capsys.readouterr().err


def test_the_gripper_turns_what_it_holds_until_all_sides_were_seen(
    tmp_path: Path, bench: Bench
) -> None:
    cell = load_cell(CELL)
    deep = tuple(
        dataclasses.replace(c, stream=dataclasses.replace(c.stream, depth=True))
        for c in cell.cameras
    )
    options = CaptureOptions(on_flange=("wrist",), board_on="both", in_hand=("mug",), views=12)
    config = planned(dataclasses.replace(cell, cameras=deep), options)
    held = [s for s in config.sets if s.purpose == "object"]
    assert [(s.name, s.object, s.object_on) for s in held] == [
        (held_set("", "top"), "", "flange"),
        (held_set("mug", "top"), "mug", "flange"),
    ]
    writer = CaptureWriter(tmp_path / "c", config)
    shooting = Shooting(bench, bench.arm, writer)  # type: ignore[arg-type]
    reach = Reach(bench.arm, np.full(6, -6.2), np.full(6, 6.2), None, tool_m=0.15)
    # Beside the arm, level with the hand.
    beside = looking_from(np.array([0.5, -0.5, 0.4]), np.array([0.5, 0.0, 0.35]), 0.0)
    told: list[str] = []
    tour = HeldTour(shooting, reach, beside, told.append)
    with pytest.raises(DataError, match="never saw the board on the flange"):
        tour.take(held[0], 12)
    picture = np.zeros((480, 640, 3), np.uint8)
    T = pose(rot_x(np.pi), (0.5, 0.0, 0.5))
    writer.add("handeye_top", picture, T_base_tool=T)
    for entry in held:
        assert not HeldTour(shooting, reach, beside, told.append).take(entry, 12)
    assert told[0] == "top: the empty hand, 1 of 12"
    assert told[-1] == "top: mug, 12 of 12"
    frames = read_capture(tmp_path / "c").of("object")
    empty, full = (
        [f.T_base_tool for f in frames if f.set.object == what and f.T_base_tool is not None]
        for what in ("", "mug")
    )
    for one, other in zip(empty, full, strict=True):
        # The same poses with and without, about what is held where the board was.
        assert pose_error(one, other)[0] < 1e-3
        assert pose_error(one, other)[1] < 1e-3
        tip = (one @ [0.0, 0.0, 0.15, 1.0])[:3]
        np.testing.assert_allclose(tip, [0.5, 0.0, 0.35], atol=1e-3)
    eyes = [(inverse(one) @ beside)[:3, 3] - [0.0, 0.0, 0.15] for one in full]
    sides = np.array([e / np.linalg.norm(e) for e in eyes])
    # Every side but the palm's is seen from less than 50 degrees beside it.
    for side in (*np.eye(3), [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]):
        assert (sides @ side).max() > np.cos(np.radians(50.0)), side


def test_poses_of_a_hand_are_the_same_every_time_and_show_it(tmp_path: Path) -> None:
    config = planned(load_cell(CELL), CaptureOptions(on_flange=("wrist",), board_on="both"))
    writer = CaptureWriter(tmp_path / "c", config)
    T = pose(rot_x(np.pi), (0.5, 0.0, 0.5))
    writer.add("handeye_top", np.zeros((480, 640, 3), np.uint8), T_base_tool=T)
    beside = looking_from(np.array([0.5, -0.5, 0.4]), np.array([0.5, 0.0, 0.35]), 0.0)
    one, two = (held_poses(tmp_path / "c", "top", beside, 0.15) for _ in range(2))
    assert len(one) > 100
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    # Nearer than depth is measured, nothing is seen.
    near = looking_from(np.array([0.5, -0.2, 0.4]), np.array([0.5, 0.0, 0.35]), 0.0)
    assert held_poses(tmp_path / "c", "top", near, 0.15) == []
