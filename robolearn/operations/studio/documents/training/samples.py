"""Samples what a policy would do at a moment that was recorded, beside what was done there."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from policies.registry import explorer_of, load_policy
from robolearn.agents.chunk import ticks_per_action
from robolearn.contracts import Policy
from robolearn.data.episode import Episode
from robolearn.errors import DataError
from robolearn.operations.builders import run_hash_of
from robolearn.operations.studio.documents.loose import mapping
from robolearn.operations.studio.documents.problems import Problem, Problems
from robolearn.operations.studio.opened import OpenStores
from robolearn.shapes import AnyArray, AnyFloats, FloatRows
from robolearn.training.run_directory import PARENT, WEIGHTS, policy_hash
from robolearn.training.versions import load_version, version_file, versions
from robolearn.types import PolicyInput

MOST_SAMPLES = 64
_STORES = OpenStores()


@dataclass(frozen=True, slots=True)
class SampledSignal:
    """An action signal: ``samples [n, horizon, size]``; ``recorded [horizon, size]`` what was
    commanded from this moment on, NaN beyond the episode's end; ``now [size]`` the signal of this
    name as it was observed, empty where it was not.
    """

    name: str
    unit: str
    samples: AnyFloats
    recorded: FloatRows
    now: AnyFloats


@dataclass(frozen=True, slots=True)
class SamplesDocument:
    """Chunks of a policy at tick ``tick`` of ``ticks`` of an episode; None of ``signals``: see
    ``problems``. ``execute``: actions of a chunk that are carried out before the next is asked for.
    """

    run: str
    store: str
    episode: str
    # How many episodes the store has.
    episodes: int
    tick: int
    ticks: int
    # Of the recording's ticks, and of a chunk's actions.
    rate_hz: float
    chunk_rate_hz: float
    seed: int
    execute: int
    signals: tuple[SampledSignal, ...]
    # Of each sample, where the policy has an opinion of them.
    scores: AnyFloats
    latency_ms: float
    # Whose weights these chunks are of and who drove the episode, in words.
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]


def samples_document(
    run: Path, store: Path, number: int, tick: int, count: int = 16, seed: int = 0
) -> SamplesDocument:
    """``count`` chunks that the policy of ``run`` proposes at tick ``tick`` of the store's episode
    ``number`` (its place in the list). Raises nothing for what the folders hold.
    """
    problems = Problems()
    found = problems.attempt(
        "samples", lambda: _sampled(run, store, number, tick, count, seed), None
    )
    if found is not None:
        return found
    nothing = np.zeros(0, dtype=np.float64)
    return SamplesDocument(
        *(str(run), str(store), "", 0, 0, 0, 0.0, 0.0, seed, 0, (), nothing, 0.0, ()),
        problems.found,
    )


def _sampled(
    run: Path, store: Path, number: int, tick: int, count: int, seed: int
) -> SamplesDocument:
    opened = _STORES.open(store)
    ids = opened.ids()
    if not 0 <= number < len(ids):
        raise DataError(f"'{store}' has {len(ids)} episodes, got number {number}")
    name = ids[number]
    embodiment = opened.meta(name).embodiment
    episode = _episode(store, name, opened.manifest_hash(name))
    policy, weights = _driver(run, episode)
    every = ticks_per_action(policy.spec.task_space, embodiment)
    at = min(max(0, tick), episode.steps - 1)
    request = _request(policy, episode, at, seed, every)
    output = policy.sample(request, min(max(1, count), MOST_SAMPLES))
    return SamplesDocument(
        run=str(run),
        store=str(store),
        episode=name,
        episodes=len(ids),
        tick=at,
        ticks=episode.steps,
        rate_hz=float(embodiment.rate_hz),
        chunk_rate_hz=float(policy.spec.task_space.rate_hz),
        seed=seed,
        execute=policy.spec.execute,
        signals=_signals(policy, episode, at, output.actions[0], every),
        scores=np.asarray(output.scores[0], dtype=np.float64),
        latency_ms=1e-6 * float(output.latency_ns),
        notes=(*_persons(episode), *weights),
        problems=(),
    )


def _driver(run: Path, episode: Episode) -> tuple[Policy, tuple[str, ...]]:
    """The policy that drove ``episode`` where ``run`` keeps it, as practice keeps versions of its
    weights and the parent that it began with, else the policy of ``run``; and which it is.
    """
    said: Any = episode.meta.provenance.get("practice", episode.meta.provenance)
    recorded = mapping(said).get("policy_hash")
    if not isinstance(recorded, str) or not recorded:
        return _policy(run, _stamp(run / WEIGHTS)), ()
    hashed = run_hash_of(recorded)
    if hashed == _hash(run, _stamp(run / WEIGHTS)):
        return _policy(run, _stamp(run / WEIGHTS)), ("these weights drove this episode",)
    version = mapping(said).get("version")
    if isinstance(version, int) and version in versions(run):
        policy, its_hash = _version(run, version, _stamp(version_file(run, version)))
        if its_hash == hashed:
            return policy, (f"version {version} of the weights drove this episode, and is asked",)
    parent = run / PARENT
    if parent.is_dir() and hashed == _hash(parent, _stamp(parent / WEIGHTS)):
        policy = _policy(parent, _stamp(parent / WEIGHTS))
        return policy, ("the parent of this run drove this episode, and is asked",)
    return _policy(run, _stamp(run / WEIGHTS)), ("other weights than these drove this episode",)


def _stamp(file: Path) -> int:
    return file.stat().st_mtime_ns


@functools.lru_cache(maxsize=2)
def _policy(run: Path, _: int) -> Policy:
    return load_policy(run, threads=1)


@functools.lru_cache(maxsize=2)
def _version(run: Path, version: int, _: int) -> tuple[Policy, str]:
    read = load_version(run, version)
    return explorer_of(read), read.policy_hash


@functools.lru_cache(maxsize=2)
def _episode(store: Path, episode: str, _: str) -> Episode:
    return _STORES.open(store).read(episode)


@functools.lru_cache(maxsize=8)
def _hash(run: Path, _: int) -> str:
    return policy_hash(run)


def _request(policy: Policy, episode: Episode, tick: int, seed: int, every: int) -> PolicyInput:
    """What the policy saw then: the newest observations, ``every`` so many ticks, the first one
    repeated at the start.
    """
    spec = policy.spec
    rows = np.clip(tick - every * np.arange(spec.n_obs - 1, -1, -1), 0, None)
    observations: Mapping[str, AnyArray] = {
        s.name: np.asarray(episode.observed(s.name)[rows])[None]
        for s in spec.task_space.observations
    }
    texts = spec.task_space.texts
    return PolicyInput(
        observations,
        np.array([episode.tick_t_ns[tick]], dtype=np.int64),
        np.array([seed], dtype=np.int64),
        task=(episode.meta.task_text,) if texts else (),
    )


def _signals(
    policy: Policy, episode: Episode, tick: int, chunks: AnyFloats, every: int
) -> tuple[SampledSignal, ...]:
    found: list[SampledSignal] = []
    first, horizon = 0, chunks.shape[1]
    known = {s.name for s in policy.spec.task_space.observations}
    for action in policy.spec.task_space.actions:
        size = action.size
        recorded = np.full((horizon, size), np.nan)
        done = np.asarray(episode.action[action.name][tick::every][:horizon], dtype=np.float64)
        recorded[: len(done)] = done.reshape(len(done), size)
        seen = episode.observed(action.name)[tick] if action.name in known else ()
        found.append(
            SampledSignal(
                name=action.name,
                unit=action.unit,
                samples=np.asarray(chunks[..., first : first + size], dtype=np.float64),
                recorded=recorded,
                now=np.asarray(seen, dtype=np.float64),
            )
        )
        first += size
    return tuple(found)


def _persons(episode: Episode) -> tuple[str, ...]:
    driven = int(episode.intervention.sum())
    return (f"a person drove {driven} of {episode.steps} ticks",) if driven else ()
