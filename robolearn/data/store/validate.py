"""Checks what an episode must satisfy before it may be committed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode
from robolearn.errors import DataError
from robolearn.spec import SignalSpec
from robolearn.types import SampleBlock

PER_TICK = (
    "seq",
    "due_ns",
    "reward",
    "progress",
    "terminal",
    "truncated",
    "inference_ns",
    "overrun_ns",
)


def validate_episode(episode: Episode, streamed: Collection[str] = frozenset()) -> None:
    """Raise :class:`DataError` for wrong lengths, shapes, dtypes, NaN, or time going backwards.

    The values of ``streamed`` signals were checked as they came and are not looked at.
    """
    steps = episode.steps
    if steps == 0:
        raise DataError("an episode needs at least one tick, got none")
    _ascending("ticks", episode.tick_t_ns, strict=True)
    for name in PER_TICK:
        values = getattr(episode, name)
        if values.shape != (steps,):
            raise DataError(f"{name}: expected {steps} values (one per tick), got {values.shape}")
    if len(episode.source) != steps:
        raise DataError(f"source: expected {steps} values, got {len(episode.source)}")
    for name in ("reward", "progress"):
        _finite(name, getattr(episode, name))
    if bool(episode.terminal[:-1].any()) or bool(episode.truncated[:-1].any()):
        raise DataError("terminal or truncated is set before the last tick")
    _actions(episode)
    for name, block in episode.streams.items():
        spec = episode.meta.embodiment.signal(name)
        _stream(spec, block, check_values=name not in streamed)
        _view(name, episode.view.get(name), steps, len(block.t_ns))
    _sent(episode)


def _actions(episode: Episode) -> None:
    specs = {a.name: a for a in episode.meta.embodiment.actions}
    if set(specs) != set(episode.action):
        raise DataError(
            f"actions: expected {sorted(specs)} as in the embodiment, got {sorted(episode.action)}"
        )
    for name, values in episode.action.items():
        want = (episode.steps, *specs[name].shape)
        if values.shape != want:
            raise DataError(f"action {name}: expected shape {want}, got {values.shape}")
        _finite(f"action {name}", values)


def _stream(spec: SignalSpec, block: SampleBlock, *, check_values: bool) -> None:
    rows = len(block.t_ns)
    if block.valid.shape != (rows,):
        raise DataError(f"{spec.name}: {rows} times but validity {block.valid.shape}")
    if check_values:
        check_samples(spec, block)
        if len(block.value) != rows:
            raise DataError(f"{spec.name}: {rows} times but {len(block.value)} values")
    _ascending(spec.name, block.t_ns, strict=False)


def check_samples(spec: SignalSpec, block: SampleBlock) -> None:
    """Shape, dtype and finiteness of new samples of one signal."""
    if block.value.shape[1:] != spec.shape:
        raise DataError(
            f"{spec.name}: expected samples of shape {spec.shape}, got {block.value.shape[1:]}"
        )
    if block.value.dtype != np.dtype(spec.dtype):
        raise DataError(
            f"{spec.name}: expected dtype {spec.dtype}, got {block.value.dtype};"
            " convert it, or say so in the embodiment"
        )
    if block.valid.all():
        _finite(spec.name, block.value)
    else:
        _finite(spec.name, block.value[block.valid])


def _view(name: str, view: NDArray[np.int64] | None, steps: int, rows: int) -> None:
    if view is None or view.shape != (steps,):
        got = "none" if view is None else str(view.shape)
        raise DataError(f"{name}: expected a view of {steps} rows, got {got}")
    if int(view.min()) < 0 or int(view.max()) >= rows:
        raise DataError(f"{name}: the view points outside the {rows} samples of the stream")
    if bool((np.diff(view) < 0).any()):
        raise DataError(f"{name}: the view goes backwards in time")


def _sent(episode: Episode) -> None:
    rows = len(episode.sent.t_ns)
    if episode.sent.seq.shape != (rows,):
        raise DataError(f"sent: {rows} times but {episode.sent.seq.shape} sequence numbers")
    for name, values in episode.sent.action.items():
        if len(values) != rows:
            raise DataError(f"sent {name}: {rows} times but {len(values)} values")
        _finite(f"sent {name}", values)


def _ascending(name: str, t_ns: NDArray[np.int64], *, strict: bool) -> None:
    steps = np.diff(t_ns)
    wrong = steps <= 0 if strict else steps < 0
    if bool(wrong.any()):
        at = int(np.argmax(wrong)) + 1
        raise DataError(
            f"{name}: time goes backwards at row {at}"
            f" ({int(t_ns[at - 1])} ns, then {int(t_ns[at])} ns)"
        )


def _finite(name: str, values: NDArray[Any]) -> None:
    if values.dtype.kind == "f" and not bool(np.isfinite(values).all()):
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise DataError(f"{name}: NaN or infinity at row {row}; mark missing samples as not valid")
