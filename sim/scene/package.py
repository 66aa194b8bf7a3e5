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
from sim.scene.drift_record import FILE as DRIFT_FILE
from sim.scene.files import package_files
from sim.scene.load import load_scene

# Names what was written, a line each; hidden, as it is no part of the scene.
WRITTEN_FILE = ".written"


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
        names = "\n".join(_names(building))
        (building / WRITTEN_FILE).write_text(names + "\n", encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        building.rename(out)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def require_replaceable(out: Path, kind: str) -> None:
    """SceneError unless a scene of ``kind`` may be written to ``out``; an empty folder goes. One
    whose things were put right by hand, or that holds files of somebody else, stays.
    """
    if out.is_symlink():
        raise SceneError(f"'{out}' is a link; choose another --out, or give what it leads to")
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
    written = out / WRITTEN_FILE
    if not written.is_file():
        # Written by hand, or before that was kept.
        return
    ours = {*written.read_text(encoding="utf-8").splitlines(), DRIFT_FILE}
    others = [name for name in _names(out) if name not in ours]
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        raise SceneError(
            f"'{out}' has files that are not of the scene ({', '.join(others[:8])}{more}), which"
            " would be lost; choose another --out, or move them elsewhere first"
        )


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in package_files(folder)]


def read_mjcf(path: Path) -> ET.Element:
    """A file of a package, with its comments."""
    builder = ET.TreeBuilder(insert_comments=True)
    parser = ET.XMLParser(target=builder)  # noqa: S314 (a scene package of the project)
    return ET.fromstring(path.read_text(encoding="utf-8"), parser)  # noqa: S314
