"""Writes what identification found of an arm as a scene package of its own.

Gains, delay and smoothing go into ``scene.yaml`` (``control``), what belongs to joints and the
payload into the MJCF file of the package that names them.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import yaml

from robolearn.arms.tool_commands import TOOL_COMMANDS
from robolearn.arms.tool_path import ToolPathLimits
from robolearn.config import load_yaml
from robolearn.errors import SceneError
from sim.identification.arm_identify import ArmIdentified, ArmIdentifyConfig
from sim.identification.gripper_motion import FoundGripper, gripper_document
from sim.identification.object_model import FoundObject, objects_document, write_objects
from sim.identification.write_scene import versions
from sim.plants.mount import find_mount, tip_in_last_link
from sim.scene.config import Scene, SceneConfig, SupervisorConfig
from sim.scene.load import load_scene
from sim.scene.package import read_mjcf, replaced_package
from sim.scene.payload import PAYLOAD, moments

# Less is not worth a body [kg].
_LEAST_KG = 0.002
# A smoothing that lags less is written as delay: a filter costs a call at every physics step [s].
_LEAST_SMOOTHING_S = 0.002
_ATTRIBUTES = {"damping": "damping", "friction": "frictionloss", "armature": "armature"}


@dataclass(frozen=True, slots=True)
class OfCell:
    """What the supervisor of the arm's cell does; nothing of a cell that is not known.

    ``limits``: of the tool's way, for a scene that is commanded by the tool's pose; ``stop``: what
    it stops the robot for.
    """

    limits: ToolPathLimits | None = None
    stop: SupervisorConfig | None = None


def commanded_by_tool(config: SceneConfig) -> str:
    """The action that commands the tool of the scene's only arm; "" for another scene."""
    arms = config.control.get("arms", [])
    action = str(arms[0]["action"]) if len(arms) == 1 else ""
    return action if action.partition("/")[2] in TOOL_COMMANDS else ""


def write_identified_arm(
    result: ArmIdentified,
    template: Scene,
    config: ArmIdentifyConfig,
    out: Path,
    source: str = "",
    objects: Sequence[FoundObject] = (),
    gripper: FoundGripper | None = None,
    of_cell: OfCell = OfCell(),
) -> Scene:
    """Write ``out`` (a folder) from the template and what was found; return it validated.
    ``of_cell``: what is known of it replaces the template's.

    An existing folder is replaced only when it holds an identified scene. Raises
    :class:`SceneError` for another one, and for a template whose joints are not written in files of
    its own. A crash leaves the old folder or none.
    """
    with replaced_package(out, "identified") as folder:
        shutil.copytree(template.path, folder)
        _write_mjcf(result, template, folder)
        notes = write_objects(folder, objects)
        raw = load_yaml(template.path / "scene.yaml")
        _write_control(result, raw, template.config.physics.timestep_s)
        if gripper is not None and gripper.known:
            raw["control"]["arms"][0]["gripper"]["drive"] = {
                "delay_s": _short(gripper.delay.value),
                "speed": _short(gripper.speed.value),
                "pulls_on": gripper.pulls_on,
            }
        if of_cell.limits is not None:
            raw["control"]["arms"][0]["limits"] = _plain(of_cell.limits)
        if of_cell.stop is not None:
            raw["supervisor"] = dataclasses.asdict(of_cell.stop)
        raw["name"] = out.name
        raw["description"] = f"{template.name} with the arm identified from motions."
        raw["provenance"] = {
            "kind": "identified",
            "source": source,
            "details": {
                **arm_provenance(result, template, config),
                "objects": objects_document(objects),
                "gripper": gripper_document(gripper),
                "not_written": notes,
                **_reconstructed(template, objects),
            },
        }
        text = yaml.safe_dump(raw, sort_keys=False, width=100)
        (folder / "scene.yaml").write_text(text, encoding="utf-8")
    return load_scene(out.resolve())


def _plain(limits: ToolPathLimits) -> dict[str, Any]:
    """As YAML has them: what is not limited is left out."""
    told = dataclasses.asdict(limits)
    return {k: list(v) if isinstance(v, tuple) else v for k, v in told.items() if v is not None}


def arm_provenance(
    result: ArmIdentified, template: Scene, config: ArmIdentifyConfig
) -> dict[str, Any]:
    """Plain values: what was found with intervals, what was assumed, and what is left over."""
    return {
        "template": template.name,
        "template_hash": template.content_hash,
        **arm_document(result),
        "config": dataclasses.asdict(config),
        "versions": versions(),
    }


def _reconstructed(template: Scene, objects: Sequence[FoundObject]) -> dict[str, Any]:
    """What the template's reconstruction knew of the cell, without what is identified now."""
    known = template.config.provenance.reconstructed
    if not known:
        return {}
    told = {f"mass of {o.before.body}" for o in objects if o.mass.status == "identified"}
    assumed = [entry for entry in known["assumed"] if entry["what"] not in told]
    kept = {key: value for key, value in known.items() if key != "by_hand"}
    return {"reconstructed": {**kept, "assumed": assumed}}


