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


@dataclass(frozen=True, slots=True)
class DenoiserConfig:
    """A small diffusion over windows of rows, and when a row counts as wrong."""

    # Rows before and after one that tell what it should be.
    half: int = 3
    # Hidden units of a layer.
    width: int = 256
    # Residual blocks.
    depth: int = 2
    # Updates in each of two rounds; in the second what was found wrong is not learned from.
    updates: int = 2000
    # Windows per update.
    batch_size: int = 256
    # Learning rate.
    lr: float = 1e-3
    # In a sweep the worst of each neighbourhood is found, and left out from then on; sweeps per
    # round, at most.
    sweeps: int = 10
    # A block (signal, action, reward) of a row is wrong if it is off by so many of the usual
    # deviations of such residuals.
    beyond: float = 3.0
    # And at least by this, in parts of what the numbers vary by.
    at_least: float = 0.1
    # Of initial weights, batches and noise.
    seed: int = 0

    def __post_init__(self) -> None:
        counts = (self.half, self.width, self.depth, self.updates, self.batch_size, self.sweeps)
        if min(counts) < 1:
            raise ConfigError(
                "half, width, depth, updates, batch_size and sweeps must be at least 1"
            )
        if not self.lr > 0 or not self.beyond > 0 or not self.at_least >= 0:
            raise ConfigError("lr and beyond must be above 0, at_least at least 0")
