"""What a store is good for, on stores whose answer is known."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data.episode import Episode, EpisodeInfo, EpisodeMeta, episode_from_arrays
from robolearn.data.insight.advice import advise
from robolearn.data.insight.measures import StoreMeasures, measure, trajectory_quality
from robolearn.data.insight.sample import SampledEpisode, StoreSample, sample_store
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Outcome

TOOL, GOAL, RATE = "tool/xy_table", "goal/xy_table", 10.0
EMBODIMENT = EmbodimentSpec(
    "point",
    (SignalSpec(TOOL, (2,), "m", RATE),),
    (ActionSpec(TOOL, (2,), "m", RATE, low=(-1.0, -1.0), high=(1.0, 1.0)),),
    RATE,
)


def walk(seed: int, *, delay: int, steps: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Commanded places that wander, and where a tool was seen that follows them late."""
    rng = np.random.default_rng(seed)
    action = 0.9 * np.sin(np.cumsum(rng.normal(0.0, 0.25, (steps + delay + 1, 2)), axis=0))
    # What is commanded at tick t shows at tick t + delay + 1.
    return action[delay + 1 :], np.concatenate([action[:1], action[:steps]])[1:]


def episode(
    seed: int,
    *,
    success: bool = True,
    delay: int = 0,
    limit: float = 1.0,
    rewarded: bool = True,
    terminal: bool | None = None,
    goal: bool = False,
) -> Episode:
    action, seen = walk(seed, delay=delay)
    ended = success if terminal is None else terminal
    outcome = Outcome(
        success, 1.0 if success else 0.3, 0.0, terminal=ended, truncated=not ended, reason="test"
    )
    embodiment, shown = EMBODIMENT, {TOOL: seen}
    if goal:
        signals = (*EMBODIMENT.signals, SignalSpec(GOAL, (2,), "m", RATE))
        embodiment, shown[GOAL] = dataclasses.replace(EMBODIMENT, signals=signals), seen
    meta = EpisodeMeta("scripted", "point", embodiment, Condition(f"c{seed}", seed, {}), outcome)
    progress = np.linspace(0.0, outcome.progress, len(action)) * rewarded
    limited = np.clip(action, -limit, limit) / limit
    return episode_from_arrays(meta, shown, {TOOL: limited}, progress=progress)


def store_of(path: Path, episodes: list[Episode]) -> EpisodeStore:
    store = EpisodeStore.create(path)
    with store.writer() as writer:
        for one in episodes:
            writer.append(one)
    return EpisodeStore.open(path)


def measured(path: Path, episodes: list[Episode], rows: int = 10_000) -> StoreMeasures:
    return measure(sample_store(store_of(path, episodes), rows))


def test_an_experts_store_is_for_imitation(tmp_path: Path) -> None:
    found = measured(tmp_path / "s", [episode(k) for k in range(12)])
    assert (found.successes, found.episodes, found.sampled_steps) == (12, 12, 720)
    assert advise(found).family == "imitation"
    assert found.ends.terminal == 12
    assert found.returns is not None


def test_a_mixed_store_is_for_reinforcement_learning(tmp_path: Path) -> None:
    found = measured(tmp_path / "s", [episode(k, success=k % 8 == 0) for k in range(16)])
    advice = advise(found)
    assert advice.family == "reinforcement"
    assert "flow with data.quality.by: return" in advice.algorithms
    assert any("Good episodes are rare" in reason for reason in advice.reasons)
    assert found.trajectory_quality == pytest.approx(2 / 16, abs=1e-6)
    silent = measured(
        tmp_path / "t", [episode(k, success=k % 2 == 0, rewarded=False) for k in range(6)]
    )
    assert silent.returns is None
    assert any("{task: success}" in remedy for remedy in advise(silent).remedies)


def test_a_store_that_says_nothing_needs_rewards_first(tmp_path: Path) -> None:
    episodes = [episode(k, success=False, rewarded=False) for k in range(4)]
    assert advise(measured(tmp_path / "s", episodes)).family == "reward first"


@pytest.mark.parametrize("paid", [False, True])
def test_play_with_goals_is_for_goals(tmp_path: Path, paid: bool) -> None:
    """Also where its returns differ: what was paid for is not what was wanted."""
    episodes = [episode(k, success=False, rewarded=paid, goal=True) for k in range(4)]
    found = measured(tmp_path / "s", episodes)
    if paid:
        found = dataclasses.replace(found, returns=(0.0, 1.0, 2.0, 3.0))
    advice = advise(found)
    assert found.goals == (GOAL,)
    assert advice.family == "goals"
    assert "gciql" in advice.algorithms
    assert any(f"'{GOAL}'" in reason for reason in advice.reasons)
    assert any("data.reward" in reason for reason in advice.reasons) == paid


def test_goals_that_are_reached_are_not_play(tmp_path: Path) -> None:
    episodes = [episode(k, success=k % 2 == 0, goal=True) for k in range(6)]
    assert advise(measured(tmp_path / "s", episodes)).family == "reinforcement"


