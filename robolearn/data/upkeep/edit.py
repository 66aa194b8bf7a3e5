"""Makes new stores out of old ones: filter, merge, split. The sources are only read.

Episodes are copied file by file as committed, every hash verified, and get new ids; their
provenance gains an ``origin`` (store and id), and what people said about them comes along. A new
store appears under its name when it is complete, so a kill leaves nothing half.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.data.episode import Episode, EpisodeInfo
from robolearn.data.store.annotations import Annotated, Annotation, active
from robolearn.data.store.chunks import json_bytes, read_checked
from robolearn.data.store.manifest import near_episode, record_name
from robolearn.data.store.picture_codec import FRAME_CODECS
from robolearn.data.store.storage import ObjectPath, fetch
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.seeding import child_seed
from robolearn.spec import EmbodimentSpec, diff_task_spaces

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which episodes; empty fields ask for nothing. Outcome, labels and split as annotated."""

    ids: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    success: bool | None = None
    min_score: float | None = None
    max_score: float | None = None
    min_steps: int = 0
    labels: tuple[str, ...] = ()
    without_labels: tuple[str, ...] = ()
    split: str | None = None

    def takes(self, info: EpisodeInfo) -> bool:
        """Whether an episode satisfies everything asked for."""
        return (
            (not self.ids or info.id in self.ids)
            and (not self.kinds or info.kind in self.kinds)
            and (not self.tasks or info.task in self.tasks)
            and (self.success is None or info.success == self.success)
            and (self.min_score is None or info.score >= self.min_score)
            and (self.max_score is None or info.score <= self.max_score)
            and info.steps >= self.min_steps
            and set(self.labels) <= set(info.labels)
            and not set(self.without_labels) & set(info.labels)
            and (self.split is None or info.split == self.split)
        )


@dataclass(frozen=True, slots=True)
class Source:
    """Episodes to take from one store."""

    store: EpisodeStore
    ids: tuple[str, ...]


def select(store: EpisodeStore, selection: Selection) -> tuple[str, ...]:
    """Ids of the episodes chosen; asking for an id that is not there, or none, is an error."""
    known = store.ids()
    for episode_id in selection.ids:
        if episode_id not in known:
            raise DataError(
                f"{store.path} has no episode '{episode_id}'.{near_episode(episode_id, known)}"
            )
    chosen = tuple(i.id for i in store.list() if selection.takes(i))
    if not chosen:
        raise DataError(
            f"no episode of {store.path} satisfies this; it has {len(known)} episodes,"
            f" see 'robolearn data show {store.path}'"
        )
    return chosen


def filter_store(
    store: EpisodeStore,
    selection: Selection,
    out: str | Path | ObjectPath,
    advance: Advance | None = None,
) -> EpisodeStore:
    """A new store at ``out`` with the chosen episodes."""
    return _build(out, [Source(store, select(store, selection))], advance)


def merge_stores(
    stores: Sequence[EpisodeStore],
    out: str | Path | ObjectPath,
    *,
    allow: bool = False,
    advance: Advance | None = None,
) -> EpisodeStore:
    """A new store at ``out`` with all episodes of ``stores``, in this order.

    Different embodiments raise :class:`SpecMismatchError` with their difference unless ``allow``.
    """
    twice = sorted({str(s.path) for s in stores if [t.uuid for t in stores].count(s.uuid) > 1})
    if twice:
        raise DataError(f"the same store is named twice: {', '.join(twice)}")
    if len(stores) < 2:
        raise DataError(
            f"a merge needs at least two stores, got {len(stores)}; 'data filter' copies one"
        )
    sources = [Source(store, store.ids()) for store in stores]
    if not allow:
        _same_embodiment(sources)
    return _build(out, sources, advance)


