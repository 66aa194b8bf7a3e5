"""Says which code and which libraries made something."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import subprocess
from pathlib import Path

import robolearn

LIBRARIES = ("robolearn", "numpy", "zarr", "mujoco", "gym-pusht", "pymunk", "pybullet", "torch")


@functools.cache
def git_revision() -> str:
    """Commit of the running code, with ``+changes`` for a modified tree; ``""`` outside git."""
    root = Path(robolearn.__file__).resolve().parent.parent
    if not (root / "pyproject.toml").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty=+changes"],
            capture_output=True,
            text=True,
            timeout=10,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@functools.cache
def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that shape data, without importing them."""
    found: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
