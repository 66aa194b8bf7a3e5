"""``robolearn calibrate camera``: a camera's lens from a board, and where the camera is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robolearn.cli.shared.consent import require_terminal, wait_for_enter
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError, DataError, did_you_mean
from robolearn.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hardware.cell.config import CellConfig
    from hardware.devices.camera_config import CameraConfig
    from robolearn.calibration.boards import Board, BoardFinder, Intrinsics, Placed, View


@dataclass(frozen=True)
class CameraArgs:
    """Find a camera's lens and its place: show it a board, then lay the board onto the table."""

    # A file of configs/hardware/ whose camera it is; no arm moves.
    config: Path | None = None
    # The camera's name; may be left out when there is one.
    camera: str = ""
    # What is shown; tags: those on a tracked object of 'robot.trackers'.
    board: Literal["charuco", "chessboard", "tags"] = "charuco"
    # Which one, as 'block/pose'; may be left out when there is one.
    signal: str = ""
    # Squares of the board in x and y.
    squares: tuple[int, int] = (8, 6)
    # Side of a square as printed [m].
    square_m: float = 0.03
    # Side of a tag of a ChArUco board as printed [m].
    marker_m: float = 0.022
    # Of the board's tags.
    dictionary: str = "4x4_50"
    # A folder of pictures of the board for the lens, instead of the live camera.
    pictures: Path | None = None
    # Live: so many pictures, each taken when the board is somewhere new.
    count: int = 15
    # Live: for so long [s].
    wait_s: float = 120.0
    # Keep the config's lens and find only the place.
    keep_lens: bool = False
    # Where the board lies on the table for the place: x y yaw of its lower left corner (tags: of
    # their object) [m, m, rad].
    at: tuple[float, float, float] | None = None
    # Height of its printed side over the table [m].
    height_m: float = 0.0
    # A picture of the board lying there, instead of the live camera.
    table_picture: Path | None = None
    # Write the lens into the config (comments stay).
    write: bool = False
    # Print one JSON document.
    json: bool = False


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse(CameraArgs, argv, "calibrate camera", CameraArgs.__doc__ or "")
    if args.config is None:
        raise ConfigError("--config is missing, e.g. --config configs/hardware/my_arm.yaml")
    if args.at is None:
        raise ConfigError(
            "--at X Y YAW is missing: where the board lies on the table for the camera's place"
        )
    from hardware.cell.load import load_cell
    from robolearn.calibration.boards import BoardFinder, on_table, place

    cell = load_cell(args.config)
    index, camera = _camera(cell, args.camera)
    finder = BoardFinder(_board(args, cell))
    lens = _lens(args, camera, finder)
    seen = _lying(args, camera, finder)
    points, pixels = on_table(seen, args.at, args.height_m)
    placed = place(points, pixels, lens.focal_px, lens.centre_px, lens.distortion)
    document = _document(cell, lens, placed)
    _show(document, quiet=args.json)
    if args.write:
        _write(args.config, index, placed)
        say(f"written to {args.config}", quiet=args.json)
    if args.json:
        print_json(document)
    return 0


def _camera(cell: CellConfig, name: str) -> tuple[int, CameraConfig]:
    names = [c.stream.name for c in cell.cameras]
    wanted = names[0] if not name and len(names) == 1 else name
    if wanted not in names:
        raise ConfigError(f"--camera: no camera '{name}'.{did_you_mean(name, names)} Has: {names}")
    return names.index(wanted), cell.cameras[names.index(wanted)]


def _board(args: CameraArgs, cell: CellConfig) -> Board:
    from robolearn.calibration.boards import Board

    if args.board != "tags":
        return Board(args.board, args.squares, args.square_m, args.marker_m, args.dictionary)
    tagged = {n: t.tags for n, t in cell.trackers.items() if t.tags is not None}
    wanted = args.signal or next(iter(tagged), "")
    if wanted not in tagged or (len(tagged) > 1 and not args.signal):
        raise ConfigError(
            f"--board tags: expected --signal, one of those that are found by tags: {list(tagged)}"
            " ('robot.trackers' says what is where)"
        )
    return Board("tags", tags=tagged[wanted].tags, dictionary=tagged[wanted].dictionary)


def _lens(args: CameraArgs, camera: CameraConfig, finder: BoardFinder) -> Intrinsics:
    from robolearn.calibration.boards import Intrinsics, intrinsics

    size = (camera.stream.width, camera.stream.height)
    if args.keep_lens:
        known = camera.lens
        if known is None:
            raise ConfigError(f"--keep-lens: camera '{camera.stream.name}' has no lens to keep")
        return Intrinsics(known.focal_px, known.centre_px, known.distortion, 0.0, (), (0.0, 0.0))
    if args.pictures is not None:
        views = [v for _, image in _files(args.pictures, size) if (v := finder.find(image))]
    else:
        views = _live_views(args, camera, finder)
    say(f"the board was found in {len(views)} picture(s)", quiet=args.json)
    return intrinsics(views, size)


