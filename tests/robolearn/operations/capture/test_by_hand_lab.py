"""A person in the lab carries its camera and turns its board, over the wire and in real time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robolearn.capture.folder import read_capture
from robolearn.geometry import pose_error
from robolearn.operations.capture.by_hand import capture_by_hand
from robolearn.operations.capture.options import CaptureOptions, HandOptions
from robolearn.operations.cell.operator import CellOperator
from robolearn.operations.lab.workcell import load_lab
from sim.reconstruction.frames import posed_frames

pytestmark = pytest.mark.slow
CELL = Path("configs/hardware/lab_ur5e_by_hand.yaml")


def test_all_stages_by_hand_in_the_lab(tmp_path: Path) -> None:
    printed = load_lab(CELL).board
    assert printed is not None
    board = printed.board
    options = CaptureOptions(
        squares=board.squares,
        square_m=board.square_m,
        marker_m=board.marker_m,
        dictionary=board.dictionary,
    )
    out, told = tmp_path / "c", list[str]()
    for hand in (
        HandOptions("lens", "phone", "", 10),
        HandOptions("scan", "phone", "", 8),
        HandOptions("turntable", "phone", "cube", 8),
    ):
        done = capture_by_hand(
            CELL,
            out,
            CellOperator(lambda _: None),
            options,
            hand,
            start_lab=True,
            on_note=told.append,
        )
        assert not done.advice, told
        assert done.pictures >= hand.pictures
    capture = read_capture(out)
    lens = capture.config.cameras["phone"].lens
    assert lens is not None
    assert 550.0 < lens.focal_px[0] < 650.0
    frames = [f for f in capture.frames if f.set.purpose == "scan"]
    assert all(f.depth_file is not None for f in frames)
    poses = [f.T_table_camera for f in posed_frames(capture, frames).frames]
    assert len(poses) == len(frames)
    nearest = [min(pose_error(a, b)[0] for b in poses if b is not a) for a in poses]
    assert np.median(nearest) > 0.03, "taken from different places"
