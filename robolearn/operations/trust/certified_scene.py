"""Finds the scene that a certificate is about, and says what is known of it now."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from eval.trust.certificate import Drift
from robolearn.operations.builders import WorldInfo, env_builder
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
    parsed = WorldName.parse(where)
    if folder is None or not (folder / parsed.base / "scene.yaml").is_file():
        return where
    return str(dataclasses.replace(parsed, base=str(folder / parsed.base)))


def drift_of(where: str, folder: Path | None = None) -> tuple[Drift, str]:
    """Whether the real table is still as the scene says, and when that was looked at last."""
    del where, folder
    return "not measured", ""