def merge_into(
    stores: Sequence[EpisodeStore],
    target: EpisodeStore,
    *,
    allow: bool = False,
    advance: Advance | None = None,
) -> tuple[str, ...]:
    """Append all episodes of ``stores`` that ``target`` does not have yet; returns the new ids.

    An episode is known by the store, id and hash in its origin, so that a merge that was killed
    goes on where it ended, and one that is repeated adds nothing.
    """
    if target.uuid in {s.uuid for s in stores}:
        raise DataError(f"{target.path} cannot be merged into itself")
    sources = [Source(store, store.ids()) for store in stores]
    if not allow:
        _same_embodiment([Source(target, target.ids()), *sources])
    merged: dict[tuple[str, str], tuple[str, str]] = {}
    for episode_id in target.ids():
        for known in target.meta(episode_id).provenance.get("origin", [])[-1:]:
            key = (str(known["store"]), str(known["episode"]))
            merged[key] = (episode_id, str(known.get("sha256", "")))
    new: list[str] = []
    with target.writer() as writer:
        for source in sources:
            renamed: dict[str, str] = {}
            for episode_id in source.ids:
                known = merged.get((source.store.uuid, episode_id))
                if known is not None and known[1] in ("", _digest(source.store, episode_id)):
                    # Annotations follow a source's episodes: a kill in between left them out.
                    if target.annotated(known[0]) == Annotated():
                        renamed[episode_id] = known[0]
                else:
                    renamed[episode_id] = _copy(source.store, episode_id, writer)
                    new.append(renamed[episode_id])
                if advance is not None:
                    advance(1)
            _copy_annotations(source.store, renamed, writer)
    return tuple(new)


def _digest(store: EpisodeStore, episode_id: str) -> str:
    """The hash of an episode's manifest, which covers all of its files."""
    return next(e for e in store.log() if e.id == episode_id).files[record_name(episode_id)]


def derive_store(
    store: EpisodeStore,
    ids: Sequence[str],
    out: str | Path | ObjectPath,
    change: Callable[[Episode], Episode],
    on_derived: Callable[[int, int], None] | None = None,
) -> EpisodeStore:
    """A new store at ``out`` with what ``change`` makes of every episode of ``ids``.

    Their provenance gains the ``origin``, and what people said about them comes along. Pictures
    are kept as the store's exact codec keeps them. ``on_derived``: told after every episode how
    many there are, and of how many.
    """

    def fill(made: EpisodeStore) -> None:
        with made.writer() as writer:
            renamed: dict[str, str] = {}
            for episode_id in ids:
                changed = change(store.read(episode_id))
                renamed[episode_id] = writer.append(derived_episode(store, episode_id, changed))
                if on_derived is not None:
                    on_derived(len(renamed), len(ids))
            _copy_annotations(store, renamed, writer)

    return EpisodeStore.create(out, fill)


def derived_episode(store: EpisodeStore, episode_id: str, changed: Episode) -> Episode:
    """``changed`` as an episode of a new store: its provenance gains the origin, its pictures are
    kept as the store's exact codec keeps them.
    """
    said = dict(changed.meta.provenance)
    said.pop(FRAME_CODECS, None)
    said["origin"] = [*said.get("origin", []), origin(store, episode_id)]
    return dataclasses.replace(
        changed, meta=dataclasses.replace(changed.meta, provenance=said), id=""
    )


def origin(store: EpisodeStore, episode_id: str) -> dict[str, str]:
    """Where an episode comes from: store, id, and the hash of its manifest."""
    digest = _digest(store, episode_id)
    return {"store": store.uuid, "episode": episode_id, "sha256": digest}


def assign_splits(
    ids: Sequence[str], parts: Mapping[str, float], seed: int
) -> dict[str, tuple[str, ...]]:
    """Episodes dealt to named parts at random; ``parts`` are shares that sum to 1."""
    if not parts or any(not share > 0 for share in parts.values()):
        raise DataError("a split needs named shares above 0, e.g. train=0.8 val=0.2")
    if not math.isclose(sum(parts.values()), 1.0, abs_tol=1e-6):
        raise DataError(f"the shares of a split must sum to 1, got {sum(parts.values()):g}")
    order = np.random.default_rng(child_seed(seed, "split")).permutation(len(ids))
    ends = np.round(np.cumsum(list(parts.values())) * len(ids)).astype(int)
    found = np.split(order, ends[:-1])
    dealt: dict[str, tuple[str, ...]] = {}
    for name, rows in zip(parts, found, strict=True):
        dealt[name] = tuple(str(ids[int(i)]) for i in sorted(rows))
    empty = [name for name, chosen in dealt.items() if not chosen]
    if empty:
        raise DataError(f"{len(ids)} episodes are too few: nothing for {', '.join(empty)}")
    return dealt


def split_store(
    store: EpisodeStore, parts: Mapping[str, float], seed: int, author: str
) -> dict[str, tuple[str, ...]]:
    """Write a random split as annotations; returns the episodes of every part."""
    dealt = assign_splits(store.ids(), parts, seed)
    with store.writer() as writer:
        for name, ids in dealt.items():
            writer.annotate(Annotation(ids, author, split=name))
    return dealt


