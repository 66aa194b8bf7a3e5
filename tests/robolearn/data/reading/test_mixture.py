"""Training from a weighted list of stores: filters, shares, hashes, local and on object storage."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.config import from_dict
from robolearn.data.reading.cache import cached, flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.mixture import MixtureSource, window_weights
from robolearn.data.reading.selection import DataConfig, StoreChoice
from robolearn.data.store.annotations import Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.mirror import copy_store
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.learning import BatchSpec
from tests.episodes import IMAGE, TOOL, small_episode

_count = itertools.count()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))


def make(path: Path, *lengths: int, image: bool = False) -> EpisodeStore:
    store = EpisodeStore.create(path)
    with store.writer() as writer:
        for k, steps in enumerate(lengths):
            writer.append(small_episode(len(path.name) * 10 + k, steps=steps, image=image))
    return store


def config(*choices: StoreChoice, **more: object) -> DataConfig:
    raw = {"observations": [TOOL], "stores": [], **more}
    return from_dict(DataConfig, raw | {"stores": [_plain(c) for c in choices]})


def _plain(choice: StoreChoice) -> dict[str, object]:
    import dataclasses

    return {
        k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(choice).items()
    }


@pytest.fixture
def two(tmp_path: Path) -> tuple[EpisodeStore, EpisodeStore]:
    return make(tmp_path / "a", 30, 30), make(tmp_path / "bb", 12)


def choices(
    two: tuple[EpisodeStore, EpisodeStore], *weights: float | None
) -> tuple[StoreChoice, ...]:
    return tuple(StoreChoice(str(s.path), w) for s, w in zip(two, weights, strict=True))


def test_episodes_come_store_by_store(two: tuple[EpisodeStore, EpisodeStore]) -> None:
    source = MixtureSource(config(*choices(two, None, None)))
    assert source.ids == ("0/ep_000000", "0/ep_000001", "1/ep_000000")
    assert source.steps == (30, 30, 12)
    flat = flatten(source)
    np.testing.assert_array_equal(
        flat.observations[TOOL][60:], two[1].read("ep_000000").observed(TOOL).astype(np.float32)
    )
    assert cached(source).ids == source.ids
    assert window_weights(config(*choices(two, None, None)).stores, flat, np.arange(72)) is None


def test_shares_are_those_of_the_weights_and_a_function_of_seed_and_step(
    two: tuple[EpisodeStore, EpisodeStore],
) -> None:
    data = config(*choices(two, 1.0, 3.0))
    flat = flatten(MixtureSource(data))
    plain = EpisodeDataset(flat, BatchSpec(1, 1, 24), 5)
    weights = window_weights(data.stores, flat, plain.windows)
    assert weights is not None
    datasets = [EpisodeDataset(flat, BatchSpec(1, 1, 24), 5, None, weights) for _ in range(2)]
    second = flat.observations[TOOL][60:]
    steps = range(12)  # four epochs
    drawn = [datasets[0].batch(step).observations[TOOL][:, -1].numpy() for step in steps]
    hits = [(batch[:, None] == second[None]).all(axis=2).any(axis=1) for batch in drawn]
    assert np.mean(hits) == pytest.approx(0.75, abs=0.02)
    # Any order of asking gives the same batches.
    for step in reversed(steps):
        again = datasets[1].batch(step).observations[TOOL][:, -1].numpy()
        np.testing.assert_array_equal(again, drawn[step])


def test_filters_per_store(two: tuple[EpisodeStore, EpisodeStore]) -> None:
    a, b = two
    with a.writer() as writer:
        writer.annotate(Annotation(("ep_000000",), "me", add_labels=("dark",), split="train"))
        writer.annotate(Annotation(("ep_000001",), "me", success=False))
    path, other = str(a.path), StoreChoice(str(b.path))

    def ids(**wanted: object) -> tuple[str, ...]:
        return MixtureSource(config(StoreChoice(path, **wanted), other)).ids[:-1]  # type: ignore[arg-type]

    assert ids(labels=("dark",)) == ids(split="train") == ids(success=True) == ("0/ep_000000",)
    assert ids(without_labels=("dark",)) == ids(success=False) == ("0/ep_000001",)
    # What the experiment wants holds where a store says nothing.
    failed = config(StoreChoice(path), StoreChoice(str(b.path), success=True), success=False)
    assert MixtureSource(failed).ids == ("0/ep_000001", "1/ep_000000")
    scores = [i.score for i in a.list()]
    best = f"0/ep_{int(np.argmax(scores)):06d}"
    assert ids(min_score=max(scores)) == (best,)
    for wanted in ({"min_score": 1.1}, {"kinds": ("rollout",)}, {"tasks": ("other",)}):
        with pytest.raises(DataError, match="has no episodes"):
            ids(**wanted)


def test_the_hash_covers_all_stores_and_choices(two: tuple[EpisodeStore, EpisodeStore]) -> None:
    data = config(*choices(two, None, None))
    before = MixtureSource(data).content_hash
    assert MixtureSource(config(*choices(two, 1.0, 2.0))).content_hash == before
    assert MixtureSource(config(*reversed(data.stores))).content_hash != before
    with two[1].writer() as writer:
        writer.append(small_episode(77, steps=5))
    assert MixtureSource(data).content_hash != before


def test_what_does_not_fit(tmp_path: Path, two: tuple[EpisodeStore, EpisodeStore]) -> None:
    with pytest.raises(ConfigError, match="weight"):
        StoreChoice("x", 0.0)
    with pytest.raises(ConfigError, match="every store a weight, or none"):
        config(*choices(two, 1.0, None))
    make(tmp_path / "pictures", 5, image=True)
    wanted = [StoreChoice(str(tmp_path / "pictures")), *choices(two, None, None)]
    with pytest.raises((SpecMismatchError, DataError, ConfigError), match=IMAGE):
        MixtureSource(config(*wanted, observations=[TOOL, IMAGE]))
    data = config(*choices(two, 1.0, 1.0))
    flat = flatten(MixtureSource(data))
    with pytest.raises(DataError, match="no window is left"):
        window_weights(data.stores, flat, np.arange(10))


def test_train_from_a_list_one_of_them_on_object_storage(
    two: tuple[EpisodeStore, EpisodeStore],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = f"memory://mixture{next(_count)}/demos"
    copy_store(two[1], url)
    text = f"""
policy: flow
data:
  observations: [{TOOL}]
  stores:
    - {{path: {two[0].path}, weight: 1}}
    - {{path: "{url}", weight: 3, success: true}}
algorithm: {{horizon: 4, execute: 2, width: 16, blocks: 1, batch_size: 8}}
fit: {{steps: 4, warmup: 2, log_every: 2, checkpoint_every: 4}}
"""
    (tmp_path / "x.yaml").write_text(text)
    command = ["train", "--config", str(tmp_path / "x.yaml"), "--out", str(tmp_path / "run")]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 3
    stored = (tmp_path / "run" / "config.yaml").read_text()
    assert "weight: 3.0" in stored
    (tmp_path / "x.yaml").write_text(text.replace("weight: 3", "weight: 2"))
    assert main([*command, "--resume"]) == 2
    assert "stores" in capsys.readouterr().err
    assert main([*command, "--store", str(two[0].path)]) == 2
    assert "leave the store out" in capsys.readouterr().err
