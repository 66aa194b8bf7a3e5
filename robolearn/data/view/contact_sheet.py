r"""Draws an episode as one picture: frames of each camera, evenly spaced, above its curves.

| wrist/image |  [ ]  [ ]  [ ]  [ ]  [ ]  [ ]  [ ]  |   frames at the grey lines below
| tool/xy [m] |  ____/----\____  - - commanded      |   one panel for each signal
| progress    |  ___________/---                    |
0 s                          14 s
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode, EpisodeInfo
from robolearn.data.store.store import EpisodeStore
from robolearn.data.view.cameras import open_camera
from robolearn.errors import DataError
from robolearn.shapes import Picture

FRAMES = 8
PANELS = 8
COMPONENTS = 8
"""More curves in one panel than this cannot be told apart."""
WIDTH_IN = 14.0
LEFT, RIGHT = 0.12, 0.865
"""Edges of pictures and panels: names to the left, legends to the right."""
DPI = 100
_GREY, _LOST, _COMMAND = "0.45", "#c00000", "black"

# Figures and axes are untyped for the checker: matplotlib's keyword arguments are.
Drawing = Callable[[int], Picture]


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of pictures, and which of them are there."""

    name: str
    pictures: tuple[NDArray[np.uint8], ...]
    valid: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _Panel:
    """Curves ``value [n, k]`` over ``t_s [n]``; ``command [T, k]`` over the ticks."""

    name: str
    unit: str
    components: tuple[str, ...]
    t_s: NDArray[np.float64]
    value: NDArray[np.float64]
    command: NDArray[np.float64] | None = None