@pytest.mark.parametrize("delay", [0, 4])
def test_the_delay_is_found(tmp_path: Path, delay: int) -> None:
    found = measured(tmp_path / "s", [episode(k, delay=delay) for k in range(6)])
    assert found.delay is not None
    assert found.delay.ticks == delay
    assert found.delay.seconds == pytest.approx(delay / RATE)
    assert found.delay.command[:-3] == found.delay.motion[:-3] == TOOL
    late = [r for r in advise(found).remedies if "ticks late" in r]
    assert bool(late) == (delay > 1)


def test_saturation_is_said(tmp_path: Path) -> None:
    free = measured(tmp_path / "s", [episode(k) for k in range(4)])
    cut = measured(tmp_path / "t", [episode(k, limit=0.3) for k in range(4)])
    assert free.saturation[0].at_limit < 0.05
    assert cut.saturation[0].at_limit > 0.4
    assert cut.saturation[0].declared
    assert not any("at its limit" in r for r in advise(free).remedies)
    assert any("at its limit" in r for r in advise(cut).remedies)


def test_standing_still_is_said(tmp_path: Path) -> None:
    waited = episode(0)
    action = waited.action[TOOL].copy()
    action[10:50] = action[10]
    waited = dataclasses.replace(waited, action={TOOL: action})
    found = advise(measured(tmp_path / "s", [waited, episode(1), episode(2)]))
    assert any("1 of 3 episodes stand still" in r for r in found.remedies)


def test_time_limits_and_contradictions_come_first(tmp_path: Path) -> None:
    clock = [episode(k, success=False, terminal=True) for k in range(6)]
    advice = advise(measured(tmp_path / "s", clock))
    assert advice.family == "repair first"
    assert "exactly when time is up" in advice.reasons[-1]


def test_two_ways_to_act_are_told_from_noise(tmp_path: Path) -> None:
    """The same states; actions of two kinds, of one kind, or of one kind with noise."""
    rng = np.random.default_rng(0)
    rows, count = 40, 40
    states = np.tile(np.linspace(-1.0, 1.0, rows), count)[:, None]
    side = np.repeat(rng.choice([-1.0, 1.0], count), rows)
    noise = rng.normal(size=rows * count)
    found = {
        name: measure(sample_of(states, actions[:, None], count)).ambiguity
        for name, actions in (("two", side), ("one", states[:, 0]), ("noise", noise))
    }
    assert all(found.values())
    two, one, noisy = (found[k] for k in ("two", "one", "noise"))
    assert two is not None
    assert one is not None
    assert noisy is not None
    assert two.two_modes > 0.8
    assert one.spread < 0.05
    assert one.two_modes == 0.0
    assert noisy.spread > 0.8
    assert noisy.two_modes < 0.4


def sample_of(states: np.ndarray, actions: np.ndarray, count: int) -> StoreSample:
    """Rows as ``count`` episodes of equal length."""
    rows = len(states)
    starts = np.arange(count + 1) * (rows // count)
    info = EpisodeInfo(
        id="e", kind="scripted", task="t", steps=rows // count, success=True, score=1.0,
        duration_s=1.0, rate_hz=RATE, agent="", env="", operator="", start_wall_ns=0, signals=(),
        size_bytes=0,
    )  # fmt: skip
    ended = SampledEpisode(info, True, True, False, True, 1.0, True)
    return StoreSample(
        infos=(info,) * count,
        episodes=(ended,) * count,
        states=states,
        actions=actions,
        starts=starts.astype(np.int64),
        state_names=("x[0]",),
        action_names=("a[0]",),
        specs=(ActionSpec("a", (1,), "m", RATE),),
        rate_hz=RATE,
        left_out=0,
    )


def test_of_a_large_store_a_sample_is_looked_at(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s", [episode(k) for k in range(9)])
    sample = sample_store(store, 200)
    assert len(sample.episodes) == 4
    assert not sample.whole
    assert sample_store(store, 200).starts.tolist() == sample.starts.tolist()
    found = measure(sample)
    assert (found.steps, found.sampled_steps) == (540, 240)
    with pytest.raises(DataError, match="has no episodes"):
        sample_store(EpisodeStore.create(tmp_path / "empty"), 10)


def test_quality_is_between_the_worst_and_the_best() -> None:
    assert trajectory_quality(np.array([0.0, 0.0, 1.0, 0.0])) == 0.25
    assert trajectory_quality(np.array([3.0, 3.0])) == 1.0


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_of(tmp_path / "s", [episode(k, success=k % 2 == 0) for k in range(6)])
    out = tmp_path / "page.html"
    words = ["data", "report", str(tmp_path / "s"), "--out", str(out), "--rows", "200"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "240 of 360 steps looked at" in text
    assert "mixed quality" in text
    page = out.read_text()
    assert "drawn at random" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["advice"]["family"] == "reinforcement"
    assert document["measures"]["tasks"] == [{"task": "point", "episodes": 6, "successes": 3}]
