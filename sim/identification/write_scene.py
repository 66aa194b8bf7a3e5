"""Writes what identification found as a scene package of its own."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import yaml

from robolearn.config import load_yaml
from robolearn.errors import SceneError
from sim.identification.planar_rollouts import Physics, impedance
from sim.identification.replay import summarize_final
from sim.identification.search import Identified, IdentifyConfig, heldout_summary
from sim.scene.config import Scene
from sim.scene.load import load_scene
from sim.scene.package import read_mjcf, replaced_package

LIBRARIES = ("mujoco", "numpy", "scipy")


def write_identified(
    result: Identified, template: Scene, config: IdentifyConfig, out: Path, source: str = ""
) -> Scene:
    """Write ``out`` (a folder) from the template and the parameters found; return it validated.

    An existing folder is replaced only when it holds an identified scene; otherwise
    :class:`SceneError`. A crash leaves the old folder or none.
    """
    with replaced_package(out, "identified") as building:
        _build(result, template, config, building, out.name, source)
    return load_scene(out.resolve())


def _build(
    result: Identified,
    template: Scene,
    config: IdentifyConfig,
    folder: Path,
    name: str,
    source: str,
) -> None:
    shutil.copytree(template.path, folder)
    (folder / "scene.xml").write_text(scene_xml(template, result.after, name), encoding="utf-8")
    raw = load_yaml(template.path / "scene.yaml")
    raw["name"] = name
    raw["description"] = f"{template.name} with physics identified from recordings."
    raw["provenance"] = {
        "kind": "identified",
        "source": source,
        "details": provenance(result, template, config),
    }
    text = yaml.safe_dump(raw, sort_keys=False, width=100)
    (folder / "scene.yaml").write_text(text, encoding="utf-8")


def scene_xml(template: Scene, physics: Physics, name: str) -> str:
    """The template's MJCF with other parameters, in full precision.

    Raises :class:`SceneError` when the template does not write them where ``pusht_naive`` does.
    """
    source = template.path / "scene.xml"
    root = read_mjcf(source)
    root.set("model", name)
    dmin, dmax = impedance(physics.compliance)
    for geom in root.iter("geom"):
        if "solimp" in geom.attrib:
            geom.set("friction", _numbers(geom.get("friction", "1 0 0"), [physics.friction]))
            geom.set("solimp", _numbers(geom.get("solimp", ""), [dmin, dmax]))
    hinge = _element(root, "joint", "block_yaw", source)
    slide = _element(root, "joint", "block_y", source)
    hinge.set("pos", f"0 {-physics.com_m!r} 0")
    hinge.set("damping", repr(float(slide.get("damping", "0")) * physics.gyration_m2))
    inertial = _element(root, "body", "block", source).find("inertial")
    if inertial is None:
        raise SceneError(f"{source}: body 'block' needs an <inertial>, as in pusht_naive")
    inertial.set("pos", f"0 {-physics.com_m!r} 0")
    moment = float(inertial.get("mass", "1")) * physics.gyration_m2
    inertial.set("diaginertia", " ".join([repr(moment)] * 3))
    return ET.tostring(root, encoding="unicode") + "\n"


def provenance(result: Identified, template: Scene, config: IdentifyConfig) -> dict[str, Any]:
    """Plain values: parameters before and after, residuals, episodes, versions."""
    return {
        "template": template.name,
        "template_hash": template.content_hash,
        **figures(result),
        "episodes": {"train": list(result.train_ids), "heldout": list(result.heldout_ids)},
        "config": _plain(dataclasses.asdict(config)),
        "versions": versions(),
    }


def figures(result: Identified) -> dict[str, Any]:
    """Plain values: parameters before and after, residuals, held-out errors, what was tried."""
    before, after = dataclasses.asdict(result.before), dataclasses.asdict(result.after)
    return {
        "parameters": {k: {"before": before[k], "after": after[k]} for k in before},
        "residual_median_mm": {
            "before": result.residual_before_mm,
            "after": result.residual_after_mm,
        },
        "heldout": {
            when: {
                "after_5_s": dataclasses.asdict(heldout_summary(errors, 5.0)),
                "final": dataclasses.asdict(summarize_final(errors)),
            }
            for when, errors in (
                ("before", result.heldout_before),
                ("after", result.heldout_after),
            )
        },
        "windows": result.windows,
        "evaluations": result.evaluations,
    }


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    own = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"python": ".".join(str(v) for v in sys.version_info[:3]), **own}


def _element(root: ET.Element, tag: str, name: str, source: Path) -> ET.Element:
    for element in root.iter(tag):
        if element.get("name") == name:
            return element
    raise SceneError(f"{source}: needs a <{tag} name='{name}'>, as in pusht_naive")


def _numbers(text: str, first: Sequence[float]) -> str:
    """Replace the first numbers of an attribute."""
    return " ".join([*(repr(v) for v in first), *text.split()[len(first) :]])


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
