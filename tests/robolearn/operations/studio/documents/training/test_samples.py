"""A policy is asked at what it would have seen, and whose weights it has is said."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from robolearn.data.store.store import EpisodeStore
from robolearn.operations.studio.documents.training import samples
from robolearn.operations.studio.documents.training.samples import samples_document
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import PARENT, load_run, policy_hash, seal_run
from robolearn.training.versions import load_version, write_version
from tests.episodes import ACTION_SPEC, TOOL, TOOL_SPEC, small_episode
from tests.mocks import WalkPolicy
from tests.robolearn.training.test_checkpoint import make_chain

STEP = 0.001


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    policy = WalkPolicy(STEP)
    # Half the recordings' rate.
    space = TaskSpace((TOOL_SPEC,), (ACTION_SPEC,), 5.0)
    policy.spec = dataclasses.replace(policy.spec, task_space=space, n_obs=2)
    monkeypatch.setattr(samples, "load_policy", lambda run, threads: policy)
    monkeypatch.setattr(samples, "policy_hash", lambda run: "abc")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "weights.safetensors").touch()
    return tmp_path / "run"


def _store(path: Path, *provenances: Mapping[str, object]) -> EpisodeStore:
    store = EpisodeStore.create(path)
    with store.writer() as writer:
        for seed, said in enumerate(provenances):
            episode = small_episode(seed, 12)
            meta = dataclasses.replace(episode.meta, provenance=dict(said))
            writer.append(dataclasses.replace(episode, meta=meta))
    return store


def test_chunks_are_drawn_at_the_recorded_moment_in_the_time_of_the_policy(
    run: Path, tmp_path: Path
):
    store = _store(tmp_path / "store", {}, {})
    episode = store.read("ep_000001")
    found = samples_document(run, tmp_path / "store", 1, 4, count=3)
    assert (found.problems, found.episode, found.tick) == ((), "ep_000001", 4)
    assert (found.rate_hz, found.chunk_rate_hz) == (10.0, 5.0)
    (signal,) = found.signals
    assert signal.samples.shape[0] == 3
    newest = episode.observed(TOOL)[4]
    assert signal.samples[:, 0, 0] == pytest.approx(newest[0] + STEP)
    # Every second tick is one of the policy.
    done = episode.action[TOOL][4::2]
    np.testing.assert_allclose(signal.recorded[: len(done)], done)
    assert np.isnan(signal.recorded[len(done) :]).all()
    assert "has 2 episodes" in samples_document(run, tmp_path / "store", 2, 0).problems[0].words


def test_whose_weights_drove_is_said(run: Path, tmp_path: Path):
    said = ({"policy_hash": "abc"}, {"policy_hash": "abc+guided"}, {"policy_hash": "other"},
            {"practice": {"policy_hash": "abc-3"}}, {"practice": "?"}, {})  # fmt: skip
    _store(tmp_path / "store", *said)
    notes = [samples_document(run, tmp_path / "store", k, 0).notes for k in range(len(said))]
    mine, others = (
        ("these weights drove this episode",),
        ("other weights than these drove this episode",),
    )
    assert notes == [mine, mine, others, others, (), ()]


def test_what_drove_is_asked_where_the_run_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = make_chain(tmp_path / "practised")
    write_version(run, 7, {k: v + 1 for k, v in load_run(run).weights.items()})
    seal_run(run)
    drove = load_version(run, 7).policy_hash
    step = {run: 1 * STEP, run / PARENT: 2 * STEP}
    monkeypatch.setattr(samples, "load_policy", lambda path, threads: _walking(step[path]))
    monkeypatch.setattr(samples, "explorer_of", lambda read: _walking(3 * STEP))
    _store(
        tmp_path / "store",
        {"practice": {"policy_hash": drove, "version": 7}},
        # Two that were not written, and one that says another version than its hash is of.
        {"practice": {"policy_hash": "else", "version": 7}},
        {"practice": {"policy_hash": drove, "version": 6}},
        {"practice": {"policy_hash": drove, "version": "7"}},
        {"practice": {"policy_hash": policy_hash(run / PARENT), "version": None}},
        {"practice": {"policy_hash": policy_hash(run), "version": 8}},
    )
    asked = [_asked(run, tmp_path / "store", k) for k in range(6)]
    others = (1, "other weights than these drove this episode")
    assert asked == [
        (3, "version 7 of the weights drove this episode, and is asked"),
        others,
        others,
        others,
        (2, "the parent of this run drove this episode, and is asked"),
        (1, "these weights drove this episode"),
    ]
    (run / "versions" / "000007.safetensors").write_bytes(b"cut off")
    (problem,) = samples_document(run, tmp_path / "store", 0, 4).problems
    assert "000007.safetensors" in problem.words


def _walking(step: float) -> WalkPolicy:
    policy = WalkPolicy(step)
    space = TaskSpace((TOOL_SPEC,), (ACTION_SPEC,), 10.0)
    policy.spec = dataclasses.replace(policy.spec, task_space=space)
    return policy


def _asked(run: Path, store: Path, number: int) -> tuple[int, str]:
    """How many steps at once the policy walks that was asked, and what is said of it."""
    found = samples_document(run, store, number, 4, count=1)
    assert found.problems == ()
    (signal,) = found.signals
    newest = EpisodeStore.open(store).read(found.episode).observed(TOOL)[4]
    return round((signal.samples[0, 0, 0] - newest[0]) / STEP), found.notes[0]
