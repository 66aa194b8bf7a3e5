r"""Says who made every decision of an episode, and keeps what learning from it takes.

    row 0          row s          row 2s            s: steps executed of a chunk
    decision 0     decision 1     decision 2        noise of decision i: child_seed(seed, i)
       |              |              |
       '--------------'--------------'--- version of the weights, hash of the policy

Nothing but this has to be recorded: version and seed make the same chunk again, and everything that
the sampler went through on its way to it (:class:`~robolearn.learning.Replaying`).
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy.typing import NDArray

from robolearn.data.episode import EpisodeMeta
from robolearn.errors import DataError
from robolearn.seeding import child_seed
from robolearn.shapes import Index
from robolearn.types import RequestNumbers

DecidedRows = Int64[NDArray[np.int64], " m"]
DecidedValues = Float32[NDArray[np.float32], " m"]
DecidedFlags = Bool[NDArray[np.bool_], " m"]
Chains = Float32[NDArray[np.float32], "m states h a"]
DecidedParts = Float32[NDArray[np.float32], "b ..."]
StepDensities = Float32[NDArray[np.float32], "m steps"]


@dataclass(frozen=True, slots=True)
class Driven:
    """Who drove an episode of practice: ``version`` of the weights (None: the parent), the
    ``policy_hash`` of that, the ``seed`` that its decisions' noise comes from, and a decision
    ``every`` so many steps.
    """

    version: int | None
    policy_hash: str
    seed: int
    every: int

    @staticmethod
    def of(meta: EpisodeMeta) -> Driven | None:
        """None where the recording does not say."""
        said: Mapping[str, Any] = meta.provenance.get("practice", {})
        if "execute" not in said or "policy_hash" not in said:
            return None
        hashed, every = str(said["policy_hash"]), int(said["execute"])
        return Driven(said.get("version"), hashed, meta.condition.seed, every)

    def seeds(self, steps: Index) -> RequestNumbers:
        """Of the decisions at ``steps`` of the episode; errors: :class:`DataError` where there was
        none.
        """
        if bool((steps % self.every).any()):
            raise DataError(
                f"decisions were made every {self.every} steps, and are asked for in between: let"
                f" algorithm.stride be {self.every}"
            )
        numbers = (steps // self.every).tolist()
        return np.array([child_seed(self.seed, n) for n in numbers], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Decided:
    """What is learned from the decisions at ``rows``, which ascend: what the sampler went through
    (``chain``), how dense each of its steps was (``log_prob``), how much better the decision was
    than expected, and what it was worth.
    """

    rows: DecidedRows
    chain: Chains
    log_prob: StepDensities
    advantage: DecidedValues
    worth: DecidedValues

    def at(self, rows: Index) -> dict[str, DecidedParts]:
        """The parts of a batch of windows at ``rows [b]``; :class:`DataError` for others."""
        found = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        if bool((self.rows[found] != rows).any()):
            raise DataError("nobody knows how some of these decisions were made")
        return {
            "chain": self.chain[found],
            "chain_log_prob": self.log_prob[found],
            "advantage": self.advantage[found],
            "worth": self.worth[found],
        }


def advantages(
    values: DecidedValues,
    following: DecidedValues,
    reward: DecidedValues,
    bootstrap: DecidedValues,
    goes_on: DecidedFlags,
    trace: float,
) -> DecidedValues:
    """Generalised advantages (Schulman et al. 2016, equation 16) of decisions in their order:

        A_i = d_i + m_i trace A_{i+1},   d_i = R_i + m_i V(o'_i) - V(o_i)

    ``values``, ``following [m]``: V where decision i was made and behind it; ``bootstrap``: m, its
    discount, 0 where the task ended; ``goes_on``: decision i + 1 comes right behind it.
    """
    found = reward + bootstrap * following - values
    for i in range(len(found) - 2, -1, -1):
        if goes_on[i]:
            found[i] += bootstrap[i] * trace * found[i + 1]
    return found