def save_strip(
    store: EpisodeStore,
    episode_id: str,
    out: Path,
    *,
    frames: int = FRAMES,
    drawing: Callable[[Episode], Drawing | None] | None = None,
) -> None:
    """Write the picture to ``out`` (``.png``); no display is needed.

    ``drawing(episode)`` gives what draws a tick of an episode without cameras, if anything does.
    """
    if out.suffix.lower() != ".png":
        raise DataError(f"a strip is a PNG picture; name it {out.with_suffix('.png').name}")
    info = store.info(episode_id)
    meta = store.meta(episode_id)
    cameras = [s.name for s in meta.embodiment.signals if s.is_image and s.name in info.signals]
    episode = store.read(episode_id, [n for n in info.signals if n not in cameras])
    ticks = np.unique(np.linspace(0, episode.steps - 1, frames).round().astype(np.int64))
    rows = [_camera_row(store, episode_id, name, ticks) for name in cameras]
    draw = drawing(episode) if drawing is not None and not rows else None
    if draw is not None:
        pictures = tuple(draw(int(k)) for k in ticks)
        rows = [_Row("drawn from\nthe poses", pictures, (True,) * len(pictures))]
    figure = _figure(episode, info, ticks, rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(str(out), dpi=DPI, facecolor="white")


def _camera_row(store: EpisodeStore, episode_id: str, name: str, ticks: NDArray[np.int64]) -> _Row:
    camera = open_camera(store, episode_id, name)
    rows = camera.view[ticks]
    return _Row(name, tuple(camera.seen(rows)), tuple(camera.valid[rows].tolist()))


def _panels(episode: Episode) -> tuple[list[_Panel], list[str]]:
    """What is drawn, and the names of what is not for want of space."""
    start = int(episode.tick_t_ns[0])
    ticks = (episode.tick_t_ns - start) * 1e-9
    found: list[_Panel] = []
    specs = {s.name: s for s in episode.meta.embodiment.signals}
    for name, block in episode.streams.items():
        value = block.value.reshape(len(block.t_ns), -1).astype(np.float64)
        value[~block.valid] = np.nan
        t_s = (block.t_ns - start) * 1e-9
        spec = specs[name]
        command = episode.action.get(name)
        target = None if command is None else command.reshape(episode.steps, -1)
        if target is not None and (target.shape[1] != value.shape[1] or _many(value)):
            target = None  # drawn by itself, below
        whole = _Panel(name, spec.unit, spec.components, t_s, value, target)
        found += _by_unit(whole)
    drawn = {p.name for p in found if p.command is not None}
    for action in episode.meta.embodiment.actions:
        if action.name not in drawn:
            value = episode.action[action.name].reshape(episode.steps, -1)
            found.append(_Panel(f"{action.name}\n(command)", action.unit, (), ticks, value))
    # Commanded signals first: they are what the episode is about.
    found.sort(key=lambda p: p.command is None)
    fit, left_out = found[: PANELS - 1], [p.name.split("\n")[0] for p in found[PANELS - 1 :]]
    if _unknown(episode):
        return fit, list(dict.fromkeys(left_out))
    if np.array_equal(episode.progress, episode.reward):
        task = _Panel("task", "", ("progress\n= reward",), ticks, episode.progress[:, None])
    else:
        both = np.stack([episode.progress, episode.reward], axis=1)
        task = _Panel("task", "", ("progress", "reward"), ticks, both)
    return [*fit, task], list(dict.fromkeys(left_out))


def _many(value: NDArray[np.float64]) -> bool:
    return value.shape[1] > COMPONENTS


def _unknown(episode: Episode) -> bool:
    """An imported episode whose source says nothing about its outcome."""
    progress = str(episode.meta.provenance.get("progress", ""))
    return progress.startswith("unknown") and not episode.success and not episode.progress.any()


def _by_unit(panel: _Panel) -> list[_Panel]:
    """Metres and radians apart: on one axis the smaller ones look still."""
    units = [u.strip() for u in panel.unit.split(",")]
    width = panel.value.shape[1]
    if len(set(units)) == 1 or len(units) != width or len(panel.components) != width:
        return [panel]
    parts: list[_Panel] = []
    for unit in dict.fromkeys(units):
        rows = [k for k, other in enumerate(units) if other == unit]
        command = None if panel.command is None else panel.command[:, rows]
        names = tuple(panel.components[k] for k in rows)
        parts.append(_Panel(panel.name, unit, names, panel.t_s, panel.value[:, rows], command))
    return parts


def _figure(episode: Episode, info: EpisodeInfo, ticks: NDArray[np.int64], rows: list[_Row]) -> Any:
    panels, left_out = _panels(episode)
    times = (episode.tick_t_ns[ticks] - episode.tick_t_ns[0]) * 1e-9
    cell = WIDTH_IN * (RIGHT - LEFT) / len(ticks)
    heights = [cell * row.pictures[0].shape[0] / row.pictures[0].shape[1] for row in rows]
    gap, panel = 0.12, 1.0
    total = 1.15 + sum(heights) + gap * len(rows) + (panel + gap) * len(panels) + 0.55
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(WIDTH_IN, total))
    at = total - 0.3
    at = _title(figure, episode, info, at, total)
    for number, (row, height) in enumerate(zip(rows, heights, strict=True)):
        at -= height + gap
        _draw_row(figure, row, times if number == 0 else None, at / total, height / total)
    end = max((float(p.t_s[-1]) for p in panels if len(p.t_s)), default=0.0)
    for number, shown in enumerate(panels):
        at -= panel + gap
        last = number == len(panels) - 1
        _draw_panel(figure, shown, episode, times, (at / total, panel / total, end), last=last)
    if left_out:
        text = f"not drawn: {', '.join(left_out)}"
        figure.text(LEFT, 0.08 / total, text, fontsize=8, color=_GREY)
    return figure


def _title(figure: Any, episode: Episode, info: EpisodeInfo, at: float, total: float) -> float:
    meta = episode.meta
    result, colour = ("SUCCESS", "#1a7f37") if episode.success else ("no success", _LOST)
    reason = f", {meta.outcome.reason}" if meta.outcome.reason else ""
    text = f"{result}   best progress {episode.score:.2f}{reason}"
    if _unknown(episode):
        text, colour = "outcome unknown: the source does not say", _GREY
    figure.text(0.01, at / total, info.id, fontsize=15, weight="bold", va="center")
    figure.text(LEFT, at / total, text, fontsize=14, color=colour, weight="bold", va="center")
    who = f"{meta.kind} by {meta.operator or meta.agent or 'unknown'}"
    lost = sum(int((~b.valid).sum()) for b in episode.streams.values())
    about = [
        meta.task_text or meta.task,
        who,
        f"{episode.duration_s:.1f} s, {episode.steps} steps at {meta.embodiment.rate_hz:g} Hz",
        *([f"{lost} samples missing"] if lost else []),
        *([f"labels: {', '.join(info.labels)}"] if info.labels else []),
        *([f"split: {info.split}"] if info.split else []),
        *(f"note: {note}" for note in info.notes),
    ]
    line = "  ·  ".join(about)
    line = line if len(line) <= 170 else f"{line[:169]}…"
    figure.text(0.01, (at - 0.32) / total, line, fontsize=10, color=_GREY, va="center")
    return at - 0.72


