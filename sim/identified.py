"""Writes what identification found as a scene package of its own."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import shutil
import sys
import uuid
from pathlib import Path
from typing import Any

import mujoco
import yaml

from robolearn.config import load_yaml
from robolearn.errors import SceneError
from sim.identify import Identified, IdentifyConfig, heldout_summary
from sim.replay import summarize_final
from sim.rollouts import Physics, impedance
from sim.scene import Scene, load_scene

LIBRARIES = ("mujoco", "numpy", "scipy")


def write_identified(
    result: Identified, template: Scene, config: IdentifyConfig, out: Path, source: str = ""
) -> Scene:
    """Write ``out`` (a folder) from the template and the parameters found; return it validated.

    An existing folder is replaced only when it holds an identified scene; otherwise
    :class:`SceneError`. A crash leaves the old folder or none.
    """
    _require_replaceable(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    building = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    shutil.copytree(template.path, building)
    (building / "scene.xml").write_text(scene_xml(template, result.after, out.name))
    raw = load_yaml(template.path / "scene.yaml")
    raw["name"] = out.name
    raw["description"] = f"{template.name} with physics identified from recordings."
    raw["provenance"] = {
        "kind": "identified",
        "source": source,
        "details": provenance(result, template, config),
    }
    (building / "scene.yaml").write_text(yaml.safe_dump(raw, sort_keys=False, width=100))
    if out.exists():
        shutil.rmtree(out)
    building.rename(out)
    return load_scene(out.resolve())


def scene_xml(template: Scene, physics: Physics, name: str) -> str:
    """The template's MJCF with other parameters."""
    spec = mujoco.MjSpec.from_file(str(template.path / "scene.xml"))
    spec.modelname = name
    dmin, dmax = impedance(physics.compliance)
    for geom in spec.geoms:
        if geom.contype:
            geom.friction = [physics.friction, *geom.friction[1:]]
            geom.solimp = [dmin, dmax, *geom.solimp[2:]]
    block = spec.body("block")
    block.ipos = [block.ipos[0], -physics.com_m, block.ipos[2]]
    block.inertia = [block.mass * physics.gyration_m2] * 3
    hinge, slide = spec.joint("block_yaw"), spec.joint("block_y")
    hinge.pos = [hinge.pos[0], -physics.com_m, hinge.pos[2]]
    damping = list(hinge.damping)
    damping[0] = slide.damping[0] * physics.gyration_m2
    hinge.damping = damping
    return str(spec.to_xml())


def provenance(result: Identified, template: Scene, config: IdentifyConfig) -> dict[str, Any]:
    """Plain values: parameters before and after, residuals, episodes, versions."""
    before, after = dataclasses.asdict(result.before), dataclasses.asdict(result.after)
    return {
        "template": template.name,
        "template_hash": template.content_hash,
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
        "episodes": {"train": list(result.train_ids), "heldout": list(result.heldout_ids)},
        "config": _plain(dataclasses.asdict(config)),
        "versions": {
            "python": ".".join(str(v) for v in sys.version_info[:3]),
            **{name: importlib.metadata.version(name) for name in LIBRARIES},
        },
    }


def _require_replaceable(out: Path) -> None:
    if not out.exists():
        return
    try:
        kind = load_scene(out.resolve()).config.provenance.kind
    except SceneError as error:
        raise SceneError(
            f"'{out}' exists and is no scene package; choose another --out or delete it"
        ) from error
    if kind != "identified":
        raise SceneError(f"'{out}' is a {kind} scene; choose another --out")


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
