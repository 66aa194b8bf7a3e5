"""Learns diffusion over action chunks (Chi et al. 2023) with the schedulers of ``diffusers``.

    x_k = alpha_k a + sigma_k eps,   alpha_k^2 + sigma_k^2 = 1,   k = 0 (nearly data) .. K-1 (noise)
    epsilon:      loss = |net(x_k, k, o) - eps|^2
    sample:       loss = |net(x_k, k, o) - a|^2
    v_prediction: loss = |net(x_k, k, o) - (alpha_k eps - sigma_k a)|^2    (Salimans and Ho 2022)

Chunks are drawn by DDPM (as ancestral sampling is DDIM with eta = 1), DDIM or DPM-Solver++.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from policies.chunks.base import (
    EncodedBatch,
    FieldAlgorithm,
    FieldConfig,
    randn,
    uniform,
)
from policies.chunks.prefix import PrefixModel, check_max_prefix, draw_prefix, marked
from policies.nets.shapes import ChunkMask, Chunks, Context, Noise, Rows, RowsOneOne, StepTimes
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Losses

Prediction = Literal["epsilon", "sample", "v_prediction"]
Sampler = Literal["ddpm", "ddim", "dpmsolver++"]
BetaSchedule = Literal["linear", "scaled_linear", "squaredcos_cap_v2"]


@dataclass(frozen=True, slots=True)
class DiffusionConfig(FieldConfig):
    """Diffusion policy."""

    # Levels of noise in training.
    levels: int = 100
    # How noise grows over the levels.
    schedule: BetaSchedule = "squaredcos_cap_v2"
    # What the network predicts. With few steps epsilon is unstable where nearly all is noise.
    prediction: Prediction = "v_prediction"
    # How chunks are drawn.
    sampler: Sampler = "ddim"
    # Network calls per chunk.
    sampler_steps: int = 4
    # Estimates of normalised actions are clipped to this (ddpm and ddim); 0: not at all. Only
    # minmax without an anchor is bounded, by 1.
    clip: float = 0.0
    # Up to so many first actions are given clean in training, so that a chunk continues what is
    # being executed without guidance (policies/chunks/prefix.py); 0: none.
    max_prefix: int = 0

    def __post_init__(self) -> None:
        FieldConfig.__post_init__(self)
        if not 1 <= self.sampler_steps <= self.levels:
            raise ConfigError(
                f"sampler_steps must be in 1..levels={self.levels}, got {self.sampler_steps}"
            )
        if self.clip < 0 or (self.clip > 0 and self.sampler == "dpmsolver++"):
            raise ConfigError(
                f"clip must be at least 0, and 0 with dpmsolver++ (it cannot clip), got {self.clip}"
            )
        check_max_prefix(self.max_prefix, self.horizon)

    def algorithm(self) -> type[DiffusionAlgorithm]:
        """What trains it."""
        return DiffusionAlgorithm


class DiffusionModel(PrefixModel):
    """A denoising network and its schedule."""

    def __init__(self, config: DiffusionConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats, extra_inputs=int(config.max_prefix > 0))
        self.config, self.max_prefix = config, config.max_prefix
        self.draws = config.sampler_steps + 1 if config.sampler == "ddpm" else 1
        cumulative = scheduler(config).alphas_cumprod.float()
        self.register_buffer("alpha", cumulative.sqrt())
        self.register_buffer("sigma", (1 - cumulative).sqrt())
        # Where each level lies on the path (1 - t) noise + t data, scaled: noise to data.
        share = cumulative.sqrt() / (cumulative.sqrt() + (1 - cumulative).sqrt())
        self.register_buffer("share", share.flip(0))

    def predict(
        self, x: Chunks, level: Rows, context: Context, mask: ChunkMask | None = None
    ) -> Chunks:
        """The network's answer at ``level [b]``, which need not be whole; actions marked in
        ``mask [b, h, 1]`` (bool) are clean, and the answer about them means nothing.
        """
        shown = marked(x, mask) if self.max_prefix else x
        return self.raw(shown, (level / self.config.levels,), context)

    def estimate(self, x: Chunks, answer: Chunks, alpha: RowsOneOne, sigma: RowsOneOne) -> Chunks:
        """The action that an answer stands for; ``alpha`` and ``sigma`` ``[b, 1, 1]``."""
        if self.config.prediction == "epsilon":
            return (x - sigma * answer) / alpha
        if self.config.prediction == "sample":
            return answer
        return alpha * x - sigma * answer

    def velocity(self, x_t: Chunks, t: Rows, context: Context) -> Chunks:
        """The field between the noisiest and the cleanest level, and theirs beyond them."""
        share = self.get_buffer("share")
        t = t.clamp(float(share[0]), float(share[-1]))
        above = torch.searchsorted(share, t.contiguous()).clamp(1, len(share) - 1)
        low, high = share[above - 1], share[above]
        level = len(share) - above - (t - low) / (high - low)
        s = t[:, None, None]
        norm = (s**2 + (1 - s) ** 2).sqrt()
        x = x_t / norm
        clean = self.estimate(x, self.predict(x, level, context), s / norm, (1 - s) / norm)
        return (clean - x_t) / (1 - s)

    def times(self) -> StepTimes:
        """Times of the sampler's steps, from 0 to 1."""
        return torch.linspace(0.0, 1.0, self.config.sampler_steps + 1, device=self.device)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """Run the sampler from ``noise [b, draws, h, a]``."""
        return self._sampled(noise, context, None, noise[:, 0])

    def inpaint(self, noise: Noise, context: Context, mask: ChunkMask, prefix: Chunks) -> Chunks:
        """The sampler, with given actions put back after every step."""
        return self._sampled(noise, context, mask, prefix)

    def _sampled(
        self, noise: Tensor, context: Tensor, mask: Tensor | None, prefix: Tensor
    ) -> Tensor:
        """Actions marked in ``mask`` stay as in ``prefix [b, h, a]``."""
        sampler = scheduler(self.config)
        sampler.set_timesteps(self.config.sampler_steps, device=self.device)
        x = noise[:, 0] if mask is None else torch.where(mask, prefix, noise[:, 0])
        for i, level in enumerate(sampler.timesteps):
            levels = level.to(x.dtype).expand(x.shape[0])
            answer = self.predict(x, levels, context, mask)
            more: dict[str, Any] = {}
            if self.config.sampler == "ddpm":
                more = {
                    "eta": 1.0,
                    "use_clipped_model_output": self.config.clip > 0,
                    "variance_noise": noise[:, i + 1],
                }
            x = sampler.step(answer, level, x, return_dict=False, **more)[0]
            if mask is not None:
                x = torch.where(mask, prefix, x)
        return x


