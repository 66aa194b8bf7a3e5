"""Judges a reconstructed scene: pictures that it was not made from, whether things rest, starts.

Every measure has two limits: what may be used as it is, and what may be used with care; beyond, the
scene is refused. What is not good says what to capture again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from robolearn.agents.actions import hold_action
from robolearn.arms.tool_commands import pose_from_values
from robolearn.capture.clocks import read_record
from robolearn.capture.config import CaptureSet
from robolearn.capture.folder import Capture
from robolearn.errors import DataError, SceneError
from robolearn.geometry import pose_error
from robolearn.types import Command, Condition
from sim.env.scene_check import check_scene
from sim.env.scene_env import SceneEnv
from sim.reconstruction.frames import PosedFrame, picture_digest, posed_frames
from sim.reconstruction.hand_opening import hand_opening
from sim.reconstruction.views import Box, Compared, SceneViewer
from sim.scene.config import Scene
from sim.scene.overrides import by_hand_sentences

Verdict = Literal["use", "use with care", "refuse"]

# Pictures of a capture that names none for this scene: so many, evenly.
_VIEWS = 10
# How long things are left alone [s].
_REST_S = 1.0


@dataclass(frozen=True, slots=True)
class Limit:
    """What is good, what is bearable, and what to do about the rest.

    ``more``: whether larger is better; ``advice`` may name the worst object: ``{worst}``.
    """

    name: str
    unit: str
    good: float
    bearable: float
    more: bool
    advice: str


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that was measured, against its limit; ``worst``: the object it is of, or ""."""

    limit: Limit
    value: float
    worst: str = ""

    @property
    def verdict(self) -> Verdict:
        """What this measure alone says."""
        if not np.isfinite(self.value):
            return "refuse"
        sign = 1.0 if self.limit.more else -1.0
        if sign * self.value >= sign * self.limit.good:
            return "use"
        return "use with care" if sign * self.value >= sign * self.limit.bearable else "refuse"

    @property
    def advice(self) -> str:
        """What to do where the verdict is not *use*."""
        return self.limit.advice.format(worst=self.worst)


LIMITS = {
    "silhouette": Limit(
        *("silhouette of the worst object, IoU", "", 0.93, 0.80, True),
        "{worst}: its outline is not the scene's; take more views of it, from low down and from"
        " all sides, and check that nothing moved between the pictures",
    ),
    "robot": Limit(
        *("silhouette of the robot at its joints, IoU", "", 0.93, 0.80, True),
        "the robot's outline is not the scene's: check arm.T_table_base of capture.yaml, the clock"
        " of robot.csv, and that the scene's robot has the hand that the real one has",
    ),
    "edges": Limit(
        *("outlines against the photograph's edges", "px", 2.5, 6.0, False),
        "outlines lie beside the photograph's edges: the lens or the poses are off; calibrate the"
        " camera (pictures of the board), check that depth is registered to the picture",
    ),
    "depth": Limit(
        *("depth of objects and the table beside them", "mm", 3.0, 8.0, False),
        "depth differs: check depth.scale_m and that depth is along the optical axis; take the"
        " scan again, nearer to the table",
    ),
    "colour": Limit(
        *("colour of the worst object, mean difference of pixels", "of 255", 25.0, 60.0, False),
        "{worst}: its colours are not the photograph's; keep the light as it is while the pictures"
        " are taken, and the exposure fixed",
    ),
    "unexplained": Limit(
        *("what stands on the table and is not in the scene", "%", 5.0, 20.0, False),
        "something stands on the table that the scene lacks: take it away or capture again; what is"
        " black, shiny or clear is not reconstructed",
    ),
    "unseen": Limit(
        *("surface that no picture saw", "%", 10.0, 40.0, False),
        "{worst}: parts of it were never seen and are closed by guess; add views of them",
    ),
    "pictured": Limit(
        *("objects that stand in pictures of the table", "%", 100.0, 0.0, True),
        "{worst}: no picture shows it where it stands in the scene; put it there and capture again",
    ),
    "present": Limit(
        *("things of the capture that are in the scene", "%", 100.0, 0.0, True),
        "{worst} is in the capture and not in the scene, which says why; mend that and reconstruct"
        " again, or take it out of capture.yaml",
    ),
    "moved": Limit(
        *("objects stay where they were found", "mm", 3.0, 10.0, False),
        "{worst} does not rest where it was found: add views of its lower part, or of what it leans"
        " on",
    ),
    "turned": Limit(
        *("objects stay as they stood", "degrees", 3.0, 10.0, False),
        "{worst} tips: its lower side or its mass is off; add views from low down",
    ),
    "starts": Limit(
        *("starts can be placed", "", 1.0, 1.0, True),
        "starts of the reset distribution cannot be placed; robolearn scene check says which",
    ),
}


