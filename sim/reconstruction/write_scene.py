"""Writes a reconstruction as a scene package: MJCF, meshes, photographs, provenance."""

from __future__ import annotations

import copy
import dataclasses
import importlib.metadata
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import cv2
import numpy as np
import yaml

from robolearn.arms.models import ARMS
from robolearn.capture.board_views import lens_of
from robolearn.capture.config import CaptureConfig, CaptureLens
from robolearn.capture.folder import Frame
from robolearn.config import to_dict
from robolearn.errors import SceneError, did_you_mean
from robolearn.geometry import Pose, Vector, pose, quat_from_rotation
from robolearn.shapes import Picture
from sim.reconstruction.bodies import Body, apart_m
from sim.reconstruction.frames import Assumed, board_place, picture_digest, posed_frames
from sim.reconstruction.meshes import write_obj
from sim.reconstruction.mjcf.body import FRICTION, add_body, contact_geoms, numbers
from sim.reconstruction.mjcf.template import Template, arm_template, empty_template, mend_contacts
from sim.reconstruction.pipeline import Reconstruction
from sim.scene.config import Scene
from sim.scene.load import load_scene
from sim.scene.package import replaced_package, require_replaceable
from sim.tasks.registry import takes_sizes

LIBRARIES = ("mujoco", "numpy", "scipy", "scikit-image", "opencv-python")
_THICK_M = 0.02
# Starts move an object at most this far from where it was found [m].
_AWAY_M = 0.05
# From MuJoCo's camera axes to those of vision.
_FLIP = np.diag([1.0, -1.0, -1.0])


@dataclass(frozen=True, slots=True)
class SceneChoice:
    """How the package is made: the task, and the scene that the robot comes from ("" for none)."""

    task: str = "free"
    arm: str = ""


def write_reconstructed(found: Reconstruction, choice: SceneChoice, out: Path) -> Scene:
    """Write ``out`` (a folder) and return it validated; only a reconstructed scene is replaced.

    SceneError: a robot or a task that does not go with what was found.
    """
    template, more, about = choose(found.capture.config, choice, out)
    assumed, said = [*found.assumed, *more], [*found.said, *about]
    _check_names([b.name for b in found.bodies], template)
    assumed.append(Assumed("friction of every object", FRICTION, "nobody measured it"))
    with replaced_package(out, "reconstructed") as building:
        building.mkdir()
        if template.folder is not None:
            shutil.copytree(template.folder, building, dirs_exist_ok=True)
        raw, root = copy.deepcopy(template.raw), copy.deepcopy(template.root)
        root.set("model", out.name)
        _write_meshes(found.bodies, building)
        cameras = _add_world(root, found, template.T_world_table, building)
        mend_contacts(root, template.lost, {b.name: contact_geoms(b) for b in found.bodies})
        photographed = _add_photographed(root, found, template.T_world_table, building, said)
        cameras += [entry for entry, _ in photographed]
        raw |= {
            "name": out.name,
            "description": f"Reconstructed from the capture '{found.capture.config.name}'.",
        }
        raw["cameras"] = [*cameras, *raw["cameras"]]
        _add_signals(raw, found)
        if choice.task == "free":
            raw["task"] = {"name": "free", "params": {"uniform": _starts(found)}}
            raw["reset"]["distribution"] = "uniform"
        elif takes_sizes(choice.task):
            sizes = {f"{b.name}/pose": (2.0 * b.half_size_m).tolist() for b in found.bodies}
            raw["task"]["params"] = {**raw["task"]["params"], "sizes_m": sizes}
        _shift_limits(raw, template)
        raw["provenance"] = {
            "kind": "reconstructed",
            "source": "; ".join(
                s for s in (f"capture: {found.capture.config.name}", template.source) if s
            ),
            "details": {
                **_details(found, template, assumed, said),
                "distortion": {e["name"]: list(lens.distortion) for e, lens in photographed},
                **_board(found),
            },
        }
        ET.indent(root)
        text = ET.tostring(root, encoding="unicode") + "\n"
        (building / "scene.xml").write_text(text, encoding="utf-8")
        text = yaml.safe_dump(raw, sort_keys=False, width=100)
        (building / "scene.yaml").write_text(text, encoding="utf-8")
        _require_loads(building.resolve(), found)
    return load_scene(out.resolve())


def _require_loads(building: Path, found: Reconstruction) -> None:
    """SceneError, which also says what is missing: the task may need it."""
    try:
        load_scene(building)
    except SceneError as error:
        if not found.missing:
            raise
        missing = "; ".join(f"{name}: {why}" for name, why in found.missing.items())
        raise SceneError(
            f"{error}. Not in the scene: {missing}. '--task free' takes what there is"
        ) from error


