"""Draws an episode as lines of text, for a terminal without a display.

tool/xy_table[0] [m]       0.132 ▁▁▂▃▄▅▆▇██▇▆▅▄▃▂▁▁ 0.498
task progress              0     ▁▁▁▁▁▂▂▃▃▄▄▅▆▇████ 1
who drove                        hhhhhhh....hhhhppp h human, . hold, p policy
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robolearn.arms.slowing import Slowed
from robolearn.data.episode import Episode
from robolearn.data.insight.episode_measures import slowed_in, supervised
from robolearn.data.markers import marked_s
from robolearn.data.store.annotations import Annotated
from robolearn.shapes import Floats, OwnIndex

BLOCKS, ASCII = "▁▂▃▄▅▆▇█", "_.-~=+*#"
WIDTH = 60
"""Columns of a curve."""
CURVES = 24
"""More lines than this do not fit on a screen."""
_NAME = 30
JOINTS = "arm/joint_position"
"""Shown where the arm is commanded by its tool, too."""
_SLOWED = {Slowed.SINGULARITY: "s", Slowed.JOINT_LIMIT: "l", Slowed.JOINT_SPEED: "v"}
_SLOWING = {int(slowed) for slowed in Slowed}
SETPOINTS = "arm/joint_setpoint"
"""What a robot's arm was told after all limits: how far the arm is behind is one curve."""


def episode_curves(
    episode: Episode, annotated: Annotated, *, width: int = WIDTH, levels: str = BLOCKS
) -> list[str]:
    """What was commanded, number by number, where it was seen, progress, who drove, markers.

    ``levels``: characters from low to high (``ASCII`` where a terminal has no others). An episode
    without ticks has no lines.
    """
    steps = episode.steps
    if not steps:
        return []
    columns = max(1, min(width, steps))
    edges = np.linspace(0, steps, columns + 1).round().astype(np.int64)
    found = _numbers(episode)
    lines = [_line(name, values, edges, levels) for name, values in found[:CURVES] if len(values)]
    if len(found) > CURVES:
        lines.append(f"... and {len(found) - CURVES} more numbers (robolearn data view --strip)")
    lines.append(_line("task progress", episode.progress, edges, levels, span=(0.0, 1.0)))
    lines.append(_drivers(episode.source, edges))
    lines += _supervised(episode, edges)
    marks = marked_s(episode, annotated)
    if len(marks):
        since = (episode.tick_t_ns - episode.tick_t_ns[0]) * 1e-9
        at = np.searchsorted(since[edges[:-1]], marks, side="right") - 1
        row = np.full(columns, " ")
        row[at] = "|"
        lines.append(f"{'markers':<{_NAME}}{'':>9} {''.join(row)}")
    return lines


def _numbers(episode: Episode) -> list[tuple[str, Floats]]:
    """Every commanded number, followed by where it was measured, if it was; then the joints."""
    found: list[tuple[str, Floats]] = []
    for spec in episode.meta.embodiment.actions:
        asked = episode.action[spec.name].reshape(episode.steps, -1)
        unit = f" [{spec.unit}]" if spec.unit and len(spec.unit) < 4 else ""
        seen = None
        if spec.name in episode.view:
            rows = episode.observed(spec.name)
            block = episode.streams[spec.name]
            seen = np.asarray(rows, dtype=np.float64).reshape(episode.steps, -1).copy()
            seen[~block.valid[episode.view[spec.name]]] = np.nan
        for k in range(asked.shape[1]):
            found.append((f"{spec.name}[{k}]{unit}", np.asarray(asked[:, k], dtype=np.float64)))
            if seen is not None and seen.shape[1] == asked.shape[1]:
                found.append(("  as measured", seen[:, k]))
    commanded = [a.name for a in episode.meta.embodiment.actions]
    if JOINTS in episode.view and JOINTS not in commanded:
        rows = np.asarray(episode.observed(JOINTS), dtype=np.float64).reshape(episode.steps, -1)
        found += [(f"{JOINTS}[{k}] [rad]", rows[:, k]) for k in range(rows.shape[1])]
    return found + _behind(episode)


def _behind(episode: Episode) -> list[tuple[str, Floats]]:
    """How far the joint that is farthest off is from its set-point, where both are recorded."""
    if JOINTS not in episode.view or SETPOINTS not in episode.view:
        return []
    seen, told = (np.asarray(episode.observed(n), dtype=np.float64) for n in (JOINTS, SETPOINTS))
    return [("joints off set-points [rad]", np.abs(seen - told).max(axis=1))]


def _line(
    name: str,
    values: Floats,
    edges: OwnIndex,
    levels: str,
    span: tuple[float, float] | None = None,
) -> str:
    """One curve between its lowest and its highest value; a gap where nothing was measured."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return f"{name:<{_NAME}}{'':>9} nothing measured"
    low, high = span or (float(finite.min()), float(finite.max()))
    drawn: list[str] = []
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = values[begin:end]
        part = part[np.isfinite(part)]
        if not len(part):
            drawn.append(" ")
            continue
        share = (float(part.mean()) - low) / (high - low) if high > low else 0.5
        drawn.append(levels[int(np.clip(share * len(levels), 0, len(levels) - 1))])
    return f"{name:<{_NAME}}{low:>9.4g} {''.join(drawn)} {high:.4g}"


def _supervised(episode: Episode, edges: OwnIndex) -> list[str]:
    """When the supervisor slowed the arm, and when it did something else; no line where neither."""
    told = [(c, t) for c, t in supervised(episode) if c not in _SLOWING]
    slowed = slowed_in(episode)
    if not (told or slowed):
        return []
    begins = episode.tick_t_ns[edges[:-1]]
    row = np.full(len(begins), " ")
    for what, begin, end in slowed:
        first, last = np.searchsorted(begins, [begin, end], side="right") - 1
        row[max(0, int(first)) : int(last) + 1] = _SLOWED[what]
    for _, t_ns in told:
        row[max(0, int(np.searchsorted(begins, t_ns, side="right")) - 1)] = "!"
    kinds = {what for what, _, _ in slowed}
    legend = [f"{mark} {what.words}" for what, mark in _SLOWED.items() if what in kinds]
    legend += ["! stepped in"] if told else []
    return [f"{'supervisor':<{_NAME}}{'':>9} {''.join(row)} {', '.join(legend)}"]


def _drivers(source: Sequence[str], edges: OwnIndex) -> str:
    """One letter per column: who commanded most of it."""
    letters = {"hold": ".", "human": "h", "policy": "p"}
    row: list[str] = []
    used: dict[str, str] = {}
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        who = [s.split(":", 1)[0] for s in source[begin:end]]
        most = max(dict.fromkeys(who), key=who.count)
        letter = letters.get(most, most[:1] or "?")
        used.setdefault(letter, most)
        row.append(letter)
    told = ", ".join(f"{letter} {name}" for letter, name in used.items())
    return f"{'who drove':<{_NAME}}{'':>9} {''.join(row)} {told}"
