"""Draws starts of which all runs were trained on one half and none on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from eval.trials.suites import ConditionConfig, Poses
from robolearn.data.episode import EpisodeStart
from robolearn.errors import ConfigError
from robolearn.seeding import child_seed
from robolearn.types import Condition

# As suites write poses: a micrometre, far below what matters.
DECIMALS = 6
# What makes two starts one: their poses, or where only a seed names them, world and seed.
_Key = tuple[object, ...]


def seen_and_unseen(
    draw: Callable[[int], Condition],
    problem: Callable[[Poses], str],
    n: int,
    seed: int,
    world: str,
    trained: Mapping[str, Sequence[EpisodeStart]],
) -> list[ConditionConfig]:
    """``n`` marked starts, seen and unseen by turns while there are both.

    ``draw``: start ``i`` of an endless list of ``world``; ``problem``: why a start is not feasible;
    ``trained``: run -> the starts that it was trained on. Seen are those of all runs (half of ``n``
    or as many as there are, chosen by ``seed``), unseen those that none has.

    Raises :class:`ConfigError` where runs have no start in common that the world could have.
    """
    first = draw(0)
    names = set(first.poses)
    by_run = {
        run: {key: s for s in starts if (key := _key(s.world, s.seed, s.poses, names, world))}
        for run, starts in trained.items()
    }
    every = set[_Key]().union(*by_run.values())
    common = set.intersection(*(set(found) for found in by_run.values()))
    listed = next(iter(by_run.values()))
    usable = [s for key, s in listed.items() if key in common and not problem(_rounded(s.poses))]
    if not usable:
        counts = {run: f"{len(found)} of {len(trained[run])}" for run, found in by_run.items()}
        raise ConfigError(
            f"the runs have no start in common that '{world}' could have, with {sorted(names)} or,"
            f" where it has none, seeds of its own; of their starts fit: {counts}"
        )
    order = np.random.default_rng(child_seed(seed, "seen")).permutation(len(usable))
    chosen = [usable[int(i)] for i in order[: max(1, n // 2)]]
    task = first.id.rpartition("-")[0]
    seen = [
        ConditionConfig(f"{task}-seen-{k:04d}", s.seed, _rounded(s.poses), seen=True)
        for k, s in enumerate(chosen)
    ]
    drawn = (draw(i) for i in range(n))
    fresh = (c for c in drawn if _key(world, c.seed, c.poses, names, world) not in every)
    unseen = [
        ConditionConfig(c.id, c.seed, dict(c.poses), seen=False)
        for c, _ in zip(fresh, range(n - len(seen)), strict=False)
    ]
    if not unseen:
        raise ConfigError(f"'{world}' has no start that the runs were not trained on, in {n} draws")
    turns = max(len(seen), len(unseen))
    return [c for k in range(turns) for part in (seen, unseen) for c in part[k : k + 1]]


def _key(where: str, seed: int, poses: Poses, names: set[str], world: str) -> _Key | None:
    """None for a start that the world could not have: of other things, or of another world where
    only seeds name starts.
    """
    if set(poses) != names or (not names and where != world):
        return None
    return tuple(sorted(_rounded(poses).items())) or (seed,)


def _rounded(poses: Poses) -> dict[str, tuple[float, ...]]:
    # Adding 0.0 turns -0.0 into 0.0, which YAML would write differently.
    return {k: tuple(round(float(v), DECIMALS) + 0.0 for v in p) for k, p in poses.items()}