def choose(
    config: CaptureConfig, choice: SceneChoice, out: Path
) -> tuple[Template, list[Assumed], list[str]]:
    """What the package begins with, what is assumed of it, what there is to say. SceneError for an
    arm, a task or a place that cannot be, before anything is computed.
    """
    require_replaceable(out, "reconstructed")
    arm = config.arm
    if arm is not None and arm.model and arm.model not in ARMS:
        raise SceneError(
            f"capture.yaml: no arm.model '{arm.model}'.{did_you_mean(arm.model, ARMS)} There are:"
            f" {sorted(ARMS)}; without 'arm' a scene without a robot is made"
        )
    wanted = choice.arm or (f"{arm.model}_table" if arm is not None and arm.model else "")
    made = (
        arm_template(wanted, arm)
        if wanted
        else (empty_template(out.name), list[Assumed](), list[str]())
    )
    _check_names([o.name for o in config.objects], made[0])
    own = made[0].raw["task"]["name"]
    if choice.task not in ("free", own):
        raise SceneError(
            f"task '{choice.task}' needs parameters, which come with a scene of that task: name one"
            f" as the scene to take the arm from, or take task 'free'; this one has task '{own}'"
        )
    return made


def _check_names(names: Sequence[str], template: Template) -> None:
    taken = sorted(set(names) & template.taken)
    if taken:
        raise SceneError(
            f"object '{taken[0]}' has the name of a part of the robot or the table; call it"
            " something else in capture.yaml"
        )


def _write_meshes(bodies: Sequence[Body], folder: Path) -> None:
    (folder / "meshes").mkdir(exist_ok=True)
    for body in bodies:
        at = None if body.texture is None else body.texture.coordinates
        write_obj(folder / "meshes" / f"{body.name}.obj", body.vertices, body.faces, at)


def _add_picture(asset: ET.Element, folder: Path, name: str, picture: Picture) -> None:
    """A texture and a material of this name. Photographs hold the light they were taken under: the
    material shines as much as the scene's usual light would lack, so that it looks as
    photographed, and still grows dark when the light does.
    """
    (folder / "textures").mkdir(exist_ok=True)
    cv2.imwrite(str(folder / "textures" / f"{name}.png"), np.ascontiguousarray(picture[..., ::-1]))
    ET.SubElement(asset, "texture", name=name, type="2d", file=f"textures/{name}.png")
    ET.SubElement(
        asset, "material", name=name, texture=name, emission="0.6", specular="0", shininess="0"
    )


def _add_world(
    root: ET.Element, found: Reconstruction, T: Pose, folder: Path
) -> list[dict[str, Any]]:
    """Table, objects and the cameras that pictures and videos are drawn with."""
    world, asset = _child(root, "worldbody"), _child(root, "asset")
    low, high = np.array(found.table.low), np.array(found.table.high)
    middle = T @ np.array([*(low + high) / 2, -_THICK_M, 1.0])
    ET.SubElement(
        world,
        "geom",
        name="table",
        type="box",
        pos=numbers(middle[:3]),
        quat=numbers(quat_from_rotation(T[:3, :3])),
        size=numbers([*(high - low) / 2, _THICK_M]),
        contype="1",
        conaffinity="14",
        friction=FRICTION,
        material="table_photographed",
    )
    _add_picture(asset, folder, "table_photographed", found.table_picture)
    ET.SubElement(
        world,
        "site",
        name="table",
        pos=numbers(T[:3, 3]),
        quat=numbers(quat_from_rotation(T[:3, :3])),
        rgba="0 0 0 0",
    )
    for body in found.bodies:
        add_body(world, asset, body, T)
        if body.texture is not None:
            _add_picture(asset, folder, body.name, body.texture.picture)
    centre = T @ np.array([*(found.low[:2] + found.high[:2]) / 2, 0.03, 1.0])
    reach = float(np.linalg.norm(found.high[:2] - found.low[:2]))
    R = T[:3, :3]
    for name, direction in (("top", (-0.001, 0.0, 1.0)), ("agent", (0.75, -0.45, 0.6))):
        eye = centre[:3] + R @ (np.array(direction) * 1.25 * reach)
        _add_camera(world, name, _looking(eye, centre[:3]), fovy=42.0)
    return [{"name": n, "width": 256, "height": 256} for n in ("top", "agent")]


