"""What generative policies draw, against what they were shown: two modes of unequal weight, with a
width.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from policies.chunks.base import ChunkConfig
from policies.imitation.beso import BesoConfig
from policies.imitation.diffusion import DiffusionConfig
from policies.imitation.flow import FlowConfig
from policies.imitation.mean_flow import MeanFlowConfig
from policies.imitation.shortcut import ShortcutConfig
from policies.nets.chunk_net import ConvConfig
from robolearn.contracts import Policy
from robolearn.training.run_directory import load_run
from tests.learning_mocks import BLOCK, TOOL, ArraySource, random_request, random_source
from tests.policies.family import learn

LEFT, RIGHT, WIDTH, SHARE, STEPS, EPISODES = 0.1, 0.4, 0.015, 0.3, 4, 200
TOY: dict[str, Any] = {
    "n_obs": 1,
    "horizon": STEPS,
    "execute": 1,
    "width": 32,
    "blocks": 2,
    "lr": 3e-3,
    "ema": 0.98,
    "batch_size": 128,
    "conv": ConvConfig((16, 32), kernel=3),
}
DIFFUSION: dict[str, Any] = {"levels": 20, "sampler": "ddpm", "sampler_steps": 20, "clip": 1.0}
# How each of the samplers is asked: steps, and the largest estimate.
SAMPLERS: tuple[tuple[str, int, float], ...] = (
    ("ddpm", 20, 1.0),
    ("ddim", 10, 1.0),
    ("dpmsolver++", 10, 0.0),
)


def places(count: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    mode = np.where(rng.random(count) < SHARE, LEFT, RIGHT)
    return np.clip(mode + WIDTH * rng.standard_normal(count), 0.02, 0.49)


def mixture(episodes: int = EPISODES) -> ArraySource:
    """Every episode stays at one place; what is observed says nothing."""
    items = random_source((STEPS,) * episodes).items
    seen = {TOOL: np.full((STEPS, 2), 0.25), BLOCK: np.full((STEPS, 3), 0.25)}
    return ArraySource(
        tuple(
            dataclasses.replace(
                e, observations=seen, actions=np.tile([x, 0.25], (STEPS, 1)), reward=e.reward
            )
            for e, x in zip(items, places(episodes, 0), strict=True)
        )
    )


def assert_drawn_from_the_mixture(policy: Policy, within: float = 0.04) -> None:
    """By the distance that probability must be moved [m]; a mode too light by a tenth is 0.03."""
    request = random_request(400, 1, seed=5)
    same = {k: np.full_like(v, 0.25) for k, v in request.observations.items()}
    drawn = policy.sample(dataclasses.replace(request, observations=same)).actions[:, 0, :, 0]
    found = drawn.mean(axis=1)
    near = np.minimum(np.abs(found - LEFT), np.abs(found - RIGHT)) < 4 * WIDTH
    apart = float(wasserstein_distance(found, places(EPISODES, 0)))
    assert near.mean() > 0.85, (near.mean(), apart)
    assert apart < within, (near.mean(), apart)
    assert np.abs(drawn - found[:, None]).mean() < 0.02


def trained(config: ChunkConfig, folder: Path, steps: int = 300) -> Policy:
    return learn(config, mixture(), folder, steps)


@pytest.mark.parametrize(
    ("prediction", "net"),
    [
        ("epsilon", "mlp"),
        *(
            pytest.param(p, net, marks=pytest.mark.slow)
            for p, net in (
                *(("sample", "mlp"), ("v_prediction", "mlp")),
                *(("sample", "unet"), ("v_prediction", "dit")),
            )
        ),
    ],
)
def test_diffusion_draws_what_it_was_shown(prediction: str, net: str, tmp_path: Path) -> None:
    """One network by all samplers."""
    config = DiffusionConfig(**TOY, **DIFFUSION, prediction=prediction, net=net)  # type: ignore[arg-type]
    trained(config, tmp_path)
    run = load_run(tmp_path / "diffusion")
    for sampler, steps, clip in SAMPLERS:
        if prediction == "epsilon" and clip == 0.0:
            continue  # Spreads without a limit to what is estimated: docs/policies.md.
        changed: Any = dataclasses.replace(
            config,
            sampler=sampler,  # type: ignore[arg-type]
            sampler_steps=steps,
            clip=clip,
        )
        assert_drawn_from_the_mixture(changed.load(run))


@pytest.mark.parametrize(
    ("times", "net"),
    [
        (("logit_normal", (-0.4, 1.0)), "mlp"),
        *(
            pytest.param(("uniform", (0.0, 1.0)), net, marks=pytest.mark.slow)
            for net in ("mlp", "unet", "dit", "mixer")
        ),
        pytest.param(("beta", (1.0, 1.5)), "mlp", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_flow_draws_what_it_was_shown(times: Any, net: Any, tmp_path: Path) -> None:
    kind, parameters = times
    config = FlowConfig(
        **TOY, times=kind, time_parameters=parameters, time_shift=1.0, sampler_steps=8, net=net
    )
    assert_drawn_from_the_mixture(trained(config, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "within"),
    [
        (ShortcutConfig(**TOY, sampler_steps=4), 0.04),
        (BesoConfig(**TOY), 0.04),
        # Both modes, but one of them too often by a quarter after so little training.
        (MeanFlowConfig(**TOY), 0.1),
    ],
    ids=("shortcut", "beso", "mean_flow"),
)
def test_the_others_draw_what_they_were_shown(
    config: ChunkConfig, within: float, tmp_path: Path
) -> None:
    assert_drawn_from_the_mixture(trained(config, tmp_path, 500), within)
