"""The classifier of success: it learns, it knows how it errs, and evaluations use it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from eval.statistics.clusters import corrected_rate
from eval.trials.judge import Judge, JudgeCounts
from eval.trials.rollouts import Options, PolicyEntry, WorldEntry, evaluate
from eval.trials.table import TrialStore, read_trials
from policies.imitation.success_classifier import SuccessConfig, load_success, train_success
from robolearn.cli.main import main
from robolearn.data.episode import EpisodeMeta, episode_from_arrays
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import CheckpointError, ConfigError, DataError
from robolearn.types import Sample
from sim.worlds import make_world
from tests.eval.mocks import BuildPolicy, MockEnv, conditions

CONFIG = SuccessConfig(side=16, width=4, epochs=40, batch_size=16, lr=3e-3)


def pictures(n: int, seed: int, noise: float = 25.0):
    """A bright square: on the left (failure) or on the right (success)."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < 0.4
    rows = []
    for won in labels:
        x = np.full((32, 40, 3), 90.0)
        at = 24 if won else 4
        x[10:22, at : at + 12] = 220
        rows.append(np.clip(x + rng.normal(0, noise, x.shape), 0, 255).astype(np.uint8))
    return rows, labels.tolist()


def test_it_learns_counts_its_errors_and_comes_back(tmp_path):
    x, y = pictures(60, 0)
    found = train_success(x, y, CONFIG)
    h = found.held_out
    assert h.successes + h.failures == pytest.approx(0.4 * 60, abs=1)
    assert h.errors <= 1
    fresh, truth = pictures(60, 1)
    verdicts = found.probability(fresh) > 0.5
    assert (verdicts == np.array(truth)).mean() > 0.95
    found.save(tmp_path)
    again = load_success(tmp_path)
    assert again.held_out == h
    assert again.hash == found.hash == train_success(x, y, CONFIG).hash
    assert np.array_equal(again.probability(fresh), found.probability(fresh))


def test_what_cannot_be_learned_is_told_apart_by_its_counts():
    rng = np.random.default_rng(2)
    x, _ = pictures(60, 3)
    found = train_success(x, (rng.random(60) < 0.5).tolist(), CONFIG)
    h = found.held_out
    assert h.errors > 4
    wide = corrected_rate(10, 20, **dataclasses.asdict(
        dataclasses.replace(h, true_positives=h.successes - 3, false_positives=3)))  # fmt: skip
    sharp = corrected_rate(
        10, 20, true_positives=99, successes=100, false_positives=1, failures=100
    )
    assert wide.high - wide.low > sharp.high - sharp.low


def test_too_few_labels_and_odd_pictures_are_refused(tmp_path):
    x, _ = pictures(20, 0)
    with pytest.raises(DataError, match="at least 4 successes and 4 failures, got 20 and 0"):
        train_success(x, [True] * 20, CONFIG)
    with pytest.raises(DataError, match="needs a label"):
        train_success(x, [True], CONFIG)
    with pytest.raises(DataError, match="8-bit colour pictures"):
        train_success([p[..., 0] for p in x], [i % 2 == 0 for i in range(20)], CONFIG)
    with pytest.raises(ConfigError, match="held_out"):
        SuccessConfig(held_out=1.0)
    with pytest.raises(CheckpointError, match="no success classifier"):
        load_success(tmp_path)


class _Seen(MockEnv):
    """Shows the height of the block as brightness."""

    def observe(self):
        shown = super().observe()
        level = np.uint8(255 * np.clip(self.block[0] / 0.512, 0, 1))
        picture = Sample(shown.t_ns, np.full((8, 8, 3), level, dtype=np.uint8))
        return dataclasses.replace(shown, samples={**shown.samples, "top/image": picture})


def _judge(signal="top/image"):
    def build():
        return lambda rows: [bool(p.mean() > 100) for p in rows]

    return Judge("j1", signal, build, JudgeCounts(18, 20, 2, 20))