def _add_photographed(
    root: ET.Element,
    found: Reconstruction,
    T_world_table: Pose,
    folder: Path,
    said: list[str],
) -> list[tuple[dict[str, Any], CaptureLens]]:
    """Cameras of the cell that stand still, with their photograph of the empty table behind, and
    their real lenses; one of the same place for every further lighting that was photographed.
    """
    capture, out = found.capture, list[tuple[dict[str, Any], CaptureLens]]()
    photographs: dict[str, dict[str, Frame]] = {}
    for f in capture.of("background"):
        photographs.setdefault(f.set.camera, {})[f.set.lighting] = f
    every = [
        (name if k == 0 else f"{name}_{lighting}", name, photo)
        for name in capture.config.cameras
        for k, (lighting, photo) in enumerate(photographs.get(name, {"": None}).items())
    ]
    for shown, name, photo in every:
        camera = capture.config.cameras[name]
        if camera.mount != "table" or (photo is None and camera.T_mount_camera is None):
            continue
        if photo is None:
            lens, _ = lens_of(capture, name)
            frame = None
            T = np.array(camera.T_mount_camera, dtype=np.float64)
        else:
            posed = posed_frames(capture, [photo])
            frame, lens = posed.frames[0], posed.frames[0].lens
            # What was given in the frame of the scan's poses moves with these onto the table.
            if posed.world == found.world:
                frame = frame.moved(found.table.T_table_world)
            T = frame.T_table_camera
        called = shown
        if shown in ("top", "agent"):
            called = f"{shown}_camera"
            said.append(f"camera '{shown}' is called '{called}' in the scene")
        _add_camera(_child(root, "worldbody"), called, T_world_table @ T)
        entry: dict[str, Any] = {
            "name": called,
            "width": camera.size[0],
            "height": camera.size[1],
            "intrinsics": [*lens.focal_px, *lens.centre_px],
        }
        if frame is not None:
            entry["background"] = f"background_{called}.png"
            cv2.imwrite(
                str(folder / entry["background"]),
                np.ascontiguousarray(frame.picture()[..., ::-1]),
            )
            if frame.has_depth:
                entry["background_depth"] = f"background_{called}.depth.png"
                millimetres = np.clip(np.rint(1e3 * frame.depth_m()), 0, 65535).astype(np.uint16)
                cv2.imwrite(str(folder / entry["background_depth"]), millimetres)
        out.append((entry, lens))
    return out


def _add_camera(world: ET.Element, name: str, T: Pose, fovy: float | None = None) -> None:
    """A camera at ``T_world_camera`` (vision's axes)."""
    element = ET.SubElement(
        world,
        "camera",
        name=name,
        pos=numbers(T[:3, 3]),
        quat=numbers(quat_from_rotation(T[:3, :3] @ _FLIP)),
    )
    if fovy is not None:
        element.set("fovy", repr(fovy))


def _looking(eye: Vector, at: Vector) -> Pose:
    z = (at - eye) / np.linalg.norm(at - eye)
    x = np.cross(z, [0.0, 0.0, 1.0])
    x /= np.linalg.norm(x)
    return pose(np.column_stack([x, np.cross(z, x), z]), eye)


def _add_signals(raw: dict[str, Any], found: Reconstruction) -> None:
    names = [f"{b.name}/pose" for b in found.bodies]
    raw["signals"] = [
        *raw["signals"],
        *(
            {
                "name": f"{b.name}/pose",
                "kind": "body_pose",
                "of": [b.name],
                "rate_hz": raw["rate_hz"],
                "frame": "table",
                "unit": "m, quaternion wxyz",
            }
            for b in found.bodies
        ),
    ]
    raw["reset"]["settable"] = [*names, *raw["reset"]["settable"]]


def _starts(found: Reconstruction) -> dict[str, dict[str, list[float]]]:
    """Around where every object was found, as far as it meets nothing."""
    out: dict[str, dict[str, list[float]]] = {}
    for k, body in enumerate(found.bodies):
        x, y, z = (float(v) for v in body.T_table_body[:3, 3])
        room = [
            found.high[a] - at - body.radius_m if up else at - body.radius_m - found.low[a]
            for a, at in ((0, x), (1, y))
            for up in (False, True)
        ]
        away = max(0.0, min(_AWAY_M, apart_m(found.bodies, k) / 2**0.5, *map(float, room)))
        yaw = float(np.arctan2(body.T_table_body[1, 0], body.T_table_body[0, 0]))
        turn = np.pi if away > 0 else 0.0
        out[f"{body.name}/pose"] = {
            "low": [round(v, 6) for v in (x - away, y - away, z, yaw - turn)],
            "high": [round(v, 6) for v in (x + away, y + away, z, yaw + turn)],
        }
    return out


