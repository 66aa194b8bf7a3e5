"""Writes a new store in which rows that went wrong are replaced by what they should be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from policies.data_models.denoiser import Denoiser
from policies.data_models.options import DenoiserConfig
from policies.data_models.rows import Block, RobustScale, sizes
from robolearn.agents.actions import clip_action
from robolearn.config import to_dict
from robolearn.data.episode import Episode
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.edit import derive_store
from robolearn.errors import DataError, SpecMismatchError
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec

DENOISED = "denoised"
REWARD = "reward"
# Prefix of actions among the blocks: a signal may have the same name.
ACTION = "action "


@dataclass(frozen=True, slots=True)
class StoreDenoised:
    """The new store, and what was replaced in it."""

    store: Path
    episodes: int
    rows: int
    # By block (signal, 'action NAME', 'reward'): rows that were replaced.
    replaced: Mapping[str, int]


def denoise(
    store: Path,
    out: Path,
    config: DenoiserConfig,
    *,
    observations: Sequence[str] = (),
    on_denoised: Callable[[int, int], None] | None = None,
) -> StoreDenoised:
    """Write ``store`` anew as ``out``, with what is wrong in it replaced by a small diffusion.

    It is trained on the store itself. ``observations``: signals that are looked at; empty: all but
    pictures. ``on_denoised``: told after every episode how many are written, and of how many.

    Errors: :class:`SpecMismatchError` where episodes have other signals, :class:`DataError` where
    there are none; then nothing is written.
    """
    source = EpisodeStore.open(store)
    ids = source.ids()
    if not ids:
        raise DataError(f"'{store}' holds no episodes")
    blocks = _blocks(source.meta(ids[0]).embodiment, observations)
    names = [b.name for b in blocks if isinstance(b.spec, SignalSpec)]
    rows = [_encoded(source.read(name, names), blocks) for name in ids]
    scale = RobustScale(np.concatenate(rows))
    model = Denoiser([scale(r) for r in rows], sizes(blocks), config)
    replaced = dict.fromkeys((b.name for b in blocks), 0)
    number = 0

    def change(episode: Episode) -> Episode:
        nonlocal number
        found, wrong = model.recovered(number)
        number += 1
        counts = {b.name: int(wrong[:, j].sum()) for j, b in enumerate(blocks)}
        for name, count in counts.items():
            replaced[name] += count
        said = {"config": to_dict(config), "replaced": counts}
        return _mended(episode, blocks, scale.undo(found), wrong, said)

    made = derive_store(source, ids, out, change, on_denoised)
    return StoreDenoised(Path(str(made.path)), number, sum(map(len, rows)), replaced)


def _blocks(spec: EmbodimentSpec, observations: Sequence[str]) -> list[Block]:
    signals = [spec.signal(n) for n in observations] or [
        s for s in spec.signals if not s.is_image and s.dtype.startswith("float")
    ]
    pictures = [s.name for s in signals if s.is_image]
    if pictures:
        raise SpecMismatchError(f"rows of numbers are denoised; {pictures} are pictures")
    blocks = [Block(s.name, s) for s in signals]
    return [*blocks, *(Block(ACTION + a.name, a) for a in spec.actions), Block(REWARD, None)]


def _encoded(episode: Episode, blocks: Sequence[Block]) -> Any:
    for block in blocks:
        if isinstance(block.spec, SignalSpec) and block.name not in episode.view:
            raise SpecMismatchError(
                f"episode {episode.id} has no signal '{block.name}', which the first one has;"
                f" it has: {sorted(episode.view)}"
            )
    return np.concatenate([b.encode(_values(episode, b)) for b in blocks], axis=1)


def _values(episode: Episode, block: Block) -> Any:
    """What an episode says of a block, ``[T, ...]``."""
    if isinstance(block.spec, SignalSpec):
        return episode.observed(block.name)
    if isinstance(block.spec, ActionSpec):
        return episode.action[block.spec.name]
    return episode.reward[:, None]


def _mended(
    episode: Episode, blocks: Sequence[Block], numbers: Any, wrong: Any, said: dict[str, Any]
) -> Episode:
    """The episode with the blocks that are ``wrong [T, j]`` as ``numbers [T, k]`` say."""
    streams, action = dict(episode.streams), dict(episode.action)
    reward, first = episode.reward, 0
    for j, block in enumerate(blocks):
        part, first = numbers[:, first : first + block.size], first + block.size
        bad = wrong[:, j]
        if not bad.any():
            continue
        before = _values(episode, block)
        after = np.where(
            bad.reshape(-1, *(1,) * (before.ndim - 1)), block.decode(part, before), before
        )
        if isinstance(block.spec, SignalSpec):
            stream = streams[block.name]
            value = stream.value.copy()
            value[episode.view[block.name][bad]] = after[bad]
            streams[block.name] = dataclasses.replace(stream, value=value)
        elif isinstance(block.spec, ActionSpec):
            name = block.spec.name
            action[name] = clip_action((block.spec,), {name: after})[name]
        else:
            reward = after[:, 0]
    meta = episode.meta
    meta = dataclasses.replace(meta, provenance=dict(meta.provenance) | {DENOISED: said})
    return dataclasses.replace(episode, meta=meta, streams=streams, action=action, reward=reward)
