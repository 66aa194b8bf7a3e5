"""Chooses the convex pieces that stand for a shape in contacts: our own cut or, asked, CoACD's.

Whichever surface lies nearer to the scan is taken; what was tried, and how near it came, is kept.
CoACD (Wei et al., SIGGRAPH 2022) is one call that cannot be interrupted: it runs in a process of
its own (``python -m sim.reconstruction.convex MESH.npz PARTS.npz MOST_PARTS``), which is ended when
its time is up.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy import spatial

from robolearn.errors import MissingDependencyError
from sim.reconstruction.parts import MOST_PARTS, convex_parts
from sim.reconstruction.shapes import Faces, OwnVertices, Points, Vertices

_ConvexHull: Any = cast("Any", spatial).ConvexHull

# CoACD's concavity that is good enough, and the grid of its first pass: what SIMPLER takes.
_THRESHOLD, _GRID = 0.05, 50


CHILD = [sys.executable, "-m", "sim.reconstruction.convex"]


@dataclass(frozen=True, slots=True)
class Convex:
    """Pieces, each its corners ``[v, 3]``; the mean distance of every candidate from the scan [m]
    by name; and, where one failed, why.
    """

    parts: tuple[OwnVertices, ...]
    chosen: str
    error_m: dict[str, float]
    said: str = ""


def require_coacd() -> None:
    """MissingDependencyError unless CoACD is installed."""
    if importlib.util.find_spec("coacd") is None:
        raise MissingDependencyError(
            "--coacd-seconds needs CoACD; run: pip install -c constraints.txt"
            " 'robolearn[decompose]', or leave it out: shapes are then cut by our own rule"
        )


def convex(vertices: Vertices, faces: Faces, coacd_s: float) -> Convex:
    """The better of what there is; CoACD is given ``coacd_s`` [s] (0: it is not asked)."""
    made = {"own cut": convex_parts(vertices, faces)}
    said = ""
    if coacd_s > 0:
        try:
            made["CoACD"] = _coacd(vertices, faces, coacd_s)
        except subprocess.TimeoutExpired:
            said = f"CoACD was not done after {coacd_s:g} s; our own cut is used"
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip().splitlines()[-1:] or ["no reason given"]
            said = f"CoACD failed ({last[0]}); our own cut is used"
    error = {name: distance_m(vertices, parts) for name, parts in made.items()}
    chosen = min(error, key=lambda name: error[name])
    return Convex(made[chosen], chosen, error, said)


def distance_m(points: Points, parts: tuple[OwnVertices, ...]) -> float:
    """Mean distance of points of a surface from that of all pieces together [m]; of points far
    outside of an edge a little less.
    """
    inside = np.full(len(points), np.inf)
    for part in parts:
        planes = np.asarray(_ConvexHull(part).equations, dtype=np.float64)
        inside = np.minimum(inside, (points @ planes[:, :3].T + planes[:, 3]).max(axis=1))
    return float(np.abs(inside).mean())


def _coacd(vertices: Vertices, faces: Faces, budget_s: float) -> tuple[OwnVertices, ...]:
    with tempfile.TemporaryDirectory() as name:
        mesh, out = Path(name) / "mesh.npz", Path(name) / "parts.npz"
        np.savez(mesh, vertices=vertices, faces=faces.astype(np.int32))
        subprocess.run(
            [*CHILD, str(mesh), str(out), str(MOST_PARTS)],
            timeout=budget_s,
            check=True,
            capture_output=True,
            text=True,
        )
        with np.load(out, allow_pickle=False) as parts:
            return tuple(
                np.asarray(parts[f"part_{k}"], dtype=np.float64) for k in range(len(parts.files))
            )


def _main(argv: list[str]) -> None:
    """Read ``vertices`` and ``faces``, write ``part_0``, ``part_1``, ...: corners ``[v, 3]``."""
    coacd: Any = importlib.import_module("coacd")
    coacd.set_log_level("error")
    with np.load(argv[0], allow_pickle=False) as given:
        mesh = coacd.Mesh(given["vertices"], given["faces"])
    parts = coacd.run_coacd(
        mesh,
        threshold=_THRESHOLD,
        preprocess_resolution=_GRID,
        max_convex_hull=int(argv[2]),
        seed=0,
    )
    corners = {f"part_{k}": np.asarray(v, dtype=np.float64) for k, (v, _) in enumerate(parts)}
    np.savez(Path(argv[1]), **corners)


if __name__ == "__main__":
    _main(sys.argv[1:])