def _draw_row(
    figure: Any, row: _Row, times: NDArray[np.float64] | None, bottom: float, height: float
) -> None:
    width = (RIGHT - LEFT) / len(row.pictures)
    figure.text(0.01, bottom + height / 2, row.name, fontsize=10, va="center", weight="bold")
    for index, (picture, valid) in enumerate(zip(row.pictures, row.valid, strict=True)):
        axes = figure.add_axes((LEFT + index * width, bottom, width * 0.97, height))
        axes.set_xticks([])
        axes.set_yticks([])
        if valid:
            axes.imshow(picture, aspect="auto", interpolation="antialiased", cmap="gray")
        else:
            axes.set_facecolor("0.9")
            axes.text(
                0.5, 0.5, "missing", color=_LOST, ha="center", va="center",
                transform=axes.transAxes,
            )  # fmt: skip
        if times is not None:
            axes.set_title(f"{times[index]:.1f} s", fontsize=10, pad=3)


def _draw_panel(
    figure: Any,
    panel: _Panel,
    episode: Episode,
    times: NDArray[np.float64],
    place: tuple[float, float, float],
    *,
    last: bool,
) -> None:
    bottom, height, end = place
    axes: Any = figure.add_axes((LEFT, bottom, RIGHT - LEFT, height))
    ticks = (episode.tick_t_ns - episode.tick_t_ns[0]) * 1e-9
    for moment in times:
        axes.axvline(moment, color="0.85", linewidth=0.8, zorder=0)
    if _many(panel.value):
        _draw_many(axes, panel, end)
    else:
        _draw_curves(axes, panel, ticks)
    _mark_sources(axes, episode, ticks, last=last)
    unit = f"\n[{panel.unit}]" if panel.unit else ""
    figure.text(
        0.01, bottom + height / 2, f"{panel.name}{unit}", fontsize=10, va="center", weight="bold"
    )
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="center left", bbox_to_anchor=(1.005, 0.5), fontsize=8, frameon=False)
    axes.set_xlim(0.0, max(end, 1e-3))
    axes.tick_params(labelsize=8, labelbottom=last)
    axes.spines[["top", "right"]].set_visible(False)
    if last:
        axes.set_xlabel("time [s]   (grey lines: the pictures above)", fontsize=9)


def _draw_many(axes: Any, panel: _Panel, end: float) -> None:
    """A row for each component, dark where it is at its lowest, bright at its highest."""
    moments = np.linspace(0.0, end, 600)
    rows = np.maximum(np.searchsorted(panel.t_s, moments, side="right") - 1, 0)
    value = panel.value[rows].T
    with np.errstate(invalid="ignore"):
        low, high = np.fmin.reduce(value, axis=1), np.fmax.reduce(value, axis=1)
        shade = (value - low[:, None]) / np.where(high > low, high - low, 1.0)[:, None]
    extent = (0.0, max(end, 1e-3), len(value) - 0.5, -0.5)
    axes.imshow(shade, aspect="auto", extent=extent, interpolation="nearest", cmap="viridis")
    axes.text(
        1.01, 0.5, f"{len(value)} values,\ndark: its lowest\nbright: its highest",
        transform=axes.transAxes, fontsize=8, va="center",
    )  # fmt: skip


def _draw_curves(axes: Any, panel: _Panel, ticks: NDArray[np.float64]) -> None:
    for k in range(panel.value.shape[1]):
        name = panel.components[k] if panel.components else str(k)
        label = name if panel.value.shape[1] > 1 or panel.components else "value"
        (line,) = axes.plot(panel.t_s, panel.value[:, k], linewidth=1.4, label=label)
        if panel.command is not None:
            axes.step(
                ticks, panel.command[:, k], where="post", linewidth=0.9, linestyle=(0, (3, 2)),
                color=line.get_color(), alpha=0.9,
                label="dashed: command" if k == panel.command.shape[1] - 1 else None,
            )  # fmt: skip


def _mark_sources(axes: Any, episode: Episode, ticks: NDArray[np.float64], *, last: bool) -> None:
    """Shade where somebody else than the episode's usual author decided."""
    usual = max(set(episode.source), key=episode.source.count)
    others = [k for k, source in enumerate(episode.source) if source != usual]
    step = 1.0 / episode.meta.embodiment.rate_hz
    labelled: set[str] = set()
    for k in others:
        source = episode.source[k]
        label = f"shaded: {source}" if last and source not in labelled else None
        labelled.add(source)
        axes.axvspan(
            ticks[k], ticks[k] + step, color="#f2a900", alpha=0.25, linewidth=0, label=label
        )
