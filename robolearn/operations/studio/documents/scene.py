"""Describes a scene package: what was measured of the real table, how exactly, and its drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.config import load_yaml
from robolearn.operations.studio.documents.command_line import command_line
from robolearn.operations.studio.documents.loose import listed, mapping, number, texts
from robolearn.operations.studio.documents.problems import Problem, Problems, gone
from sim.scene.config import Scene
from sim.scene.drift_record import DriftPart, read_drift
from sim.scene.load import content_hash, load_scene
from sim.scene.overrides import by_hand_sentences


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number of the scene that was found. ``before``: of the scene that it was made from; an
    interval only where one is known.
    """

    name: str
    value: float
    before: float | None
    low: float | None
    high: float | None
    unit: str
    # fitted, assumed, told only together with others, ...; "" where nothing is said.
    status: str


@dataclass(frozen=True, slots=True)
class Residual:
    """What is left over, on what was kept from the fit: before and after."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class SceneObject:
    """A thing that was reconstructed."""

    name: str
    size_mm: tuple[float, ...]
    mass_kg: float | None
    mass_low_kg: float | None
    mass_high_kg: float | None
    mass_source: str
    collision: str
    unseen_share: float | None


@dataclass(frozen=True, slots=True)
class SceneDocument:
    """A scene package. ``made``: hand-made, identified or reconstructed."""

    name: str
    path: str
    description: str
    robot: str
    task: str
    made: str
    source: str
    content_hash: str
    cameras: tuple[str, ...]
    signals: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    residuals: tuple[Residual, ...]
    objects: tuple[SceneObject, ...]
    drift: Mapping[str, DriftPart]
    # What nobody measured: what, value, why.
    assumed: tuple[Mapping[str, str], ...]
    # The capture that it was made of, and pictures that were kept from it.
    capture: str
    held_out: tuple[str, ...]
    said: tuple[str, ...]
    commands: tuple[str, ...]
    problems: tuple[Problem, ...]


def scene_document(path: Path) -> SceneDocument:
    """What there is to know of a scene package, also of one that is not valid."""
    problems = Problems()
    if missing := gone(path):
        problems.say("scene", missing)
    raw = problems.attempt("scene.yaml", lambda: load_yaml(path / "scene.yaml"), {})
    scene = problems.attempt("scene", lambda: load_scene(path), None) if raw else None
    digest = problems.attempt("scene", lambda: _hash(path, scene), "")
    made = mapping(raw.get("provenance"))
    details = mapping(made.get("details"))
    if scene is not None:
        details = scene.config.provenance.details
    # An identified scene keeps what its reconstruction knew.
    cell = mapping(details.get("reconstructed")) or details
    drift = problems.attempt("drift.json", lambda: read_drift(path, digest), None)
    kind = str(made.get("kind", ""))
    return SceneDocument(
        name=str(raw.get("name", path.name)),
        path=str(path),
        description=str(raw.get("description", "")),
        robot=str(mapping(raw.get("robot")).get("name", "")),
        task=str(mapping(raw.get("task")).get("name", "")),
        made=kind,
        source=str(made.get("source", "")),
        content_hash=digest,
        cameras=_named(raw.get("cameras")),
        signals=_named(raw.get("signals")),
        parameters=problems.attempt("parameters", lambda: _parameters(details), ()),
        residuals=problems.attempt("residuals", lambda: _residuals(details), ()),
        objects=problems.attempt("objects", lambda: _objects(cell), ()),
        drift={} if drift is None else drift.parts,
        assumed=problems.attempt("assumed", lambda: _assumed(cell), ()),
        capture=str(cell.get("capture", "")),
        held_out=tuple(map(str, mapping(cell.get("pictures")).get("held_out", ()))),
        said=(*_said(details), *(() if cell is details else _said(cell))),
        commands=_commands(path, seen=kind == "reconstructed" or cell is not details),
        problems=problems.found,
    )


def _hash(path: Path, scene: Scene | None) -> str:
    return content_hash(path) if scene is None else scene.content_hash


def _named(entries: Any) -> tuple[str, ...]:
    return tuple(str(mapping(e).get("name", "")) for e in listed(entries))


def _parameters(details: Mapping[str, Any]) -> tuple[Parameter, ...]:
    found: list[Parameter] = []
    for name, entry in mapping(details.get("parameters")).items():
        low, high = entry.get("interval", (None, None))
        value = number(entry["after"])
        if value is not None:
            found.append(
                Parameter(
                    *(str(name), value, number(entry.get("before")), number(low), number(high)),
                    *(str(entry.get("unit", "")), str(entry.get("status", ""))),
                )
            )
    for joint, entry in mapping(details.get("viscous_sum")).items():
        low, high = entry["interval"]
        name = f"viscous friction in all, {joint}"
        found.append(
            Parameter(name, float(entry["value"]), None, number(low), number(high), "", "fitted")
        )
    return tuple(found)


def _residuals(details: Mapping[str, Any]) -> tuple[Residual, ...]:
    """Leaves of ``heldout`` and ``residual_median_mm`` under ``before`` and ``after``."""
    found: list[Residual] = []
    for title, key in (("kept from the fit", "heldout"), ("of the fit", "residual_median_mm")):
        entry = mapping(details.get(key))
        before, after = (_leaves(entry.get(k), title) for k in ("before", "after"))
        found += [Residual(name, before.get(name), value) for name, value in after.items()]
    table = mapping(details.get("table"))
    found += [
        Residual(f"table, {words}", None, value)
        for name, words in (("rms_mm", "mm from a plane"), ("tilt_deg", "degrees of tilt"))
        if (value := number(table.get(name))) is not None
    ]
    return tuple(found)


def _leaves(value: Any, name: str) -> dict[str, float]:
    found = {} if (own := number(value)) is None else {name: own}
    for key, inner in mapping(value).items():
        found |= _leaves(inner, f"{name}: {str(key).replace('_', ' ')}")
    return found


def _objects(details: Mapping[str, Any]) -> tuple[SceneObject, ...]:
    found: list[SceneObject] = []
    for name, entry in mapping(details.get("objects")).items():
        o = mapping(entry)
        between: Sequence[Any] = o.get("mass_kg_between", (None, None))
        found.append(
            SceneObject(
                name=str(name),
                size_mm=tuple(float(v) for v in o.get("size_mm", ())),
                mass_kg=number(o.get("mass_kg")),
                mass_low_kg=number(between[0]),
                mass_high_kg=number(between[1]),
                mass_source=str(o.get("mass_source", "")),
                collision=str(o.get("collision", "")),
                unseen_share=number(o.get("unseen_share")),
            )
        )
    return tuple(found)


def _assumed(details: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    entries = [entry for e in listed(details.get("assumed")) if (entry := texts(e))]
    return tuple({k: e.get(k, "") for k in ("what", "value", "why")} for e in entries)


def _said(details: Mapping[str, Any]) -> tuple[str, ...]:
    told = [str(s) for key in ("said", "notes", "not_written") for s in details.get(key, ())]
    return (*told, *by_hand_sentences(details))


def _commands(path: Path, *, seen: bool) -> tuple[str, ...]:
    found = [
        command_line("scene check", path),
        command_line("scene drift", path, photo="CAMERA=FILE"),
    ]
    if seen:
        found.append(command_line("scene verify", path, capture="CAPTURE", out="verified.html"))
    return tuple(found)
