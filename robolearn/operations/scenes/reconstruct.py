"""Reconstructs a scene package from a capture folder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robolearn.capture.folder import read_capture
from robolearn.errors import ConfigError
from sim.reconstruction.convex import require_coacd
from sim.reconstruction.pipeline import Reconstruction
from sim.reconstruction.pipeline import reconstruct as reconstruct_capture
from sim.reconstruction.write_scene import SceneChoice, choose, write_reconstructed
from sim.scene.config import Scene


@dataclass(frozen=True, slots=True)
class Reconstructed:
    """The package that was written to ``out``, and what it was made from."""

    out: Path
    scene: Scene
    found: Reconstruction

    @property
    def assumed(self) -> list[dict[str, str]]:
        """What nobody measured: ``what``, ``value``, ``why``."""
        return list(self.scene.config.provenance.details["assumed"])

    @property
    def missing(self) -> dict[str, str]:
        """Things of the capture that are not in the scene, and why."""
        return dict(self.found.missing)

    @property
    def said(self) -> list[str]:
        """What a person should know."""
        return list(self.scene.config.provenance.details["said"])


def reconstruct(
    capture: Path,
    out: Path,
    *,
    task: str = "free",
    arm: str = "",
    coacd_s: float = 0.0,
    on_note: Callable[[str], None] | None = None,
) -> Reconstructed:
    """Table, objects, their masses and colours from ``capture``, as the scene package ``out``.

    ``task``: ``free``, or that of the scene ``arm``, whose robot stands in the new one ("": the
    table scene of the arm that capture.yaml names, or no robot). A reconstructed scene in ``out``
    is replaced. ``coacd_s``: what CoACD may take per object that is no box, cylinder or sphere [s];
    0: it is not asked. ``on_note``: told in a sentence what was found.

    A thing of which nothing can be made is ``missing`` and leaves the others alone.

    Errors: ConfigError, DataError, SceneError with what to do; nothing is written then.
    """
    if not 0 <= coacd_s < math.inf:
        raise ConfigError(f"what CoACD may take is 0 s or more, got {coacd_s}")
    if coacd_s > 0:
        require_coacd()
    taken, choice = read_capture(capture), SceneChoice(task, arm)
    choose(taken.config, choice, out)
    found = reconstruct_capture(taken, on_note, coacd_s)
    scene = write_reconstructed(found, choice, out)
    return Reconstructed(out, scene, found)
