"""What one store records of an arm at work becomes all of a scene: joints, gripper, objects and
how late its cameras are, by ``identify --episodes``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from hardware.cell.load import load_cell
from robolearn.config import find_config
from robolearn.data.episode import Episode, EpisodeMeta, episode_from_arrays
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.scenes.identify_arm import ArmIdentifyResult, identify_episodes
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Command, Condition, Outcome, SampleBlock, SentBlock
from sim.env.scene_env import SceneEnv
from sim.identification.arm_excitation import multisine
from sim.identification.arm_fit import FitConfig
from sim.identification.arm_identify import ArmIdentifyConfig
from sim.identification.arm_model import ArmModel
from sim.identification.object_forces import Handling
from sim.identification.object_model import object_models
from sim.scene.load import load_scene
from tests.sim.identification.arm_lab import DT_S, hidden, record, room
from tests.sim.identification.test_gripper import recorded
from tests.sim.identification.test_objects import lift, push

SCENE = "pick_place_ur5e"
CELL = find_config(Path("configs/hardware/lab_ur5e_pick_place.yaml"))
JOINTS, TOLD, WIDTH = "arm/joint_position", "arm/joint_setpoint", "gripper/width"
CAMERA, BLIND = "top/image", "side/image"
QUICK = ArmIdentifyConfig(
    FitConfig(starts=0, first_iterations=0, iterations=0, last_iterations=0), held_out=0.25
)
# What nobody tells the identification.
MASS_KG, FRICTION_N, GRIPPER_S, GRIPPER_M_S, LATE_S = 0.137, 0.45, 0.12, 0.07, 0.18
SECONDS = 8.0


@dataclasses.dataclass(frozen=True)
class Stream:
    """Samples of a signal at times of their own."""

    t_s: np.ndarray
    value: np.ndarray
    unit: str = "m"
    frame: str = ""
    valid: np.ndarray | None = None


def _episode(streams: Mapping[str, Stream], told: Stream | None = None) -> Episode:
    """Whose gripper was told widths, or nothing."""
    hz = 1.0 / DT_S
    signals = tuple(
        SignalSpec(n, s.value.shape[1:], s.unit, hz, str(s.value.dtype), frame=s.frame)
        for n, s in streams.items()
    )
    name = WIDTH if told is not None else "arm/x"
    action = ActionSpec(name, (1,), "m", hz, low=(0.0,), high=(0.085,))
    steps = 4
    meta = EpisodeMeta(
        kind="deployment",
        task="",
        embodiment=EmbodimentSpec("cell", signals, (action,), hz),
        condition=Condition("c", 0, {}),
        outcome=Outcome(False, 0.0, 0.0),
    )
    made = episode_from_arrays(meta, {}, {name: np.zeros((steps, 1))}, progress=np.zeros(steps))
    blocks = {
        n: SampleBlock(
            np.round(1e9 * s.t_s).astype(np.int64),
            s.value,
            np.ones(len(s.t_s), np.bool_) if s.valid is None else s.valid,
        )
        for n, s in streams.items()
    }
    view = dict.fromkeys(blocks, np.zeros(steps, np.int64))
    sent = made.sent
    if told is not None:
        t_ns = np.round(1e9 * told.t_s).astype(np.int64)
        sent = SentBlock(np.zeros(len(t_ns), np.int64), t_ns, {WIDTH: told.value[:, None]})
    return dataclasses.replace(made, streams=blocks, view=view, sent=sent)


def _gripper(seed: int) -> tuple[Stream, Stream]:
    """Widths that were measured and told."""
    motion = recorded(seed, GRIPPER_S, GRIPPER_M_S, 0.04)
    return (
        Stream(motion.seen_t_s, motion.seen[:, None]),
        Stream(motion.told_t_s, motion.told),
    )


def _handled(one: Handling) -> dict[str, Stream]:
    """As a cell records it: forces in the frame of the arm's base, poses over the table."""
    (thing,) = object_models(load_scene(SCENE))
    force = one.force @ thing.R_table_base
    wrench = np.concatenate([force, np.zeros_like(force)], axis=1)
    upright = np.tile([0.0, 1.0, 0.0, 0.0], (len(one.tool), 1))
    heading = one.place[:, 3]
    turned = np.column_stack([np.cos(heading / 2), 0 * heading, 0 * heading, np.sin(heading / 2)])
    return {
        "tool/wrench": Stream(one.force_t_s, wrench, "N"),
        "tool/pose": Stream(
            one.tool_t_s, np.concatenate([one.tool, upright], axis=1), frame="table"
        ),
        "cube/pose": Stream(
            one.object_t_s, np.concatenate([one.place[:, :3], turned], axis=1), frame="table"
        ),
    }