def split_apart(
    store: EpisodeStore, parts: Mapping[str, float], seed: int, out: Path
) -> dict[str, tuple[str, ...]]:
    """A random split as new stores, ``out/PART``; returns the episodes of every part.

    Raises ConfigError, nothing written, where one of the folders is there already.
    """
    dealt = assign_splits(store.ids(), parts, seed)
    for name in dealt:
        if (out / name).exists():
            raise ConfigError(f"{out / name} exists already; choose a new folder")
    for name, ids in dealt.items():
        filter_store(store, Selection(ids=ids), out / name)
    return dealt


def diff_embodiments(first: EmbodimentSpec, second: EmbodimentSpec) -> list[str]:
    """What differs, line by line: wanted is ``first``, got is ``second``; empty when equal."""
    if first == second:
        return []
    lines = diff_task_spaces(first.task_space([s.name for s in first.signals]), second)
    for kind, one, other in (
        ("observation", first.signals, second.signals),
        ("action", first.actions, second.actions),
    ):
        known = {s.name for s in one}
        lines += [
            f"- {kind} {s.name}: not wanted, got {s.shape}" for s in other if s.name not in known
        ]
    return lines


def _same_embodiment(sources: Iterable[Source]) -> None:
    first: tuple[EpisodeStore, str, EmbodimentSpec] | None = None
    seen: list[EmbodimentSpec] = []
    for source in sources:
        for episode_id in source.ids:
            embodiment = source.store.meta(episode_id).embodiment
            if first is None:
                first = (source.store, episode_id, embodiment)
            if embodiment in seen:
                continue
            lines = diff_embodiments(first[2], embodiment)
            if lines:
                raise SpecMismatchError(
                    f"{episode_id} of {source.store.path} ('{embodiment.name}') has another"
                    f" embodiment than {first[1]} of {first[0].path} ('{first[2].name}'):\n"
                    + "\n".join(lines)
                    + "\nmerge them anyway with --allow"
                )
            seen.append(embodiment)


def _build(
    out: str | Path | ObjectPath, sources: Sequence[Source], advance: Advance | None
) -> EpisodeStore:
    def fill(store: EpisodeStore) -> None:
        with store.writer() as writer:
            for source in sources:
                renamed: dict[str, str] = {}
                for episode_id in source.ids:
                    renamed[episode_id] = _copy(source.store, episode_id, writer)
                    if advance is not None:
                        advance(1)
                _copy_annotations(source.store, renamed, writer)

    return EpisodeStore.create(out, fill)


def _copy(source: EpisodeStore, episode_id: str, writer: StoreWriter) -> str:
    """Copy an episode as committed; returns its new id."""
    manifest = source.manifest(episode_id)
    files = manifest.by_path()
    root = fetch(source.folder(episode_id), files)
    draft = writer.drafts.begin()
    try:
        for entry in manifest.files:
            data = read_checked(root, entry.path, files)
            if entry.path == "zarr.json":
                data = _with_origin(data, origin(source, episode_id))
            draft.sink.write(entry.path, data)
    except BaseException:
        draft.discard()
        raise
    return writer.commit(writer.drafts.prepare_copy(draft, manifest.info))


def _with_origin(data: bytes, newest: Mapping[str, str]) -> bytes:
    raw: dict[str, Any] = json.loads(data)
    provenance = raw["attributes"]["provenance"]
    earlier = provenance.get("origin", [])
    provenance["origin"] = [*earlier, dict(newest)]
    return json_bytes(raw)


def _copy_annotations(
    source: EpisodeStore, renamed: Mapping[str, str], writer: StoreWriter
) -> None:
    """What people said, put together; episodes about which the same was said share a record."""
    groups: dict[tuple[str, Annotated], list[str]] = {}
    history = active(source.annotations())
    for old, new in renamed.items():
        annotated = source.annotated(old)
        if annotated != Annotated():
            author = next(r.author for r in reversed(history) if old in r.episodes)
            groups.setdefault((author, annotated), []).append(new)
    for (author, annotated), ids in groups.items():
        episodes = tuple(ids)
        first, *others = annotated.notes or ("",)
        writer.annotate(
            Annotation(
                episodes,
                author,
                success=annotated.success,
                reason=annotated.reason,
                add_labels=annotated.labels,
                note=first,
                split=annotated.split or None,
                markers=annotated.markers,
            )
        )
        for note in others:
            writer.annotate(Annotation(episodes, author, note=note))
