"""Reads scene packages, by the name of a packaged one or by their folder, and validates them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robolearn.config import from_dict, load_yaml
from robolearn.errors import ConfigError, SceneError, did_you_mean
from robolearn.table import Table, Wanted
from sim.scene.config import Scene, SceneConfig
from sim.scene.drift_record import FILE as DRIFT_FILE
from sim.scene.files import check_references, package_files
from sim.scene.overrides import overridden
from sim.scene.validate import check_bodies, validate

SCHEMA = 1
SCENES = Path(__file__).parents[1] / "scenes"


def packaged_scenes() -> list[str]:
    """Names of the scenes that come with the project."""
    return sorted(p.parent.name for p in SCENES.glob("*/scene.yaml"))


# Folders of the scene packages that installed packages bring.
PLUGIN_SCENES = Table[Path](
    {},
    what="scene",
    group="robolearn.scenes",
    taken=packaged_scenes,
    wanted=Wanted("a Path", lambda v: isinstance(v, Path)),
)


def scene_names() -> list[str]:
    """Every scene that has a name: packaged ones and those of installed packages."""
    return sorted([*packaged_scenes(), *PLUGIN_SCENES])


def scene_folder(name: str) -> Path:
    """The folder of a scene that has a name."""
    return SCENES / name if name in packaged_scenes() else PLUGIN_SCENES.find(name)


def load_scene(name_or_path: str | Path) -> Scene:
    """Find a packaged scene by name, or a scene folder by path, and validate it.

    Raises :class:`SceneError` that names the file, key or object at fault and what exists.
    """
    folder = _find(name_or_path)
    for required in ("scene.yaml", "scene.xml"):
        if not (folder / required).is_file():
            raise SceneError(f"{folder} lacks {required}; a scene needs scene.yaml and scene.xml")
    try:
        raw = load_yaml(folder / "scene.yaml")
    except ConfigError as error:
        raise SceneError(str(error)) from error
    return scene_of(folder, raw)


def scene_of(folder: Path, raw: Mapping[str, Any]) -> Scene:
    """The scene of a folder if its ``scene.yaml`` held ``raw``, validated as :func:`load_scene`
    does; its hash is that of the folder as it is.
    """
    try:
        _check_schema(raw, folder)
        config = from_dict(SceneConfig, raw, where=f"{folder}/scene.yaml")
    except ConfigError as error:
        raise SceneError(str(error)) from error
    scene = Scene(folder, config, content_hash(folder))
    check_references(folder)
    model = scene.compile()
    scene = overridden(scene, model)
    if scene.edits:
        model = scene.compile()
    check_bodies(folder, model)
    validate(scene, model)
    return scene


def content_hash(folder: Path) -> str:
    """Hex SHA-256 (16 digits) over names and bytes of all files of a scene package, but for what is
    recorded of the real table since (``sim/scene/drift_record.py``).
    """
    digest = hashlib.sha256()
    for path in package_files(folder):
        relative = path.relative_to(folder)
        if relative.as_posix() == DRIFT_FILE:
            continue
        digest.update(f"{relative.as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _find(name_or_path: str | Path) -> Path:
    text, names = str(name_or_path), scene_names()
    if text in names:
        return scene_folder(text)
    folder = Path(name_or_path)
    if folder.is_dir():
        return folder.resolve()
    raise SceneError(
        f"no scene '{text}'.{did_you_mean(text, names)} Packaged scenes: {names};"
        " or give a folder with scene.yaml and scene.xml"
    )


def _check_schema(raw: Mapping[str, Any], folder: Path) -> None:
    schema = raw.get("schema")
    if not isinstance(schema, int):
        raise SceneError(f"{folder}/scene.yaml: 'schema: {SCHEMA}' is missing")
    if schema > SCHEMA:
        raise SceneError(
            f"{folder}/scene.yaml has schema {schema}; this version reads up to {SCHEMA}:"
            " update robolearn"
        )
    if schema < 1:
        raise SceneError(f"{folder}/scene.yaml: schema must be 1 to {SCHEMA}, got {schema}")
