"""Hands weights over by version while a policy practises: one file each, in the run's directory.

    OUT/config.yaml  spec.json  stats.json  parent/     what the policy is; it does not change
    OUT/versions/000011.safetensors                     weights; metadata: version, and what of
    OUT/versions/000012.safetensors

Whoever acts builds a policy of OUT and the weights of one version (:func:`load_version`). A file
says which version it is and of which run (:func:`frame_hash`); one that was renamed, copied from
another run, or whose run was changed since is refused, so weights of two are never mixed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from robolearn.errors import CheckpointError
from robolearn.learning import Weights
from robolearn.training.run_directory import (
    PROVENANCE,
    WEIGHTS,
    Run,
    learned_digests,
    read_run,
    write_tensors,
)

VERSIONS = "versions"


def write_version(run_dir: Path, version: int, weights: Weights) -> Path:
    """Write the weights of a version, atomically; returns the file."""
    path = version_file(run_dir, version)
    path.parent.mkdir(exist_ok=True)
    write_tensors(path, weights, {"version": str(version), "run": frame_hash(run_dir)})
    return path


def load_version(run_dir: Path, version: int) -> Run:
    """The run as it was at ``version``: what :func:`~robolearn.training.run_directory.load_run`
    returns, with the weights of that file, also where the run holds its parent. The run's own
    weights need not exist yet.

    Errors: :class:`CheckpointError` where the file is absent, damaged, or of another version or
    run.
    """
    path = version_file(run_dir, version)
    if not path.is_file():
        known = versions(run_dir)
        has = f"{known[0]} to {known[-1]} ({len(known)})" if known else "none"
        raise CheckpointError(f"'{run_dir}' has no version {version}; it has {has}")
    metadata = _metadata(path)
    expected = {"version": str(version), "run": frame_hash(run_dir)}
    wrong = {k: metadata.get(k, "nothing") for k, v in expected.items() if metadata.get(k) != v}
    if wrong:
        raise CheckpointError(
            f"'{path}' is not version {version} of this run: expected {expected}, it says {wrong};"
            " a file was renamed or copied, or the run's configuration was edited. Remove it, and"
            " continue with a version that the run wrote itself"
        )
    return read_run(run_dir, weights=path)


def versions(run_dir: Path) -> tuple[int, ...]:
    """The versions whose files are there, oldest first."""
    folder = run_dir / VERSIONS
    stems = [p.stem for p in folder.glob("*.safetensors")] if folder.is_dir() else []
    return tuple(sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal()))


def remove_versions(run_dir: Path, keep: frozenset[int]) -> None:
    """Delete the files of all versions but those in ``keep``."""
    for version in versions(run_dir):
        if version not in keep:
            version_file(run_dir, version).unlink(missing_ok=True)


def version_file(run_dir: Path, version: int) -> Path:
    """Where the weights of a version lie."""
    return run_dir / VERSIONS / f"{version:06d}.safetensors"


def frame_hash(run_dir: Path) -> str:
    """16 hex digits over what decides a policy beside its weights: configuration, specification,
    statistics, and the runs inside.
    """
    deciding = {
        name: digest
        for name, digest in learned_digests(run_dir).items()
        if name != WEIGHTS and Path(name).name != PROVENANCE
    }
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]


def _metadata(path: Path) -> dict[str, str]:
    try:
        opened: Any = safe_open
        with opened(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"'{path}' cannot be read: {error}") from error
