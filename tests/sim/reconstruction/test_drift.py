"""A camera or a table that moved is found, told apart, sized, and recorded beside its scene."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from robolearn.capture.folder import Capture, read_capture
from robolearn.cli.main import main
from robolearn.errors import SceneError
from robolearn.geometry import inverse, pose, rot_z, rotation_from_rotvec
from robolearn.operations.trust.certified_scene import drift_of
from sim.reconstruction.drift import Tolerance, by_capture, by_photographs
from sim.reconstruction.pipeline import Reconstruction, reconstruct
from sim.reconstruction.write_scene import SceneChoice, write_reconstructed
from sim.scene.config import Scene
from sim.scene.drift_record import FILE, DriftPart, read_drift
from sim.scene.load import content_hash, load_scene
from tests.robolearn.capture.foreign import looking
from tests.sim.reconstruction.worlds import draw, shoot
from tests.sim.scene.test_scene_package import XML, write_scene

SIZE, FOCAL = (400, 300), 330.0
K = np.array([[FOCAL, 0, (SIZE[0] - 1) / 2], [0, FOCAL, (SIZE[1] - 1) / 2], [0, 0, 1]])
# The table's rectangle and the floor under it [m].
TABLE, FLOOR, DEPTH = 0.25, 1.2, 0.4
EYES = {"top": looking((0.05, 0.0, 0.75), (0.02, 0.0, 0.0)), "side": looking((0.5, 0.3, 0.5))}
STILL = np.eye(4)


@functools.cache
def marks(seed: int) -> np.ndarray:
    """Blots of every size."""
    rng = np.random.default_rng(seed)
    layers = [
        cv2.resize(rng.normal(0, 1, (n, n)), (700, 700), interpolation=cv2.INTER_CUBIC)
        for n in (20, 60, 140)
    ]
    return np.clip(128 + 45 * np.sum(layers, axis=0), 0, 255).astype(np.uint8)


def plane(picture: np.ndarray, half: float, T_camera_plane: np.ndarray) -> tuple[np.ndarray, ...]:
    """A picture on a square of a plane, as the camera sees it, and where that is."""
    per = 2 * half / 700
    onto = np.array([[per, 0, -half], [0, per, -half], [0, 0, 1.0]])
    H = K @ T_camera_plane[:3, [0, 1, 3]] @ onto
    mask = cv2.warpPerspective(np.full_like(picture, 255), H, SIZE)
    return cv2.warpPerspective(picture, H, SIZE, flags=cv2.INTER_AREA), mask > 0


def photo(T_camera: np.ndarray, T_table: np.ndarray = STILL, *, plain: bool = False) -> np.ndarray:
    """A textured table over a textured floor; with noise."""
    floor = STILL.copy()
    floor[2, 3] = -DEPTH
    image, _ = plane(marks(1), FLOOR, inverse(T_camera) @ floor)
    table, on = plane(
        marks(2) if not plain else np.full((700, 700), 150, np.uint8),
        TABLE,
        inverse(T_camera) @ T_table,
    )
    image = np.where(on, table, image if not plain else 90)
    noise = np.random.default_rng(int(1e6 * abs(T_camera[0, 3]))).normal(0, 2, image.shape)
    grey = np.clip(image + noise, 0, 255).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=2)


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A scene with two cameras and their photographs."""
    xml = XML.replace(
        '<site name="table" pos=".1 .2 .3" euler="0 0 90"/>',
        f'<site name="table"/><geom name="table" type="box" size="{TABLE} {TABLE} .01"'
        ' pos="0 0 -.01"/>',
    ).replace(
        '<camera name="top" pos="0 0 1"/>',
        "".join(
            f'<camera name="{name}" pos="{" ".join(map(str, T[:3, 3]))}"'
            f' xyaxes="{" ".join(map(str, [*T[:3, 0], *-T[:3, 1]]))}"/>'
            for name, T in EYES.items()
        ),
    )
    folder = tmp_path_factory.mktemp("cell") / "mine"
    write_scene(
        folder,
        xml,
        cameras=[
            {
                "name": name,
                "width": SIZE[0],
                "height": SIZE[1],
                "background": f"{name}.png",
                "intrinsics": [FOCAL, FOCAL, float(K[0, 2]), float(K[1, 2])],
            }
            for name in EYES
        ],
    )
    for name, T in EYES.items():
        cv2.imwrite(str(folder / f"{name}.png"), photo(T))
    return load_scene(folder)


def moved(T: np.ndarray, mm: tuple[float, float, float], deg: float = 0.0) -> np.ndarray:
    out = T.copy()
    out[:3, 3] += np.array(mm) / 1e3
    out[:3, :3] = T[:3, :3] @ rotation_from_rotvec(np.deg2rad(deg) * np.array([0.6, 0.8, 0.0]))
    return out


def look(cell: Scene, **photos: np.ndarray):
    return by_photographs(cell, photos, Tolerance(), "now")


