"""Takes the robot of a scene package into a reconstructed one: its MJCF without table and objects.

The world of the package stays the world; what was reconstructed is placed in it by
``T_world_table``, upright: gravity is along the world's -z.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import mujoco
import numpy as np

from robolearn.capture.config import CaptureArm
from robolearn.capture.folder import matrix
from robolearn.config import load_yaml
from robolearn.errors import SceneError
from robolearn.geometry import Pose, inverse, pose, rot_z, yaw_of
from sim.reconstruction.frames import Assumed
from sim.scene.config import Scene, world_pose
from sim.scene.load import load_scene, packaged_scenes
from sim.scene.look import LIGHTS, SKY, VISUAL
from sim.scene.package import read_mjcf

_EMPTY = f"""<mujoco model="reconstructed">
  <compiler autolimits="true"/>
  <option timestep="0.002" integrator="implicitfast" cone="elliptic" impratio="10"/>
  {VISUAL}
  <asset>
    {SKY}
  </asset>
  <worldbody>
    {LIGHTS}
  </worldbody>
</mujoco>"""


@dataclass(frozen=True, slots=True)
class Template:
    """What a reconstructed package begins with: MJCF, the keys of ``scene.yaml``, the folder whose
    other files belong to it (None: no robot), names that are taken, and where the table goes.
    ``lost``: geoms of the objects that went, and whose they were.
    """

    root: ET.Element
    raw: dict[str, Any]
    folder: Path | None
    taken: frozenset[str]
    T_world_table: Pose
    # From the frame of the template's table to the new one's: limits of actions are given in it.
    T_table_old: Pose
    source: str
    lost: Mapping[str, str]


def empty_template(name: str) -> Template:
    """A world without a robot: the table's frame is the world's."""
    raw = {
        "schema": 1,
        "name": name,
        "robot": {"name": "none", "description": "a table without a robot"},
        "rate_hz": 20,
        "physics": {"timestep_s": 0.002, "max_speed": 50},
        "frames": {"table": "table"},
        "signals": [],
        "actions": [],
        "control": {"kind": "none"},
        "cameras": [],
        "task": {"name": "free", "params": {}},
        "reset": {"distribution": "uniform", "settable": []},
    }
    root = ET.fromstring(_EMPTY)  # noqa: S314  (our own)
    return Template(root, raw, None, frozenset({"table"}), np.eye(4), np.eye(4), "", {})


def arm_template(
    name_or_path: str, arm: CaptureArm | None
) -> tuple[Template, list[Assumed], list[str]]:
    """The robot of a scene package; SceneError says what a scene to take it from looks like."""
    scene = load_scene(name_or_path)
    root, raw = read_mjcf(scene.path / "scene.xml"), load_yaml(scene.path / "scene.yaml")
    world = root.find("worldbody")
    if world is None or world.find("./geom[@name='table']") is None:
        tables = [n for n in packaged_scenes() if n.endswith("_table")]
        raise SceneError(
            f"the robot of '{scene.name}' cannot be taken over: its scene.xml has no geom 'table'"
            f" to replace. Scenes that have one: {tables}"
        )
    table = world_pose(scene.compile(), scene.config.frames["table"])
    # Those of the robot's own file, such as one on its hand, stay.
    standing = {c.get("name", "") for c in world.findall("camera")}
    loose = {b.get("name", ""): b for b in world.findall("body") if _is_loose(b)}
    geoms = [(g.get("name", ""), n) for n, body in loose.items() for g in body.iter("geom")]
    lost = {geom: name for geom, name in geoms if geom}
    for element in list(world):
        plane = element.get("type") == "plane"
        gone = (
            (element.tag == "geom" and not plane)
            or (element.tag == "body" and (_is_loose(element) or element.get("name") == "gaze"))
            or element.tag == "camera"
            or (element.tag == "site" and element.get("name") == scene.config.frames["table"])
        )
        if gone:
            world.remove(element)
    T, assumed, said = _placed(scene, arm, table)
    _drop(raw, {s["name"] for s in raw["signals"] if loose.keys() & set(s["of"])}, standing)
    kept = {n: o for n, o in raw.pop("overrides", {}).items() if n not in loose}
    if kept:
        raw["overrides"] = kept
    model = scene.compile()
    taken = {model.body(b).name for b in range(model.nbody)} - loose.keys()
    return (
        Template(
            root,
            raw,
            scene.path,
            frozenset(taken | {"table"}),
            T,
            inverse(T) @ table,
            f"robot: {scene.name} (hash {scene.content_hash})",
            lost,
        ),
        assumed,
        said,
    )


def mend_contacts(
    root: ET.Element, lost: Mapping[str, str], geoms: Mapping[str, Sequence[str]]
) -> None:
    """Contacts that the template gives to its objects go to what was found under the same name:
    ``geoms`` of each object; those of objects that were not found are left out.
    """
    for contact in root.findall("contact"):
        for pair in contact.findall("pair"):
            ends = [key for key in ("geom1", "geom2") if pair.get(key, "") in lost]
            if not ends:
                continue
            contact.remove(pair)
            made = [pair]
            for key in ends:
                new = geoms.get(lost[pair.get(key, "")], ())
                made = [_with(each, key, geom) for each in made for geom in new]
            contact.extend(made)
        for exclude in contact.findall("exclude"):
            bodies = {exclude.get("body1", ""), exclude.get("body2", "")}
            if bodies & set(lost.values()) - geoms.keys():
                contact.remove(exclude)


def _with(entry: ET.Element, key: str, value: str) -> ET.Element:
    other = copy.deepcopy(entry)
    other.set(key, value)
    return other


def _placed(
    scene: Scene, arm: CaptureArm | None, table: Pose
) -> tuple[Pose, list[Assumed], list[str]]:
    """``T_world_table``: by where the capture says that the base stands, else as in the scene."""
    if arm is None or arm.T_table_base is None:
        x, y, z = (float(v) for v in table[:3, 3])
        value = f"table's origin at {x:.3f}, {y:.3f}, {z:.3f} m of the arm's world"
        why = f"arm.T_table_base is not in capture.yaml; as in {scene.name}"
        return table, [Assumed("where the arm stands", value, why)], []
    arms = scene.config.control.get("arms") or [{"base": "base"}]
    model = scene.compile()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    base = data.body(str(arms[0].get("base", "base")))
    T_world_base = pose(base.xmat.reshape(3, 3), base.xpos)
    T = T_world_base @ inverse(matrix(arm.T_table_base))
    tilt = float(np.degrees(np.arccos(np.clip(T[2, 2], -1.0, 1.0))))
    if tilt > 10.0:
        raise SceneError(
            f"arm.T_table_base tilts the table by {tilt:.0f} degrees against the arm's base, which"
            f" stands upright in '{scene.name}'; is it T_base_table, or transposed?"
        )
    said = []
    if tilt > 0.5:
        said.append(
            f"the table is tilted by {tilt:.1f} degrees against the arm's base; it is made level"
        )
    return pose(rot_z(yaw_of(T[:3, :3])), T[:3, 3]), [], said


def _drop(raw: dict[str, Any], signals: set[str], cameras: set[str]) -> None:
    """Leave out signals of objects that are gone, and cameras that stood in the template's room."""
    raw["signals"] = [s for s in raw["signals"] if s["name"] not in signals]
    raw["reset"]["settable"] = [n for n in raw["reset"]["settable"] if n not in signals]
    raw["cameras"] = [c for c in raw["cameras"] if c["name"] not in cameras]


def _is_loose(body: ET.Element) -> bool:
    return body.find("freejoint") is not None or body.find("joint[@type='free']") is not None