def _pictures(t_s: np.ndarray, q: np.ndarray, rng: np.random.Generator) -> dict[str, Stream]:
    """One camera sees the arm swing, ``LATE_S`` ago; the other one sees nothing of it."""
    around = q - q.mean(axis=0)
    along = around @ np.linalg.eigh(around.T @ around)[1][:, -1]
    at_s = np.arange(t_s[0] + 0.3, t_s[-1], 0.04)
    x = np.interp(at_s - LATE_S, t_s, along)
    bar = np.clip(9 - np.abs(np.arange(64)[None] - (32 + 12 * x / np.abs(x).max())[:, None]), 0, 1)
    grey = np.repeat(60 + 120 * bar[:, None, :], 24, axis=1)
    out: dict[str, Stream] = {}
    for name, level in ((CAMERA, grey), (BLIND, np.full_like(grey, 90.0))):
        noisy = np.clip(level + rng.normal(0, 2, grey.shape), 0, 255).astype(np.uint8)
        valid = np.ones(len(at_s), np.bool_)
        # Pictures that did not come.
        valid[20:24] = False
        noisy[20:24] = 0
        rgb = np.repeat(noisy[..., None], 3, axis=3)
        out[name] = Stream(at_s, rgb, "rgb", valid=valid)
    return out


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An episode of the arm with pictures, and handling in all."""
    model = ArmModel(load_scene(SCENE))
    motion = record(
        hidden(11, SCENE),
        multisine(room(model), SECONDS, seed=3, lines=6),
        smoothing=True,
    )
    q = motion.measured.copy()
    valid = np.ones(len(q), np.bool_)
    # Joints that did not come, in the middle of a motion.
    valid[700:703], q[700:703] = False, np.nan
    arm = {
        JOINTS: Stream(motion.measured_t_s, q, "rad", valid=valid),
        TOLD: Stream(motion.sent_t_s, motion.sent, "rad"),
        **_pictures(motion.measured_t_s, motion.measured, np.random.default_rng(0)),
    }
    folder = tmp_path_factory.mktemp("handled") / "store"
    with EpisodeStore.create(folder).writer() as writer:
        for k in range(7):
            width, told = _gripper(k)
            handled = _handled(lift(MASS_KG) if k < 4 else push(FRICTION_N, 0.0))
            writer.append(_episode({**(arm if k == 0 else {}), WIDTH: width, **handled}, told))
    return folder


@pytest.fixture(scope="module")
def result(store: Path, tmp_path_factory: pytest.TempPathFactory) -> ArmIdentifyResult:
    out = tmp_path_factory.mktemp("handled") / "cell"
    return identify_episodes(store, SCENE, out, settings=QUICK, cell=CELL)


def test_the_tool_of_the_scene_has_the_limits_of_its_cell(result: ArmIdentifyResult) -> None:
    """A target that jumps: the tool goes there no faster than in the cell."""
    space = load_cell(CELL).tool
    assert space is not None
    limits = space.limits
    assert result.scene.config.control["arms"][0]["limits"]["max_speed"] == limits.max_speed
    assert not any("the file of its cell" in n for n in result.found.notes)
    fastest = []
    for scene in (result.scene, load_scene(SCENE)):
        env = SceneEnv(scene)
        env.reset(env.sample_condition(0), np.random.default_rng(0))
        way = []
        for k in range(24):
            far = np.array([0.2 if k % 8 < 4 else -0.2, 0.0, 0.3, 0.0])
            action = {"tool/xyz_yaw": far, "gripper/width": np.array([0.08])}
            env.apply(Command(k, action, env.now_ns(), "test"))
            env.advance()
            way.append(env.observe().samples["tool/pose"].value[:3])
        env.close()
        fastest.append(20.0 * np.linalg.norm(np.diff(way, axis=0), axis=1).max())
    assert fastest[0] < 1.02 * limits.max_speed < fastest[1]


def test_an_object_that_was_lifted_and_pushed_is_weighed_and_slides(
    result: ArmIdentifyResult,
) -> None:
    (cube,) = result.objects
    assert cube.before.signal == "cube/pose"
    assert (cube.mass.status, cube.friction.status) == ("identified", "identified")
    assert cube.mass.value == pytest.approx(MASS_KG, rel=0.02)
    assert abs(cube.before.mass_kg / MASS_KG - 1) > 0.1, "the scene knew already"
    assert cube.friction.value == pytest.approx(FRICTION_N, rel=0.05)
    # It is in the scene's model, not only in what is told.
    model = result.scene.compile()
    assert float(model.body("cube").mass[0]) == pytest.approx(cube.mass.value, rel=1e-4)
    details = result.scene.config.provenance.details
    assert details["objects"]["cube/pose"]["mass_kg"]["status"] == "identified"
    # Its friction is that of a class of geoms: that it stays as it was is said.
    (left,) = details["not_written"]
    assert left.startswith("cube/pose: a friction of 0.45 N could not be written into the scene")


def test_the_gripper_of_all_episodes_is_found_and_written(result: ArmIdentifyResult) -> None:
    found = result.gripper
    assert found is not None
    assert found.known
    assert found.delay.value == pytest.approx(GRIPPER_S, abs=0.01)
    assert found.speed.value == pytest.approx(GRIPPER_M_S, rel=0.05)
    drive = result.scene.config.control["arms"][0]["gripper"]["drive"]
    assert drive["delay_s"] == pytest.approx(found.delay.value, abs=1e-6)
    assert not any("gripper left out" in n for n in result.found.notes)


def test_how_late_a_camera_is_behind_the_joints_is_told_where_its_pictures_follow_them(
    result: ArmIdentifyResult,
) -> None:
    assert list(result.cameras) == [CAMERA]
    late = result.cameras[CAMERA]
    assert late.latency_s == pytest.approx(LATE_S, abs=max(0.01, 2 * late.error_s))
    assert late.error_s < 0.02
