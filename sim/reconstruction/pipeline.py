"""Reconstructs a table and its objects from a capture: every stage, and what each one found.

    checks -> poses -> table -> registration -> clusters -> fine volumes -> bodies -> colours

What fails for one picture or object leaves the others alone and is said; what was not measured is
listed as assumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from scipy import spatial

from robolearn.capture.check import check_capture
from robolearn.capture.folder import Capture, Frame
from robolearn.errors import DataError, SceneError
from robolearn.geometry import Vector
from robolearn.shapes import Picture
from sim.reconstruction.apart.joining import Joined, joined_elsewhere, joined_to_scan
from sim.reconstruction.apart.turned import Turned, turned_objects
from sim.reconstruction.appearance import RGB, filled_picture, painted, usual
from sim.reconstruction.bodies import Body, make_body
from sim.reconstruction.frames import Assumed, Posed, PosedFrame, WorldFrame, posed_frames
from sim.reconstruction.mjcf.body import require_simulable
from sim.reconstruction.objects import Cluster, find_clusters, name_clusters, scan_object
from sim.reconstruction.refine import register
from sim.reconstruction.table.contradictions import contradiction, mirrored
from sim.reconstruction.table.plane import Table, find_table, misplaced
from sim.reconstruction.texture import Atlas, Texture, flat_spots, lay_out, textured

QhullError: type[Exception] = cast("Any", spatial).QhullError

# Of so many pictures one is kept back, to judge the scene by.
HELD_OUT_EVERY = 6
# Fewer pictures leave too much unseen; more of the frames wrong than this share is no accident.
LEAST_FRAMES, WORST_SHARE = 6, 0.34
# A table that is bent by so much more than depth scatters [m] is looked at for causes.
_BENT_M = 0.001
# Height of the box that is reconstructed, and how far it goes when nobody says [m].
_HEIGHT_M, _REACH_M = 0.35, 0.45
# The note of capture.yaml that says how depth was computed that no camera measured.
COMPUTED = "depth"
# What a shape can do to its own stages: it is left out, and said. Everything else is an error.
_UNMAKEABLE = (DataError, SceneError, QhullError, np.linalg.LinAlgError)
# Texels of the table's picture, and photographs that it is made from, at most about so many.
_TEXELS, _TABLE_VIEWS = 400_000, 15


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """A table and what stands on it, in the table's frame.

    ``frames``: pictures that were used, ``held_out``: those that were not, so that they can judge;
    ``left_out``: pictures that could not be used, and why. ``missing``: things of the
    capture that are no body, and why. ``said``: what a person should know, ``notes``: how every
    number was found. ``seconds`` by stage.
    """

    capture: Capture
    # Whose frame the poses were given in, before they were the table's.
    world: WorldFrame
    table: Table
    table_rgb: RGB
    # The table from above, x to the right and y upwards, over all of what was seen of it.
    table_picture: Picture
    bodies: tuple[Body, ...]
    low: Vector
    high: Vector
    frames: tuple[PosedFrame, ...]
    held_out: tuple[PosedFrame, ...]
    left_out: dict[str, str]
    missing: dict[str, str]
    assumed: tuple[Assumed, ...]
    said: tuple[str, ...]
    notes: tuple[str, ...]
    # Whether pictures were moved from the poses they were given with.
    registered: bool
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class PlacedScan:
    """The scan's pictures in the table's frame, and what placing them found."""

    frames: tuple[PosedFrame, ...]
    world: WorldFrame
    table: Table
    # Standard deviation of a pixel's depth [m].
    noise_m: float
    left_out: dict[str, str]
    assumed: tuple[Assumed, ...]
    said: tuple[str, ...]
    notes: tuple[str, ...]
    # All pictures of the capture that passed its checks.
    usable: tuple[Frame, ...]


def place_scan(capture: Capture) -> PlacedScan:
    """Check a capture, find where its pictures were taken, and the table under them. DataError:
    pictures are too few, or contradict each other, with the usual causes.
    """
    report = check_capture(capture)
    if report.errors:
        raise DataError(f"{capture.path}: {'; '.join(report.errors)}")
    left_out = {name: f.what for f in report.findings for name in f.frames}
    said = [f.what for f in report.findings]
    scanned = [f for f in report.usable if f.set.purpose == "scan" and f.depth_file is not None]
    _require_depth(capture, len(report.usable), len(scanned))
    if len(scanned) < LEAST_FRAMES:
        raise DataError(
            f"{capture.path}: {len(scanned)} usable picture(s) with depth in sets with 'purpose:"
            f" scan', at least {LEAST_FRAMES} are needed, 30 to 60 from all sides are good"
        )
    posed = posed_frames(capture, scanned)
    left_out |= posed.unposed
    noise = max(d.noise_m for f in posed.frames if (d := f.frame.camera.depth) is not None)
    table, assumed = _table(capture, posed, noise)
    if COMPUTED in capture.config.notes:
        computed = Assumed(
            "depth of the scan", "computed from colours", capture.config.notes[COMPUTED]
        )
        assumed.append(computed)
    frames = [f.moved(table.T_table_world) for f in posed.frames]
    kept = _believed(frames, noise, left_out, said)
    if len(kept) < len(frames) or table.rms_m > noise + _BENT_M:
        why = contradiction(frames)
        if why:
            raise DataError(
                f"{capture.path}: pictures disagree about where the table is (it is flat to"
                f" {1e3 * table.rms_m:.1f} mm in all of them, {len(frames) - len(kept)} see another"
                f" one): {why}"
            )
    return PlacedScan(
        tuple(kept),
        posed.world,
        table,
        noise,
        left_out,
        tuple(assumed),
        tuple(said),
        posed.notes,
        report.usable,
    )


def reconstruct(
    capture: Capture, on_note: Callable[[str], None] | None = None, coacd_s: float = 0.0
) -> Reconstruction:
    """Every stage from a capture folder to bodies; CoACD is given ``coacd_s`` [s] per object.

    DataError, SceneError: nothing of use can be made of it, with what to do.
    """
    tell = on_note or (lambda _: None)
    clock = _Clock()
    scan = place_scan(capture)
    assumed, said, noise = list(scan.assumed), list(scan.said), scan.noise_m
    clock.stage("checks, poses, table")
    tell(
        f"{len(scan.frames)} pictures placed; the table is flat to {1e3 * scan.table.rms_m:.1f} mm"
    )
    kept_back = {f.name for f in scan.frames[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]}
    given = tuple(f for f in scan.frames if f.name not in kept_back)
    low, high = _workspace(capture, scan.table, given, assumed)
    registered = register(scan.frames, given, low, high, noise)
    tell(registered.note)
    said += [registered.doubt] if registered.doubt else []
    held_out = tuple(f for f in registered.frames if f.name in kept_back)
    used = tuple(f for f in registered.frames if f.name not in kept_back)
    clock.stage("registration")
    turned, about = turned_objects(capture, scan.usable)
    said += about
    objects = capture.config.objects
    seeds = [o.at_m for o in objects if o.at_m is not None]
    clusters = find_clusters(used, low, high, noise, seeds)
    if not clusters and not turned:
        raise SceneError(
            f"{capture.path}: nothing stands on the table within {np.round(low, 2).tolist()} to"
            f" {np.round(high, 2).tolist()} m{mirrored(used, low, high)}; check workspace in"
            " capture.yaml, and the depth's range"
        )
    named, about, guessed = name_clusters(clusters, objects, turned)
    assumed += guessed
    said += about
    clock.stage("objects")
    made = _make_all(capture, named, turned, _Room(used, low, high, noise), coacd_s, tell)
    missing = _not_found(capture, {*named, *turned}, said) | made.missing
    if not made.bodies:
        why = "; ".join(f"{name}: {text}" for name, text in missing.items())
        raise SceneError(f"{capture.path}: nothing of what stands there can be made ({why})")
    assumed += made.assumed
    said += made.said
    clock.stage("surfaces and bodies")
    looks = _looks(made.bodies, used, made.joined)
    bodies = [replace(b, texture=t, rgb=rgb) for b, (t, rgb) in looks]
    table_picture, table_rgb = _table_look(scan.table, used)
    clock.stage("colours")
    return Reconstruction(
        capture=capture,
        world=scan.world,
        table=scan.table,
        table_rgb=table_rgb,
        table_picture=table_picture,
        bodies=tuple(bodies),
        low=low,
        high=high,
        frames=used,
        held_out=held_out,
        left_out=scan.left_out,
        missing=missing,
        assumed=tuple(assumed),
        said=tuple(said),
        notes=(
            *scan.notes,
            registered.note,
            *(n for one in made.joined.values() for n in one.notes),
        ),
        registered=registered.changed,
        seconds=clock.seconds,
    )


@dataclass(frozen=True, slots=True)
class _Room:
    """The pictures that things are made from, the box they stand in and how depth scatters [m]."""

    frames: Sequence[PosedFrame]
    low: Vector
    high: Vector
    noise_m: float


@dataclass(frozen=True, slots=True)
class _Made:
    """Bodies, where each came from, what is none and why, what was assumed and is to be said."""

    bodies: list[Body] = field(default_factory=list[Body])
    joined: dict[str, Joined] = field(default_factory=dict[str, Joined])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    assumed: list[Assumed] = field(default_factory=list[Assumed])
    said: list[str] = field(default_factory=list[str])


def _make_all(
    capture: Capture,
    named: Mapping[str, Cluster],
    turned: Mapping[str, Turned],
    room: _Room,
    coacd_s: float,
    tell: Callable[[str], None],
) -> _Made:
    """A body of every thing that one can be made of; the others are said."""
    made = _Made()
    described = {o.name: o for o in capture.config.objects}
    for name in (*named, *(n for n in turned if n not in named)):
        try:
            if name in named:
                one = Joined(scan_object(name, named[name], room.frames, room.noise_m), ())
                if name in turned:
                    one = joined_to_scan(turned[name], one.scanned)
            else:
                one = joined_elsewhere(
                    turned[name], described.get(name), made.bodies, room.low, room.high
                )
            body, more, about = make_body(one.scanned, described.get(name), coacd_s)
            require_simulable(body)
        except _UNMAKEABLE as error:
            made.missing[name] = f"no body can be made of it: {str(error).splitlines()[0]}"
            made.said.append(f"{name} is not in the scene: {made.missing[name]}")
            tell(made.said[-1])
            continue
        made.joined[name] = one
        made.bodies.append(replace(body, pictured=one.pictured))
        made.assumed.extend([*one.assumed, *more])
        made.said.extend([*one.said, *about])
        tell(_sentence(body))
    return made


def _not_found(capture: Capture, found: Collection[str], said: Sequence[str]) -> dict[str, str]:
    """What the capture names and no stage has found, and what was said of each alone."""
    sets = capture.config.sets
    wanted = [o.name for o in capture.config.objects]
    wanted += [s.object for s in sets if s.purpose == "object" and s.object]
    own = {n: [t.removeprefix(f"{n}: ") for t in said if t.startswith(f"{n}: ")] for n in wanted}
    return {
        name: "; ".join(sentences) or "not found among what stands on the table"
        for name, sentences in own.items()
        if name not in found
    }


def _require_depth(capture: Capture, usable: int, scanned: int) -> None:
    """DataError that says what to do with pictures that have none."""
    colour = sum(f.depth_file is None for f in capture.of("scan"))
    if scanned or not colour:
        return
    raise DataError(
        f"{capture.path}: none of {colour} pictures of the scan ({usable} usable in all) has depth;"
        " surfaces are found from depth, and none is invented from colours. Take the scan with a"
        " depth camera (RealSense, a phone with LiDAR), or have depth computed from the pictures,"
        " as far as they tell: --from-colours FOLDER (pycolmap; robolearn[sfm]). Depth of another"
        " program (COLMAP's dense stereo) is entered as docs/capture_format.md says: depth in"
        " frames.csv, depth.scale_m in capture.yaml"
    )


class _Clock:
    """What every stage took [s]."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def stage(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name], self._last = round(now - self._last, 2), now


