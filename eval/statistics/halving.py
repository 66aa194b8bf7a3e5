"""Plans which policies to try next, and how often: sequential halving with a head start.

Karnin, Koren, Somekh 2013 (ICML), Algorithm 1: of K policies and B trials, in each of ceil(log2 K)
rounds the survivors get equal shares of B / ceil(log2 K), and the better half goes on. Two changes:
an order that is known beforehand (offline estimates) says who takes part at all and breaks ties
(a warm start, as in Konyushkova et al. 2021), and means are over all trials until the end of the
round, not over those of the round alone.

The plan is a function of the trials that were done: run what it asks for, then ask again. A round
is decided by the first trials of each policy, as many as it takes, so that later ones change
nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robolearn.errors import ConfigError, did_you_mean


@dataclass(frozen=True, slots=True)
class HalvingPlan:
    """Where the race stands; ``more`` is empty when it is over."""

    # Number of the round that is under way (from 1), and of how many.
    round: int
    rounds: int
    # Who is still in it, best first; the winner when it is over.
    survivors: tuple[str, ...]
    # Who took no part because of the order alone.
    not_tried: tuple[str, ...]
    # Trials that every survivor has at the end of this round.
    target: int
    # Trials that are missing until then, by policy.
    more: Mapping[str, int]
    # Trials of those that take part, so far, and all that may be spent.
    spent: int
    budget: int

    @property
    def over(self) -> bool:
        """Whether one is left."""
        return len(self.survivors) == 1


def halving_plan(
    order: Sequence[str], tried: Mapping[str, Sequence[float]], budget: int, first: int = 0
) -> HalvingPlan:
    """The next trials of the policies ``order`` (best first, by what is known without trials).

    ``tried``: outcomes so far, by policy, under the same conditions in the same order; ``budget``:
    trials of all rounds together; ``first``: so many of the order take part (0: the better half, at
    least two). Errors: :class:`ConfigError` for a budget that gives no trial to each policy in each
    round, and for trials of policies that are not in the order.
    """
    if len(order) < 2 or len(set(order)) != len(order):
        raise ConfigError(f"a race takes two different policies or more, got {list(order)}")
    for name in tried:
        if name not in order:
            raise ConfigError(
                f"trials of '{name}', which is not ranked.{did_you_mean(name, order)}"
            )
    first = first or max(2, math.ceil(len(order) / 2))
    if not 2 <= first <= len(order):
        raise ConfigError(f"first must be in 2..{len(order)} (policies), got {first}")
    racing, rounds = list(order[:first]), math.ceil(math.log2(first))
    if budget < rounds * first:
        raise ConfigError(
            f"a budget of {budget} trials is too small: {first} policies in {rounds} round(s) take"
            f" at least {rounds * first}"
        )
    spent, target = sum(len(tried.get(n, ())) for n in racing), 0
    waiting = tuple(order[first:])
    for number in range(1, rounds + 1):
        target += budget // (len(racing) * rounds)
        done = {n: tuple(tried.get(n, ()))[:target] for n in racing}
        more = {n: target - len(k) for n, k in done.items() if len(k) < target}
        if more:
            return HalvingPlan(number, rounds, tuple(racing), waiting, target, more, spent, budget)
        better = sorted(racing, key=lambda n: (-sum(done[n]) / target, order.index(n)))
        racing = better[: math.ceil(len(racing) / 2)]
    return HalvingPlan(rounds, rounds, tuple(racing), waiting, target, {}, spent, budget)
