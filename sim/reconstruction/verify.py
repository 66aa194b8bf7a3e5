"""Judges a reconstructed scene: pictures that it was not made from, whether things rest, starts.

Every measure has two limits: what may be used as it is, and what may be used with care; beyond, the
scene is refused. What is not good says what to capture again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from robolearn.agents.actions import hold_action
from robolearn.arms.tool_commands import pose_from_values
from robolearn.capture.folder import Capture
from robolearn.errors import DataError, SceneError
from robolearn.geometry import pose_error
from robolearn.types import Command, Condition
from sim.env.scene_check import check_scene
from sim.env.scene_env import SceneEnv
from sim.reconstruction.frames import PosedFrame, posed_frames
from sim.reconstruction.views import Box, Compared, SceneViewer
from sim.scene.config import Scene

Verdict = Literal["use", "use with care", "refuse"]

# Pictures of a capture that names none for this scene: so many, evenly.
_VIEWS = 10
# How long things are left alone [s].
_REST_S = 1.0


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that was measured, what is good and what is bearable, and what to do."""

    name: str
    value: float
    unit: str
    good: float
    bearable: float
    # Whether larger is better.
    more: bool
    advice: str

    @property
    def verdict(self) -> Verdict:
        """What this measure alone says."""
        if not np.isfinite(self.value):
            return "refuse"
        sign = 1.0 if self.more else -1.0
        if sign * self.value >= sign * self.good:
            return "use"
        return "use with care" if sign * self.value >= sign * self.bearable else "refuse"


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
    details = scene.config.provenance.details
    if scene.config.provenance.kind != "reconstructed" or "objects" not in details:
        raise SceneError(
            f"'{scene.name}' is a {scene.config.provenance.kind} scene; only what 'robolearn"
            " reconstruct' wrote knows where its pictures were taken"
        )
    frames, held_out = _frames(capture, details)
    boxes = {name: _box(entry) for name, entry in details["objects"].items()}
    viewer = SceneViewer(scene, boxes, np.array(details["T_scene_table"], dtype=np.float64))
    try:
        views = tuple(viewer.compare(f) for f in frames)
    finally:
        viewer.close()
    rested = _rested(scene, tuple(boxes))
    said = [str(s) for s in details["said"]]
    if not held_out:
        said.append("the pictures are of another capture, or were used to make the scene")
    measures = _measures(scene, views, rested, details, said)
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
    )


def _frames(capture: Capture, details: dict[str, Any]) -> tuple[list[PosedFrame], bool]:
    """The pictures that were kept back, in the table's frame; others where these are not there."""
    names = set(details["pictures"]["held_out"])
    scanned = [f for f in capture.of("scan") if f.depth_file is not None]
    held = [f for f in scanned if f.name in names]
    chosen = held or scanned[:: max(1, len(scanned) // _VIEWS)]
    if not chosen:
        raise DataError(
            f"{capture.path} has no picture with depth in a set with 'purpose: scan' to compare"
            " the scene with"
        )
    T = np.array(details["T_table_world"], dtype=np.float64)
    posed = posed_frames(capture, chosen)
    of_this = held and capture.config.name == details["capture"]
    return [f.moved(T) for f in posed.frames], bool(of_this)


def _box(entry: dict[str, Any]) -> Box:
    T = pose_from_values(np.array(entry["pose"], dtype=np.float64), "pose")
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
    rested: Sequence[Rested],
    details: dict[str, Any],
    said: list[str],
) -> tuple[Measure, ...]:
    iou = {r.name: _median([v.iou[r.name] for v in views]) for r in rested}
    worst = min(iou, key=lambda n: iou[n] if np.isfinite(iou[n]) else -1.0)
    loose = max(rested, key=lambda r: r.moved_mm)
    turned = max(rested, key=lambda r: r.turned_deg)
    unseen = {n: float(o["unseen_share"]) for n, o in details["objects"].items()}
    hidden = max(unseen, key=lambda n: unseen[n])
    starts = 1.0
    try:
        check_scene(scene)
    except SceneError as error:
        starts = 0.0
        said.append(str(error))
    return (
        Measure(
            "silhouette of the worst object, IoU",
            iou[worst],
            "",
            0.93,
            0.80,
            True,
            f"{worst}: its outline is not the scene's; take more views of it, from low down and"
            " from all sides, and check that nothing moved between the pictures",
        ),
        Measure(
            "outlines against the photograph's edges",
            _median([v.edge_px for v in views]),
            "px",
            2.5,
            6.0,
            False,
            "outlines lie beside the photograph's edges: the lens or the poses are off; calibrate"
            " the camera (pictures of the board), check that depth is registered to the picture",
        ),
        Measure(
            "depth of objects and the table beside them",
            _median([v.depth_mm for v in views]),
            "mm",
            3.0,
            8.0,
            False,
            "depth differs: check depth.scale_m and that depth is along the optical axis; take the"
            " scan again, nearer to the table",
        ),
        Measure(
            "what stands on the table and is not in the scene",
            100.0 * float(np.median([v.unexplained for v in views])),
            "%",
            5.0,
            20.0,
            False,
            "something stands on the table that the scene lacks: take it away or capture again;"
            " what is black, shiny or clear is not reconstructed",
        ),
        Measure(
            "surface that no picture saw",
            100.0 * unseen[hidden],
            "%",
            10.0,
            40.0,
            False,
            f"{hidden}: parts of it were never seen and are closed by guess; add views of them",
        ),
        Measure(
            "objects stay where they were found",
            loose.moved_mm,
            "mm",
            3.0,
            10.0,
            False,
            f"{loose.name} does not rest where it was found: add views of its lower part, or of"
            " what it leans on",
        ),
        Measure(
            "objects stay as they stood",
            turned.turned_deg,
            "degrees",
            3.0,
            10.0,
            False,
            f"{turned.name} tips: its lower side or its mass is off; add views from low down",
        ),
        Measure(
            "starts can be placed",
            starts,
            "",
            1.0,
            1.0,
            True,
            "starts of the reset distribution cannot be placed; robolearn scene check says which",
        ),
    )


def _median(values: Sequence[float]) -> float:
    known = [v for v in values if np.isfinite(v)]
    return float(np.median(known)) if known else float("nan")