def test_what_stands_still_is_said_to(cell: Scene) -> None:
    parts = look(cell, top=photo(moved(EYES["top"], (0.3, 0.0, 0.0))))
    assert {name: part.verdict for name, part in parts.items()} == {
        "camera top": "unmoved",
        "table": "unmoved",
    }
    assert parts["camera top"].moved_mm < 1.5


def test_a_moved_camera_is_named_and_sized(cell: Scene) -> None:
    parts = look(cell, top=photo(moved(EYES["top"], (9.0, -6.0, 4.0), 1.5)))
    (name,) = parts
    part = parts[name]
    assert (name, part.verdict) == ("camera top", "moved")
    size = np.linalg.norm((9, 6, 4))
    assert abs(part.moved_mm - size) < part.moved_mm_within + 0.3
    assert abs(part.turned_deg - 1.5) < part.turned_deg_within + 0.05
    assert part.moved_mm_within < 4.0
    assert "Calibrate it again" in part.said


def test_a_moved_table_is_told_from_a_moved_camera(cell: Scene) -> None:
    T = pose(rot_z(np.deg2rad(2.0)), (0.012, 0.005, 0.0))
    parts = look(cell, top=photo(EYES["top"], T))
    assert parts["table"].verdict == "moved"
    assert parts["camera top"].verdict == "unmoved"
    assert abs(parts["table"].moved_mm - 13.0) < 2.0
    assert abs(parts["table"].turned_deg - 2.0) < 0.3
    assert "what lies beside it stands still" in parts["table"].said
    # One of two cameras moved: the other sees the table where it was.
    parts = look(cell, top=photo(moved(EYES["top"], (15.0, 0.0, 0.0))), side=photo(EYES["side"]))
    assert {name: part.verdict for name, part in parts.items()} == {
        "camera top": "moved",
        "camera side": "unmoved",
        "table": "unmoved",
    }


def test_a_table_without_texture_tells_nothing(cell: Scene) -> None:
    (part,) = look(cell, top=photo(EYES["top"], plain=True)).values()
    assert part.verdict == "not told"
    assert part.moved_mm is None
    assert "a table without texture says nothing" in part.said


