"""Finds rows that went wrong and says what they should be: a small diffusion over windows.

    window      x[t - half] ... x[t] ... x[t + half]    rows of blocks (signals, actions, reward)
    noise       x~ = sqrt(1 - s^2) x + s e              s in [0, 1] of its own for every block
    denoiser    D(x~, s) = E[ x | x~ ],                 trained where s > 0
    residual    r = | x[t, j] - D(x without x[t, j]) |  s[t, j] = 1: predicted by all the others

A block whose residual stands out is taken for wrong; from then on it is noise (s = 1) wherever it
is seen and is not learned from, as data of which only a noisy version is known (ambient diffusion).
After a second round wrong blocks are replaced by what D says of them. After ADG (Liu et al. 2025,
"Ambient diffusion-guided dataset recovery"; its idea, not its numbers), with levels per block as in
diffusion forcing (Chen et al. 2024), so that one denoiser detects and recovers.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from policies.data_models.fitting import INPUT, DataModel, RowBatches, fitted
from policies.data_models.options import DenoiserConfig
from policies.nets.residual_mlp import ResidualMLP
from robolearn.learning import Batch, Losses
from robolearn.seeding import child_seed

Rows = Float64[NDArray[np.float64], "t k"]
# Which blocks of which rows.
Marks = Bool[NDArray[np.bool_], "t j"]
Residuals = Float64[NDArray[np.float64], "t j"]
# How much less a row counts that is one farther away, where nothing has been learned yet.
NEARER = 0.25
# A quarter of what is normally distributed is nearer than this [deviations].
QUARTER = 0.3186
# Of fewer residuals nothing is said.
FEW = 20
# Keeps sums over no row from being divided by, and lines through few rows from being steep.
TINY, FLAT = 1e-6, 0.02
AT_A_TIME = 4096


class WindowDenoiser(DataModel):
    """``D`` for windows of ``rows`` rows with blocks of ``sizes`` numbers."""

    def __init__(self, config: DenoiserConfig, rows: int, sizes: Sequence[int]) -> None:
        super().__init__(config.lr, config.batch_size)
        self.rows, self.blocks, self.numbers = rows, len(sizes), sum(sizes)
        flat = rows * self.numbers
        self.net = ResidualMLP(flat, rows * self.blocks, flat, config.width, config.depth, 2.0)
        of = torch.repeat_interleave(torch.arange(self.blocks), torch.tensor(list(sizes)))
        self.register_buffer("of", of)
        apart = (torch.arange(rows) - torch.arange(rows)[:, None]).float()
        near = NEARER ** apart.abs()
        # Sums over near rows of 1, the way to them, and its square.
        self.register_buffer("moments", torch.stack([near, near * apart, near * apart**2]))

    def denoise(
        self, noisy: Float[Tensor, "b w k"], level: Float[Tensor, "b w j"]
    ) -> Float[Tensor, "b w k"]:
        """What is behind windows whose blocks are noisy by ``level``: a straight line through near
        rows, and what was learned to add to it.
        """
        clear = 1.0 - level[..., self.get_buffer("of")]
        added = self.net((clear * noisy).flatten(1), level.flatten(1)).view_as(noisy)
        zeroth, first, second = self.get_buffer("moments")
        weight = clear**4
        s0, s1, s2 = zeroth @ weight + TINY, first @ weight, second @ weight + FLAT
        t0, t1 = zeroth @ (weight * noisy), first @ (weight * noisy)
        return (s2 * t0 - s1 * t1) / (s0 * s2 - s1 * s1) + added

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """Of trusted blocks that got noise; few large errors count less (Huber)."""
        x = batch.observations[INPUT][:, 0].view(-1, self.rows, self.numbers)
        trusted = batch.actions[:, 0].view(-1, self.rows, self.blocks)
        # As they are (half of them), wholly unknown (a fifth), or in between.
        draw = torch.rand(trusted.shape, generator=rng).to(x.device)
        level = ((draw - 0.5) / 0.3).clamp(0.0, 1.0)
        level = torch.where(trusted > 0, level, torch.ones_like(level))
        s = level[..., self.get_buffer("of")]
        noise = torch.randn(x.shape, generator=rng).to(x.device)
        said = self.denoise((1 - s**2).sqrt() * x + s * noise, level)
        asked = ((level > 0) & (trusted > 0)).to(x.dtype)[..., self.get_buffer("of")]
        wrong = functional.huber_loss(said, x, reduction="none", delta=0.1)
        return Losses({"model": (wrong * asked).sum() / asked.sum().clamp(min=1.0)}, {})


class Denoiser:
    """Trained on episodes ``[T, k]`` of numbers of unit size; says which blocks of which rows are
    wrong, and what they should be.
    """

    def __init__(
        self, episodes: Sequence[Rows], sizes: Sequence[int], config: DenoiserConfig
    ) -> None:
        self._config, self._sizes = config, tuple(sizes)
        self._windows = np.concatenate([self._around(e) for e in episodes]).astype(np.float32)
        self._inside = np.concatenate([self._here(len(e)) for e in episodes])
        self._rows = np.concatenate(episodes)
        self._starts = np.cumsum([0, *map(len, episodes)])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(child_seed(config.seed, "weights"))
            self._model = WindowDenoiser(config, 2 * config.half + 1, sizes)
        self.wrong: Marks = np.zeros((len(self._rows), len(self._sizes)), dtype=np.bool_)
        for round_ in range(2):
            trusted = self._trusted()
            size, shape = len(trusted), (len(trusted), -1)
            batches = RowBatches(
                self._windows.reshape(size, -1),
                trusted.reshape(shape).astype(np.float32),
                config.batch_size,
                child_seed(config.seed, "round", round_),
            )
            fitted(self._model, batches, config.updates, config.seed)
            self._find()

    def recovered(self, episode: int) -> tuple[Rows, Marks]:
        """Rows of an episode with what is wrong replaced, and what that was."""
        at = slice(int(self._starts[episode]), int(self._starts[episode + 1]))
        wrong = self.wrong[at]
        spread = np.repeat(wrong, self._sizes, axis=1)
        return np.where(spread, self.predicted[at], self._rows[at]), wrong

    def _find(self) -> None:
        """Mark what stands out, the worst of each neighbourhood first: what is wrong spoils what
        is said of its neighbours, until it is left out.
        """
        for _ in range(self._config.sweeps):
            self.predicted = self._predict()
            excess = self._excess()
            accused = np.where(self.wrong, 0.0, excess)
            fresh = (accused > 1.0) & (accused >= self._around_worst(accused))
            if not fresh.any():
                break
            self.wrong = self.wrong | fresh
        self.predicted = self._predict()
        # What was accused for its neighbours' sake is cleared.
        self.wrong = self._excess() > 1.0

    def _excess(self) -> Residuals:
        """Residuals in parts of the largest that is no wonder for a block of this kind."""
        off = np.abs(self.predicted - self._rows)
        first = np.cumsum([0, *self._sizes])
        residual: Residuals = np.stack(
            [np.sqrt((off[:, a:b] ** 2).mean(axis=1)) for a, b in itertools.pairwise(first)],
            axis=1,
        )
        excess = np.empty_like(residual)
        beside = self._known_beside()
        for j in range(residual.shape[1]):
            # Without a row beside it that is known nobody can say: it stays what it is taken for.
            excess[:, j] = np.where(self.wrong[:, j], np.inf, 0.0)
            for count in (1, 2):
                rows = beside[:, j] == count
                known = residual[rows & ~self.wrong[:, j], j]
                most = self._most(known if known.size >= FEW else residual[:, j])
                excess[rows, j] = residual[rows, j] / most
        return excess

    def _most(self, residual: Float64[NDArray[np.float64], " r"]) -> float:
        """The largest residual that is no wonder among these; what is wrong has spoilt most of
        those beside it as well, so the smallest quarter says how large they are.
        """
        usual = float(np.quantile(residual, 0.25)) / QUARTER
        return max(self._config.beyond * usual, self._config.at_least)

    def _known_beside(self) -> NDArray[np.int64]:
        """How many of the two rows beside each one are known: with fewer, more is no wonder."""
        trusted, middle = self._trusted(), self._config.half
        return trusted[:, middle - 1].astype(np.int64) + trusted[:, middle + 1]

    def _around_worst(self, excess: Residuals) -> Float64[NDArray[np.float64], "t 1"]:
        """The largest of a row and the rows beside it."""
        worst = np.pad(excess.max(axis=1), 1)
        return np.max([worst[:-2], worst[1:-1], worst[2:]], axis=0)[:, None]

    def _predict(self) -> Rows:
        """Every block of every row by all the others that are not wrong."""
        middle, unknown = self._config.half, ~self._trusted()
        first = np.cumsum([0, *self._sizes])
        said = np.empty_like(self._rows)
        with torch.no_grad():
            for begin in range(0, len(said), AT_A_TIME):
                at = slice(begin, begin + AT_A_TIME)
                windows = torch.from_numpy(self._windows[at])
                for j, (a, b) in enumerate(itertools.pairwise(first)):
                    level = unknown[at].astype(np.float32)
                    level[:, middle, j] = 1.0
                    found = self._model.denoise(windows, torch.from_numpy(level))
                    said[at, a:b] = found[:, middle, a:b].double().numpy()
        return said

    def _trusted(self) -> Bool[NDArray[np.bool_], "t w j"]:
        """Of every window: blocks that are there and not wrong."""
        offsets = np.arange(-self._config.half, self._config.half + 1)
        rows = np.clip(np.arange(len(self._rows))[:, None] + offsets, 0, len(self._rows) - 1)
        return self._inside[:, :, None] & ~self.wrong[rows]

    def _around(self, rows: Rows) -> Float64[NDArray[np.float64], "t w k"]:
        return rows[np.clip(self._indices(len(rows)), 0, len(rows) - 1)]

    def _here(self, steps: int) -> Bool[NDArray[np.bool_], "t w"]:
        """Rows of the windows that are rows of the episode."""
        at = self._indices(steps)
        return (at >= 0) & (at < steps)

    def _indices(self, steps: int) -> NDArray[np.int64]:
        half = self._config.half
        return np.arange(steps)[:, None] + np.arange(-half, half + 1)
