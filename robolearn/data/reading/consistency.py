"""Refuses data that contradict themselves, before anything is learned from them.

What a recording says of its end, what was annotated of it, and what the embodiment allows have to
agree where an algorithm learns what actions lead to: a value that is taken from beyond an end, or
an action that nobody could have carried out, is learned from as if it were true.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from robolearn.data.episode import Episode
from robolearn.data.reading.cache import FlatEpisodes
from robolearn.data.reading.rewards import RewardConfig
from robolearn.data.reading.weighting import EpisodeQuality
from robolearn.errors import DataError
from robolearn.shapes import Flags

log = logging.getLogger(__name__)

# Numbers of episodes.
Chosen = Int64[NDArray[np.int64], " chosen"]

BLOCK_ROWS = 1 << 16
ROUNDING = 1e-4
"""An action outside of its range by no more than this share of it is one at the limit, rounded."""
FEWEST_LIMITED = 5
"""So many episodes that all end their task in the same last step did so by the clock."""


def require_one_end(episode: Episode) -> None:
    """Errors: :class:`DataError` where the flags of the ticks and the outcome disagree."""
    name, outcome = episode.id or "(new)", episode.meta.outcome
    if episode.terminal[:-1].any():
        raise DataError(f"episode {name} goes on after a terminal step")
    last = bool(episode.terminal[-1])
    if last != outcome.terminal:
        raise DataError(
            f"episode {name} contradicts itself: its last step is"
            f" {'terminal' if last else 'not terminal'}, its outcome says terminal"
            f" {outcome.terminal} ('{outcome.reason}'), so nobody can tell whether a value follows;"
            " record or import it anew, or leave it out: robolearn data rm STORE EPISODE"
        )


def require_possible_actions(flat: FlatEpisodes, chosen: Chosen, *, refuse: bool) -> None:
    """Looks for actions outside of the ranges that the task space gives.

    Errors: :class:`DataError` with ``refuse``; else a warning.
    """
    space = flat.task_space
    low = np.concatenate([a.low or np.full(a.size, -np.inf) for a in space.actions])
    high = np.concatenate([a.high or np.full(a.size, np.inf) for a in space.actions])
    slack = np.where(np.isfinite(high - low), ROUNDING * (high - low), 0.0)
    rows = np.flatnonzero(_rows_of(flat, chosen))
    count, first = 0, None
    # In blocks: the data may be larger than memory.
    for begin in range(0, len(rows), BLOCK_ROWS):
        block = rows[begin : begin + BLOCK_ROWS]
        actions = np.asarray(flat.actions[block], dtype=np.float64)
        outside = (actions < low - slack) | (actions > high + slack)
        count += int(outside.any(axis=1).sum())
        if first is None and outside.any():
            at, number = (int(k) for k in np.argwhere(outside)[0])
            first = (int(block[at]), number, float(actions[at, number]))
    if first is None:
        return
    row, number, value = first
    names = [f"{a.name}[{k}]" for a in space.actions for k in range(a.size)]
    episode = int(np.searchsorted(flat.starts, row, side="right")) - 1
    where = f"step {row - int(flat.starts[episode])} of episode {flat.ids[episode]}"
    text = (
        f"{count} of {len(rows)} steps command what the embodiment does not allow:"
        f" '{names[number]}' is {value:g} at {where}, expected {low[number]:g} to {high[number]:g}"
    )
    if not refuse:
        log.warning("%s; the policy's own actions will be held within", text)
        return
    raise DataError(
        f"{text}. A critic would learn what such actions lead to, and the policy can never choose"
        " them; correct the range in the recordings' embodiment if it is wrong, or leave these"
        " episodes out (robolearn data note STORE EPISODE --label outside; without_labels of"
        " data.stores)"
    )


def require_agreeing_outcomes(
    flat: FlatEpisodes, chosen: Chosen, qualities: Sequence[EpisodeQuality], reward: RewardConfig
) -> None:
    """What was annotated has to count where a recording ended the task by mistake.

    Errors: :class:`DataError` for an episode that was recorded as a success, which ended the task,
    but annotated as a failure, with rewards that do not go by the annotation.
    """
    _warn_of_time_limits(flat, chosen, qualities)
    if len(qualities) != len(flat.ids) or reward.relabelling().judges:
        return
    ended = flat.done[flat.starts[1:] - 1]
    judged = ((e, qualities[e]) for e in _numbers(chosen) if ended[e])
    wrong = [flat.ids[e] for e, quality in judged if quality.recorded and not quality.success]
    if wrong:
        raise DataError(
            f"{len(wrong)} of {len(chosen)} episodes contradict themselves, {wrong[0]} the first:"
            " recorded as a success that ends the task, annotated as a failure, and data.reward"
            f" '{reward.task}' goes by the recording; use {{task: success}}, which goes by the"
            " annotation, or leave these episodes out"
        )


def _warn_of_time_limits(
    flat: FlatEpisodes, chosen: Chosen, qualities: Sequence[EpisodeQuality]
) -> None:
    """The commonest mistake of converted data: a time limit written down as the end of the task."""
    ended = chosen[flat.done[flat.starts[1:] - 1][chosen]]
    lengths = flat.lengths
    if len(ended) < FEWEST_LIMITED or len(qualities) != len(flat.ids):
        return
    last = np.zeros(len(flat.done), dtype=np.bool_)
    last[flat.starts[1:] - 1] = True
    if (flat.done & ~last & _rows_of(flat, chosen)).any():
        # Ends within episodes are a reward's (play that passes by a goal), not a recording's.
        return
    longest = int(lengths[chosen].max())
    solved = any(qualities[e].success for e in _numbers(ended))
    if (lengths[ended] == longest).all() and not solved:
        log.warning(
            "%d episodes end their task (terminal) in step %d, the last one that any episode has,"
            " and none of them is a success: if that is a time limit, it should be recorded as"
            " truncated, or values are learned as if nothing could follow",
            len(ended),
            longest,
        )


def _numbers(chosen: Chosen) -> list[int]:
    return [int(e) for e in chosen]


def _rows_of(flat: FlatEpisodes, chosen: Chosen) -> Flags:
    mine = np.zeros(len(flat.ids), dtype=np.bool_)
    mine[chosen] = True
    return flat.per_row(mine)
