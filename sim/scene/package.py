"""Writes scene packages as a whole: a folder that is complete, or not there."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as ET

from robolearn.errors import SceneError
from sim.scene.load import load_scene


@contextlib.contextmanager
def replaced_package(
    out: Path, kind: Literal["identified", "reconstructed", "imported"]
) -> Iterator[Path]:
    """A folder to write a package into; it takes the place of ``out`` when the block ends without
    an error. A crash leaves the old folder or none.

    An existing ``out`` is replaced only when it holds a scene of this ``kind``: SceneError.
    """
    require_replaceable(out, kind)
    out.parent.mkdir(parents=True, exist_ok=True)
    building = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    try:
        yield building
        if out.exists():
            shutil.rmtree(out)
        building.rename(out)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def require_replaceable(out: Path, kind: str) -> None:
    """SceneError unless a scene of ``kind`` may be written to ``out``; an empty folder goes. One
    whose things were put right by hand stays.
    """
    if not out.exists():
        return
    if out.is_dir() and not any(out.iterdir()):
        out.rmdir()
        return
    try:
        scene = load_scene(out.resolve())
    except SceneError as error:
        raise SceneError(
            f"'{out}' exists and is no scene package; choose another --out or delete it"
        ) from error
    found = scene.config.provenance.kind
    if found != kind:
        raise SceneError(f"'{out}' is a {found} scene; choose another --out")
    # An identified scene has those of its template again.
    if kind != "identified" and scene.config.overrides:
        raise SceneError(
            f"'{out}' has overrides by hand of {sorted(scene.config.overrides)}, which would be"
            " lost; choose another --out, or take them out of its scene.yaml first"
        )


def read_mjcf(path: Path) -> ET.Element:
    """A file of a package, with its comments."""
    builder = ET.TreeBuilder(insert_comments=True)
    parser = ET.XMLParser(target=builder)  # noqa: S314 (a scene package of the project)
    return ET.fromstring(path.read_text(encoding="utf-8"), parser)  # noqa: S314
