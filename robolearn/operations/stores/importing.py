"""Imports foreign recordings into an episode store, which is made where there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.data.importers.foreign import reading
from robolearn.data.importers.recording import ImportOptions, Recording, write_recording
from robolearn.data.importers.registry import find_importer
from robolearn.data.store.storage import locate
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError

USUAL = ImportOptions()


@dataclass(frozen=True, slots=True)
class Imported:
    """What came into a store: ids of the new episodes and their steps; how many of the recording's
    were there before, bit for bit; which were skipped, and why, by number; what the store does not
    hold of the recording.
    """

    store: str
    source: str
    format: str
    ids: tuple[str, ...]
    steps: int
    there_before: int
    skipped: Mapping[int, str]
    left_out: tuple[str, ...]


def import_recording(
    out: Path,
    source: Path | None = None,
    *,
    kind: str = "auto",
    options: ImportOptions = USUAL,
    skip_bad: bool = False,
) -> Imported:
    """Add the episodes of ``source`` (None: the bundled Push-T demonstrations) to a store, ``out``.

    ``kind``: format of the recording, or ``auto``; ``skip_bad``: leave out episodes that cannot be
    read. An episode that is there already is left out; a new store appears when all is in it.

    Errors: :class:`ConfigError` for options that are not for this format, :class:`DataError` for a
    recording that does not read; then nothing is left.
    """
    if options.limit is not None and options.limit < 1:
        raise ConfigError(f"limit must be at least 1, got {options.limit}")
    path = pusht_demonstrations_path() if source is None else source.expanduser()
    name, importer = find_importer(path, kind)
    if options.rename and not name.startswith("lerobot"):
        raise ConfigError(f"rename is for LeRobot datasets, this one is {name}")
    if options.goal is not None and name != "diffusion-policy":
        raise ConfigError(f"goal is for Push-T recordings in pixels, this one is {name}")
    skipped: dict[int, str] = {}
    if skip_bad:
        options = dataclasses.replace(options, on_bad=skipped.__setitem__)
    with reading(path):
        recording = importer.open(path, options)
    if options.images and not any(recording.episode(i).frames for i in range(recording.count)):
        raise ConfigError(f"images: '{recording.path}' has no pictures; leave the option out")
    store, ids = _filled(out, recording, options)
    missing = store.meta(ids[0]).provenance.get("left_out", ()) if ids else ()
    total = recording.count if options.limit is None else min(options.limit, recording.count)
    return Imported(
        store=str(store.path),
        source=str(recording.path),
        format=name,
        ids=ids,
        steps=sum(store.info(i).steps for i in ids),
        there_before=total - len(ids) - len(skipped),
        skipped=skipped,
        left_out=tuple(dict.fromkeys([*(str(n) for n in missing), *recording.left_out])),
    )


def _filled(
    out: Path, recording: Recording, options: ImportOptions
) -> tuple[EpisodeStore, tuple[str, ...]]:
    ids: tuple[str, ...] = ()

    def fill(store: EpisodeStore) -> None:
        nonlocal ids
        ids = write_recording(recording, store, options)

    target = locate(out)
    if isinstance(target, Path) and not (target.is_dir() and any(target.iterdir())):
        # A new store appears when all is in it, so that a failed import leaves nothing.
        store = EpisodeStore.create(target, fill)
    else:
        store = EpisodeStore.open_or_create(target)
        fill(store)
    return store, ids
