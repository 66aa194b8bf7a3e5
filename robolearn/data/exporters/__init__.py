"""Stores written in other formats: an explicit table, resolved when needed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from robolearn.data.exporters.common import ExportOptions, ExportReport

EXPORTERS: dict[str, str] = {
    "lerobot": "robolearn.data.exporters.lerobot:export_lerobot",
    "robomimic": "robolearn.data.exporters.robomimic:export_robomimic",
    "diffusion-policy": "robolearn.data.exporters.diffusion_policy:export_diffusion_policy",
}
"""Format name to ``module:function``."""


def export_store(
    store: EpisodeStore,
    out: Path,
    name: str,
    options: ExportOptions,
    ids: Sequence[str] | None = None,
) -> ExportReport:
    """Write episodes (all, or ``ids``) to ``out``, which must not exist; complete or not at all."""
    if name not in EXPORTERS:
        raise DataError(
            f"no format '{name}'.{did_you_mean(name, EXPORTERS)} Known: {', '.join(EXPORTERS)}"
        )
    module, _, function = EXPORTERS[name].partition(":")
    chosen = tuple(store.ids() if ids is None else ids)
    report: ExportReport = getattr(importlib.import_module(module), function)(
        store, chosen, out, options
    )
    return report