@dataclass(frozen=True, slots=True)
class Rested:
    """How an object moved when it was let go where it was found."""

    name: str
    moved_mm: float
    turned_deg: float


@dataclass(frozen=True, slots=True)
class Verified:
    """What the scene was measured to be. ``held_out``: no picture was used to make it."""

    scene: str
    scene_hash: str
    capture: str
    held_out: bool
    views: tuple[Compared, ...]
    rested: tuple[Rested, ...]
    measures: tuple[Measure, ...]
    assumed: tuple[dict[str, str], ...]
    said: tuple[str, ...]
    # Pictures of other sets, by cameras beside the arm, that judge the robot alone.
    robots: tuple[Compared, ...] = ()
    # Things of the capture that the scene lacks, and why.
    missing: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        order: tuple[Verdict, ...] = ("refuse", "use with care", "use")
        found = [m.verdict for m in self.measures]
        return next(verdict for verdict in order if verdict in found)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about what is not good."""
        return tuple(m.advice for m in self.measures if m.verdict != "use")

    @property
    def robot_iou(self) -> float:
        """The median over the pictures that show the robot; NaN where none does."""
        return _median([v.robot for v in (*self.views, *self.robots)])

    @property
    def iou(self) -> dict[str, float]:
        """By object, the median over the pictures that show it."""
        return {
            r.name: _median([v.iou[r.name] for v in self.views if r.name in v.iou])
            for r in self.rested
        }


def verify(scene: Scene, capture: Capture) -> Verified:
    """Hold a scene against a capture of its table: the one it was made from, or a later one in the
    same frame. SceneError for a scene that was not reconstructed, DataError for a capture whose
    pictures cannot be placed.
    """
    details = reconstructed_details(scene)
    frames, held_out = judging_frames(capture, details)
    of_robot, why_not = robot_frames(capture, details, frames)
    boxes = found_boxes(details)
    viewer = scene_viewer(scene, boxes)
    try:
        every = [*frames, *of_robot]
        joints = robot_joints(scene, capture, every)
        told, opened = _with_hands(scene, viewer, every, joints.by_picture)
        views = tuple(viewer.compare(f, q) for f, q in zip(frames, told, strict=False))
        rest = zip(of_robot, told[len(frames) :], strict=True)
        robots = tuple(viewer.robot_alone(f, q) for f, q in rest if q is not None)
    finally:
        viewer.close()
    rested = _rested(scene, tuple(details["objects"]))
    said = [*(str(s) for s in details["said"]), *by_hand_sentences(details), *opened]
    if not held_out:
        said.append("the pictures are of another capture, or were used to make the scene")
    if not np.isfinite(_median([v.robot for v in (*views, *robots)])):
        why = [joints.unknown or "no picture shows the robot", *([why_not] if why_not else [])]
        said.append(f"the robot's silhouette is not judged: {'; '.join(why)}")
    measures = _measures(scene, views, robots, rested, details, said)
    return Verified(
        scene.name,
        scene.content_hash,
        capture.config.name,
        held_out,
        views,
        rested,
        measures,
        tuple(details["assumed"]),
        tuple(said),
        robots,
        dict(details.get("missing", {})),
    )


def reconstructed_details(scene: Scene) -> dict[str, Any]:
    """What a reconstruction wrote about itself; SceneError for a scene that is none."""
    details = scene.config.provenance.reconstructed
    if "objects" not in details:
        raise SceneError(
            f"'{scene.name}' is a {scene.config.provenance.kind} scene; only what 'robolearn"
            " reconstruct' wrote knows where its pictures were taken"
        )
    return details


def found_boxes(details: Mapping[str, Any]) -> dict[str, Box]:
    """By object that pictures of the table show: where it was found, or, of what a person moved
    since, where that is now. SceneError where they show none.
    """
    by_hand = details.get("by_hand", {})
    found = {
        name: _box(entry, by_hand.get(name, {}).get("pose"))
        for name, entry in details["objects"].items()
        if _pictured(entry)
    }
    if not found:
        raise SceneError(
            "no picture of the table shows any of the scene's objects, so there is nothing to judge"
            " it by: put them onto the table, take a scan and reconstruct again"
        )
    return found


def _pictured(entry: Mapping[str, Any]) -> bool:
    # Scenes of before know nothing else.
    return bool(entry.get("pictured", True))


def scene_viewer(scene: Scene, boxes: Mapping[str, Box]) -> SceneViewer:
    """Draws a reconstructed scene from where pictures of its table were taken; to be closed."""
    T = np.array(scene.config.provenance.reconstructed["T_scene_table"], dtype=np.float64)
    return SceneViewer(scene, boxes, T)


def judging_frames(capture: Capture, details: Mapping[str, Any]) -> tuple[list[PosedFrame], bool]:
    """The pictures that were kept back, in the table's frame, and whether they are these; others
    where they are not there.
    """
    names = set(details["pictures"]["held_out"])
    scanned = [f for f in capture.of("scan") if f.depth_file is not None]
    held = [f for f in scanned if f.name in names]
    # Scenes of before know the capture by its name alone, which a later one of the cell has, too.
    digests: Mapping[str, str] = details["pictures"].get("digests", {})
    if any(f.name in digests and picture_digest(f) != digests[f.name] for f in held):
        held = []
    chosen = held or scanned[:: max(1, len(scanned) // _VIEWS)]
    if not chosen:
        raise DataError(
            f"{capture.path} has no picture with depth in a set with 'purpose: scan' to compare"
            " the scene with"
        )
    T = np.array(details["T_table_world"], dtype=np.float64)
    posed = posed_frames(capture, chosen)
    of_this = bool(held) and capture.config.name == details["capture"]
    registered = details["pictures"].get("poses", {}) if of_this else {}
    frames = [
        dataclasses.replace(f, T_table_camera=np.array(registered[f.name], dtype=np.float64))
        if f.name in registered
        else f.moved(T)
        for f in posed.frames
    ]
    return frames, of_this


def robot_frames(
    capture: Capture, details: Mapping[str, Any], judged: Sequence[PosedFrame]
) -> tuple[list[PosedFrame], str]:
    """Pictures of other sets that show the robot with nothing on it: by cameras beside the arm that
    measure depth, of the background, of the empty hand and of the board on the table; so many,
    evenly. Also why there are none (""): a scan by a camera on the flange shows no robot.
    """
    shown = [
        f
        for f in capture.frames
        if f.camera.mount != "flange" and f.depth_file is not None and _bare(f.set)
    ]
    if not shown:
        return [], (
            "no camera beside the arm measured depth of its empty hand (robolearn capture"
            " --in-hand), of the background or of the board on the table"
        )
    chosen = shown[:: max(1, -(-len(shown) // _VIEWS))]
    try:
        posed = posed_frames(capture, chosen)
        same = posed.world == posed_frames(capture, [f.frame for f in judged]).world
    except DataError as error:
        return [], str(error)
    if not same:
        return [], (
            "cameras beside the arm are placed in another frame than the scan: give"
            " arm.T_table_base"
        )
    T = np.array(details["T_table_world"], dtype=np.float64)
    return [f.moved(T) for f in posed.frames], ""


def _bare(entry: CaptureSet) -> bool:
    """Whether nothing rides on the flange but the robot's own hand."""
    if entry.purpose == "object":
        return entry.object_on == "flange" and not entry.object
    return entry.purpose == "background" or (entry.purpose, entry.board_on) == ("handeye", "table")


