"""Practises a diffusion policy by PPO over its denoising steps: DPPO (Ren et al. 2024).

    x_{k+1} ~ N( mean of DDIM's step from x_k,  max(eta s_k, floor)^2 ),     k = 0 (noise) .. K-1
    rho_k = exp( mean over numbers of log p_k - log p_k,then )                       of every step
    policy: -E[ mean_k min( rho_k w_k A, clip(rho_k, 1 - c_k, 1 + c_k) w_k A ) ]
    w_k = g_den^(K-1-k),   c_k = c_0 + (c - c_0) (e^(r k/(K-1)) - 1) / (e^r - 1)

arXiv 2409.00588: each denoising step is a decision of its own with a Gaussian that is known. Early
steps, which say least about the action, weigh less and may change less. ``s_k`` is DDIM's own at
eta = 1, which is DDPM's posterior; the floor keeps practice going at the last steps, where that is
0. Deployed it samples as the parent does.

All steps of the sampler are learned, by one network, as in the paper's DDIM runs (5 of 5): give a
parent with few steps. The paper's other case, the last 10 of 20 DDPM steps with a frozen network
before them, would leave a policy of two networks. Clamp of densities, discount, clip range and
floor are as read in the authors' configuration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from policies.chunks.base import ChunkModel
from policies.critics.denoising.chain import Chain
from policies.critics.denoising.policy_gradient import PolicyGradient, PolicyGradientConfig
from policies.imitation.diffusion import DiffusionModel, scheduler
from policies.nets.shapes import ChainDensities, Chunks, Context, RatioRows, RatioWeights, StepRows
from robolearn.errors import ConfigError

CLIP_RATE = 3.0
"""r: how unevenly the clip range grows over the steps. DPPO: 3."""


@dataclass(frozen=True, slots=True)
class DppoConfig(PolicyGradientConfig):
    """Policy gradients through the steps of a diffusion."""

    name: ClassVar[str] = "dppo"

    # Share of DDIM's own noise while practising. DPPO: 1.
    eta: float = 1.0
    # Least deviation of a step, in normalised actions. DPPO: .1.
    floor: float = 0.1
    # Discount of advantages from the last step backwards. DPPO: .99; .9 from pixels [unverified].
    step_discount: float = 0.99
    # Clip range of the first, noisiest step; ``clip`` is that of the last. DPPO: .001.
    first_clip: float = 0.001
    # What the density of one number is clamped to. DPPO: -5 to 2.
    density: tuple[float, float] = (-5.0, 2.0)

    def __post_init__(self) -> None:
        PolicyGradientConfig.__post_init__(self)
        if not self.floor > 0 or not self.eta >= 0:
            raise ConfigError(
                f"expected floor above 0 and eta at least 0, got {self.floor}, {self.eta}: without"
                " noise a chain has no density"
            )
        if not 0.0 < self.step_discount <= 1.0 or not 0.0 < self.first_clip <= self.clip:
            raise ConfigError("step_discount in (0, 1] and first_clip in (0, clip]")
        if not self.density[0] < self.density[1]:
            raise ConfigError(f"density must rise, got {self.density}")

    def algorithm(self) -> type[Dppo]:
        """What trains it."""
        return Dppo

    def chain(self, model: ChunkModel, where: str) -> NoisyDenoising:
        """DDIM's steps."""
        if not isinstance(model, DiffusionModel) or model.config.sampler == "dpmsolver++":
            raise ConfigError(
                f"'{where}' does not sample by DDPM or DDIM ({type(model).__name__}); dppo"
                " practises a diffusion policy that does, and reinflow a flow"
            )
        return NoisyDenoising(self, model)


class NoisyDenoising(Chain):
    """Denoising steps of DDIM (Song et al. 2021, equation 12) with noise behind each."""

    def __init__(self, config: DppoConfig, model: DiffusionModel) -> None:
        super().__init__(model, model.config.sampler_steps)
        self._denoiser = (model,)
        said = model.config
        schedule = scheduler(said)
        schedule.set_timesteps(said.sampler_steps)
        self.levels = [int(level) for level in schedule.timesteps]
        kept = schedule.alphas_cumprod
        self._coefficients: list[tuple[float, float, float, float]] = []
        for level in self.levels:
            after = level - said.levels // said.sampler_steps
            now = float(kept[level])
            then = float(kept[after]) if after >= 0 else float(schedule.final_alpha_cumprod)
            own = config.eta * math.sqrt(max(0.0, (1 - then) / (1 - now) * (1 - now / then)))
            # How much of the noise estimate remains is DDIM's; the floor comes on top.
            rest = math.sqrt(max(0.0, 1 - then - own**2))
            self._coefficients.append((now, math.sqrt(then), rest, max(own, config.floor)))

    def step(self, x: Chunks, number: int, context: Context) -> tuple[Chunks, Chunks]:
        """Where DDIM goes, and the noise behind it."""
        model, said = self._denoiser[0], self._denoiser[0].config
        now, share, rest, deviation = self._coefficients[number]
        alpha, sigma = math.sqrt(now), math.sqrt(1 - now)
        level = x.new_full((len(x),), float(self.levels[number]))
        answer = model.predict(x, level, context)
        rows = x.new_ones(len(x), 1, 1)
        clean = model.estimate(x, answer, alpha * rows, sigma * rows)
        noise = (x - alpha * clean) / sigma
        if said.clip > 0:
            clean = clean.clamp(-said.clip, said.clip)
            if said.sampler == "ddpm":
                noise = (x - alpha * clean) / sigma
        mean = share * clean + rest * noise
        return mean, torch.full_like(mean, deviation)


class Dppo(PolicyGradient[DppoConfig]):
    """Trains the denoising network and values."""

    def log_prob(self, densities: ChainDensities) -> StepRows:
        """Clamped, so that no single number decides."""
        return super().log_prob(densities.clamp(*self.config.density))

    def change(self, log_ratio: StepRows) -> tuple[RatioRows, RatioWeights, RatioWeights]:
        """A ratio for every step."""
        c, count = self.config, log_ratio.shape[1]
        number = torch.arange(count, device=log_ratio.device, dtype=log_ratio.dtype)
        weight = c.step_discount ** (count - 1 - number)
        share = torch.expm1(CLIP_RATE * number / max(1, count - 1)) / math.expm1(CLIP_RATE)
        share = share if count > 1 else torch.ones_like(share)
        return log_ratio, weight, c.first_clip + (c.clip - c.first_clip) * share
