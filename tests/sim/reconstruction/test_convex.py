"""What collides is the candidate that lies nearest to the scan, and what was tried is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from robolearn.errors import ConfigError, MissingDependencyError
from robolearn.operations.scenes.reconstruct import reconstruct
from sim.reconstruction import convex as module
from sim.reconstruction.convex import convex, distance_m

FACES = np.array([int(c) for c in "021032456467015054126165237276304347"], dtype=np.int64).reshape(
    -1, 3
)
BOX = 0.02 * np.array([[x, y, z] for z in (-1, 1) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))])


def test_distances_are_those_of_all_pieces_together() -> None:
    halves = (
        BOX * [0.5, 1, 1] - [0.01, 0, 0],
        BOX * [0.5, 1, 1] + [0.01, 0, 0],
    )
    assert distance_m(BOX, halves) == pytest.approx(0.0, abs=1e-9)
    inside = np.array([[0.015, 0.0, 0.0]])
    assert distance_m(inside, halves) == pytest.approx(0.005)
    assert distance_m(BOX, halves[:1]) > 0.009


CHILD = """import sys, time, numpy as np
with np.load(sys.argv[1]) as mesh: vertices = mesh["vertices"]
{}
np.savez(sys.argv[2], part_0=vertices * {})
"""


@pytest.mark.parametrize(
    ("does", "scale", "chosen", "said"),
    [
        ("", 1.0, "CoACD", ""),
        ("", 1.4, "own cut", ""),
        ("time.sleep(60)", 1.0, "own cut", "was not done after"),
        ("sys.exit('no manifold')", 1.0, "own cut", "failed (no manifold)"),
    ],
)
def test_coacd_is_taken_where_it_is_nearer_and_never_waited_for(
    does: str, scale: float, chosen: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child.py"
    child.write_text(CHILD.format(does, scale))
    monkeypatch.setattr(module, "CHILD", [sys.executable, str(child)])
    # Our own cut follows a grid, so it is never exact.
    found = convex(BOX * [1.0, 0.77, 1.31], FACES, 1.5 if said.startswith("was") else 30.0)
    assert found.chosen == chosen
    assert said in found.said
    assert set(found.error_m) == {"own cut"} | ({"CoACD"} if not said else set())


def test_a_budget_that_cannot_be_and_a_library_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="0 s or more"):
        reconstruct(tmp_path, tmp_path / "out", coacd_s=float("nan"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"robolearn\[decompose\]"):
        reconstruct(tmp_path, tmp_path / "out", coacd_s=10.0)