def _shift_limits(raw: dict[str, Any], template: Template) -> None:
    """Limits of the tool in the table's frame, where that lies elsewhere than in the template: over
    the same part of the room, and as high over the table, which they keep the tool from.
    """
    T = template.T_table_old
    if np.allclose(T, np.eye(4), atol=1e-6):
        return
    for action in raw["actions"]:
        if action.get("frame") != "table" or action.get("mode", "absolute") != "absolute":
            continue
        low, high = np.array(action["low"], float), np.array(action["high"], float)
        n, heights = min(3, len(low)), (low[2:3].copy(), high[2:3].copy())
        middle, half = np.zeros(3), np.zeros(3)
        middle[:n], half[:n] = (low[:n] + high[:n]) / 2, (high[:n] - low[:n]) / 2
        middle, half = T[:3, :3] @ middle + T[:3, 3], np.abs(T[:3, :3]) @ half
        low[:n], high[:n] = (middle - half)[:n], (middle + half)[:n]
        low[2:3], high[2:3] = heights
        action["low"] = [round(float(v), 6) for v in low]
        action["high"] = [round(float(v), 6) for v in high]


def _details(
    found: Reconstruction, template: Template, assumed: Sequence[Assumed], said: Sequence[str]
) -> dict[str, Any]:
    """Plain values: what every stage found, what was assumed, which pictures may judge."""
    return {
        "capture": found.capture.config.name,
        "made_by": found.capture.config.made_by,
        "table": {
            "rms_mm": _round(1e3 * found.table.rms_m),
            "height_mm": _round(1e3 * found.table.height_m),
            "tilt_deg": _round(found.table.tilt_deg),
            "share": _round(found.table.share),
        },
        "T_table_world": found.table.T_table_world.tolist(),
        "T_scene_table": template.T_world_table.tolist(),
        "workspace": {"low": found.low.tolist(), "high": found.high.tolist()},
        "objects": {b.name: _object(b) for b in found.bodies},
        # What the capture has and the scene lacks, and why.
        "missing": dict(found.missing),
        "pictures": {
            "used": len(found.frames),
            "held_out": [f.name for f in found.held_out],
            "digests": {f.name: picture_digest(f.frame) for f in found.held_out},
            # Where these were taken, where registration moved them.
            "poses": {f.name: f.T_table_camera.tolist() for f in found.held_out}
            if found.registered
            else {},
            "left_out": dict(found.left_out),
        },
        "assumed": [dataclasses.asdict(a) for a in assumed],
        "said": list(said),
        "notes": list(found.notes),
        "seconds": dict(found.seconds),
        "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def _board(found: Reconstruction) -> dict[str, Any]:
    """The board that lay on the table, for whoever looks whether it still does."""
    board = found.capture.config.board
    T = board_place(found.capture, found.frames)
    if board is None or T is None:
        return {}
    rows: Any = tuple(tuple(row) for row in T.tolist())
    return {"board": to_dict(dataclasses.replace(board, T_table_board=rows))}


def _object(body: Body) -> dict[str, Any]:
    fit = body.nearest
    return {
        "pose": [
            *(float(v) for v in body.T_table_body[:3, 3]),
            *(float(v) for v in quat_from_rotation(body.T_table_body[:3, :3])),
        ],
        "size_mm": [_round(2e3 * float(v)) for v in body.half_size_m],
        "volume_cm3": _round(1e6 * body.volume_m3),
        "collision": body.collision,
        "collision_error_mm": {name: _round(1e3 * e) for name, e in body.tried_m.items()},
        "nearest_primitive": {"kind": fit.kind, "error_mm": _round(1e3 * fit.error_m)},
        "faces": len(body.faces),
        "pictured": body.pictured,
        "unseen_share": _round(body.unseen_share),
        "rgb": [_round(v) for v in body.rgb],
        "texture_seen": _round(body.texture.seen) if body.texture is not None else 0.0,
        "mass_kg": body.mass.kg,
        "mass_kg_between": [body.mass.low_kg, body.mass.high_kg],
        "mass_source": body.mass.source,
        "inertia_kg_m2": list(body.moments.kg_m2),
        "inertia_kg_m2_between": [list(body.moments.low_kg_m2), list(body.moments.high_kg_m2)],
        "inertia_source": body.moments.source,
    }


def _round(value: float) -> float:
    return round(float(value), 4)


def _child(root: ET.Element, tag: str) -> ET.Element:
    found = root.find(tag)
    return ET.SubElement(root, tag) if found is None else found