def _lying(args: CameraArgs, camera: CameraConfig, finder: BoardFinder) -> View:
    size = (camera.stream.width, camera.stream.height)
    if args.table_picture is not None:
        found = finder.find(_picture(args.table_picture, size))
    else:
        laid = "lay the board onto the table as --at says, step back"
        require_terminal(laid, "give --table-picture")
        wait_for_enter(laid)
        with _Live(camera) as image:
            found = finder.find(image())
    if found is None:
        raise DataError("the board on the table was not found: show all of it, evenly lit")
    return found


def _files(folder: Path, size: tuple[int, int]) -> Iterator[tuple[Path, Any]]:
    paths = sorted(p for p in folder.glob("*") if p.suffix.lower() in (".png", ".jpg", ".jpeg"))
    if not paths:
        raise ConfigError(f"--pictures: no .png or .jpg in {folder}")
    for path in paths:
        yield path, _picture(path, size)


def _picture(path: Path, size: tuple[int, int]) -> Any:
    import cv2

    if not path.is_file() or not cv2.haveImageReader(str(path)):
        raise DataError(f"{path} is not a picture")
    image = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if image.shape[1::-1] != size:
        raise DataError(
            f"{path} is {image.shape[1]} x {image.shape[0]} px, the config says {size[0]} x"
            f" {size[1]}: a lens belongs to one size"
        )
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


class _Live:
    """The connected camera as a function that gives its newest picture."""

    def __init__(self, camera: CameraConfig) -> None:
        self._camera = camera.build()

    def __enter__(self) -> Callable[[], Any]:
        self._camera.connect()
        return lambda: self._camera.latest().image

    def __exit__(self, *_: object) -> None:
        self._camera.close()


def _live_views(args: CameraArgs, camera: CameraConfig, finder: BoardFinder) -> list[View]:
    from robolearn.calibration.boards import different

    views: list[View] = []
    say("show the board everywhere in the picture, tilted to all sides", quiet=args.json)
    deadline = time.monotonic() + args.wait_s
    with _Live(camera) as image:
        while len(views) < args.count and time.monotonic() < deadline:
            view = finder.find(image())
            if view is not None and different(view, views, camera.stream.width):
                views.append(view)
                say(f"  {len(views)}/{args.count}", quiet=args.json)
            time.sleep(0.1)
    return views


def _document(cell: CellConfig, lens: Intrinsics, placed: Placed) -> dict[str, Any]:
    import numpy as np

    found = placed.lens
    document: dict[str, Any] = {
        "focal_px": list(found.focal_px),
        "focal_error_px": list(lens.focal_error_px),
        "centre_px": list(found.centre_px),
        "distortion": list(found.distortion),
        "views": len(lens.view_rms_px),
        "rms_px": lens.rms_px,
        "worst_view_px": max(lens.view_rms_px, default=0.0),
        "position_m": list(found.position_m),
        "quaternion": list(found.quaternion),
        "place_rms_px": placed.rms_px,
        "place_rms_m": placed.rms_m,
        "corners": placed.points,
    }
    if cell.table is not None:
        T = np.array(cell.table.mapping().T_base_table) @ found.T_table_camera
        document["T_base_camera"] = T.tolist()
    return document


def _show(found: dict[str, Any], *, quiet: bool) -> None:
    fx, fy = found["focal_px"]
    ex, ey = found["focal_error_px"]
    say(f"focal length  {fx:.1f} +- {ex:.1f}, {fy:.1f} +- {ey:.1f} px", quiet=quiet)
    say(
        f"left over     {found['rms_px']:.2f} px in {found['views']} view(s), the worst"
        f" {found['worst_view_px']:.2f}",
        quiet=quiet,
    )
    x, y, z = found["position_m"]
    say(
        f"place         {x:.4f} {y:.4f} {z:.4f} m in the table's frame; left over"
        f" {found['place_rms_px']:.2f} px, {1e3 * found['place_rms_m']:.2f} mm on the table"
        f" ({found['corners']} corners)",
        quiet=quiet,
    )


def _write(path: Path, index: int, placed: Placed) -> None:
    from robolearn.cli.shared.yaml_edit import set_value

    lens = placed.lens
    value = {
        "focal_px": [round(v, 3) for v in lens.focal_px],
        "centre_px": [round(v, 3) for v in lens.centre_px],
        "distortion": [round(v, 6) for v in lens.distortion],
        "position_m": [round(v, 5) for v in lens.position_m],
        "quaternion": [round(v, 7) for v in lens.quaternion],
    }
    text = set_value(path.read_text(encoding="utf-8"), ("robot", "cameras", index, "lens"), value)
    write_atomic(path, text)