def scheduler(config: DiffusionConfig) -> Any:
    """The configured scheduler of ``diffusers``, imported here because that takes seconds."""
    shared: dict[str, Any] = {
        "num_train_timesteps": config.levels,
        "beta_start": 1e-4,
        "beta_end": 0.02,
        "beta_schedule": config.schedule,
        "prediction_type": config.prediction,
        "timestep_spacing": "trailing",
    }
    if config.sampler == "dpmsolver++":
        from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler

        return DPMSolverMultistepScheduler(**shared)
    from diffusers.schedulers.scheduling_ddim import DDIMScheduler

    clip = {"clip_sample": config.clip > 0, "clip_sample_range": config.clip or 1.0}
    return DDIMScheduler(**shared, **clip)


class DiffusionAlgorithm(FieldAlgorithm[DiffusionConfig, DiffusionModel]):
    """Trains the denoising network."""

    name = "diffusion"
    model_class = DiffusionModel

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """The squared error of the prediction."""
        model, actions = self.model, encoded.actions
        level = (self.config.levels * uniform(len(actions), rng, actions.device)).long()
        alpha, sigma = (model.get_buffer(n)[level][:, None, None] for n in ("alpha", "sigma"))
        eps = randn(actions, rng)
        x, mask = alpha * actions + sigma * eps, None
        if self.config.max_prefix:
            mask = draw_prefix(actions, self.config.max_prefix, rng)
            x = torch.where(mask, actions, x)
            encoded = dataclasses.replace(encoded, weight=encoded.weight & ~mask)
        answer = model.predict(x, level.float(), encoded.context, mask)
        target = wanted(self.config.prediction, actions, eps, alpha, sigma)
        return Losses({"diffusion": encoded.mean((answer - target) ** 2)}, {})


def wanted(
    prediction: Prediction, actions: Chunks, eps: Chunks, alpha: RowsOneOne, sigma: RowsOneOne
) -> Chunks:
    """What the network should answer at ``alpha actions + sigma eps``."""
    if prediction == "epsilon":
        return eps
    if prediction == "sample":
        return actions
    return alpha * eps - sigma * actions
