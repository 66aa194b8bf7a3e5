"""Writes stores in other formats, found by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from robolearn.data.exporters.common import ExportOptions, ExportReport
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.table import CALLABLE, Table

Exporter = Callable[[EpisodeStore, Sequence[str], Path, ExportOptions], ExportReport]
EXPORTERS = Table[Exporter](
    {
        "lerobot": "robolearn.data.exporters.lerobot:export_lerobot",
        "robomimic": "robolearn.data.exporters.robomimic:export_robomimic",
        "diffusion-policy": "robolearn.data.exporters.diffusion_policy:export_diffusion_policy",
    },
    what="format",
    group="robolearn.exporters",
    wanted=CALLABLE,
)


def export_store(
    store: EpisodeStore,
    out: Path,
    name: str,
    options: ExportOptions,
    ids: Sequence[str] | None = None,
) -> ExportReport:
    """Write episodes (all, or ``ids``) to ``out``, which must not exist; complete or not at all."""
    export = EXPORTERS.find(name, error=DataError)
    chosen = tuple(store.ids() if ids is None else ids)
    return export(store, chosen, out, options)