def test_the_verdict_is_the_trials_success_and_the_worlds_is_kept(tmp_path):
    world = WorldEntry("w", "h", "mock 1", lambda: _Seen("a", "", None))
    policy = PolicyEntry("p", "hp", BuildPolicy())
    options = Options(suite="s@1", task="t", max_steps=12, batch=5, judge=_judge())
    with TrialStore(tmp_path) as store:
        records = evaluate([policy], [world], {"w": conditions(10)}, store, options)
        assert store.all() == records
    yes = [r.success for r in records]
    assert 0 < sum(yes) < 10
    assert {r.metrics["world_success"] for r in records} <= {0.0, 1.0}
    assert all(r.reason == "success" for r in records if r.success)
    assert all(r.reason in ("time_limit", "judged_failed") for r in records if not r.success)
    estimate = _judge().counts.corrected(sum(yes), 10)
    assert estimate.value == pytest.approx(min(1, max(0, (sum(yes) / 10 - 0.1) / 0.8)))
    bad = dataclasses.replace(options, judge=_judge("wrist/image"))
    with TrialStore(tmp_path / "2") as store, pytest.raises(ConfigError, match="name its camera"):
        evaluate([policy], [world], {"w": conditions(2)}, store, bad)


WORLD = "drawer,camera=agent,size=48"


def _rendered(folder, n: int) -> None:
    """A store whose episodes end with one drawer open enough, or not, as MuJoCo shows it."""
    env = make_world(WORLD)
    rng = np.random.default_rng(7)
    store = EpisodeStore.create(folder)
    spec = dataclasses.replace(env.spec, signals=(env.spec.signal("agent/image"),))
    with store.writer() as writer:
        for i in range(n):
            opening = rng.uniform(*((0.125, 0.155) if i % 2 else (0.0, 0.05)))
            start = env.sample_condition(1000)
            placed = dataclasses.replace(
                start, poses={**start.poses, "drawer/opening": (float(opening),)}
            )
            env.reset(placed, rng)
            picture = np.asarray(env.observe().value("agent/image"))[None]
            outcome = env.outcome()
            assert outcome.success == bool(i % 2)
            actions = {a.name: np.zeros((1, *a.shape)) for a in spec.actions}
            meta = EpisodeMeta("rollout", "drawer", spec, start, outcome)
            writer.append(
                episode_from_arrays(meta, {"agent/image": picture}, actions, progress=np.ones(1))
            )
    env.close()


def test_from_rendered_pictures_to_a_corrected_rate(tmp_path, capsys):
    _rendered(tmp_path / "store", 40)
    command = ["success", str(tmp_path / "store"), "--signal", "agent/image", "--epochs", "30"]
    assert main([*command, "--out", str(tmp_path / "judge"), "--json"]) == 0
    learned = json.loads(capsys.readouterr().out)
    counts = learned["held_out"]
    assert counts["successes"] == counts["failures"] == 8
    wrong = 8 - counts["true_positives"] + counts["false_positives"]
    assert wrong <= 5
    assert learned["error"]["value"] == pytest.approx(wrong / 16)
    assert learned["error"]["low"] <= wrong / 16 < learned["error"]["high"]
    rest = ["--conditions", "1", "--workers", "0", "--videos", "0", "--no-repeat"]
    judge = ["--judge", str(tmp_path / "judge"), "--out", str(tmp_path / "r"), "--json"]
    assert main(["evaluate", "scripted", "--worlds", WORLD, *rest, *judge]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["judge"] == learned["hash"]
    assert "judged from pictures" in document["protocol"]
    (row,) = document["judged"]
    corrected = row["success"]
    assert corrected["method"].startswith("Rogan-Gladen")
    # What is not known about the classifier widens the interval.
    assert corrected["high"] - corrected["low"] > 0.5
    rows = read_trials(tmp_path / "r")
    assert [r.metrics["world_success"] for r in rows] == [1.0]
    assert {r.suite for r in rows} == {document["suite"]}


def test_the_command_says_what_is_missing(tmp_path, capsys):
    assert main(["success", str(tmp_path / "none"), "--out", str(tmp_path / "o")]) == 2
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    command = ["evaluate", "scripted", "--worlds", "pusht_reference,camera=top"]
    command += ["--judge", str(tmp_path), "--out", str(tmp_path / "r"), "--json"]
    assert main(command) == 2
    assert "robolearn success" in capsys.readouterr().err
