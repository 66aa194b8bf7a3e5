"""Corrupts what is read of recordings, to see what an algorithm makes of data that went wrong.

    data:
      corrupt: {what: [rewards], rate: 0.3}

The protocol of random corruption of RIQL (Yang et al. 2024). Of each kind of data that is named, a
share of the rows is drawn; in these, with e uniform in [-1, 1] for every number,

    observations   o  -> o + scale * e * deviation of that number       what is seen at a row
    actions        a  -> a + scale * e * deviation of that number
    rewards        r  -> 30 * scale * e * deviation of the rewards
    dynamics       o' -> o' + scale * e * deviation of that number      what follows another row

so that a row which is wrong as what follows is right where it is decided from, and the other way
round. The paper's rewards are 30 * scale * e whatever their unit; here the unit does not matter.
The store stays as it is; what is corrupted counts in the identity of the run, and is the same
whenever the run is trained. Of episodes that are held out the same share is corrupted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robolearn.data.reading.cache import FlatEpisodes
from robolearn.data.reading.episode_arrays import Rows
from robolearn.errors import ConfigError
from robolearn.seeding import child_seed

CorruptPart = Literal["observations", "actions", "rewards", "dynamics"]

REWARD_FACTOR = 30.0
"""Rewards need as much: algorithms bear small errors of them (RIQL, appendix)."""


@dataclass(frozen=True, slots=True)
class CorruptConfig:
    """What of the data is corrupted at random; nothing by default."""

    # Any of observations, actions, rewards and dynamics; each in rows of its own.
    what: tuple[CorruptPart, ...] = ()
    # Share of the rows. Published: .3.
    rate: float = 0.3
    # Range of the disturbance in standard deviations. Published: 1.
    scale: float = 1.0
    # Which rows, and by how much.
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate <= 1.0 or not (math.isfinite(self.scale) and self.scale >= 0):
            raise ConfigError(
                "corrupt: rate must be in [0, 1] and scale at least 0, got"
                f" {self.rate} and {self.scale}"
            )
        if len(set(self.what)) != len(self.what):
            raise ConfigError(f"corrupt: name every kind of data once, got {list(self.what)}")


def corrupted(flat: FlatEpisodes, config: CorruptConfig) -> FlatEpisodes:
    """``flat`` as ``config`` spoils it, in memory; itself where nothing is named.

    Errors: :class:`ConfigError` for pictures, which have no deviation that would say much.
    """
    if not config.what:
        return flat
    changed: dict[str, Any] = {}
    if "observations" in config.what:
        changed["observations"] = _disturbed(flat, flat.observations, config, "observations")
        # What follows a row is not what is corrupted.
        changed["next_observations"] = flat.following
    if "dynamics" in config.what:
        changed["next_observations"] = _disturbed(flat, flat.following, config, "dynamics")
    if "actions" in config.what:
        rows, rng = _drawn(flat, config, "actions")
        changed["actions"] = _shifted(flat.actions, rows, rng, config.scale)
    if "rewards" in config.what:
        rows, rng = _drawn(flat, config, "rewards")
        reward = np.array(flat.reward)
        size = REWARD_FACTOR * config.scale * reward.std(dtype=np.float64)
        reward[rows] = size * rng.uniform(-1.0, 1.0, len(rows))
        changed["reward"] = reward
    # Not a copy of a folder any more: whoever is handed it in another process gets these numbers.
    return dataclasses.replace(flat, folder=None, **changed)


def _disturbed(
    flat: FlatEpisodes, observations: Mapping[str, Rows], config: CorruptConfig, part: CorruptPart
) -> dict[str, Rows]:
    """Every signal in the same rows."""
    pictures = [s.name for s in flat.task_space.observations if s.is_image]
    if pictures:
        raise ConfigError(
            f"data.corrupt: '{part}' are disturbed by their standard deviation, which pictures do"
            f" not have; drop {pictures} from data.observations"
        )
    rows, rng = _drawn(flat, config, part)
    every = np.arange(len(flat.actions))
    return {
        name: _shifted(np.asarray(values[every]), rows, rng, config.scale)
        for name, values in observations.items()
    }


def _drawn(
    flat: FlatEpisodes, config: CorruptConfig, part: CorruptPart
) -> tuple[NDArray[np.int64], np.random.Generator]:
    """Exactly the share of the rows, to the nearest row; and what decides by how much."""
    count = len(flat.actions)
    rng = np.random.default_rng(child_seed(config.seed, "corrupt", part))
    return rng.permutation(count)[: round(config.rate * count)], rng


def _shifted(
    values: NDArray[Any], rows: NDArray[np.int64], rng: np.random.Generator, scale: float
) -> NDArray[Any]:
    found = np.array(values)
    deviation = found.std(axis=0, dtype=np.float64)
    found[rows] += scale * deviation * rng.uniform(-1.0, 1.0, found[rows].shape)
    return found
