"""Infers which actions were taken, from what was seen before and after: SS-ORL (Zheng et al. 2023).

    o[t - before] ... o[t] ... o[t + after]  --member m-->  a_m[t],     a[t] = mean_m a_m[t]

Several ticks on both sides, as one step shows little of a command that takes effect late (their
multi-transition inverse dynamics). Actions that say where the tool should be are learned relative
to where it is, so an error that is small beside the table is not small here.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from torch import Tensor, nn

from policies.critics.actor_critic import mlp
from policies.data_models.fitting import INPUT, DataModel, RowBatches, fitted
from policies.data_models.options import InverseDynamicsConfig
from robolearn.data.reading.dataset import split_episodes
from robolearn.errors import DataError, SpecMismatchError
from robolearn.learning import Batch, Losses
from robolearn.representation import ActionKind, Representation, RepresentationConfig, is_pose
from robolearn.seeding import child_seed
from robolearn.shapes import FloatRows, Floats
from robolearn.spec import TaskSpace
from robolearn.types import Signals

Windows = Float64[NDArray[np.float64], "t i"]
Encoded = Float64[NDArray[np.float64], "t o"]
Numbers = Float64[NDArray[np.float64], "t k"]
# Numbers that vary less than this are said to be constant.
STILL = 1e-6


@dataclass(frozen=True, slots=True)
class LabelledEpisode:
    """What was seen, ``observations[name] [T, *shape]``, and done, ``actions [T, a]``."""

    observations: Signals
    actions: FloatRows


@dataclass(frozen=True, slots=True)
class InferredActions:
    """``actions [T, a]`` and how far the members are apart, ``disagreement [T]``: the root mean
    square over an action's numbers, in parts of their spread.
    """

    actions: FloatRows
    disagreement: Floats


class InverseDynamics(DataModel):
    """Networks side by side, each from the same window to the scaled action."""

    def __init__(self, config: InverseDynamicsConfig, inputs: int, outputs: int) -> None:
        super().__init__(config.lr, config.batch_size)
        self.members = nn.ModuleList(
            mlp(inputs, outputs, config.width, config.depth) for _ in range(config.members)
        )

    def say(self, window: Float[Tensor, "b i"]) -> Float[Tensor, "m b o"]:
        """What every member says."""
        return torch.stack([member(window) for member in self.members])

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """Squared error of every member."""
        said = self.say(batch.observations[INPUT][:, 0])
        return Losses({"model": ((said - batch.actions[:, 0]) ** 2).mean(dim=(1, 2)).sum()}, {})


class ActionInference:
    """A trained model; ``error``: per action its error on held-out episodes, in parts of its
    spread there (root mean square over its numbers); ``held_out``: how many episodes those were.
    """

    def __init__(
        self,
        space: TaskSpace,
        labelled: Sequence[LabelledEpisode],
        config: InverseDynamicsConfig,
    ) -> None:
        self._config, self._representation = config, _representation(space)
        train, kept = split_episodes(len(labelled), config.held_out, config.seed)
        if not len(kept):
            raise DataError(
                f"{len(labelled)} labelled episodes are too few to hold out"
                f" {config.held_out:g} of them, which measure the error"
            )
        windows = [self._window(e.observations) for e in labelled]
        targets = [self._encode(e) for e in labelled]
        x, y = (np.concatenate([p[i] for i in train]) for p in (windows, targets))
        self._seen, self._spread = _Scale(x), _Scale(y)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(child_seed(config.seed, "weights"))
            self._model = InverseDynamics(config, x.shape[1], y.shape[1])
        scaled = self._seen(x).astype(np.float32), self._spread(y).astype(np.float32)
        batches = RowBatches(*scaled, config.batch_size, config.seed)
        fitted(self._model, batches, config.updates, config.seed)
        x, y = (np.concatenate([p[i] for i in kept]) for p in (windows, targets))
        self.held_out, self.error = len(kept), self._errors(x, y)

    def infer(self, observations: Signals) -> InferredActions:
        """What must have been done in an episode, ``observations[name] [T, *shape]``."""
        said = self._say(self._window(observations))
        mean = said.mean(axis=0)
        apart = np.sqrt(((said - mean) ** 2).mean(axis=(0, 2)))
        numbers = self._spread.undo(mean)[:, None]
        at = {n: np.asarray(v)[:, None] for n, v in observations.items()}
        return InferredActions(self._representation.decode(numbers, at)[:, 0], apart)

    def _window(self, observations: Signals) -> Windows:
        """What is seen around every tick; beyond the ends what is seen there."""
        shown = self._representation.observe(observations)
        specs = self._representation.inner.observations
        parts = [_continuous(np.asarray(shown[s.name], np.float64), s.angular) for s in specs]
        rows = np.concatenate(parts, axis=1)
        t = np.arange(len(rows))
        steps = [k for k in range(-self._config.before, self._config.after + 1) if k]
        around = [rows[np.clip(t + k, 0, len(rows) - 1)] - rows for k in steps]
        return np.concatenate([rows, *around], axis=1)

    def _encode(self, episode: LabelledEpisode) -> Encoded:
        at = {n: np.asarray(v)[:, None] for n, v in episode.observations.items()}
        encoded = self._representation.encode(episode.actions[:, None], at)
        return np.asarray(encoded[:, 0], dtype=np.float64)

    def _say(self, window: Windows) -> Float64[NDArray[np.float64], "m t o"]:
        with torch.no_grad():
            said = self._model.say(torch.from_numpy(self._seen(window).astype(np.float32)))
        return said.double().numpy()

    def _errors(self, window: Windows, wanted: Encoded) -> Mapping[str, float]:
        wrong = self._spread.undo(self._say(window).mean(axis=0)) - wanted
        # A number that is always the same is not to be missed by a thousandth of nothing.
        spread = wanted.std(axis=0)
        parts = np.where(spread > STILL, wrong.std(axis=0) / np.maximum(spread, STILL), 0.0)
        errors: dict[str, float] = {}
        first = 0
        for action in self._representation.inner.actions:
            errors[action.name] = float(np.sqrt((parts[first : first + action.size] ** 2).mean()))
            first += action.size
        return errors


class _Scale:
    """Zero mean and unit deviation, of numbers that vary."""

    def __init__(self, rows: Numbers) -> None:
        deviation = rows.std(axis=0)
        self._mean = rows.mean(axis=0)
        self._size = np.where(deviation > STILL, deviation, 1.0)

    def __call__(self, rows: Numbers) -> Numbers:
        return (rows - self._mean) / self._size

    def undo(self, rows: Numbers) -> Numbers:
        return rows * self._size + self._mean


def _representation(space: TaskSpace) -> Representation:
    """Poses as continuous numbers, actions relative to the tool where it is observed."""
    six_d = any(is_pose(s) for s in space.observations)
    relative: dict[str, ActionKind] = {}
    for action in space.actions:
        wish = RepresentationConfig(actions={action.name: "relative"}, six_d=six_d)
        try:
            Representation(wish, space)
        except SpecMismatchError:
            continue
        relative[action.name] = "relative"
    return Representation(RepresentationConfig(actions=relative, six_d=six_d), space)


def _continuous(values: NDArray[np.float64], angular: tuple[int, ...]) -> Numbers:
    """Flat rows; angles as cosine and sine."""
    flat = values.reshape(len(values), -1)
    rest = [i for i in range(flat.shape[1]) if i not in angular]
    turned = flat[:, list(angular)]
    return np.concatenate([flat[:, rest], np.cos(turned), np.sin(turned)], axis=1)
