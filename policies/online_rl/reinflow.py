"""Practises a flow policy by noise on its own Euler steps: ReinFlow (Zhang et al. 2025).

    x_{k+1} ~ N( x_k + v(x_k, t_k, o) dt_k,  s_k(o)^2 ),   s_k: learned, between two limits
    rho = exp( mean over steps and numbers of log p - log p_then )                the whole chain's
    policy: -E[ min( rho A, clip(rho, 1 - c, 1 + c) A ) ] - entropy mean log s + cloning |...|^2

arXiv 2505.22094: noise makes a few deterministic steps a Markov chain whose density is known
exactly, whatever their number, so that one step suffices as well as four. How much noise where is
learned with the velocity (``critics/denoising/policy_gradient.py``), and dropped when it is
deployed: what remains is a flow policy. Parents that jump (``shortcut``, ``mean_flow``) have steps
of the same form.

Read in the authors' code: the joint density with optional means over steps and numbers (that both
are on is [unverified]), tanh between limits of the logarithm of the variance, the squared distance
to the parent from the same noise, clip .01 and .001 from pixels. Theirs is of the whole chunk; here
of what is executed. Limits of the noise are per task there (.10 to .24 in Hopper).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import nn

from policies.chunks.base import ChunkModel, FieldModel
from policies.chunks.sampler_steps import Step
from policies.critics.actor_critic import mlp
from policies.critics.denoising.chain import Chain
from policies.critics.denoising.policy_gradient import PolicyGradient, PolicyGradientConfig
from policies.nets.shapes import (
    ChainDensities,
    Chunks,
    Context,
    RatioRows,
    RatioWeights,
    Scalar,
    StepRows,
)
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ReinflowConfig(PolicyGradientConfig):
    """Policy gradients through the steps of a flow."""

    name: ClassVar[str] = "reinflow"

    # Least deviation of a step's noise, in normalised actions. ReinFlow: .10 in Hopper.
    least_noise: float = 0.05
    # Largest one. ReinFlow: .24 in Hopper.
    most_noise: float = 0.15
    # Weight of the mean logarithm of deviations. ReinFlow: .03; 0 from pixels.
    entropy: float = 0.03
    # Hidden units of a layer of what says the noise.
    noise_width: int = 64
    # Its hidden layers.
    noise_depth: int = 2

    def __post_init__(self) -> None:
        PolicyGradientConfig.__post_init__(self)
        if not 0.0 < self.least_noise <= self.most_noise:
            raise ConfigError(
                f"expected 0 < least_noise <= most_noise, got {self.least_noise},"
                f" {self.most_noise}: without noise a chain has no density"
            )
        if not self.entropy >= 0 or min(self.noise_width, self.noise_depth) < 1:
            raise ConfigError("entropy at least 0, noise_width and noise_depth at least 1")

    def algorithm(self) -> type[Reinflow]:
        """What trains it."""
        return Reinflow

    def chain(self, model: ChunkModel, where: str) -> NoisyFlow:
        """Its Euler steps."""
        if not isinstance(model, FieldModel) or not isinstance(model, Stepped):
            raise ConfigError(
                f"'{where}' has no steps along a velocity ({type(model).__name__}); reinflow"
                " practises flow, shortcut and mean_flow, and dppo diffusion"
            )
        return NoisyFlow(self, model, model.euler())


@runtime_checkable
class Stepped(Protocol):
    """A model that samples by Euler steps."""

    def euler(self) -> tuple[Step, ...]:
        """The steps from noise to a chunk."""
        ...


class NoisyFlow(Chain):
    """Euler steps with noise behind each."""

    def __init__(self, config: ReinflowConfig, model: FieldModel, euler: tuple[Step, ...]) -> None:
        super().__init__(model, len(euler))
        self._flow, self._euler = (model,), euler
        self.noise = StepNoise(config, model, len(euler))

    def step(self, x: Chunks, number: int, context: Context) -> tuple[Chunks, Chunks]:
        """One Euler step, and the noise behind it."""
        mean = self._flow[0].integrate(x, (self._euler[number],), context)
        return mean, self.noise(context, number)


class StepNoise(nn.Module):
    """The deviation of every number of a chunk, by what is seen and by the step."""

    def __init__(self, config: ReinflowConfig, model: FieldModel, steps: int) -> None:
        super().__init__()
        self.shape = (model.horizon, model.action_size)
        self.limits = tuple(
            float(v) for v in torch.tensor([config.least_noise, config.most_noise]).log()
        )
        outputs = model.horizon * model.action_size
        self.net = mlp(model.context_size + steps, outputs, config.noise_width, config.noise_depth)
        last = self.net[-1]
        if isinstance(last, nn.Linear):
            # In the middle between the limits at first.
            nn.init.zeros_(last.weight)
        self.register_buffer("numbers", torch.eye(steps), persistent=False)

    def forward(self, context: Context, number: int) -> Chunks:
        """``[b, h, a]``; what is seen is not learned by it."""
        which = self.get_buffer("numbers")[number].expand(len(context), -1)
        u = torch.tanh(self.net(torch.cat([context.detach(), which], dim=-1)))
        low, high = self.limits
        return (low + (high - low) * (u + 1) / 2).exp().unflatten(1, self.shape)


class Reinflow(PolicyGradient[ReinflowConfig]):
    """Trains velocity, noise and values."""

    def change(self, log_ratio: StepRows) -> tuple[RatioRows, RatioWeights, RatioWeights]:
        """One ratio: the chain's."""
        joint = log_ratio.mean(dim=1, keepdim=True)
        one = joint.new_ones(1)
        return joint, one, self.config.clip * one

    def regulariser(self, spread: ChainDensities) -> Scalar | float:
        """Noise does not die out by itself."""
        return -self.config.entropy * spread[:, :, : self.config.stride].mean()
