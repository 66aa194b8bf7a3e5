"""Estimates from pictures the signals that the recordings have and the policy does not.

    pictures --encoder--> features --MLP--> estimates (SI) --> as if they were observed
                                     |
                                     '-- error against the recorded signal, in training only

The pictures' encoder learns from this error alone, which is a much stronger teacher than the
actions; the rest of the policy sees estimates in training as well and gets used to them.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from policies.nets.encoder import decoded, encoded, register_transform
from policies.nets.shapes import Scalar, Tokens
from policies.nets.transforms import fit_transform
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.learning import Observed, RowTensor
from robolearn.spec import SignalSpec, TaskSpace

# Errors above this, in normalised units, count linearly, so that pictures in which the object is
# hidden do not outweigh the others.
BEND = 0.02


@dataclass(frozen=True, slots=True)
class EstimateConfig:
    """A vector that the data has and the policy is not shown: it is told from pictures."""

    # Signal; named in data.observations, and not among the observations of the trained policy.
    signal: str
    # Its components that are angles [rad].
    angular: tuple[int, ...] = ()


def without_estimated(space: TaskSpace, configs: tuple[EstimateConfig, ...]) -> TaskSpace:
    """What the trained policy observes; errors say what cannot be estimated."""
    if not configs:
        return space
    signals = {s.name: s for s in space.observations}
    for config in configs:
        found = signals.get(config.signal)
        if found is None or len(found.shape) != 1:
            raise SpecMismatchError(
                f"estimated: '{config.signal}' must be a vector in data.observations, which are"
                f" {list(signals)}"
            )
        if found.angular != config.angular:
            raise ConfigError(
                f"estimated: angular of '{config.signal}' is {list(found.angular)} in the data,"
                f" {list(config.angular)} in the experiment"
            )
    names = {c.signal for c in configs}
    left = tuple(s for s in space.observations if s.name not in names)
    if not any(s.is_image for s in left):
        raise SpecMismatchError(
            f"estimated: {sorted(names)} cannot be told without a camera; observed: {list(signals)}"
        )
    return dataclasses.replace(space, observations=left)


def with_estimated(
    spec: PolicySpec, configs: tuple[EstimateConfig, ...], stats: DatasetStats
) -> PolicySpec:
    """The policy's observations and what it believes beside them."""
    if not configs:
        return spec
    added = tuple(
        SignalSpec(c.signal, (len(stats.observations[c.signal].mean),), angular=c.angular)
        for c in configs
    )
    space = spec.task_space
    whole = dataclasses.replace(space, observations=(*space.observations, *added))
    return dataclasses.replace(spec, task_space=whole)


class Estimator(nn.Module):
    """Features of the pictures ``[b, n_obs, inputs]`` to signals ``[b, n_obs, size]``."""

    def __init__(
        self,
        configs: tuple[EstimateConfig, ...],
        spec: PolicySpec,
        stats: DatasetStats,
        inputs: int,
        width: int,
    ) -> None:
        super().__init__()
        signals = {s.name: s for s in spec.task_space.observations}
        self.names = tuple(c.signal for c in configs)
        self.transforms = tuple(
            fit_transform(
                signals[name].shape,
                stats.observations[name],
                stats.scaling.get(name, spec.normalization),
                signals[name].angular,
            )
            for name in self.names
        )
        for i, transform in enumerate(self.transforms):
            register_transform(self, i, transform)
        self.sizes = tuple(t.size for t in self.transforms)
        self.net = nn.Sequential(
            nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, sum(self.sizes))
        )

    def forward(self, seen: Tokens) -> Float[Tensor, "b tokens size"]:
        """Estimates in normalised units ``[b, n_obs, size]``; angles as points of the plane."""
        return self.net(seen)

    def signals(self, estimates: Float[Tensor, "b tokens size"]) -> dict[str, RowTensor]:
        """The same in SI units, by name."""
        parts = estimates.split(self.sizes, dim=-1)
        return {
            name: decoded(part, transform, self.get_buffer(f"scale{i}"), self._offset(i))
            for i, (name, part, transform) in enumerate(
                zip(self.names, parts, self.transforms, strict=True)
            )
        }

    def loss(self, estimates: Float[Tensor, "b tokens size"], recorded: Observed) -> Scalar:
        """Error against the recorded signals."""
        wanted = [
            encoded(recorded[name], transform, self.get_buffer(f"scale{i}"), self._offset(i))
            for i, (name, transform) in enumerate(zip(self.names, self.transforms, strict=True))
        ]
        return functional.smooth_l1_loss(estimates, torch.cat(wanted, dim=-1), beta=BEND)

    def _offset(self, i: int) -> Tensor:
        return self.get_buffer(f"offset{i}")
