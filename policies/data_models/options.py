"""Configures the small models of data, without loading what trains them."""

from __future__ import annotations

from dataclasses import dataclass

from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class InverseDynamicsConfig:
    """An ensemble that says which action led from what was seen before to what was seen after."""

    # Ticks before the action that it sees, besides the action's own.
    before: int = 1
    # Ticks after it. More than one where commands take effect late.
    after: int = 2
    # Networks; how far they disagree says where they guess.
    members: int = 3
    # Hidden units of a layer.
    width: int = 128
    # Hidden layers.
    depth: int = 2
    # Updates.
    updates: int = 3000
    # Rows per update.
    batch_size: int = 256
    # Learning rate.
    lr: float = 1e-3
    # Share of the labelled episodes that only measures the error.
    held_out: float = 0.2
    # Largest error of an action on them, in parts of its spread; more is refused.
    limit: float = 0.5
    # Of initial weights, batches and the split.
    seed: int = 0

    def __post_init__(self) -> None:
        counts = (self.members, self.width, self.depth, self.updates, self.batch_size)
        if min(counts) < 1 or self.before < 0 or self.after < 1:
            raise ConfigError(
                "members, width, depth, updates, batch_size and after must be at least 1, before"
                " at least 0"
            )
        if not 0 < self.held_out < 1 or not self.lr > 0 or not self.limit > 0:
            raise ConfigError("held_out must be in (0, 1), lr and limit above 0")
