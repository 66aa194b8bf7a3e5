"""What the data section of an experiment can ask for, from the store to the trained policy."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.nets.transforms import fit_transform
from policies.registry import load_policy
from robolearn.cli.main import main
from robolearn.contracts import PolicySpec
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.pictures import PictureConfig
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.reading.weighting import (
    EpisodeQuality,
    IdleConfig,
    QualityConfig,
    idle_rows,
    row_weights,
)
from robolearn.data.store.stats import signal_stats
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.learning import Batch, BatchSpec
from robolearn.representation import Representation, RepresentationConfig, RepresentedPolicy
from robolearn.training.batch_loader import represented, represented_stats
from robolearn.training.pictures import Augmented, vary
from robolearn.types import PolicyInput, PolicyOutput
from tests.learning_mocks import BLOCK, SPACE, TOOL, random_flat, random_request
from tests.robolearn.cli.learning.test_train import add

CONFIG = """
policy: flow
data:
  observations: [tool/xy_table, block/pose]
  held_out: 0.4
  representation: {actions: {tool/xy_table: relative}}
  normalization: {tool/xy_table: quantile}
  quality: {success: 3.0, score_power: 1.0}
  idle: {threshold: 0.0}
algorithm: {horizon: 4, execute: 2, width: 16, blocks: 1, batch_size: 8}
fit: {steps: 6, warmup: 2, log_every: 2, checkpoint_every: 6, held_out_every: 2}
"""


def store_of(tmp_path: Path, episodes: int = 3) -> EpisodeStore:
    store = EpisodeStore.create(tmp_path / "store")
    for i in range(episodes):
        add(store, f"e{i}", "demonstration", i)
    return EpisodeStore.open(tmp_path / "store")


def test_a_run_with_every_knob_trains_and_answers_in_si_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    store_of(tmp_path)
    (tmp_path / "x.yaml").write_text(CONFIG)
    words = ["--config", f"{tmp_path}/x.yaml", "--store", f"{tmp_path}/store"]
    assert main(["train", *words, "--out", f"{tmp_path}/run"]) == 0
    assert "held_out/flow" in capsys.readouterr().out
    rows = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [("held_out/flow" in row) for row in rows] == [True, True, True]
    stats = json.loads((tmp_path / "run/stats.json").read_text())
    assert stats["scaling"] == {TOOL: "quantile"}
    # The statistics are those of relative actions: a step or four of about a centimetre.
    assert max(stats["actions"][TOOL]["std"]) < 0.05
    policy = load_policy(tmp_path / "run")
    assert isinstance(policy, RepresentedPolicy)
    assert policy.spec.task_space.actions[0].high == (0.512, 0.512)
    request = random_request(3)
    output = policy.sample(request, 2)
    assert output.actions.shape == (3, 2, 4, 2)
    newest = request.observations[TOOL][:, -1]
    assert np.abs(output.actions - newest[:, None, None]).max() < 0.3
    # It can be resumed, and is then the same experiment.
    assert main(["train", *words, "--out", f"{tmp_path}/run", "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reused"]


class Recorded:
    """Answers with the chunk that was recorded, as the network would see it."""

    def __init__(self, spec: PolicySpec, batch: Batch) -> None:
        self._spec, self._batch, self.prefix = spec, batch, None

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        for name, values in request.observations.items():
            np.testing.assert_array_equal(values, self._batch.observations[name].numpy())
        self.prefix = request.prefix
        actions = np.repeat(self._batch.actions.double().numpy()[:, None], n, axis=1)
        return PolicyOutput(actions, np.zeros(actions.shape[:2]), request.t_ns)


@pytest.mark.parametrize("kind", ["relative", "delta"])
def test_a_network_that_repeats_its_lesson_repeats_the_recording(kind: str) -> None:
    flat = random_flat()
    dataset = EpisodeDataset(flat, BatchSpec(2, 4, 8), seed=0)
    representation = Representation(RepresentationConfig({TOOL: kind}), SPACE)  # type: ignore[dict-item]
    plain = dataset.batch(0)
    lesson = represented(plain, representation)
    assert not torch.allclose(lesson.actions, plain.actions)
    inner = Recorded(PolicySpec(representation.inner, 2, 4, 2), lesson)
    policy = RepresentedPolicy(inner, representation)
    request = dataclasses.replace(
        random_request(8),
        observations={k: v.numpy().astype(np.float64) for k, v in plain.observations.items()},
        prefix=plain.actions.double().numpy(),
    )
    output = policy.sample(request, 2)
    for candidate in range(2):
        np.testing.assert_allclose(output.actions[:, candidate], plain.actions.numpy(), atol=1e-6)
    np.testing.assert_allclose(inner.prefix, lesson.actions.numpy(), atol=1e-6)
    stats = represented_stats(dataset, representation)
    assert stats.actions[TOOL].maximum[0] < dataset.stats().actions[TOOL].maximum[0]


def test_a_signal_that_arrives_late_is_seen_late(tmp_path: Path) -> None:
    store = store_of(tmp_path, 1)
    now = flatten(StoreSource(store, DataConfig((TOOL, BLOCK))))
    config = DataConfig((TOOL, BLOCK), latency_s={BLOCK: 0.25})
    source = StoreSource(store, config)
    late = flatten(source)
    assert source.content_hash != StoreSource(store, DataConfig((TOOL, BLOCK))).content_hash
    np.testing.assert_array_equal(now.observations[TOOL], late.observations[TOOL])
    # At 10 Hz, what is at least 0.25 s old is the sample of three ticks ago.
    np.testing.assert_array_equal(now.observations[BLOCK][:-3], late.observations[BLOCK][3:])
    np.testing.assert_array_equal(late.observations[BLOCK][0], now.observations[BLOCK][0])
    with pytest.raises(ConfigError, match="latency_s: expected an observation"):
        DataConfig((TOOL,), latency_s={BLOCK: 0.1})


def test_quantiles_ignore_an_outlier() -> None:
    data = np.concatenate([np.linspace(-1, 1, 999), [100.0]])[:, None]
    transform = fit_transform((1,), signal_stats(data), "quantile")
    low, high = transform.forward(np.array([[-1.0], [1.0]]))
    assert low == pytest.approx(-1.02, abs=0.02)
    assert high == pytest.approx(1.02, abs=0.02)
    assert transform.inverse(transform.forward(np.array([100.0]))) == pytest.approx(100.0)
    old = dataclasses.replace(signal_stats(data), q01=(), q99=())
    with pytest.raises(DataError, match="no quantiles"):
        fit_transform((1,), old, "quantile")


def test_windows_of_good_episodes_are_drawn_more_often() -> None:
    flat = random_flat((10, 10, 10))
    qualities = [EpisodeQuality(True, 1.0), EpisodeQuality(False, 0.5), EpisodeQuality(False, 0.0)]
    windows = np.arange(30)
    weights = row_weights(
        flat,
        windows,
        stores=None,
        quality=QualityConfig(success=4.0, score_power=1.0),
        qualities=qualities,
        idle=IdleConfig(),
    )
    assert weights is not None
    assert weights[[0, 10, 20]].tolist() == [4.0, 0.5, 0.0]
    dataset = EpisodeDataset(flat, BatchSpec(1, 2, 30), 0, None, weights)
    drawn = dataset.batch(0).observations[TOOL].numpy()[:, 0]
    assert not (drawn[:, None] == flat.observations[TOOL][20:]).all(-1).any()
    with pytest.raises(DataError, match="does not say how its episodes ended"):
        row_weights(
            flat,
            windows,
            stores=None,
            quality=QualityConfig(success=2.0),
            qualities=(),
            idle=IdleConfig(),
        )


def test_pauses_are_left_out_but_short_ones_and_starts_are_not() -> None:
    flat = random_flat((20, 20))
    actions = flat.actions.copy()
    actions[3:15] = actions[3]  # 11 steps that repeat the one before.
    actions[25:30] = actions[25]  # A pause of 4 steps.
    still = dataclasses.replace(flat, actions=actions)
    idle = idle_rows(still, IdleConfig(threshold=1e-9, steps=5))
    assert np.flatnonzero(idle).tolist() == list(range(4, 15))
    assert not idle_rows(still, IdleConfig()).any()
    frozen = dataclasses.replace(flat, actions=np.zeros_like(actions))
    with pytest.raises(DataError, match="no window is left"):
        row_weights(
            frozen,
            np.arange(1, 20),
            stores=None,
            quality=QualityConfig(),
            qualities=(),
            idle=IdleConfig(threshold=0.0, steps=5),
        )


class Pictured:
    def batch(self, step: int) -> Batch:
        rng = torch.Generator().manual_seed(step)
        pictures = torch.randint(0, 256, (6, 2, 12, 10, 3), generator=rng, dtype=torch.uint8)
        return Batch(
            {"top/image": pictures, TOOL: torch.zeros(6, 2, 2)},
            torch.zeros(6, 4, 2),
            torch.ones(6, 4, dtype=torch.bool),
        )


def test_pictures_are_varied_by_seed_and_batch_alone() -> None:
    config = PictureConfig(shift_px=3, brightness=0.2, contrast=0.2, saturation=0.3)
    plain = Pictured().batch(1).observations["top/image"]
    one, two = (Augmented(Pictured(), config, seed).batch(1).observations for seed in (0, 0))
    assert torch.equal(one["top/image"], two["top/image"])
    assert not torch.equal(one["top/image"], plain)
    assert not torch.equal(
        Augmented(Pictured(), config, 5).batch(1).observations["top/image"], one["top/image"]
    )
    rng = torch.Generator().manual_seed(0)
    assert torch.equal(vary(plain, PictureConfig(), rng), plain)


def test_a_shift_moves_all_pictures_of_a_window_alike() -> None:
    ramp = torch.arange(12, dtype=torch.uint8)[:, None, None].expand(12, 10, 3)
    pictures = ramp.expand(40, 2, 12, 10, 3).contiguous()
    moved = vary(pictures, PictureConfig(shift_px=2), torch.Generator().manual_seed(0))
    shifts = moved[:, :, 6, 5, 0].int() - 6
    assert torch.equal(shifts[:, 0], shifts[:, 1])
    assert set(shifts[:, 0].tolist()) == {-2, -1, 0, 1, 2}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PictureConfig(brightness=1.5), r"in \[0, 1\)"),
        (lambda: QualityConfig(success=-1.0), "success must be at least 0"),
        (lambda: IdleConfig(steps=0), "steps >= 1"),
    ],
)
def test_bad_values_are_explained(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]
