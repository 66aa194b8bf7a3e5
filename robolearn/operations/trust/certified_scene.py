"""Finds the scene that a certificate is about, and says what is known of it now."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from eval.trust.certificate import Drift
from robolearn.operations.builders import WorldInfo, env_builder
from robolearn.operations.reality.worlds import is_scene
from sim.scene.drift_record import read_drift
from sim.scene.load import content_hash, scene_folder, scene_names
from sim.world_name import WorldName


def known_scene(where: str, folder: Path | None = None) -> WorldInfo:
    """The world ``where`` as it is now; a folder's name is relative to ``folder``.

    Errors: ConfigError, SceneError where there is none.
    """
    return env_builder(_found(where, folder)).info()


def beside(where: str, certificate: Path) -> str:
    """``where`` as a certificate keeps it: a folder relative to the certificate's."""
    parsed = WorldName.parse(env_builder(where).world)
    if not Path(parsed.base).is_absolute():
        return where
    relative = os.path.relpath(parsed.base, certificate.parent.resolve())
    return str(dataclasses.replace(parsed, base=relative))


def _found(where: str, folder: Path | None) -> str:
    """What stands beside a certificate is looked for there alone: the folder that somebody works
    in may have another copy, with a drift of its own.
    """
    parsed = WorldName.parse(where)
    if folder is None:
        return where
    there = folder / parsed.base
    packaged = not is_scene(parsed) or parsed.base in scene_names()
    if packaged and not (there / "scene.yaml").is_file():
        return where
    return str(dataclasses.replace(parsed, base=str(there)))


def drift_of(where: str, folder: Path | None = None) -> tuple[Drift, str]:
    """Whether the real table is still as the scene says, and what told so and when last
    (``robolearn scene drift``). Errors: SceneError for a record that is none.
    """
    name = WorldName.parse(_found(where, folder))
    if not is_scene(name):
        return "not measured", ""
    package = scene_folder(name.base) if name.base in scene_names() else Path(name.base)
    record = read_drift(package, content_hash(package))
    if record is None or not record.parts:
        return "not measured", ""
    verdicts = {part.verdict for part in record.parts.values()}
    order: Sequence[Drift] = ("moved", "not told", "unmoved")
    worst: Drift = next(v for v in order if v in verdicts)
    looked = max(part.checked_at for part in record.parts.values())
    named = [n for n, part in record.parts.items() if part.verdict == worst]
    return worst, f"{looked}: {', '.join(named)}"
