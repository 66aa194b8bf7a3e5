"""Says how policies are combined; apart from what does it, so that ``--help`` answers at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from robolearn.errors import ConfigError

Operator = Literal["convex", "and", "or"]


@dataclass(frozen=True, slots=True)
class ComposeOptions:
    """How fields are combined, and on which conditions the weight is chosen and reported."""

    # How the fields are combined.
    operator: Operator = "convex"
    # Weights of the first policy to choose from (two policies, convex and or); others: equal.
    weights: tuple[float, ...] = (0.2, 0.4, 0.5, 0.6, 0.8)
    # Euler steps of the composed policy.
    steps: int = 4
    # The conditions and the protocol.
    suite: Path = Path("configs/eval/pusht.yaml")
    # World to run in.
    world: str = "gym_pusht"
    # Conditions on which the weight is chosen; none of them is reported.
    choose: int = 50
    # Conditions on which the gain is reported: the first ones of the suite.
    report: int = 100
    # Worker processes; 0: in this process.
    workers: int = 1
    # Environments per forward pass of a policy.
    batch: int = 1

    def __post_init__(self) -> None:
        for name, value, least in (
            ("choose", self.choose, 2),
            ("report", self.report, 2),
            ("steps", self.steps, 1),
            ("batch", self.batch, 1),
            ("workers", self.workers, 0),
        ):
            if value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        if not self.weights or not all(0 < w < 1 for w in self.weights):
            raise ConfigError(f"weights must be within (0, 1), got {self.weights}")
