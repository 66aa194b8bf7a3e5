"""Open-loop replay: agreement of pusht_reference with what people did, and the command."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.cli.main import main
from robolearn.data.episode import Episode
from robolearn.data.importers.diffusion_policy import import_diffusion_policy
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.types import Condition
from sim.contract import World
from sim.identification.replay import ReplayError, replay_episode, summarize_after, summarize_final
from sim.worlds import make_world
from tests.sim import pushing
from tests.sim.human import human_episodes


def record(env: World, condition: Condition, actions: np.ndarray) -> Episode:
    """What the env shows while the actions are commanded."""
    rng = np.random.default_rng(0)
    return pushing.record(env, condition, len(actions), lambda k, _: actions[k], rng)


def sweep(steps: int, seed: int) -> np.ndarray:
    """A target that sweeps across the table."""
    phase = np.arange(steps) / 6 + seed
    return np.stack([0.256 + 0.15 * np.cos(phase), 0.256 + 0.15 * np.sin(1.3 * phase)], axis=1)


def test_people_s_episodes_end_where_they_ended() -> None:
    env = make_world("pusht_reference")
    errors = [replay_episode(env, e) for e in human_episodes(12)]
    final = summarize_final(errors)
    assert final.episodes == 12
    assert final.position_p50_mm < 0.5
    assert final.rotation_p50_deg < 0.2
    assert final.position_p90_mm < 2.0
    assert final.rotation_p90_deg < 1.0
    after = summarize_after(errors, 5.0)
    assert after.position_p50_mm < 0.5


def test_the_naive_scene_is_far_off() -> None:
    env = make_world("pusht_naive")
    final = summarize_final([replay_episode(env, e) for e in human_episodes(12)[:4]])
    assert final.position_p50_mm > 5.0


def test_a_world_replays_itself_without_error() -> None:
    env = make_world("pusht_reference")
    episode = record(env, env.sample_condition(3), sweep(50, 1))
    error = replay_episode(env, episode)
    assert np.ptp(error.recorded[:, 0]) > 0.005
    assert error.position_m.max() < 1e-9
    assert error.rotation_rad.max() < 1e-9


def test_the_last_action_has_no_recorded_effect() -> None:
    env = make_world("pusht_reference")
    episode = record(env, env.sample_condition(3), sweep(50, 1))
    changed = sweep(50, 1)
    changed[-1] = 0.5
    other = record(env, env.sample_condition(3), changed)
    assert replay_episode(env, other).position_m.max() < 1e-9
    assert np.array_equal(replay_episode(env, other).path, replay_episode(env, episode).path)


def test_rotation_errors_wrap() -> None:
    error = replay_like(np.array([0.0, 0.0]), np.array([0.0, 0.1]))
    assert summarize_final([error]).rotation_p50_deg == pytest.approx(math.degrees(0.1))


def replay_like(position: np.ndarray, rotation: np.ndarray) -> ReplayError:
    poses = np.zeros((len(position), 3))
    return ReplayError("e", 10.0, position, rotation, poses, poses)


def test_summaries_by_hand() -> None:
    errors = [replay_like(np.full(21, k * 1e-3), np.zeros(21)) for k in range(11)]
    final = summarize_final(errors)
    assert final.position_p50_mm == pytest.approx(5.0)
    assert final.position_p90_mm == pytest.approx(9.0)
    assert summarize_after(errors, 2.0).episodes == 11
    assert summarize_after(errors, 2.1).episodes == 0
    assert math.isnan(summarize_after(errors, 2.1).position_p50_mm)


def test_one_step_is_too_short() -> None:
    env = make_world("pusht_reference")
    episode = record(env, env.sample_condition(3), sweep(1, 1))
    with pytest.raises(DataError, match="needs 2"):
        replay_episode(env, episode)


def test_another_rate_is_refused() -> None:
    env = make_world("pusht_reference")
    episode = record(env, env.sample_condition(3), sweep(5, 1))
    slow = dataclasses.replace(env.spec, rate_hz=5.0)
    meta = dataclasses.replace(episode.meta, embodiment=slow)
    with pytest.raises(DataError, match="recorded at 5 Hz, pusht_reference runs at 10 Hz"):
        replay_episode(env, dataclasses.replace(episode, meta=meta))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "store"
    import_diffusion_policy(pusht_demonstrations_path(), EpisodeStore.create(path), limit=3)
    return path


def test_the_command_prints_one_document(
    store: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "sub" / "plot.png"
    argv = ["replay", str(store), "--scene", "pusht_reference", "--after", "1,5,99", "--json"]
    assert main([*argv, "--plot", str(plot)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["episodes"] == 3
    assert set(document["final_position_error_mm"]) == {"p50", "p90"}
    assert set(document["final_rotation_error_deg"]) == {"p50", "p90"}
    assert list(document["after_s"]) == ["1", "5", "99"]
    assert document["after_s"]["99"]["final_position_error_mm"]["p50"] is None
    assert plot.read_bytes()[:4] == b"\x89PNG"


def test_the_command_for_people(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(store), "--scene", "gym_pusht", "--episodes", "1"]) == 0
    out = capsys.readouterr().out
    assert "1 episodes in gym_pusht (gym-pusht 0.1.8" in out
    assert "0.000 / 0.000 mm" in out


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--scene", "pusht_refrence"], "Did you mean 'pusht_reference'"),
        (["--scene", "pusht_reference", "--after", "x"], "seconds like 1,5"),
        (["--scene", "pusht_reference", "--after", "-1"], "positive"),
        (["--scene", "pusht_reference", "--episodes", "0"], "at least 1"),
        (["--scene", "pusht_reference", "--episodes", "1", "--plot", "/proc/x.png"], "check the"),
    ],
)
def test_what_the_user_can_fix(
    store: Path, capsys: pytest.CaptureFixture[str], extra: list[str], message: str
) -> None:
    assert main(["replay", str(store), *extra]) == 2
    assert message in capsys.readouterr().err
