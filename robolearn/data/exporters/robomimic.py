"""Writes robomimic HDF5: ``data/demo_N`` with actions, rewards, dones and ``obs/<part.name>``.

Names, metadata, tick times and progress go to ``robolearn`` attributes and arrays, which robomimic
ignores, so that an import gives the same episodes back. Actions keep their units: robomimic expects
[-1, 1] and must be told to normalise them. Format: robomimic ``docs/datasets/overview``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.data.episode import Episode
from robolearn.data.exporters.common import (
    ExportOptions,
    ExportReport,
    Plan,
    actions_of,
    aside,
    episodes,
    flat_key,
    make_plan,
    observed,
    sidecar,
)
from robolearn.data.importers.recording import optional_module
from robolearn.data.store.store import EpisodeStore

META = "robolearn_meta"
EXTRA = "robolearn"
GYM_TYPE = 2
"""robomimic's ``EnvType.GYM_TYPE``: the closest to a world it does not know."""


def export_robomimic(
    store: EpisodeStore, ids: Sequence[str], out: Path, options: ExportOptions
) -> ExportReport:
    """Write one HDF5 file."""
    h5py = optional_module("h5py", "h5py", "writing HDF5")
    plan = make_plan(store, ids, options)
    steps = 0
    with aside(out) as temporary, h5py.File(str(temporary), "w") as file:
        data = file.create_group("data")
        for index, episode in episodes(store, ids, plan, options):
            _demo(data.create_group(f"demo_{index}"), episode, plan)
            steps += episode.steps
        data.attrs["total"] = steps
        arguments = {
            "env_name": store.meta(ids[0]).env,
            "type": GYM_TYPE,
            "env_kwargs": {
                "control_freq": plan.embodiment.rate_hz,
                "robots": plan.embodiment.name,
            },
        }
        data.attrs["env_args"] = json.dumps(arguments)
        file.flush()
    not_held = (*plan.not_held, "next_obs and simulator states")
    return ExportReport("robomimic", str(out), len(ids), steps, not_held)


def _demo(group: Any, episode: Episode, plan: Plan) -> None:
    group.attrs["num_samples"] = episode.steps
    group.attrs[META] = json.dumps(sidecar(episode))
    group["actions"] = actions_of(episode)
    group["rewards"] = episode.reward
    group["dones"] = (episode.terminal | episode.truncated).astype(np.int64)
    group[f"{EXTRA}/tick_t_ns"] = episode.tick_t_ns
    group[f"{EXTRA}/progress"] = episode.progress
    for spec in (*plan.states, *plan.cameras):
        values = observed(episode, spec)
        picture = {"compression": "gzip", "compression_opts": 1, "chunks": (1, *spec.shape)}
        settings: dict[str, Any] = picture if spec.is_image else {}
        group.create_dataset(f"obs/{flat_key(spec.name)}", data=values, **settings)