@dataclass(frozen=True, slots=True)
class RobotJoints:
    """Where the robot's joints were in every picture [rad], by name; None where it is not known.
    ``unknown``: why that is so of all of them, or "" (also of a scene without a robot).
    """

    by_picture: tuple[Mapping[str, float] | None, ...]
    unknown: str = ""


def robot_joints(scene: Scene, capture: Capture, frames: Sequence[PosedFrame]) -> RobotJoints:
    """The joints of the scene's arm by ``robot.csv`` of the capture, when the pictures were taken.
    Pictures of a camera on the flange tell none: it sees the hand alone, and that from within.
    DataError for a ``robot.csv`` that is none.
    """
    nowhere = (None,) * len(frames)
    arms = [s for s in scene.config.signals if s.kind == "joint_position" and s.unit == "rad"]
    if not arms:
        return RobotJoints(nowhere)
    record = read_record(capture.path)
    if len(arms) > 1:
        return RobotJoints(nowhere, "the scene has several arms, robot.csv is of one")
    if record is None:
        return RobotJoints(nowhere, "the capture has no robot.csv, which tells its joints")
    names = arms[0].of
    if record.q.shape[1] != len(names):
        why = f"robot.csv has {record.q.shape[1]} joints, the scene's arm {len(names)}"
        return RobotJoints(nowhere, why)
    joints: list[Mapping[str, float] | None] = []
    for f in frames:
        t_s = None if f.frame.camera.mount == "flange" else f.frame.t_s
        q = None if t_s is None else record.known_at(t_s)
        joints.append(None if q is None else dict(zip(names, q.tolist(), strict=True)))
    if not any(joints):
        why = (
            "robot.csv tells the joints of no picture (t_s) of a camera that stands beside the arm"
        )
        return RobotJoints(nowhere, why)
    return RobotJoints(tuple(joints))


