"""Reads what a scene says of an object's mass and friction with the table, and writes others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

import mujoco
import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from robolearn.geometry import Rotation
from sim.identification.object_forces import (
    Feet,
    G,
    Handling,
    Status,
    Told,
    friction_of,
    mass_of,
    told_document,
)
from sim.perturbations.model import object_bodies
from sim.plants.mount import find_mount
from sim.scene.config import Scene, world_pose
from sim.scene.load import load_scene
from sim.scene.package import read_mjcf

Geoms = Int64[NDArray[np.int64], "_"]

# How fast [m/s] an object is sent off to see what slows it down, and for how long [s].
_SENT_M_S, _SLOWED_S, _SETTLED_S = 0.2, 0.01, 0.4
# What is written is what comes out, as far as this.
_AGREES = 0.02


@dataclass(frozen=True, slots=True)
class ObjectModel:
    """An object of a scene: by its signal, its body, mass [kg], force of friction on the table
    [N], what it stands on, its radius about the body's origin [m], and ``R_table_base``, which
    turns forces of the arm's base frame into those of the frame that its pose is in.
    """

    signal: str
    body: str
    mass_kg: float
    friction_n: float
    feet: Feet
    radius_m: float
    R_table_base: Rotation


@dataclass(frozen=True, slots=True)
class FoundObject:
    """What was found of an object. ``coefficient``: friction over weight, whose status is the
    worse of both.
    """

    before: ObjectModel
    mass: Told
    friction: Told
    coefficient: float
    status: Status


def object_models(scene: Scene) -> tuple[ObjectModel, ...]:
    """Every object that can be placed and moves."""
    model = scene.compile()
    found: list[ObjectModel] = []
    for signal, bodies in object_bodies(model, scene).items():
        root = int(bodies[0])
        if not model.body_dofnum[root]:
            continue
        geoms = _colliding(model, bodies)
        found.append(
            ObjectModel(
                signal,
                model.body(root).name,
                float(model.body_mass[bodies].sum()),
                sliding_force(scene, model, root),
                _feet(model, geoms),
                _radius(model, geoms),
                _turn(scene, model, signal),
            )
        )
    return tuple(found)


def found_object(model: ObjectModel, handled: Sequence[Handling]) -> FoundObject:
    """What handling an object told of it."""
    mass, friction = mass_of(handled), friction_of(handled, model.feet)
    weight = G * (mass.value if mass.status == "identified" else model.mass_kg)
    status: Status = friction.status
    if status == "identified" and mass.status != "identified":
        # The force is known, and what it is divided by is not.
        status = "ratio"
    return FoundObject(model, mass, friction, friction.value / weight, status)


def objects_document(found: Sequence[FoundObject]) -> dict[str, Any]:
    """Plain values for JSON and YAML, by the object's signal."""
    return {
        one.before.signal: {
            "mass_kg": told_document(one.mass, one.before.mass_kg),
            "friction_n": told_document(one.friction, one.before.friction_n),
            "coefficient": {
                "before": one.before.friction_n / (G * one.before.mass_kg),
                "after": None if one.status == "assumed" else one.coefficient,
                "status": one.status,
            },
        }
        for one in found
    }


def sliding_force(scene: Scene, model: mujoco.MjModel, body: int) -> float:
    """What slows a sliding object down [N], measured in the scene itself: contacts are what the
    solver makes of them.
    """
    data = mujoco.MjData(model)
    mount = find_mount(scene.config, model)
    n = min(len(mount.home), len(mount.qpos))
    for actuator in range(model.nu):
        joint = int(model.actuator_trnid[actuator, 0])
        data.ctrl[actuator] = model.qpos0[model.jnt_qposadr[joint]]
    data.qpos[mount.qpos[:n]] = data.ctrl[mount.actuators[:n]] = mount.home[:n]
    step_s = float(model.opt.timestep)
    mujoco.mj_step(model, data, round(_SETTLED_S / step_s))
    size = int(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION.value))
    rest = np.empty(size)
    mujoco.mj_getState(model, data, rest, mujoco.mjtState.mjSTATE_INTEGRATION.value)
    first = int(model.body_dofadr[body])
    mass = float(model.body_subtreemass[body])
    slowed: list[float] = []
    for axis in (0, 1):
        for way in (-1.0, 1.0):
            mujoco.mj_setState(model, data, rest, mujoco.mjtState.mjSTATE_INTEGRATION.value)
            data.qvel[first + axis] = way * _SENT_M_S
            steps = max(1, round(_SLOWED_S / step_s))
            # Soft contacts have to give way first.
            mujoco.mj_step(model, data, steps)
            before = way * float(data.qvel[first + axis])
            mujoco.mj_step(model, data, steps)
            lost = before - way * float(data.qvel[first + axis])
            slowed.append(mass * lost / (steps * step_s))
    return float(np.mean(slowed))


def write_objects(folder: Path, found: Sequence[FoundObject]) -> list[str]:
    """Write what was identified into the MJCF files of the package in ``folder``; what could not
    be written stays as it was, and is said in sentences.
    """
    notes: list[str] = []
    for one in found:
        if one.mass.status == "identified":
            factor = one.mass.value / one.before.mass_kg
            if not _scaled(folder, one, "mass", factor, one.mass.value):
                notes.append(_unwritten(one, f"a mass of {one.mass.value:.3g} kg"))
        if one.friction.status == "identified":
            # A new weight slides with another force.
            factor = one.friction.value / _now(folder, one).friction_n
            if not _scaled(folder, one, "friction", factor, one.friction.value):
                notes.append(_unwritten(one, f"a friction of {one.friction.value:.3g} N"))
    return notes