def _table(capture: Capture, posed: Posed, noise_m: float) -> tuple[Table, list[Assumed]]:
    """The table; where there is none, what would make it one is said."""
    try:
        return find_table(posed.frames, posed.world, noise_m)
    except DataError as error:
        why = contradiction(posed.frames)
        raise DataError(
            f"{capture.path}: {error}{f'. Most likely {why}' if why else ''}"
        ) from error


def _believed(
    frames: Sequence[PosedFrame], noise_m: float, left_out: dict[str, str], said: list[str]
) -> list[PosedFrame]:
    """Frames that see the table where the others do."""
    wrong = misplaced(frames, noise_m)
    if len(wrong) > WORST_SHARE * len(frames):
        name, why = next(iter(wrong.items()))
        cause = contradiction(frames) or (
            "their poses are wrong. The usual causes: pictures and arm stamped by clocks that are"
            " out of step, a wrong place of the camera on the flange, a camera that slipped, poses"
            " in other units than metres"
        )
        raise DataError(
            f"{len(wrong)} of {len(frames)} pictures disagree about where the table is ({name}"
            f" {why}): {cause}"
        )
    for name, why in wrong.items():
        left_out[name] = why
        said.append(f"{name} {why}: its pose is wrong, it is left out")
    return [f for f in frames if f.name not in wrong]