def _with_hands(
    scene: Scene,
    viewer: SceneViewer,
    frames: Sequence[PosedFrame],
    joints: Sequence[Mapping[str, float] | None],
) -> tuple[list[Mapping[str, float] | None], list[str]]:
    """The joints of every picture with those of the hand, as far as the pictures of its set show
    them, and what was found.
    """
    told, said = list(joints), list[str]()
    for name in dict.fromkeys(f.frame.set.name for f in frames):
        own = [
            (k, f, q)
            for k, (f, q) in enumerate(zip(frames, joints, strict=True))
            if q is not None and f.frame.set.name == name
        ]
        opening = hand_opening(scene.config, viewer, [(f, q) for _, f, q in own])
        said += [opening.said] if opening.said else []
        for k, _, q in own:
            told[k] = {**q, **opening.joints}
    return told, said


def _box(entry: dict[str, Any], by_hand: Sequence[Any] | None) -> Box:
    at = entry["pose"] if by_hand is None else by_hand[1]
    T = pose_from_values(np.array(at, dtype=np.float64), "pose")
    a, b, c = (float(v) / 2e3 for v in entry["size_mm"])
    return Box(T, (a, b, c))


def _rested(scene: Scene, names: Sequence[str]) -> tuple[Rested, ...]:
    """Let everything go where it was found, the robot holding still."""
    env = SceneEnv(scene, cameras=())
    try:
        env.reset(Condition("as found", 0, {}), np.random.default_rng(0))
        before = env.observe()
        action = hold_action(env.spec.actions, before)
        for seq in range(round(_REST_S * scene.config.rate_hz)):
            env.apply(Command(seq, action, env.now_ns(), "verify"))
            env.advance()
        after = env.observe()
    finally:
        env.close()
    out: list[Rested] = []
    for name in names:
        at = [pose_from_values(o.value(f"{name}/pose"), name) for o in (before, after)]
        moved, turned = pose_error(at[0], at[1])
        out.append(Rested(name, 1e3 * moved, float(np.degrees(turned))))
    return tuple(out)


def _measures(
    scene: Scene,
    views: Sequence[Compared],
    robots: Sequence[Compared],
    rested: Sequence[Rested],
    details: dict[str, Any],
    said: list[str],
) -> tuple[Measure, ...]:
    """Every limit's value: the median over pictures, of the worst object."""
    by_object = {
        "silhouette": {n: _median([v.iou[n] for v in views]) for n in views[0].iou},
        "colour": {n: _median([v.colour[n] for v in views]) for n in views[0].colour},
        # Scenes of before know of none.
        "present": dict.fromkeys(details["objects"], 100.0)
        | dict.fromkeys(details.get("missing", {}), 0.0),
        "pictured": {n: 100.0 * _pictured(o) for n, o in details["objects"].items()},
        "unseen": {n: 100.0 * float(o["unseen_share"]) for n, o in details["objects"].items()},
        "moved": {r.name: r.moved_mm for r in rested},
        "turned": {r.name: r.turned_deg for r in rested},
    }
    of_pictures = {
        "robot": _median([v.robot for v in (*views, *robots)]),
        "edges": _median([v.edge_px for v in views]),
        "depth": _median([v.depth_mm for v in views]),
        "unexplained": 100.0 * float(np.median([v.unexplained for v in views])),
        "starts": _starts(scene, said),
    }
    out: list[Measure] = []
    for name, limit in LIMITS.items():
        if name == "robot" and not np.isfinite(of_pictures[name]):
            # Not there, or of unknown joints, which is said: that is nothing against the scene.
            continue
        if name in of_pictures:
            out.append(Measure(limit, of_pictures[name]))
            continue
        worst = _worst(by_object[name], limit)
        out.append(Measure(limit, by_object[name][worst], worst))
    return tuple(out)


def _worst(values: Mapping[str, float], limit: Limit) -> str:
    """The object whose value is worst; one that was not seen is worse than any."""
    sign = 1.0 if limit.more else -1.0
    return min(values, key=lambda n: sign * values[n] if np.isfinite(values[n]) else -np.inf)


def _starts(scene: Scene, said: list[str]) -> float:
    """1 when every start of the reset distribution can be placed."""
    try:
        check_scene(scene)
    except SceneError as error:
        said.append(str(error))
        return 0.0
    return 1.0


def _median(values: Sequence[float]) -> float:
    known = [v for v in values if np.isfinite(v)]
    return float(np.median(known)) if known else float("nan")
