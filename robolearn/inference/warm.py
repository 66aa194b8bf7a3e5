"""Builds policies that are asked once before anybody waits for them; apart from what opens them, so
that a worker's process imports only what its own policy needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from robolearn.contracts import Policy
from robolearn.inference.blank import blank_request


@dataclass(frozen=True, slots=True)
class WarmBuilder:
    """Builds a policy and asks it once: what only the first call must wait for (libraries that are
    loaded on demand, caches) is done before a robot waits for it.
    """

    build: Callable[[], Policy]

    def __call__(self) -> Policy:
        """The policy, ready to answer at its usual pace."""
        policy = self.build()
        policy.sample(blank_request(policy.spec))
        return policy
