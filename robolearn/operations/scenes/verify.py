"""Verifies a reconstructed scene against pictures of the real table."""

from __future__ import annotations

from pathlib import Path

from robolearn.capture.folder import read_capture
from robolearn.files import write_atomic
from robolearn.operations.scenes.page import verified_page
from sim.reconstruction.verify import Verified, verify
from sim.scene.load import load_scene


def verify_scene(scene: str | Path, capture: Path, page: Path | None = None) -> Verified:
    """Hold a scene against a capture: silhouettes, edges, depth, rest, starts; a verdict.

    ``page``: where an HTML page with photographs beside the scene goes. Errors: SceneError for a
    scene that was not reconstructed, ConfigError and DataError for the capture.
    """
    found = verify(load_scene(scene), read_capture(capture))
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(page, verified_page(found))
    return found
