"""What `robolearn train` feeds a network with, by the experiment file alone: how often every window
is drawn, and the very values, against arithmetic on the stores.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data.episode import EpisodeMeta, episode_from_arrays
from robolearn.data.store.store import EpisodeStore
from robolearn.learning import Batch
from robolearn.spec import EmbodimentSpec
from robolearn.training.loop import FitResult
from robolearn.types import Condition, Outcome
from tests.learning_mocks import BLOCK, SPACE, TOOL

CONFIG = """
policy: flow
data:
  observations: [tool/xy_table, block/pose]
  stores:
    - {{path: {0}/sim, weight: 1.0}}
    - {{path: {0}/real, weight: 3.0}}
  normalization: {{tool/xy_table: quantile}}
  latency_s: {{block/pose: 0.25}}
  quality: {{success: 3.0, score_power: 1.0}}
  idle: {{threshold: 0.0, steps: 5}}
algorithm: {{n_obs: 1, horizon: 2, execute: 1, width: 8, blocks: 1, batch_size: 64, net: mlp}}
fit: {{steps: 2, warmup: 1}}
"""
STEPS = 20


def add(path: Path, outcomes: tuple[tuple[bool, float], ...], first: int) -> None:
    """Episodes whose tool is at 0.1 + 0.01 k + 0.0001 t, so that a value names its window; the
    last eight actions of every episode repeat one.
    """
    store = EpisodeStore.create(path)
    with store.writer() as writer:
        for k, (success, score) in enumerate(outcomes, first):
            t = np.arange(STEPS)
            tool = np.stack([0.1 + 0.01 * k + 1e-4 * t, np.full(STEPS, 0.2)], axis=1)
            actions = tool + 0.01
            actions[12:] = actions[12]
            block = np.stack([tool[:, 0] + 0.2, tool[:, 1], np.zeros(STEPS)], axis=1)
            meta = EpisodeMeta(
                kind="demonstration",
                task="pusht",
                embodiment=EmbodimentSpec("mock", SPACE.observations, SPACE.actions, 10.0),
                condition=Condition(f"c{k}", k, {}),
                outcome=Outcome(success, score, score, truncated=not success, reason="time_limit"),
            )
            seen = {TOOL: tool, BLOCK: block}
            writer.append(
                episode_from_arrays(meta, seen, {TOOL: actions}, progress=score * t / t[-1])
            )


@pytest.fixture
def fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """200 batches of the experiment, taken where the loop would take them."""
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    add(tmp_path / "sim", ((True, 1.0), (False, 0.5)), 0)
    add(tmp_path / "real", ((False, 1.0), (False, 0.25), (True, 0.75)), 2)
    (tmp_path / "x.yaml").write_text(CONFIG.format(tmp_path))
    taken: list[Any] = []

    def fit(algorithm: Any, batches: Any, config: Any, out: Path, **more: Any) -> FitResult:
        del config, more
        from robolearn.training.run_directory import write_tensors

        taken.extend(batches.batch(i) for i in range(200))
        write_tensors(out / "weights.safetensors", algorithm.policy_weights(), {})
        return FitResult(0, 0.0, 0.0, {}, 0.0)

    monkeypatch.setattr("robolearn.training.experiment.fit", fit)
    told = ["train", "--config", str(tmp_path / "x.yaml"), "--out", str(tmp_path / "run")]
    assert main([*told, "--json"]) == 0
    return taken


def test_windows_are_drawn_as_often_as_the_file_says(fed: list[Batch]) -> None:
    """A share of 1/4 and 3/4 by store; within a store by success x 3 and score; pauses never."""
    x = np.concatenate([b.observations[TOOL][:, 0, 0].numpy() for b in fed])
    place = np.rint((x.astype(np.float64) - 0.1) * 1e4).astype(int)
    episode, tick = place // 100, place % 100
    total = len(place)
    weights = {0: 3 * 1.0, 1: 0.5, 2: 1.0, 3: 0.25, 4: 3 * 0.75}
    shares = {}
    for store, share in (((0, 1), 0.25), ((2, 3, 4), 0.75)):
        for k in store:
            shares[k] = share * weights[k] / sum(weights[j] for j in store)
    for k, wanted in shares.items():
        assert (episode == k).mean() == pytest.approx(wanted, abs=0.02), k
    # Actions 12 to 19 are one: from 13 on nothing moves for seven steps.
    drawn = Counter(tick.tolist())
    assert sorted(drawn) == list(range(13))
    assert max(drawn.values()) / total < 1.25 / 13
    assert min(drawn.values()) / total > 0.75 / 13


def test_a_late_signal_and_the_stored_scaling(fed: list[Batch], tmp_path: Path) -> None:
    """At 10 Hz 0.25 s is three ticks, and never before the first; scaling is by the quantiles."""
    tool = np.concatenate([b.observations[TOOL][:, 0, 0].numpy() for b in fed]).astype(np.float64)
    block = np.concatenate([b.observations[BLOCK][:, 0, 0].numpy() for b in fed])
    tick = np.rint((tool - 0.1) * 1e4).astype(int) % 100
    late = tool + 0.2 - 1e-4 * np.minimum(tick, 3)
    np.testing.assert_allclose(block, late, atol=1e-6)
    actions = np.concatenate([b.actions[:, 0, 0].numpy() for b in fed])
    np.testing.assert_allclose(actions, tool + 0.01, atol=1e-6)
    stats = json.loads((tmp_path / "run" / "stats.json").read_text())
    assert stats["scaling"] == {TOOL: "quantile"}
    from policies.registry import load_policy

    codec: Any = load_policy(tmp_path / "run")
    codec = codec.model.codec
    low, high = (np.array(stats["actions"][TOOL][q]) for q in ("q01", "q99"))
    scale, offset = codec.scale.numpy(), codec.offset.numpy()
    np.testing.assert_allclose((low * scale + offset)[0], -1.0, atol=1e-3)
    np.testing.assert_allclose((high * scale + offset)[0], 1.0, atol=1e-3)
