"""Pictures as signals: content, times, calibration, photographs behind them, and in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import mujoco
import numpy as np
import pytest
import yaml

from robolearn.cli.main import main
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import SceneError
from robolearn.pusht import BLOCK, TOOL
from robolearn.runtime import run_episode
from robolearn.types import Command, Condition, Observation, PolicyOutput
from sim.env.scene_env import SceneEnv
from sim.rendering.cameras import Cameras, calibration, camera_pose, foreground
from sim.rendering.renderer import Renderer, View, update_poses
from sim.scene.load import SCENES, load_scene

START = Condition("a", 0, {TOOL: (0.1, 0.4), BLOCK: (0.38, 0.12, 0.7)})


def package(folder: Path, *cameras: dict[str, Any]) -> Path:
    """``pusht_reference`` with a camera on the tool, and these entries."""
    source = SCENES / "pusht_reference"
    config = yaml.safe_load((source / "scene.yaml").read_text())
    config["cameras"] = list(cameras)
    spec = mujoco.MjSpec.from_file(str(source / "scene.xml"))
    spec.body("tool").add_camera(name="wrist", pos=[0, 0, 0.6], fovy=40)
    (folder / "scene.xml").write_text(spec.to_xml())
    (folder / "scene.yaml").write_text(yaml.safe_dump(config))
    return folder


TOP = {"name": "top", "width": 96, "height": 96, "signal": "top/image"}
WRIST_CAMERA = {
    "name": "wrist", "width": 64, "height": 48, "signal": "wrist/image", "rate_hz": 5.0,
}  # fmt: skip


def step(env: SceneEnv, seq: int, xy: tuple[float, float]) -> None:
    env.apply(Command(seq, {TOOL: np.array(xy)}, env.now_ns(), "test"))
    env.advance()


def test_pictures_are_signals_with_their_own_rate_and_capture_time(tmp_path: Path) -> None:
    env = SceneEnv(load_scene(package(tmp_path, TOP, WRIST_CAMERA)))
    top, wrist = env.spec.signal("top/image"), env.spec.signal("wrist/image")
    assert (top.shape, top.dtype, top.rate_hz) == ((96, 96, 3), "uint8", 10.0)
    assert (wrist.shape, wrist.rate_hz, wrist.is_image) == ((48, 64, 3), 5.0, True)
    env.reset(START, np.random.default_rng(0))
    first = env.observe()
    times: list[int] = []
    for seq in range(4):
        step(env, seq, (0.3, 0.3))
        times.append(env.observe().samples["wrist/image"].t_ns)
        assert env.observe().samples["top/image"].t_ns == env.now_ns()
        drained = env.drain().signals
        assert drained["top/image"].value.dtype == np.uint8
        assert len(drained["top/image"].t_ns) == 1
        assert len(drained["wrist/image"].t_ns) == (1 if seq % 2 == 0 else 0)
    assert times == [0, 200_000_000, 200_000_000, 400_000_000]
    now = env.observe()
    # The tool is at the middle of its own camera's picture, and moved in the other's.
    for seen in (first, now):
        r, g, b = seen.value("wrist/image")[24, 32].astype(int)
        assert b > max(r, g) + 30
    assert np.abs(first.value("top/image").astype(int) - now.value("top/image")).max() > 60
    assert not now.value("top/image").flags.writeable
    env.close()


def test_a_camera_may_be_faster_than_the_control(tmp_path: Path) -> None:
    fast = {**TOP, "width": 16, "height": 16, "rate_hz": 20.0}
    env = SceneEnv(load_scene(package(tmp_path, fast)))
    env.reset(START, np.random.default_rng(0))
    step(env, 0, (0.3, 0.3))
    block = env.drain().signals["top/image"]
    assert block.t_ns.tolist() == [0, 50_000_000]
    env.close()


def test_cameras_without_a_signal_are_drawn_when_asked_for() -> None:
    scene = load_scene("pusht_reference")
    assert not any(s.is_image for s in SceneEnv(scene).spec.signals)
    env = SceneEnv(scene, cameras=("top",), size=96)
    env.reset(START, np.random.default_rng(0))
    assert env.observe().value("top/image").shape == (96, 96, 3)
    env.close()
    with pytest.raises(SceneError, match=r"no camera 'topp'\. Did you mean 'top'"):
        SceneEnv(scene, cameras=("topp",))


def test_pictures_do_not_change_the_physics(tmp_path: Path) -> None:
    blind = SceneEnv(load_scene("pusht_reference"))
    seeing = SceneEnv(load_scene(package(tmp_path, TOP, WRIST_CAMERA)))
    for env in (blind, seeing):
        env.reset(START, np.random.default_rng(0))
        for seq in range(10):
            step(env, seq, (0.4, 0.15))
    assert np.array_equal(blind.data.qpos, seeing.data.qpos)
    assert np.array_equal(blind.data.qvel, seeing.data.qvel)
    seeing.close()


SPHERES = """<mujoco><visual><map znear=".01" zfar="20"/></visual><statistic extent="2"/>
  <worldbody>
  <geom name="a" type="sphere" size=".02" pos="0 .1 0"/>
  <geom name="b" type="sphere" size=".02" pos=".3 .2 .1"/>
  <body name="arm" pos="0 0 1" euler="0 15 25"><joint axis="1 0 0"/><geom size=".001"/>
    <camera name="fovy" pos=".05 0 .2" fovy="50"/>
    <camera name="lens" pos="0 .04 .2" focalpixel="150 160" principalpixel="5 -9"
      sensorsize=".02 .015" resolution="200 150"/></body>
  </worldbody></mujoco>"""


@pytest.mark.parametrize("camera", ["fovy", "lens"])
@pytest.mark.parametrize("size", [(200, 150), (400, 300)])
def test_calibration_predicts_where_things_are_drawn(camera: str, size: tuple[int, int]) -> None:
    model = mujoco.MjModel.from_xml_string(SPHERES)
    data = mujoco.MjData(model)
    data.qpos[0] = 0.1
    view = View(camera, *size)
    found = calibration(model, view)
    T_world_camera = camera_pose(model, data, camera)
    T_world_body = np.eye(4)
    T_world_body[:3, :3] = data.body(found.body).xmat.reshape(3, 3)
    T_world_body[:3, 3] = data.body(found.body).xpos
    assert np.allclose(T_world_body @ found.T_body_camera, T_world_camera, atol=1e-12)
    renderer = Renderer(model, "fast")
    ids = renderer.segmentation(data, view)
    renderer.close()
    for name in ("a", "b"):
        rows, columns = np.nonzero(ids == model.geom(name).id)
        point = np.linalg.inv(T_world_camera) @ [*data.geom(name).xpos, 1.0]
        pixel = found.K @ point[:3] / point[2]
        assert len(rows) > 5
        assert np.allclose(pixel[:2], [columns.mean(), rows.mean()], atol=0.5)


def tool_is_seen_at(env: SceneEnv, signal: str, row: float, column: float) -> bool:
    r, g, b = env.observe().value(signal)[round(row), round(column)].astype(int)
    return b > max(r, g) + 30


def test_given_intrinsics_replace_those_of_the_mjcf(tmp_path: Path) -> None:
    # The wrist camera hangs 0.6 m above the tool and sees it at the principal point.
    given = {**WRIST_CAMERA, "intrinsics": [110.0, 120.0, 40.0, 12.0]}
    env = SceneEnv(load_scene(package(tmp_path, given)))
    found = env.calibrations()["wrist/image"]
    assert np.allclose(found.K, [[110, 0, 40], [0, 120, 12], [0, 0, 1]], atol=1e-4)
    assert (found.body, found.projection) == ("tool", "perspective")
    assert found.to_json()["K"][0][0] == pytest.approx(110.0)
    env.reset(START, np.random.default_rng(0))
    assert tool_is_seen_at(env, "wrist/image", 12, 40)
    assert not tool_is_seen_at(env, "wrist/image", 24, 32)
    env.close()


def test_an_orthographic_camera_maps_metres(tmp_path: Path) -> None:
    env = SceneEnv(load_scene(package(tmp_path, TOP)))
    env.reset(START, np.random.default_rng(0))
    found = env.calibrations()["top/image"]
    assert (found.body, found.projection) == ("world", "orthographic")
    point = np.linalg.inv(found.T_body_camera) @ [*env.data.body("tool").xpos, 1.0]
    column, row, _ = found.K @ [point[0], point[1], 1.0]
    assert tool_is_seen_at(env, "top/image", row, column)
    assert [column, row] == pytest.approx([0.1 / 0.512 * 96 - 0.5, 0.112 / 0.512 * 96 - 0.5], abs=1)
    env.close()


def test_the_drawn_foreground_lies_over_the_photograph(tmp_path: Path) -> None:
    rows, columns = np.mgrid[:96, :96]
    photo = np.stack([2 * rows, 2 * columns, np.full_like(rows, 250)], axis=-1).astype(np.uint8)
    cv2.imwrite(str(tmp_path / "wall.png"), photo[..., ::-1])
    scene = load_scene(package(tmp_path, {**TOP, "background": "wall.png"}))
    env = SceneEnv(scene)
    env.reset(START, np.random.default_rng(0))
    image = env.observe().value("top/image")
    plain = Renderer(env.model, "fast")
    drawn = plain.image(env.data, View("top", 96, 96))
    front = foreground(env.model)[plain.segmentation(env.data, View("top", 96, 96))]
    plain.close()
    # Tool and block are drawn; table, walls and goal are the photograph's.
    assert 0.01 < front.mean() < 0.2
    assert np.array_equal(image[front], drawn[front])
    assert np.array_equal(image[~front], photo[~front])
    env.close()


def test_what_is_photographed_nearer_hides_what_is_drawn(tmp_path: Path) -> None:
    photo = np.full((96, 96, 3), 77, np.uint8)
    cv2.imwrite(str(tmp_path / "wall.png"), photo)
    # The left half is right before the lens, of the right one nothing was measured.
    depth = np.zeros((96, 96), np.uint16)
    depth[:, :48] = 1
    cv2.imwrite(str(tmp_path / "depth.png"), depth)
    camera = {**TOP, "background": "wall.png", "background_depth": "depth.png"}
    env = SceneEnv(load_scene(package(tmp_path, camera)))
    env.reset(START, np.random.default_rng(0))
    image = env.observe().value("top/image")
    plain = Renderer(env.model, "fast")
    view = View("top", 96, 96)
    drawn, front = (
        plain.image(env.data, view),
        foreground(env.model)[plain.segmentation(env.data, view)],
    )
    plain.close()
    env.close()
    assert front[:, :48].any()
    assert front[:, 48:].any()
    assert (image[:, :48] == 77).all()
    right = front & (np.arange(96) >= 48)
    assert np.array_equal(image[right], drawn[right])


def test_named_bodies_are_the_foreground(tmp_path: Path) -> None:
    model = load_scene("pusht_reference").compile()
    block = foreground(model, ("block",))
    assert set(model.geom_bodyid[block]) == {model.body("block").id}
    assert set(model.geom_bodyid[foreground(model)]) == {
        model.body("block").id,
        model.body("tool").id,
    }
    del tmp_path


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        ({**TOP, "width": 5000}, "1 to 4096"),
        ({**TOP, "signal": TOOL}, "must be 'part/name' and not be taken"),
        ({**TOP, "signal": "image"}, "'part/name'"),
        ({**TOP, "rate_hz": 3.0}, "must divide 10"),
        ({**TOP, "rate_hz": -1.0}, "must divide 10"),
        ({**TOP, "intrinsics": [1.0, 2.0, 0.0, 0.0]}, "an orthographic camera"),
        ({**TOP, "intrinsics": [1.0, 2.0]}, "fx, fy, cx, cy"),
        ({**TOP, "intrinsics": [0.0, 2.0, 1.0, 1.0]}, "fx, fy, cx, cy"),
        ({**TOP, "foreground": ["block"]}, "needs a background"),
        ({**TOP, "background": "a.png", "foreground": ["blok"]}, "Did you mean 'block'"),
        ({**TOP, "background": "a.png"}, "not a file of the package; it has: .*odd.png"),
        ({**TOP, "background": "../a.png"}, "not a file of the package"),
        ({**TOP, "background": "broken.png"}, "not a picture"),
        ({**TOP, "background": "odd.png"}, "another shape"),
        ({**TOP, "background_depth": "odd.png"}, "needs a background"),
        (
            {**TOP, "background": "square.png", "background_depth": "odd.png"},
            "one channel with 16 bits",
        ),
        ({**TOP, "quality": "best"}, "best"),
        ({**TOP, "name": "tpo"}, "Did you mean 'top'"),
    ],
)
def test_what_is_wrong_with_a_camera_is_named(
    tmp_path: Path, camera: dict[str, Any], message: str
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    cv2.imwrite(str(tmp_path / "odd.png"), np.zeros((10, 30, 3), np.uint8))
    cv2.imwrite(str(tmp_path / "square.png"), np.zeros((30, 30, 3), np.uint8))
    with pytest.raises(SceneError, match=message):
        load_scene(package(tmp_path, camera))


class Circling:
    """An agent that moves the tool in a circle."""

    name = "circling"

    def __init__(self) -> None:
        self._seq = 0

    def reset(self, seed: int) -> None:
        self._seq = 0

    def request(self, observation: Observation) -> None:
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        self._seq += 1
        angle = 0.3 * self._seq
        xy = np.array([0.25 + 0.15 * np.cos(angle), 0.3 + 0.1 * np.sin(angle)])
        return Command(self._seq, {TOOL: xy}, observation.t_ns, self.name)


def test_an_episode_with_pictures_reads_back_as_observed(tmp_path: Path) -> None:
    (tmp_path / "scene").mkdir()
    env = SceneEnv(load_scene(package(tmp_path / "scene", TOP, WRIST_CAMERA)))
    store = EpisodeStore.create(tmp_path / "store")
    seen: list[Observation] = []

    class Watching(Circling):
        def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
            seen.append(observation)
            return super().decide(observation, reply)

    lossless = {"top/image": "png", "wrist/image": "png"}
    with EpisodeRecorder(store, spec=env.spec, kind="scripted", codecs=lossless) as recorder:
        run_episode(
            env, Watching(), None, [recorder], START,
            max_steps=6, task=env.task, env_name=env.spec.name,
        )  # fmt: skip
    env.close()
    episode = store.read(recorder.saved[0])
    for name in ("top/image", "wrist/image"):
        read = np.asarray(episode.observed(name))
        assert read.dtype == np.uint8
        assert np.array_equal(read, np.stack([o.value(name) for o in seen]))


def test_collected_episodes_know_their_cameras(tmp_path: Path) -> None:
    (tmp_path / "collect.yaml").write_text("world: pick_place,camera=wrist,size=32\nmax_steps: 3\n")
    argv = ["collect", "--config", str(tmp_path / "collect.yaml"), "--agent", "scripted"]
    assert main([*argv, "--episodes", "1", "--out", str(tmp_path / "store")]) == 0
    store = EpisodeStore.open(tmp_path / "store")
    episode = store.read(store.ids()[0])
    camera = episode.meta.provenance["cameras"]["wrist/image"]
    assert np.array(camera["K"]).shape == (3, 3)
    assert np.array(camera["T_body_camera"]).shape == (4, 4)
    assert episode.observed("wrist/image").shape == (episode.steps, 32, 32, 3)


def test_cameras_close_twice_and_draw_again() -> None:
    scene = load_scene("pusht_reference")
    model = scene.compile()
    data = mujoco.MjData(model)
    update_poses(model, data)
    cameras = Cameras(scene, model, ("top",), 32)
    before = cameras.draw(data, ["top/image"])["top/image"]
    cameras.close()
    cameras.close()
    assert np.array_equal(cameras.draw(data, ["top/image"])["top/image"], before)
    assert cameras.draw(data, []) == {}
    cameras.close()
