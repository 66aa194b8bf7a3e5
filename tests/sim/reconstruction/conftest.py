"""One small capture of a drawn table, and its scene, for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from robolearn.capture.folder import read_capture
from sim.reconstruction.pipeline import Reconstruction, reconstruct
from tests.sim.reconstruction.worlds import World, draw, shoot


@pytest.fixture(scope="session")
def world() -> World:
    return draw(3)


@pytest.fixture(scope="session")
def capture_folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shoot(tmp_path_factory.mktemp("drawn") / "capture", world)


@pytest.fixture(scope="session")
def found(capture_folder: Path) -> Reconstruction:
    return reconstruct(read_capture(capture_folder))