def arm_document(result: ArmIdentified) -> dict[str, Any]:
    """What was found, as plain values for JSON and YAML."""
    parameters = {
        f.name: {
            "before": f.before,
            "after": f.after,
            "interval": [f.low, f.high],
            "unit": f.unit,
            "status": f.status,
            **({"only_with": list(f.partners)} if f.partners else {}),
        }
        for f in result.found
    }
    return {
        "parameters": parameters,
        "assumed": [f.name for f in result.found if f.status == "assumed"],
        "told_only_together": [f.name for f in result.found if f.status == "ratio"],
        "viscous_sum": {
            joint: {"value": value, "interval": [low, high]}
            for joint, (value, low, high) in result.viscous.items()
        },
        "delay_s": result.delay_s,
        "heldout": {
            "before": {"joint_deg": result.before.joint_deg, "tool_mm": result.before.tool_mm},
            "after": {"joint_deg": result.after.joint_deg, "tool_mm": result.after.tool_mm},
            "hysteresis_deg": result.hysteresis_deg,
        },
        "backlash_deg": {
            p.joint: {
                "value": math.degrees(p.width),
                "interval": [math.degrees(p.low), math.degrees(p.high)],
                "found": p.sure,
            }
            for p in result.play
        },
        "notes": list(result.notes),
        "seconds": {"fit": result.fit_s, "heldout": result.held_out_s},
        "rollouts": result.rollouts,
        "duration_s": result.duration_s,
    }


def _write_control(result: ArmIdentified, raw: dict[str, Any], step_s: float) -> None:
    control: dict[str, Any] = raw["control"]
    target: dict[str, Any] = control["arms"][0] if control["kind"] == "arms" else control
    kinds = {"kp": "stiffness", "kv": "servo_damping"}
    target["gains"] = {
        key: [_short(f.after) for f in result.found if f.kind == kind]
        for key, kind in kinds.items()
    }
    delay_s, lag_s = result.value("delay"), result.value("smoothing")
    if lag_s < _LEAST_SMOOTHING_S:
        delay_s, lag_s = delay_s + lag_s, 0.0
        steps = round(delay_s / step_s)
    else:
        # Scenes delay by whole steps; what is left of one is a lag.
        steps = int(delay_s / step_s + 1e-6)
        lag_s += delay_s - steps * step_s
    raw["control_delay_s"] = _short(steps * step_s)
    raw["control_smoothing_s"] = _short(lag_s)


def _write_mjcf(result: ArmIdentified, template: Scene, folder: Path) -> None:
    model = template.compile()
    mount = find_mount(template.config, model)
    trees = {path: read_mjcf(path) for path in sorted(folder.rglob("*.xml"))}
    changed: set[Path] = set()
    joints = [f.joint for f in result.found if f.kind == "armature"]
    for title, name in zip(joints, mount.joints, strict=False):
        path, joint = _named(trees, "joint", name, template)
        for kind, attribute in _ATTRIBUTES.items():
            value = next(f.after for f in result.found if (f.kind, f.joint) == (kind, title))
            joint.set(attribute, repr(_short(value)))
        changed.add(path)
    mass = result.value("payload")
    if mass > _LEAST_KG:
        last = mount.joints[len(joints) - 1]
        path, body = _parent(trees, last, template)
        _carry(body, mass, tip_in_last_link(model, mount).tolist())
        changed.add(path)
    for path in changed:
        text = ET.tostring(trees[path], encoding="unicode") + "\n"
        path.write_text(text, encoding="utf-8")


def _carry(link: ET.Element, mass_kg: float, at_m: list[float]) -> None:
    """The payload as a body of its own behind the last joint."""
    old = [b for b in link.iter("body") if b.get("name") == PAYLOAD]
    body = old[0] if old else ET.SubElement(link, "body", name=PAYLOAD)
    if not old:
        body.set("pos", " ".join(repr(round(v, 9)) for v in at_m))
        if link.get("gravcomp"):
            body.set("gravcomp", str(link.get("gravcomp")))
    inertial = body.find("inertial")
    if inertial is None:
        inertial = ET.SubElement(body, "inertial", pos="0 0 0")
    inertial.set("mass", repr(_short(mass_kg)))
    inertial.set("diaginertia", " ".join(repr(v) for v in moments(_short(mass_kg))))


def _named(
    trees: dict[Path, ET.Element], tag: str, name: str, template: Scene
) -> tuple[Path, ET.Element]:
    for path, root in trees.items():
        for element in root.iter(tag):
            if element.get("name") == name:
                return path, element
    raise SceneError(
        f"scene '{template.name}': no MJCF file of the package has a <{tag} name='{name}'> to write"
        " what was found into"
    )


def _parent(trees: dict[Path, ET.Element], joint: str, template: Scene) -> tuple[Path, ET.Element]:
    path, found = _named(trees, "joint", joint, template)
    for body in trees[path].iter("body"):
        if found in list(body):
            return path, body
    raise SceneError(f"scene '{template.name}': joint '{joint}' is in no <body> of {path.name}")


def _short(value: float) -> float:
    """Eight significant digits."""
    return float(f"{value:.8g}")
