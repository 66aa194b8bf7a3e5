"""Signals that break, weights that answer by no number, a policy that leaves its parent."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.critics.reranked import RerankedPolicy
from policies.registry import load_policy, policy_of
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    InferenceError,
    PracticeError,
    SpecMismatchError,
    StoreError,
    StoreLockedError,
)
from robolearn.learning import Losses, request_noise
from robolearn.operations.builders import env_builder
from robolearn.operations.practice import actors, frame, validation
from robolearn.operations.practice.actors import ActorPlan, RoundTask
from robolearn.operations.practice.experiment import PracticeExperiment, practice_experiment
from robolearn.operations.practice.finetune import finetune
from robolearn.operations.practice.frame import Books, SecondStore
from robolearn.operations.practice.ledger import Ledger
from robolearn.operations.practice.listener import PracticeListener, RoundReport
from robolearn.operations.practice.records import LINES, Standing, WrittenLines, read_standing
from robolearn.operations.practice.watch import apart
from robolearn.pusht import BLOCK, TOOL
from robolearn.training.learner import DRIFT
from robolearn.training.log import logged
from robolearn.training.run_directory import (
    DIGESTS,
    WEIGHTS,
    Run,
    copy_run,
    load_run,
    load_state,
    policy_hash,
)
from robolearn.training.trainer import Trainer
from robolearn.types import Observation, PolicyInput, PolicyOutput, SampleBatch
from sim.worlds import make_world
from tests.episodes import small_episode
from tests.growing_store import add_episodes
from tests.learning_mocks import SPACE
from tests.robolearn.operations.practice.flights import flight, practised
from tests.two_runs import two_runs

WORLD = ("pusht_reference",)
SMALL: dict[str, Any] = {
    "algorithm.width": 16,
    "algorithm.batch_size": 16,
    "fit.checkpoint_every": 1,
    "fit.diagnose_every": 1,
    "practice.lanes": 4,
    "practice.max_steps": 16,
    "practice.warmup_episodes": 4,
    "practice.critic_updates": 3,
    "practice.test_starts": 2,
    "practice.test_every": 0,
    "practice.max_episodes": 12,
    "practice.disk_gib": 0.0,
}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return two_runs(folder, DataConfig(observations=(TOOL, BLOCK)), 12) / "one"


def small(parent: Path, config: Path | None = None, **settings: float) -> PracticeExperiment:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return practice_experiment(load_run(parent), config, SMALL | named)


class Spoiled:
    """The world with a number of a signal that is none, in its episodes that are ``broken``: as it
    is observed at a tick, or (``between``) only in what was sampled before it.
    """

    def __init__(
        self, inner: Any, number: float, broken: Callable[[int], bool], *, between: bool
    ) -> None:
        self._inner, self._number, self._between = inner, number, between
        self._broken, self._ticks, self._episodes = broken, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def reset(self, condition: Any, rng: np.random.Generator) -> Any:
        self._ticks, self._episodes = 0, self._episodes + 1
        return self._inner.reset(condition, rng)

    def observe(self) -> Observation:
        seen = self._inner.observe()
        self._ticks += 1
        if self._between or not self._broken(self._episodes) or self._ticks != 6:
            return seen
        sample = seen.samples[BLOCK]
        value = np.array([sample.value[0], self._number, sample.value[2]])
        spoiled = dataclasses.replace(sample, value=value)
        return dataclasses.replace(seen, samples={**seen.samples, BLOCK: spoiled})

    def drain(self) -> SampleBatch:
        drained = self._inner.drain()
        if not self._between or not self._broken(self._episodes) or self._ticks != 6:
            return drained
        block = drained.signals[BLOCK]
        value = block.value.copy()
        value[0, 1] = self._number
        spoiled = dataclasses.replace(block, value=value)
        return dataclasses.replace(drained, signals={**drained.signals, BLOCK: spoiled})


Spoiling = Callable[[int, int], bool]


def spoil(
    monkeypatch: pytest.MonkeyPatch, broken: Spoiling, number: float, *, between: bool = False
) -> None:
    """``broken(lane, episode of the lane)``: whether a signal breaks in it."""
    built: list[Spoiled] = []

    def make(name: str) -> Spoiled:
        lane = functools.partial(broken, len(built))
        built.append(Spoiled(make_world(name), number, lane, between=between))
        return built[-1]

    monkeypatch.setattr(actors, "make_world", make)


@pytest.mark.parametrize(
    ("number", "between"), [(float("nan"), False), (float("inf"), False), (float("nan"), True)]
)
def test_a_signal_that_breaks_costs_its_episode_alone(
    parent: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: float,
    *,
    between: bool,
) -> None:
    """One lane of four in the second round: an explorer's."""
    spoil(monkeypatch, lambda lane, episode: (lane, episode) == (1, 2), number, between=between)
    store, out = tmp_path / "store", tmp_path / "out"
    found = finetune(small(parent), parent, WORLD, store, out)
    assert (found.kept, found.sound, found.episodes) == ("last", True, 12)
    flights = Ledger.of(out).flights
    lost = [f for f in flights if not f.id]
    assert [(f.number, f.driver, f.version) for f in lost] == [(5, "explorer", 2)]
    assert BLOCK in lost[0].trouble
    assert lost[0].reason == ("unsound" if between else "not_finite")
    ids = EpisodeStore.open(store).ids()
    assert [f.id for f in flights if f.id] == list(ids)
    assert len(ids) == 11
    assert check_store(store).findings == ()
    said = caplog.text
    assert f"not kept: episode 5 of practice, from start 5 in '{WORLD[0]}'" in said
    assert BLOCK in said
    assert {f.steps for f in flights if f.id} == {16}


