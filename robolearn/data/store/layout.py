"""Lays an episode out as a Zarr v3 group, and reads it back (drawn in ``docs/data_format.md``)."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.config import from_dict
from robolearn.data.episode import Episode, EpisodeMeta
from robolearn.data.store.chunks import (
    FileEntry,
    FileSink,
    read_array,
    read_checked,
    write_array,
    write_group,
)
from robolearn.data.store.picture_codec import read_values
from robolearn.data.store.storage import Place
from robolearn.errors import DataError
from robolearn.spec import EmbodimentSpec, to_json
from robolearn.types import SampleBlock, SentBlock

TICK_ARRAYS = (
    "reward",
    "progress",
    "terminal",
    "truncated",
    "inference_ns",
    "overrun_ns",
    "seq",
    "due_ns",
)


def write_episode(
    sink: FileSink, episode: Episode, streamed: Collection[str] = frozenset()
) -> None:
    """Write all of ``episode``; the values of ``streamed`` signals are there already."""
    write_group(sink, "", meta_to_json(episode.meta))
    write_group(sink, "ticks")
    write_array(sink, "ticks/t_ns", episode.tick_t_ns)
    for name in TICK_ARRAYS:
        write_array(sink, f"ticks/{name}", getattr(episode, name))
    labels = tuple(dict.fromkeys(episode.source))
    numbers = {label: number for number, label in enumerate(labels)}
    codes = np.array([numbers[s] for s in episode.source], dtype=np.int16)
    write_array(sink, "ticks/source", codes, {"labels": list(labels)})
    _write_parents(sink, "signals", episode.streams)
    for name, block in episode.streams.items():
        base = f"signals/{name}"
        write_group(sink, base)
        write_array(sink, f"{base}/t_ns", block.t_ns)
        if name not in streamed:
            write_array(sink, f"{base}/value", block.value)
        write_array(sink, f"{base}/valid", block.valid)
        write_array(sink, f"{base}/view", episode.view[name])
    _write_parents(sink, "action", episode.action)
    for name, values in episode.action.items():
        write_array(sink, f"action/{name}", values)
    write_group(sink, "sent")
    write_array(sink, "sent/seq", episode.sent.seq)
    write_array(sink, "sent/t_ns", episode.sent.t_ns)
    _write_parents(sink, "sent/action", episode.sent.action)
    for name, values in episode.sent.action.items():
        write_array(sink, f"sent/action/{name}", values)


def _write_parents(sink: FileSink, base: str, names: Collection[str]) -> None:
    write_group(sink, base)
    for part in dict.fromkeys(name.split("/")[0] for name in names):
        write_group(sink, f"{base}/{part}")


def read_meta(root: Place, files: Mapping[str, FileEntry]) -> EpisodeMeta:
    """The metadata of the episode in folder ``root``."""
    return meta_from_json(json.loads(read_checked(root, "zarr.json", files))["attributes"])


def read_episode(
    root: Place,
    files: Mapping[str, FileEntry],
    signals: Collection[str] | None,
    episode_id: str,
) -> Episode:
    """Read an episode; ``signals`` limits which streams are loaded (None: all)."""

    def load(path: str) -> NDArray[Any]:
        return read_array(root, path, files)[0]

    meta = read_meta(root, files)
    streams: dict[str, SampleBlock] = {}
    view: dict[str, NDArray[np.int64]] = {}
    for name in array_names(files, "signals/", "/view"):
        if signals is not None and name not in signals:
            continue
        base = f"signals/{name}"
        streams[name] = SampleBlock(
            t_ns=load(f"{base}/t_ns"),
            value=read_values(root, base, files),
            valid=load(f"{base}/valid"),
        )
        view[name] = load(f"{base}/view")
    codes, attributes = read_array(root, "ticks/source", files)
    labels = [str(label) for label in attributes["labels"]]
    return Episode(
        meta=meta,
        tick_t_ns=load("ticks/t_ns"),
        streams=streams,
        view=view,
        action={n: load(f"action/{n}") for n in array_names(files, "action/")},
        source=tuple(labels[int(code)] for code in codes),
        sent=SentBlock(
            seq=load("sent/seq"),
            t_ns=load("sent/t_ns"),
            action={n: load(f"sent/action/{n}") for n in array_names(files, "sent/action/")},
        ),
        id=episode_id,
        **{name: load(f"ticks/{name}") for name in TICK_ARRAYS},
    )


def files_of(files: Mapping[str, FileEntry], signals: Collection[str] | None) -> tuple[str, ...]:
    """Paths of the files that :func:`read_episode` reads for these signals."""

    def wanted(path: str) -> bool:
        name = "/".join(path.split("/")[1:3])
        return signals is None or not path.startswith("signals/") or name in signals

    return tuple(path for path in files if wanted(path))


def array_names(files: Mapping[str, FileEntry], prefix: str, suffix: str = "") -> list[str]:
    """Names ``part/name`` of the nodes ``prefix + name + suffix`` in an episode."""
    tail = f"{suffix}/zarr.json"
    names = [p[len(prefix) : -len(tail)] for p in files if p.startswith(prefix)]
    listed = {p for p in files if p.endswith(tail)}
    return sorted({n for n in names if n.count("/") == 1 and f"{prefix}{n}{tail}" in listed})


def meta_to_json(meta: EpisodeMeta) -> dict[str, Any]:
    """Metadata as JSON values (the attributes of the episode's group)."""
    raw = {f.name: getattr(meta, f.name) for f in dataclasses.fields(meta)}
    raw["embodiment"] = _embodiment_json(meta.embodiment)
    raw["condition"] = {
        "id": meta.condition.id,
        "seed": meta.condition.seed,
        "poses": {k: list(v) for k, v in meta.condition.poses.items()},
    }
    raw["outcome"] = {
        f.name: getattr(meta.outcome, f.name) for f in dataclasses.fields(meta.outcome)
    } | {"metrics": dict(meta.outcome.metrics)}
    raw["achieved"] = {k: list(v) for k, v in meta.achieved.items()}
    raw["provenance"] = dict(meta.provenance)
    raw["versions"] = dict(meta.versions)
    return raw


@functools.lru_cache(maxsize=16)
def _embodiment_json(spec: EmbodimentSpec) -> Any:
    """Once for all episodes of a robot; nobody changes it."""
    return to_json(spec)


def meta_from_json(raw: Mapping[str, Any]) -> EpisodeMeta:
    """Inverse of :func:`meta_to_json`; what a newer version has added is left out."""
    known = {f.name for f in dataclasses.fields(EpisodeMeta)}
    fields = {k: v for k, v in raw.items() if k in known}
    return from_dict(EpisodeMeta, fields, "episode", error=DataError)
