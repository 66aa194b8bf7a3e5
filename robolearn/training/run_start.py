"""Says whether a training may begin in a run directory, or go on there; lets in one at a time."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, cast

from robolearn.config import differences, from_dict, load_yaml, to_dict
from robolearn.data.store.lock import StoreLock
from robolearn.errors import CheckpointError, ConfigError, StoreError, StoreLockedError
from robolearn.training.distributed import Ranks
from robolearn.training.log import JOURNAL
from robolearn.training.renamed_keys import with_new_keys
from robolearn.training.run_directory import (
    CONFIG_FILE,
    DIGESTS,
    FRAME,
    PARENT,
    PARTS,
    PROVENANCE,
    STATE,
    WEIGHTS,
    Run,
    copy_run,
    require_unedited,
)
from robolearn.training.versions import VERSIONS, versions
from robolearn.training.watching.finite import FAILED_BATCH

log = logging.getLogger(__name__)

BEGUN = (WEIGHTS, STATE, JOURNAL, FAILED_BATCH)
"""What a run directory holds, at least one of them, once training has begun in it."""


BEFORE = (*FRAME, PROVENANCE, DIGESTS, PARENT, PARTS)
"""What it may hold until then."""


@contextlib.contextmanager
def written(run_dir: Path, ranks: Ranks) -> Generator[None]:
    """One training at a time writes a run directory; :class:`StoreLockedError` for a second."""
    if not ranks.leads:
        yield
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        let_in(stack, run_dir, run_dir)
        # While the lock is held: the folder of another training is not empty for long.
        stack.callback(_drop_if_empty, run_dir)
        yield


def let_in(stack: contextlib.ExitStack, folder: Path, run_dir: Path) -> None:
    """Hold the lock of ``folder``, which is or lies in ``run_dir``, until ``stack`` ends;
    :class:`StoreLockedError` where somebody else does.
    """
    try:
        stack.callback(StoreLock(folder, str(run_dir)).release)
    except StoreLockedError:
        raise
    except StoreError as error:
        # Some network file systems; without a lock there is only the operator's care.
        log.warning("%s is not protected against a second training: %s", run_dir, error)


def _drop_if_empty(run_dir: Path) -> None:
    """What failed before anything was written leaves nothing behind."""
    if not any(run_dir.iterdir()):
        run_dir.rmdir()


def keep_parent(parent: Run | None, run_dir: Path, *, fresh: bool) -> None:
    """Copy the run that this one builds on into it, once."""
    if parent is not None and (fresh or not (run_dir / PARENT).is_dir()):
        copy_run(parent.path, run_dir / PARENT)


def require_room(run_dir: Path) -> None:
    """:class:`CheckpointError` where ``run_dir``, in which a training is to begin, holds something
    by a name that a run has, which would be written over or removed; what one left that was killed
    before its first step is written again.
    """
    found = [name for name in BEGUN if (run_dir / name).exists()]
    found += [f"{VERSIONS}/*" for _ in versions(run_dir)[:1]]
    if not _is_experiment(run_dir / CONFIG_FILE):
        found += [name for name in BEFORE if (run_dir / name).exists()]
    if found:
        raise CheckpointError(
            f"'{run_dir}' holds {', '.join(found)}, which would be written over, and no run that"
            " could go on; choose another --out, or a new folder inside it"
        )


def _is_experiment(file: Path) -> bool:
    try:
        return "policy" in load_yaml(file)
    except ConfigError:
        return False


def previous_run(
    run_dir: Path, parts: Mapping[str, Any], identity: Mapping[str, Any], resume: bool
) -> dict[str, Any] | None:
    """The provenance of what ``run_dir`` holds, if it may be continued; None for a fresh start.

    ``identity``: what has to be the same, among it ``experiment`` as plain values, of which
    ``parts`` are the configurations by name. Errors: :class:`CheckpointError` for another run, or
    one that would be overwritten.
    """
    file = run_dir / PROVENANCE
    if not file.is_file():
        if run_dir.exists() and not run_dir.is_dir():
            raise CheckpointError(f"'{run_dir}' is a file; --out names a folder")
        require_room(run_dir)
        return None
    if not any((run_dir / name).exists() for name in BEGUN):
        # It ended before its first step: there is nothing to go on from, or to lose.
        require_room(run_dir)
        return None
    if not resume:
        raise CheckpointError(
            f"'{run_dir}' holds a run already; go on with --resume, or choose another --out"
        )
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"'{file}' is damaged; choose another --out") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"'{file}' is damaged; choose another --out")
    found = cast("dict[str, Any]", found)
    stored = dict(found)
    stored["experiment"] = _completed(parts, found.get("experiment", {}))
    lines = differences(identity, stored, "")
    if lines:
        raise CheckpointError(
            f"'{run_dir}' holds a run of another experiment; choose another --out."
            f" Differences: {'; '.join(lines[:6])}"
        )
    require_unedited(run_dir)
    return found


def _completed(parts: Mapping[str, Any], raw: dict[str, Any]) -> dict[str, Any]:
    """The experiment of an earlier version, with the defaults of what it did not know yet."""
    raw = with_new_keys(raw)
    try:
        kinds = {name: cast("type[Any]", type(part)) for name, part in parts.items()}
        known = {name: to_dict(from_dict(kind, raw[name])) for name, kind in kinds.items()}
    except (ConfigError, KeyError):
        return raw
    return raw | known
