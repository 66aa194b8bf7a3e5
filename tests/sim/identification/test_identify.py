"""Identification: a hidden scene is found again, and what is written is what was checked."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.cli.main import main
from robolearn.data.episode import Episode
from robolearn.data.importers.diffusion_policy import import_diffusion_policy
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError, SceneError
from robolearn.pusht import BLOCK, TOOL
from sim.env.scene_env import SceneEnv
from sim.identification.planar_rollouts import Physics, PlanarRollouts, pushes
from sim.identification.replay import replay_episode, summarize_final
from sim.identification.search import Identified, IdentifyConfig, identify, rounded, split
from sim.identification.write_scene import scene_xml, write_identified
from sim.scene.config import Scene
from sim.scene.load import load_scene
from tests.sim.pushing import pushing_episode

CONFIG = IdentifyConfig(train_episodes=8, windows=20, polish_evaluations=40)


def hidden_physics(seed: int) -> Physics:
    rng = np.random.default_rng(seed)
    return rounded(
        Physics(
            friction=float(rng.uniform(0.02, 0.6)),
            gyration_m2=float(rng.uniform(0.0012, 0.005)),
            com_m=float(rng.uniform(0.03, 0.06)),
            compliance=float(np.exp(rng.uniform(np.log(0.02), np.log(0.3)))),
        )
    )


def hidden_scene(folder: Path, physics: Physics) -> Scene:
    template = load_scene("pusht_naive")
    shutil.copytree(template.path, folder)
    (folder / "scene.xml").write_text(scene_xml(template, physics, "hidden"))
    return load_scene(folder)


def episodes_of(scene: Scene, count: int, steps: int = 60) -> list[Episode]:
    env = SceneEnv(scene)
    return [
        dataclasses.replace(pushing_episode(env, seed, steps), id=f"e{seed}")
        for seed in range(count)
    ]


@pytest.mark.parametrize("seed", [1, 4])
def test_randomly_drawn_physics_are_found(tmp_path: Path, seed: int) -> None:
    truth = hidden_physics(seed)
    episodes = episodes_of(hidden_scene(tmp_path / "hidden", truth), 12)
    found = identify(episodes, load_scene("pusht_naive"), CONFIG)
    assert found.after.friction == pytest.approx(truth.friction, abs=0.04)
    assert found.after.gyration_m2 == pytest.approx(truth.gyration_m2, rel=0.06)
    assert found.after.com_m == pytest.approx(truth.com_m, abs=1.5e-3)
    assert truth.compliance / 3 < found.after.compliance < truth.compliance * 3
    assert found.residual_after_mm < 0.2 * found.residual_before_mm
    before, after = summarize_final(found.heldout_before), summarize_final(found.heldout_after)
    assert after.position_p50_mm < 0.2 * before.position_p50_mm
    assert not set(found.train_ids) & set(found.heldout_ids)
    assert len(found.train_ids) == 5
    assert len(found.heldout_ids) == 7


def test_it_is_deterministic(tmp_path: Path) -> None:
    episodes = episodes_of(hidden_scene(tmp_path / "hidden", hidden_physics(2)), 4)
    config = dataclasses.replace(CONFIG, polish_evaluations=5, first_evaluations=2)
    runs = [identify(episodes, load_scene("pusht_naive"), config) for _ in range(2)]
    assert runs[0].after == runs[1].after
    assert runs[0].train_ids == runs[1].train_ids


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Identified, list[Episode], Path]:
    folder = tmp_path_factory.mktemp("identify")
    episodes = episodes_of(hidden_scene(folder / "hidden", hidden_physics(3)), 5)
    config = dataclasses.replace(CONFIG, polish_evaluations=5, first_evaluations=2)
    return identify(episodes, load_scene("pusht_naive"), config), episodes, folder


def test_the_package_written_is_the_one_checked(
    quick: tuple[Identified, list[Episode], Path],
) -> None:
    result, episodes, folder = quick
    out = folder / "runs" / "pusht_identified"
    template = load_scene("pusht_naive")
    scene = write_identified(result, template, CONFIG, out, source="test")
    assert scene.name == "pusht_identified"
    assert [p.name for p in out.parent.iterdir()] == ["pusht_identified"]
    by_id = {e.id: e for e in episodes}
    env = SceneEnv(scene)
    for error in result.heldout_after:
        again = replay_episode(env, by_id[error.episode])
        assert np.allclose(again.path, error.path, atol=1e-6)
    details = scene.config.provenance.details
    assert scene.config.provenance.kind == "identified"
    assert details["parameters"]["friction"]["before"] == pytest.approx(0.3)
    assert details["parameters"]["friction"]["after"] == result.after.friction
    assert details["episodes"]["train"] == list(result.train_ids)
    assert details["template_hash"] == template.content_hash
    assert set(details["versions"]) == {"python", "mujoco", "numpy", "scipy"}
    # An identified scene may be replaced, and has the same bytes.
    again_scene = write_identified(result, template, CONFIG, out, source="test")
    assert again_scene.content_hash == scene.content_hash


def test_only_identified_scenes_are_overwritten(
    quick: tuple[Identified, list[Episode], Path], tmp_path: Path
) -> None:
    template = load_scene("pusht_naive")
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(SceneError, match="no scene package"):
        write_identified(quick[0], template, CONFIG, tmp_path)
    mine = shutil.copytree(template.path, tmp_path / "mine")
    with pytest.raises(SceneError, match="hand-made"):
        write_identified(quick[0], template, CONFIG, mine)


def test_a_failed_write_leaves_nothing(
    quick: tuple[Identified, list[Episode], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.identification.write_scene.yaml.safe_dump", fail)
    with pytest.raises(KeyboardInterrupt):
        write_identified(quick[0], load_scene("pusht_naive"), CONFIG, tmp_path / "a" / "b")
    assert list((tmp_path / "a").iterdir()) == []


@pytest.mark.parametrize("seed", range(4))
def test_parameters_written_into_fields_are_those_of_a_compiled_model(
    tmp_path: Path, seed: int
) -> None:
    physics = hidden_physics(seed)
    scene = hidden_scene(tmp_path / "hidden", physics)
    compiled, mutated = PlanarRollouts(scene), PlanarRollouts(load_scene("pusht_naive"))
    mutated.set_physics(physics)
    for name in ("friction", "gyration_m2", "com_m", "compliance"):
        assert getattr(compiled.physics(), name) == pytest.approx(getattr(physics, name), rel=1e-6)
        assert getattr(mutated.physics(), name) == pytest.approx(getattr(physics, name), rel=1e-9)
    episode = episodes_of(scene, 1, steps=30)[0]
    track = compiled.track(episode)
    paths = [r.roll(track, 0, 29) for r in (compiled, mutated)]
    assert np.allclose(paths[0], paths[1], atol=1e-6)
    # The rollouts are the env's physics.
    assert np.allclose(paths[0], episode.observed(BLOCK), atol=1e-9)


def test_tracks_know_the_tool_s_velocity(tmp_path: Path) -> None:
    scene = load_scene("pusht_naive")
    episode = episodes_of(scene, 1, steps=25)[0]
    rollouts = PlanarRollouts(scene)
    track = rollouts.track(episode)
    for start in (7, 12):
        path = rollouts.roll(track, start, 5)
        assert np.allclose(rollouts.data.qpos[:2], episode.observed(TOOL)[start + 5], atol=1e-6)
        assert np.allclose(path[0], track.block[start], atol=1e-12)


def test_windows_start_at_rest_do_not_overlap_and_move() -> None:
    scene = load_scene("pusht_naive")
    rollouts = PlanarRollouts(scene)
    tracks = [rollouts.track(e) for e in episodes_of(scene, 3)]
    found = pushes(tracks, 10, 0.01)
    assert found
    last: dict[int, int] = {}
    for i, start in found:
        block = tracks[i].block
        assert start >= last.get(i, 0)
        last[i] = start + 10
        assert np.linalg.norm(block[start + 10, :2] - block[start, :2]) > 0.01
        if start:
            assert np.linalg.norm(block[start, :2] - block[start - 1, :2]) < 2e-5


def test_too_little_to_learn_from() -> None:
    scene = load_scene("pusht_naive")
    episodes = episodes_of(scene, 2, steps=5)
    with pytest.raises(DataError, match="at least 2 episodes"):
        split(episodes[:1], CONFIG)
    with pytest.raises(DataError, match="use more episodes"):
        identify(episodes, scene, CONFIG)


def test_only_planar_scenes_of_this_kind() -> None:
    from sim.scene.load import packaged_scenes

    if "pusht_ur5e" in packaged_scenes():
        with pytest.raises(SceneError, match="no joint 'tool_x'"):
            PlanarRollouts(load_scene("pusht_ur5e"))


def test_the_command_on_human_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    import_diffusion_policy(pusht_demonstrations_path(), EpisodeStore.create(store), limit=5)
    out = tmp_path / "runs" / "pusht_identified"
    assert main(["identify", str(store), "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["train_episodes"] == 2
    assert document["heldout_episodes"] == 3
    before, after = (document["heldout"][k]["after_5_s"] for k in ("before", "after"))
    assert after["position_p50_mm"] < 0.5 * before["position_p50_mm"]
    assert document["parameters"]["friction"]["after"] < 0.1
    assert load_scene(out).content_hash == document["scene_hash"]
    assert main(["identify", str(store), "--out", str(out), "--episodes", "1"]) == 2
    assert "at least 2" in capsys.readouterr().err