def test_drift_is_recorded_and_holds_for_this_scene_only(
    cell: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, before = cell.path, content_hash(cell.path)
    today = tmp_path / "today.png"
    cv2.imwrite(str(today), photo(moved(EYES["top"], (0.0, 20.0, 0.0))))
    words = ["scene", "drift", str(folder)]
    assert main([*words, "--photo", f"top={today}", "--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert said["moved"] == ["camera top"]
    assert said["scene_hash"] == before == content_hash(folder)
    # Another part, looked at later, joins it; the camera keeps its verdict.
    touch = ["--touched", "0.1", "0.1", "0.001", "--expected", "0.1", "0.1", "0"]
    assert main([*words, *touch]) == 0
    assert "camera top moved; what depends on the scene is stale" in capsys.readouterr().out
    record = read_drift(folder, before)
    assert record is not None
    assert record.moved == ("camera top",)
    assert record.parts["table"].verdict == "unmoved"
    # Put back: looked at again.
    cv2.imwrite(str(today), photo(EYES["top"]))
    assert main([*words, "--photo", f"top={today}"]) == 0
    assert "nothing moved" in capsys.readouterr().out
    assert read_drift(folder, "another") is None
    (folder / FILE).write_text("{}")
    with pytest.raises(SceneError, match="is no drift record"):
        read_drift(folder, before)
    (folder / FILE).unlink()


def test_what_moved_is_taken_back_by_the_look_that_said_so_alone(
    cell: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, today = str(cell.path), str(tmp_path / "today.png")

    def drift(*words: str, picture: np.ndarray | None = None) -> int:
        if picture is not None:
            cv2.imwrite(today, picture)
            words = ("--photo", f"top={today}", *words)
        return main(["scene", "drift", folder, *words])

    exact = ("--touched", "0.1", "0.1", "0", "--expected", "0.1", "0.1", "0")
    off = ("--touched", "0.1", "0.1", "0.05", "--expected", "0.1", "0.1", "0")
    assert drift(picture=photo(moved(EYES["top"], (0.0, 20.0, 0.0)))) == 2
    # A photograph that tells nothing.
    assert drift(picture=photo(EYES["top"], plain=True)) == 2
    assert drift_of(folder)[0] == "moved"
    assert "takes nothing back" in capsys.readouterr().out
    assert drift(picture=photo(EYES["top"])) == 0
    assert drift_of(folder)[0] == "unmoved"
    # A touch of one point, by a table that turned about it.
    turned = pose(rot_z(np.deg2rad(2.0)), (0.012, 0.005, 0.0))
    assert drift(picture=photo(EYES["top"], turned)) == 2
    assert drift(*exact) == 2
    assert drift_of(folder)[0] == "moved"
    # Both say moved: each has to take it back.
    assert drift(*off) == 2
    assert drift(picture=photo(EYES["top"])) == 2
    assert drift_of(folder)[0] == "moved"
    assert drift(*exact) == 0
    assert drift_of(folder)[0] == "unmoved"
    (cell.path / FILE).unlink()


@pytest.fixture(scope="module")
def boarded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, Capture]:
    """A scene whose capture an arm placed, with a board on the table."""
    folder = tmp_path_factory.mktemp("boarded")
    capture = read_capture(
        shoot(folder / "capture", draw(3, ("box",)), size=(320, 240), poses="flange")
    )
    return write_reconstructed(reconstruct(capture), SceneChoice(), folder / "table"), capture


@pytest.mark.parametrize(
    ("mm", "deg", "verdict"),
    [(0.0, 0.0, "unmoved"), (40.0, 0.0, "moved"), (0.0, 3.0, "moved")],
)
def test_a_later_capture_tells_a_shift_along_the_table_by_its_board(
    boarded: tuple[Scene, Capture], mm: float, deg: float, verdict: str
) -> None:
    scene, capture = boarded
    # The arm goes along with the table that was shifted before it.
    shift = pose(rot_z(np.deg2rad(deg)), (mm / 1e3, 0.0, 0.0))
    frames = tuple(
        dataclasses.replace(f, T_base_tool=shift @ f.T_base_tool) for f in capture.frames
    )
    part = by_capture(scene, dataclasses.replace(capture, frames=frames), Tolerance(), "now")[
        "table"
    ]
    assert (part.verdict, "the board on it" in part.said) == (verdict, True)
    if deg == 0.0:
        assert abs(part.moved_mm - mm) <= part.moved_mm_within + 0.3
    assert abs(part.turned_deg - deg) <= part.turned_deg_within + 0.1


def test_a_record_of_before_counts_on(cell: Scene) -> None:
    here = content_hash(cell.path)
    part = DriftPart("moved", 8.0, 0.5, None, None, "it moved", "touch", "2026-01-31T12:00:00Z")
    old = {"schema": 1, "scene": "mine", "scene_hash": here}
    parts = {"table": dataclasses.asdict(part)}
    (cell.path / FILE).write_text(json.dumps({**old, "parts": parts}))
    assert drift_of(str(cell.path))[0] == "moved"
    (cell.path / FILE).write_text(json.dumps({**old, "schema": 2, "looks": {"table": []}}))
    with pytest.raises(SceneError, match="a part has no look"):
        read_drift(cell.path, here)
    (cell.path / FILE).unlink()


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([], "nothing to look at"),
        (["--photo", "top"], "takes CAMERA=FILE"),
        (["--photo", "tpo=gone.png"], "is not a picture"),
        (["--photo", "tpo=small.png"], "Did you mean 'top'"),
        (["--photo", "top=small.png"], "same settings"),
        (["--touched", "120", "0", "0", "--expected", "0", "0", "0"], "in metres"),
        (["--touched", "0", "0", "0"], "needs expected"),
        (["--touched", "0", "0", "0", "--expected", "100", "100", "0"], "expected is in metres"),
        (
            ["--touched", "0", "0", "0", "--expected", "0", "0", "0", "--touch-mm", "-5"],
            "--touch-mm is above 0",
        ),
        (["--tolerance-mm", "0", "--photo", "top=small.png"], "above 0"),
    ],
)
def test_what_the_user_can_fix(
    cell: Scene,
    extra: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    cv2.imwrite("small.png", np.zeros((20, 30, 3), np.uint8))
    assert main(["scene", "drift", str(cell.path), *extra]) == 2
    captured = capsys.readouterr()
    assert message in captured.err + captured.out


def test_a_later_capture_tells_the_tables_height(
    found: Reconstruction, capture_folder: Path, tmp_path: Path
) -> None:
    scene = write_reconstructed(found, SceneChoice(), tmp_path / "table")
    capture = read_capture(capture_folder)
    part = by_capture(scene, capture, Tolerance(), "now")["table"]
    # There is no board: it may lie aside.
    assert (part.verdict, part.moved_mm) == ("not told", pytest.approx(0.0, abs=0.5))
    assert "the scene knows of no board" in part.said
    higher = np.eye(4)
    higher[2, 3] = 0.012
    frames = tuple(
        dataclasses.replace(f, T_world_camera=higher @ f.T_world_camera) for f in capture.frames
    )
    part = by_capture(scene, dataclasses.replace(capture, frames=frames), Tolerance(), "now")[
        "table"
    ]
    assert part.verdict == "moved"
    assert part.moved_mm == pytest.approx(12.0, abs=0.5)
    higher[2, 3] = 0.3
    frames = tuple(
        dataclasses.replace(f, T_world_camera=higher @ f.T_world_camera) for f in capture.frames
    )
    part = by_capture(scene, dataclasses.replace(capture, frames=frames), Tolerance(), "now")[
        "table"
    ]
    assert part.verdict == "not told"
    assert "another frame" in part.said