def _workspace(
    capture: Capture, table: Table, frames: Sequence[PosedFrame], assumed: list[Assumed]
) -> tuple[Vector, Vector]:
    given = capture.config.workspace
    if given is not None:
        return np.array([given.low[0], given.low[1], 0.0]), np.array(given.high)
    # Where the cameras' axes meet the table.
    eyes = np.stack([f.T_table_camera[:3, 3] for f in frames])
    axes = np.stack([f.T_table_camera[:3, 2] for f in frames])
    down = axes[:, 2] < -0.05
    middle = np.zeros(2)
    if down.any():
        met = eyes[down] + axes[down] * (-eyes[down, 2] / axes[down, 2])[:, None]
        middle = np.median(met[:, :2], axis=0)
    low = np.maximum(middle - _REACH_M, table.low)
    high = np.minimum(middle + _REACH_M, table.high)
    text = f"x {low[0]:.2f} to {high[0]:.2f}, y {low[1]:.2f} to {high[1]:.2f} m"
    assumed.append(Assumed("workspace", text, "around what the cameras looked at"))
    top = min(_HEIGHT_M, 0.9 * float(eyes[:, 2].min()))
    return np.array([*low, 0.0]), np.array([*high, max(top, 0.05)])


def _looks(
    bodies: Sequence[Body], frames: Sequence[PosedFrame], joined: Mapping[str, Joined]
) -> list[tuple[Body, tuple[Texture, RGB]]]:
    """Every body's texture and usual colour: where it stands in the light of the table; what the
    scan does not show of it, and one that it does not show at all, from the pictures of it alone.
    """
    atlases: dict[str, Atlas] = {}
    for b in bodies:
        own = joined[b.name].frames or frames
        at = b.vertices @ b.T_table_body[:3, :3].T + b.T_table_body[:3, 3]
        texel = float(np.median([_texel(f, b.T_table_body[:3, 3]) for f in own]))
        atlases[b.name] = lay_out(at, b.faces, texel)
    pictured = {name: a.spots for name, a in atlases.items() if joined[name].pictured}
    colours = painted(pictured, frames)
    for name, atlas in atlases.items():
        if not joined[name].frames:
            continue
        apart = painted({name: atlas.spots}, joined[name].frames)[name]
        table = colours.get(name, np.full_like(apart, np.nan))
        colours[name] = np.where(np.isfinite(table), table, apart)
    return [(b, (textured(atlases[b.name], c := colours[b.name]), usual(c))) for b in bodies]


def _table_look(table: Table, frames: Sequence[PosedFrame]) -> tuple[Picture, RGB]:
    """The table from above and its usual colour; what stands on it hides what is below it."""
    low, high = np.array(table.low), np.array(table.high)
    middle = np.array([*(low + high) / 2, 0.0])
    finest = float(np.median([_texel(f, middle) for f in frames]))
    spots, shape = flat_spots(low, high, max(finest, ((high - low).prod() / _TEXELS) ** 0.5))
    colours = painted({"": spots}, frames[:: max(1, len(frames) // _TABLE_VIEWS)])[""]
    return filled_picture(colours.reshape(*shape, 3)), usual(colours)


def _texel(f: PosedFrame, at: Vector) -> float:
    """What two thirds of a pixel are, there [m]."""
    return 0.67 * float(np.linalg.norm(f.T_table_camera[:3, 3] - at)) / f.lens.focal_px[0]


def _sentence(body: Body) -> str:
    size = " x ".join(f"{2e3 * v:.0f}" for v in body.half_size_m)
    return (
        f"{body.name}: {size} mm, {body.collision}, {1e3 * body.mass.kg:.0f} g ({body.mass.source})"
    )
