"""Tells which store a run was trained on: by the hash of the episodes that it chose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robolearn.config import from_dict, load_yaml
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.studio.documents.loose import mapping
from robolearn.operations.studio.documents.problems import UNREADABLE


def data_of(run: Path) -> Mapping[str, Any] | None:
    """What a run says that it chooses of a store; None where that does not read."""
    try:
        return mapping(load_yaml(run / "config.yaml").get("data"))
    except UNREADABLE:
        # Whoever describes the run says what is wrong with the file.
        return None


def chosen_hash(store: Path, data: Mapping[str, Any]) -> str:
    """The hash of the episodes of a store that ``data`` chooses, as provenance has it; "" where
    there are none, or the store does not read.
    """
    try:
        config = from_dict(DataConfig, data, "data")
        return StoreSource(EpisodeStore.open(store), config).content_hash
    except UNREADABLE:
        # A store that cannot be chosen from is not the one that the run learned from.
        return ""