def test_a_signal_that_stays_broken_ends_it_with_the_best_that_was_tested(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = small(parent, practice__test_every=8, practice__max_episodes=40)
    store, out = tmp_path / "store", tmp_path / "out"
    with monkeypatch.context() as context:
        spoil(context, lambda _, episode: episode > 2, float("nan"))
        found = finetune(experiment, parent, WORLD, store, out)
    assert (found.kept, found.version, found.sound) == ("tested", found.tests[0].version, False)
    assert f"({BLOCK}); mend that and go on with resume" in found.ended
    assert len(EpisodeStore.open(store).ids()) == 8
    assert load_policy(out) is not None
    # Mended, and told to go on for longer.
    more = small(parent, practice__test_every=8, practice__max_episodes=28)
    again = finetune(more, parent, WORLD, store, out, resume=True)
    assert (again.kept, again.episodes, again.sound) == ("last", 28, True)
    assert len(EpisodeStore.open(store).ids()) == 16


def test_a_world_that_is_broken_from_the_start_is_told(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, lambda *_: True, float("nan"))
    with pytest.raises(PracticeError, match=rf"before anything was learned .*{BLOCK}"):
        finetune(small(parent), parent, WORLD, tmp_path / "store", tmp_path / "out")


class Broken:
    """Answers by no number."""

    def __init__(self, inner: Policy) -> None:
        self.inner, self.spec = inner, inner.spec

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        output = self.inner.sample(request, n)
        return dataclasses.replace(output, actions=np.full_like(output.actions, np.nan))


def test_weights_that_answer_by_no_number_are_not_what_is_kept(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are finite themselves, so that they were handed over."""
    real = actors.explorer_of
    monkeypatch.setattr(actors, "explorer_of", lambda run: Broken(real(run)))
    store, out = tmp_path / "store", tmp_path / "out"
    found = finetune(small(parent), parent, WORLD, store, out)
    assert (found.kept, found.sound, found.episodes) == ("parent", False, 4)
    assert "cannot drive: policy answered with non-finite actions" in found.ended
    assert len(EpisodeStore.open(store).ids()) == 4
    assert type(load_policy(out)) is type(load_policy(parent))
    # Of the parent there is nothing that could be kept instead.
    monkeypatch.setattr(actors, "policy_of", lambda run: Broken(policy_of(run)))
    with pytest.raises(InferenceError, match="non-finite"):
        finetune(small(parent), parent, WORLD, tmp_path / "other", tmp_path / "out2")


@pytest.mark.parametrize("sound", [0, 1])
def test_a_last_version_that_cannot_answer_is_not_what_is_kept(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sound: int
) -> None:
    """It was handed over when time was over, so that only the last test asks it; after ``sound``
    tests of versions that could.
    """
    real, asked = validation.policy_of, list[Run]()

    def built(run: Run) -> Policy:
        asked.append(run)
        return real(run) if len(asked) <= sound else Broken(real(run))

    monkeypatch.setattr(validation, "policy_of", built)
    store, out = tmp_path / "store", tmp_path / "out"
    experiment = small(parent, practice__test_every=8 * sound)
    found = finetune(experiment, parent, WORLD, store, out)
    assert (found.kept, found.sound) == ("tested" if sound else "parent", False)
    assert "or its parent cannot drive: policy answered with non-finite actions" in found.ended
    assert len(found.tests) == sound
    assert found.episodes == len(EpisodeStore.open(store).ids()) == 12
    assert isinstance(load_policy(out), RerankedPolicy) == bool(sound)
    assert finetune(experiment, parent, WORLD, store, out, resume=True).reused


def flipped(file: Path) -> None:
    """One bit in the middle of it."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(bytes(data))


def test_what_changed_behind_a_practice_is_found_when_it_goes_on(
    parent: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    finetune(small(parent), parent, WORLD, store, out)
    longer = small(parent, practice__max_episodes=16)
    (state,) = (out / "state").glob("*/tensors.safetensors")
    for file in (out / "parent" / WEIGHTS, out / WEIGHTS, state):
        sound = file.read_bytes()
        flipped(file)
        with pytest.raises(CheckpointError, match=r"was edited after|is not what was written"):
            finetune(longer, parent, WORLD, store, out, resume=True)
        file.write_bytes(sound)
    # Left while it was being written it has no digests, and what lies inside has its own.
    sealed, file = (out / DIGESTS).read_text(), out / "parent" / WEIGHTS
    (out / DIGESTS).unlink()
    sound = file.read_bytes()
    flipped(file)
    with pytest.raises(CheckpointError, match="parent' was edited after"):
        finetune(longer, parent, WORLD, store, out, resume=True)
    file.write_bytes(sound)
    (out / DIGESTS).write_text(sealed)
    # Its lines are no more than the store knows.
    sound = (out / LINES).read_text()
    first, *others = sound.splitlines(keepends=True)
    flights, standing = Ledger.of(out).flights, read_standing(out)
    assert standing is not None
    assert standing.lines.count == len(flights) == 12
    assert standing.lines == WrittenLines.of(sound)
    edited = first.replace('"start": ', '"start": 1')
    for text in ("".join(others), "".join((edited, *others)), "".join((*others, first)), ""):
        (out / LINES).write_text(text)
        caplog.clear()
        ledger = Ledger.of(out, standing.lines)
        assert "made again from the store" in caplog.text
        ledger.recover(EpisodeStore.open(store), standing.id, load_run(parent).spec.execute)
        assert ledger.flights == Ledger.of(out, standing.lines).flights == flights
    assert (out / LINES).read_text() == sound
    assert finetune(longer, parent, WORLD, store, out, resume=True).episodes == 16


def test_a_line_that_changed_is_not_sealed_by_the_next_checkpoint(tmp_path: Path) -> None:
    practised(tmp_path)
    ledger = Ledger.of(tmp_path)
    sound = (tmp_path / LINES).read_text()
    assert ledger.written == WrittenLines.of(sound)
    flipped(tmp_path / LINES)
    assert ledger.written == WrittenLines.of(sound)
    new = flight(12, 9, True)
    ledger.add([new])
    assert ledger.flights[-1] == new
    assert not ledger.written.begin((tmp_path / LINES).read_text())
    last = (tmp_path / LINES).read_text().splitlines(keepends=True)[-1]
    assert ledger.written == WrittenLines.of(sound + last)


def test_rewards_that_are_none_are_told_and_nothing_is_lost(
    parent: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As recorded, by a world that pays for progress: beyond what these critics may say."""
    file = tmp_path / "practice.yaml"
    file.write_text("data: {reward: {task: recorded}}\n")
    store = tmp_path / "store"
    with pytest.raises(ConfigError, match="bounds"):
        finetune(small(parent, file), parent, WORLD, store, tmp_path / "out")
    assert len(EpisodeStore.open(store).ids()) == 4
    # The same episodes are what another practice begins with.
    found = finetune(small(parent), parent, WORLD, store, tmp_path / "other")
    assert (found.kept, found.episodes) == ("last", 12)
    assert len(EpisodeStore.open(store).ids()) == 16
    # A reward that never occurs, told when it begins and when it has ended.
    assert "no reward has occurred in" in caplog.text
    assert "nothing succeeded in 12 episodes" in caplog.text


@pytest.fixture
def residual(tmp_path: Path) -> Path:
    file = tmp_path / "practice.yaml"
    # Its corrections are as large as they may be after a few updates.
    lines = "algorithm: {critics_first: 0, actor_every: 1, scale: 3.0, cosines: 0, actor_lr: 1.0}"
    file.write_text(f"policy: residual\n{lines}\n")
    return file


def test_a_correction_that_runs_away_is_seen(
    parent: Path, tmp_path: Path, residual: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Tested at once; here nobody ever succeeds, so that it does no harm and goes on."""
    found = finetune(
        small(parent, residual, practice__critic_updates=12, practice__max_drift=0.2),
        parent,
        WORLD,
        tmp_path / "store",
        tmp_path / "out",
    )
    standing = read_standing(tmp_path / "out")
    assert standing is not None
    # It begins as its parent answers, whatever is chosen among its chunks.
    assert standing.drift.begun == pytest.approx(0.0, abs=1e-3)
    assert standing.drift.cleared > 0.2
    assert "the policy has drifted off its parent" in caplog.text
    assert len(found.tests) > 1
    drifts = [line[DRIFT] for line in logged(tmp_path / "out") if DRIFT in line]
    assert max(drifts) == pytest.approx(standing.drift.cleared, rel=0.5)


class Answering:
    """Goes ``gain`` times as far as the block is, and ``aside`` [m], by luck a ``spread`` further;
    its second number is fixed.
    """

    def __init__(
        self,
        gain: float,
        aside: float = 0.0,
        n_obs: int = 1,
        steps: int = 4,
        spread: float = 0.0,
    ) -> None:
        self.spec = PolicySpec(SPACE, n_obs, steps, 2, "minmax")
        self.gain, self.aside, self.spread = gain, aside, spread

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        seen = request.observations[BLOCK][:, -1, 0]
        actions = np.full((len(seen), n, self.spec.horizon, 2), 0.1)
        actions[..., 0] = (self.gain * seen + self.aside)[:, None, None]
        noise = request_noise(request.seed, (n, 1))
        actions[..., 0] += self.spread * noise.astype(np.float64)
        return PolicyOutput(actions, np.zeros((len(seen), n)), request.t_ns, 0)


@dataclasses.dataclass(frozen=True)
class Choosing:
    """Takes the furthest of eight chunks of another policy."""

    inner: Answering

    @property
    def spec(self) -> PolicySpec:
        return self.inner.spec

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        output = self.inner.sample(request, 8)
        best = output.actions[:, :, 0, 0].argmax(axis=1)
        actions = output.actions[np.arange(len(best)), best][:, None]
        return dataclasses.replace(output, actions=actions, scores=output.scores[:, :n])


def drift(parent: Answering, learned: Answering | Choosing) -> float | None:
    rng = np.random.default_rng(0)
    seen = {
        name: torch.from_numpy(rng.normal(0.2, 0.1, (64, 2, size)).astype(np.float32))
        for name, size in ((TOOL, 2), (BLOCK, 3))
    }
    return apart(learned, parent, seen)


def test_drift_by_hand() -> None:
    parent = Answering(1.0)
    assert drift(parent, Answering(1.0)) == 0.0
    # Independent answers from the same distribution are 2 variances apart, so are the parent's own.
    twice, aside = drift(parent, Answering(2.0)), drift(parent, Answering(1.0, 0.1 * 2**0.5))
    assert twice is not None
    assert aside is not None
    assert aside == pytest.approx(1.0, abs=0.15)
    # mean x^2 / 2 var = (.2^2 + .1^2) / (2 .1^2)
    assert twice == pytest.approx(2.5**0.5, abs=0.25)
    # Steps that only one of them has are not compared, nor is what only the parent could see.
    assert drift(parent, Answering(1.0, steps=2)) == 0.0
    assert drift(parent, Answering(1.0, n_obs=2)) == 0.0
    assert drift(Answering(1.0, n_obs=2), parent) is None
    # Whoever chooses among what the parent might do has not left it, however far that is.
    wide = Answering(1.0, spread=0.3)
    assert drift(wide, Choosing(wide)) == 0.0
    assert drift(wide, Answering(1.0, 3.0)) == pytest.approx(3.0 / 0.2, rel=0.9)
    # Who always answers alike has no answers to unrelated observations.
    assert drift(Answering(0.0), parent) is None


def test_what_practice_writes_lies_beside_its_parent_and_its_store(
    parent: Path, tmp_path: Path
) -> None:
    """In a run it would change what that is; a store that is a run is neither."""
    own = copied(parent, tmp_path / "own")
    store, out = tmp_path / "store", tmp_path / "out"
    before = policy_hash(own)
    for where, run, said in (
        (store, own / "parent", "out .* is the run that practises"),
        (store, own, "out .* is the run that practises"),
        (own / "store", out, "store .* is the run that practises"),
        (store, store, "out .* is the store of its episodes"),
        (store, tmp_path / "out" / ".." / "store" / "out", "out .* is the store of its episodes"),
    ):
        with pytest.raises(ConfigError, match=said):
            finetune(small(own), own, WORLD, where, run)
    assert [p.name for p in tmp_path.iterdir()] == ["own"]
    assert policy_hash(own) == before


def copied(run: Path, target: Path) -> Path:
    copy_run(run, target)
    return target


def test_the_other_store_is_looked_at_before_anything_flies(parent: Path, tmp_path: Path) -> None:
    """What is wrong with it showed after the warm-up: on an arm, minutes of driving."""
    store, out, other = tmp_path / "store", tmp_path / "out", tmp_path / "other"
    half = small(parent, practice__demonstrations=0.5)
    with pytest.raises(StoreError, match="no episode store"):
        finetune(half, parent, WORLD, store, out, second=SecondStore(other))
    add_episodes(other, range(2))
    with pytest.raises(DataError, match="no episodes of kinds"):
        finetune(half, parent, WORLD, store, out, second=SecondStore(other))
    practised, little = (
        SecondStore(other, practised=True),
        small(parent, practice__demonstrations=0.01),
    )
    with pytest.raises(ConfigError, match="leaves nothing of the demonstrations"):
        finetune(little, parent, WORLD, store, out, second=practised)
    with pytest.raises(ConfigError, match="the store of this practice"):
        finetune(half, parent, WORLD, other, out, second=practised)
    assert [p.name for p in tmp_path.iterdir()] == ["other"]


def test_the_store_is_looked_at_before_anything_flies(
    parent: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it holds already is learned from, too; what does not fit showed after the warm-up."""
    foreign, other, out = tmp_path / "foreign", tmp_path / "other", tmp_path / "out"
    episode = small_episode(0)
    meta = dataclasses.replace(episode.meta, kind="online")
    with EpisodeStore.create(foreign).writer() as writer:
        writer.append(dataclasses.replace(episode, meta=meta))
    with pytest.raises(SpecMismatchError, match=r"another task space .* name another store"):
        finetune(small(parent), parent, WORLD, foreign, out)
    add_episodes(other, range(2))
    with pytest.raises(ConfigError, match="is of the task 'point'"):
        finetune(small(parent), parent, WORLD, other, out)
    assert (len(EpisodeStore.open(foreign).ids()), len(EpisodeStore.open(other).ids())) == (1, 2)
    assert not out.exists()
    frame.require_alike(small(parent), load_run(parent), other, "point", "mine")
    assert "2 episodes of" in caplog.text


def test_threads_that_torch_does_not_know_are_refused(parent: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="threads must be at least 1, got 0"):
        finetune(small(parent), parent, WORLD, tmp_path / "store", tmp_path / "out", threads=0)


def test_a_practice_goes_on_with_its_own_store_alone(parent: Path, tmp_path: Path) -> None:
    """Also before its learner knows which one that is."""
    out = tmp_path / "out"
    begun = small(parent, practice__warmup_episodes=8, practice__max_episodes=4)
    with pytest.raises(PracticeError, match="before anything was learned"):
        finetune(begun, parent, WORLD, tmp_path / "store", out)
    longer = small(parent, practice__warmup_episodes=8)
    lines = (out / LINES).read_text()
    (tmp_path / "store").rename(tmp_path / "renamed")
    EpisodeStore.create(tmp_path / "another")
    for name in ("another", "absent"):
        with pytest.raises(CheckpointError, match=rf"'{tmp_path}/store', not in .*{name}'"):
            finetune(longer, parent, WORLD, tmp_path / name, out, resume=True)
    assert not (tmp_path / "absent").exists()
    assert (out / LINES).read_text() == lines
    found = finetune(longer, parent, WORLD, tmp_path / "renamed", out, resume=True)
    assert found.episodes == len(EpisodeStore.open(tmp_path / "renamed").ids()) == 12


def test_one_practice_at_a_time_writes_a_run(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has a store of its own; whoever wins, no line of its episodes is in the run."""
    out, refused = tmp_path / "out", list[str]()
    real = Ledger.of

    def meanwhile(run_dir: Path, *known: Any) -> Ledger:
        # The first one holds the run by now; what it stands at is not yet written.
        if run_dir == out and not refused:
            refused.append("")
            with pytest.raises(StoreLockedError) as caught:
                finetune(small(parent), parent, WORLD, tmp_path / "second", out)
            refused.append(str(caught.value))
        return real(run_dir, *known)

    monkeypatch.setattr(frame.Ledger, "of", meanwhile)
    standing = Standing({}, "1", {})
    with contextlib.ExitStack() as stack:
        Books.opened(stack, tmp_path / "store", out, standing, 4)
    assert refused[1].startswith(f"{out} is being written by process {os.getpid()}")
    assert EpisodeStore.open(tmp_path / "second").ids() == ()
    # Whoever looked before the first one wrote anything does not take its place afterwards.
    with contextlib.ExitStack() as stack, pytest.raises(CheckpointError, match="another practice"):
        Books.opened(stack, tmp_path / "third", out, Standing({}, "2", {}), 4)


@pytest.mark.parametrize("episodes", [4, 12])
def test_a_parent_that_was_exchanged_meanwhile_neither_learns_nor_is_compared_with(
    parent: Path, tmp_path: Path, episodes: int
) -> None:
    run, store, out = copied(parent, tmp_path / "run"), tmp_path / "store", tmp_path / "out"
    # There is no learner before the second round.
    warm_up: dict[str, Any] = {"practice.warmup_episodes": 8}

    def exchange(report: RoundReport) -> None:
        if report.episodes == episodes:
            copy_run(parent.with_name("two"), run)

    heard = PracticeListener(on_round=exchange)
    with pytest.raises(CheckpointError, match="holds another policy"):
        finetune(small(run, **warm_up), run, WORLD, store, out, listener=heard)
    # A copy of it is the same policy.
    found = finetune(small(parent, **warm_up), parent, WORLD, store, out, resume=True)
    assert (found.kept, found.episodes) == ("last", 12)
    assert load_run(out / "parent").policy_hash == load_run(parent).policy_hash


def test_an_actor_that_begins_anew_does_not_fly_another_policy(
    parent: Path, tmp_path: Path
) -> None:
    run, world = copied(parent, tmp_path / "run"), env_builder(WORLD[0])
    store = EpisodeStore.create(tmp_path / "store")
    begun = load_run(run).policy_hash
    plan = ActorPlan((world,), run, tmp_path / "out", store.staging, parent_hash=begun)
    copy_run(parent.with_name("two"), run)
    env = make_world(WORLD[0])
    task = RoundTask(0, None, (env.sample_condition(1),), ("parent",), 0, 0)
    with pytest.raises(CheckpointError, match=f"than when this began .{begun}"):
        plan()(task)
    assert store.ids() == ()


def test_a_loss_that_is_not_finite_leaves_the_checkpoint_and_the_parent(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes on begins at the checkpoint before, and until something comes out of it the run
    holds what it held.
    """
    real = Trainer.update

    def spoiled(self: Trainer) -> Losses:
        if self.clock.step == 4:
            with torch.no_grad():
                next(iter(self.algorithm.parameters())).mul_(float("nan"))
        return real(self)

    monkeypatch.setattr(Trainer, "update", spoiled)
    store, out = tmp_path / "store", tmp_path / "out"
    found = finetune(small(parent, practice__test_every=0), parent, WORLD, store, out)
    assert (found.kept, found.sound) == ("parent", False)
    assert (kept := load_state(out)) is not None
    assert all(bool(v.isfinite().all()) for k, v in kept[1].items() if k.startswith("algorithm/"))
    assert kept[0] < found.updates
    monkeypatch.setattr(Trainer, "update", real)
    longer = small(parent, practice__max_episodes=20)
    seen = list[type[Policy]]()

    def stopped(_: RoundReport) -> None:
        seen.append(type(load_policy(out)))
        raise KeyboardInterrupt

    interrupted = PracticeListener(on_round=stopped)
    with pytest.raises(KeyboardInterrupt):
        finetune(longer, parent, WORLD, store, out, resume=True, listener=interrupted)
    assert type(load_policy(out)) is type(load_policy(parent)) is seen[0]
    found = finetune(longer, parent, WORLD, store, out, resume=True)
    assert (found.kept, found.sound, found.episodes) == ("last", True, 20)
    assert isinstance(load_policy(out), RerankedPolicy)