def _unwritten(one: FoundObject, what: str) -> str:
    return (
        f"{one.before.signal}: {what} could not be written into the scene, whose MJCF does not"
        " name it at the object; write it there by hand"
    )


def _now(folder: Path, one: FoundObject) -> ObjectModel:
    return next(o for o in object_models(load_scene(folder)) if o.signal == one.before.signal)


def _scaled(
    folder: Path, one: FoundObject, what: Literal["mass", "friction"], factor: float, wanted: float
) -> bool:
    """Scale it in the files; False, with the files as they were, where that does not give it."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.xml"))}
    for path in texts:
        tree = read_mjcf(path)
        changed = _scale_mass if what == "mass" else _scale_friction
        if changed(tree, one.before.body, factor):
            path.write_text(ET.tostring(tree, encoding="unicode") + "\n", encoding="utf-8")
    now = _now(folder, one)
    got = now.mass_kg if what == "mass" else now.friction_n
    if abs(got - wanted) <= _AGREES * wanted:
        return True
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return False


def _scale_mass(tree: ET.Element, body: str, factor: float) -> bool:
    """Masses and moments of a body and all that hangs on it."""
    done = False
    for root in _bodies(tree, body):
        for element in root.iter():
            for key in ("mass", "density", "diaginertia", "fullinertia"):
                if element.get(key):
                    element.set(key, _times(str(element.get(key)), factor))
                    done = True
    return done


def _scale_friction(tree: ET.Element, body: str, factor: float) -> bool:
    """Sliding friction of the pairs between a body's geoms and what is fixed; without any, of the
    geoms that say one themselves.
    """
    roots = _bodies(tree, body)
    names = {g.get("name") for r in roots for g in r.iter("geom")} - {None}
    moving = {g.get("name") for b in tree.iter("body") for g in b.iter("geom")}
    pairs = [
        p
        for p in tree.iter("pair")
        if {p.get("geom1"), p.get("geom2")} & names
        and not ({p.get("geom1"), p.get("geom2")} - names) & moving
    ]
    for pair in pairs:
        # Two directions of sliding come first.
        pair.set("friction", _times(pair.get("friction", "1 1"), factor, 2))
    if pairs:
        return True
    geoms = [g for r in roots for g in r.iter("geom") if g.get("friction")]
    for geom in geoms:
        geom.set("friction", _times(str(geom.get("friction")), factor, 1))
    return bool(geoms)


def _bodies(tree: ET.Element, name: str) -> list[ET.Element]:
    return [b for b in tree.iter("body") if b.get("name") == name]


def _times(numbers: str, factor: float, first: int | None = None) -> str:
    """The first numbers of an attribute times a factor, in eight digits."""
    values = numbers.split()
    count = len(values) if first is None else first
    return " ".join([f"{float(v) * factor:.8g}" for v in values[:count]] + values[count:])


def _colliding(model: mujoco.MjModel, bodies: Sequence[int] | NDArray[np.intp]) -> Geoms:
    paired = np.concatenate([model.pair_geom1, model.pair_geom2])
    touches = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    touches[paired] = True
    return np.flatnonzero(np.isin(model.geom_bodyid, bodies) & touches)


def _radius(model: mujoco.MjModel, geoms: Geoms) -> float:
    out = [np.linalg.norm(model.geom_pos[g]) + model.geom_rbound[g] for g in geoms]
    return float(max(out, default=0.0))


def _turn(scene: Scene, model: mujoco.MjModel, signal: str) -> Rotation:
    frame = next(s.frame for s in scene.config.signals if s.name == signal)
    T_world_table = world_pose(model, scene.config.frames[frame])
    return T_world_table[:3, :3].T @ find_mount(scene.config, model).T_world_base[:3, :3]


def _feet(model: mujoco.MjModel, geoms: Geoms) -> Feet:
    """Of pairs with what cannot move their places and frictions, else the corners below."""
    rows: list[list[float]] = []
    for pair in range(model.npair):
        ours = [g for g in (model.pair_geom1[pair], model.pair_geom2[pair]) if g in geoms]
        other = [g for g in (model.pair_geom1[pair], model.pair_geom2[pair]) if g not in geoms]
        if ours and other and int(model.body_weldid[model.geom_bodyid[other[0]]]) == 0:
            x, y, _ = model.geom_pos[ours[0]].tolist()
            rows.append([x, y, float(model.pair_friction[pair, 0])])
    if not rows:
        for g in geoms.tolist():
            (x, y, _), (a, b, _) = model.geom_aabb[g, :3].tolist(), model.geom_aabb[g, 3:].tolist()
            px, py, _ = model.geom_pos[g].tolist()
            rows += [[px + x + s * a, py + y + t * b, 1.0] for s in (-1, 1) for t in (-1, 1)]
    feet = np.array(rows or [[0.0, 0.0, 1.0]])
    feet[:, 2] /= feet[:, 2].sum()
    return feet
