from pathlib import Path

import mujoco
import numpy as np
import pytest

from robolearn.errors import ConfigError, DataError
from robolearn.pusht import BLOCK, TOOL
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Command, Condition, Sample
from sim.perturbations.during import Payload
from sim.perturbations.env import PerturbedEnv
from sim.perturbations.kinds import PERTURBATIONS, Perturbations, split_perturbations
from sim.perturbations.model import Snapshot
from sim.perturbations.signals import ActionNoise, SensorNoise, is_object, move_objects
from sim.rendering.cameras import foreground
from sim.scene.load import load_scene
from sim.tasks.pusht import PushT
from sim.worlds import make_world
from tests.contracts import EnvContract

POSES = {TOOL: (0.2, 0.2), BLOCK: (0.3, 0.25, 0.4)}
START = Condition("start", 5, POSES)
# What a changed mass changes in turn (mj_setConst).
DERIVED = {
    *("body_subtreemass", "body_invweight0", "dof_M0", "dof_invweight0", "actuator_acc0"),
    *("tendon_invweight0", "light_poscom0"),
}
# Perturbation -> arrays of the model that it may change in pusht_ur5e, and must.
MODEL = {
    "mass": ({"body_mass", "body_inertia"}, DERIVED),
    "friction": ({"geom_friction", "pair_friction"}, set()),
    "lighting": ({"light_diffuse"}, {"light_ambient", "light_specular"}),
    "colours": ({"geom_rgba", "mat_rgba"}, set()),
    "camera_pose": ({"cam_pos", "cam_quat", "cam_fovy"}, set()),
}
SEEN = ("lighting", "colours", "textures", "camera_pose", "distractors")


class TestPerturbedWorld(EnvContract):
    def make(self):
        return make_world("pusht_reference~friction=1~colours=0.5~mass=1")

    def condition(self, seed):
        return PushT().sample_condition(seed)


class TestNoisyDelayedWorld(EnvContract):
    # Starts are reported as they are; what is observed is a little off.
    exact = 0.02

    def make(self):
        return make_world("gym_pusht~action_delay=1~sensor_noise=0.1")

    def condition(self, seed):
        return PushT().sample_condition(seed)


def drive(env, condition=START, ticks=12):
    """What is observed while the tool runs through the block, and the last picture."""
    env.reset(condition, np.random.default_rng(0))
    rows = []
    for k in range(ticks):
        seen = env.observe()
        rows.append(np.concatenate([seen.value(TOOL), seen.value(BLOCK)]))
        env.apply(Command(k, {TOOL: np.array([0.4, 0.25])}, env.now_ns(), "test"))
        env.advance()
    return np.array(rows)


def picture(env, size=48):
    return env.render(size, size).astype(int)


def driven(name, condition=START, ticks=12):
    env = make_world(name)
    try:
        return drive(env, condition, ticks)
    finally:
        env.close()


@pytest.fixture(scope="module")
def nominal():
    return driven("pusht_reference")


@pytest.mark.parametrize("name", MODEL)
def test_it_changes_that_and_nothing_else(name):
    env = make_world(f"pusht_ur5e~{name}=1")
    before = Snapshot(env.inner.model)
    env.reset(START, np.random.default_rng(0))
    must, may = MODEL[name]
    changed = set(before.changed())
    assert must <= changed <= must | may
    first = {n: np.array(getattr(env.inner.model, n)) for n in must}
    env.reset(START, np.random.default_rng(1))
    assert all(np.array_equal(getattr(env.inner.model, n), v) for n, v in first.items())
    env.reset(Condition("other", 6, POSES), np.random.default_rng(0))
    assert all(not np.array_equal(getattr(env.inner.model, n), v) for n, v in first.items())
    before.restore()
    assert before.changed() == []
    seeded = make_world(f"pusht_ur5e~{name}=1~seed=1")
    seeded.reset(START, np.random.default_rng(0))
    assert all(not np.array_equal(getattr(seeded.inner.model, n), v) for n, v in first.items())
    env.close()
    seeded.close()


def test_mass_and_friction_in_numbers():
    env = make_world("pusht_ur5e~mass=1~friction=1")
    model, block = env.inner.model, env.inner.model.body("block").id
    mass, slide = model.body_mass.copy(), model.pair_friction.copy()
    factors = []
    for seed in range(12):
        env.reset(Condition("c", seed, POSES), np.random.default_rng(0))
        others = np.arange(model.nbody) != block
        assert np.array_equal(model.body_mass[others], mass[others])
        ratio = model.pair_friction[:, :2] / slide[:, :2]
        assert np.allclose(ratio, ratio[0, 0])
        assert np.array_equal(model.pair_friction[:, 2:], slide[:, 2:])
        factors.append((model.body_mass[block] / mass[block], ratio[0, 0]))
    assert np.min(factors) < 0.75
    assert np.max(factors) > 1.4
    assert np.min(factors) >= 0.5
    assert np.max(factors) <= 2.0
    env.close()


def test_friction_where_there_is_none_is_added(nominal):
    env = make_world("pusht_reference~friction=1")
    rows = drive(env)
    model = env.inner.model
    colliding = model.geom_contype != 0
    assert set(model.geom_condim[colliding]) == {3}
    assert 0 < model.geom_friction[colliding, 0].max() <= 0.3
    assert np.abs(rows - nominal).max() > 1e-4
    env.close()


@pytest.mark.parametrize("name", SEEN)
def test_what_is_only_seen_moves_nothing_and_changes_pixels(name, nominal):
    plain, env = make_world("pusht_reference"), make_world(f"pusht_reference~{name}=1")
    drive(plain, ticks=1)
    assert np.array_equal(drive(env), nominal)
    drive(env, ticks=1)
    difference = np.abs(picture(env) - picture(plain))
    assert (difference.max(axis=2) > 2).mean() > 0.005
    first = picture(env)
    again = make_world(f"pusht_reference~{name}=1")
    drive(again, ticks=1)
    assert np.array_equal(picture(again), first)
    other = make_world(f"pusht_reference~{name}=1~seed=3")
    drive(other, ticks=1)
    assert not np.array_equal(picture(other), first)
    for e in (plain, env, again, other):
        e.close()


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_magnitude_zero_is_the_nominal_world(name):
    plain, env = make_world("pusht_naive"), make_world(f"pusht_naive~{name}=0")
    assert env.spec == plain.spec
    assert env.scene_hash == plain.scene_hash
    assert np.array_equal(drive(env, ticks=4), drive(plain, ticks=4))
    env.close()
    plain.close()


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_name_and_hash_say_that_a_world_is_perturbed(name):
    plain = make_world("pusht_reference")
    worlds = [f"pusht_reference~{name}={m}" for m in (0.3, 1)]
    worlds.append(f"pusht_reference~{name}=1~seed=4")
    envs = [make_world(w) for w in worlds]
    assert [e.spec.name for e in envs] == worlds
    assert len({plain.scene_hash, *(e.scene_hash for e in envs)}) == 4
    assert {e.spec.signals for e in envs} == {plain.spec.signals}
    assert {e.spec.rate_hz for e in envs} == {10.0}
    for e in (plain, *envs):
        e.close()


def test_a_delayed_world_does_the_same_later(nominal):
    late = driven("pusht_reference~action_delay=1")
    assert np.array_equal(late[1:], nominal[:-1])
    assert np.array_equal(late[0], nominal[0])
    env = make_world("pusht_reference~action_delay=1.5")
    env.reset(START, np.random.default_rng(0))
    sent = []
    for k in range(4):
        env.apply(Command(k, {TOOL: np.array([0.3, 0.3])}, env.now_ns(), "test"))
        env.advance()
        batch = env.drain()
        sent += list(zip(batch.sent.seq.tolist(), batch.sent.t_ns.tolist(), strict=True))
    assert sent == [(0, 200_000_000), (1, 300_000_000)]
    with pytest.raises(DataError):
        env.apply(Command(9, {TOOL: np.array([9.0, 0.3])}, env.now_ns(), "test"))
    env.close()


def test_a_world_seen_late_is_the_nominal_one_some_ticks_ago(nominal):
    late = driven("pusht_reference~observation_delay=2")
    assert np.array_equal(late[2:], nominal[:-2])
    assert np.array_equal(late[:2], nominal[[0, 0]])
    env = make_world("pusht_reference~observation_delay=1.5")
    env.reset(START, np.random.default_rng(0))
    shown, arrived = [], []
    for k in range(5):
        seen = env.observe()
        assert seen.t_ns == env.now_ns()
        shown.append(seen.samples[BLOCK].t_ns)
        env.apply(Command(k, {TOOL: np.array([0.4, 0.25])}, env.now_ns(), "test"))
        env.advance()
        arrived.append(env.drain().signals[BLOCK].t_ns.tolist())
    # Capture times say how old it is; a sample arrives when it is first shown.
    assert shown == [0, 0, 0, 100_000_000, 200_000_000]
    assert arrived == [[], [], [0], [100_000_000], [200_000_000]]
    env.close()


def test_delays_of_both_ways_add_up(nominal):
    both = driven("pusht_reference~action_delay=1~observation_delay=1")
    assert np.array_equal(both[2:], nominal[:-2])


def test_wind_pushes_objects_by_parts_of_their_weight_and_changes():
    env = make_world("pick_place~wind=1")
    start = env.sample_condition(4)
    forces, model = [], env.inner.model
    cube = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, "cube")
    weight = model.body_mass[cube] * 9.81
    for _ in range(2):
        env.reset(start, np.random.default_rng(0))
        for k in range(40):
            action = {"tool/xyz_yaw": np.array([0.0, 0, 0.25, 0]), "gripper/width": np.ones(1) / 20}
            env.apply(Command(k, action, env.now_ns(), "test"))
            env.advance()
            forces.append(env.inner.data.xfrc_applied[cube] / weight)
    first, again = np.split(np.array(forces), 2)
    # The same condition, the same wind.
    np.testing.assert_array_equal(first, again)
    assert (first[:, 2:] == 0).all()
    assert 0.01 < np.abs(first[:, :2]).max() < 1.0
    assert len(np.unique(first[:, 0])) == 40
    others = np.delete(env.inner.data.xfrc_applied, cube, axis=0)
    assert (others == 0).all()
    env.close()


def test_a_payload_changes_once_while_the_episode_runs_and_is_back_at_the_next():
    scene = load_scene("pick_place")
    model = scene.compile()
    data = mujoco.MjData(model)
    cube = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, "cube")
    nominal, snapshot = float(model.body_mass[cube]), Snapshot(model)
    payload = Payload(model, scene, 1.0, np.random.default_rng(1))
    masses = []
    data.qpos[:] = where = data.qpos + 0.01
    for _ in range(100):
        payload.step(data, 0.05)
        masses.append(float(model.body_mass[cube]))
    changes = np.flatnonzero(np.diff(masses))
    assert len(changes) == 1
    assert 1.0 <= (changes[0] + 1) * 0.05 <= 4.1
    assert masses[0] == nominal
    assert 0.5 * nominal <= masses[-1] <= 2.0 * nominal
    # Nothing moved, and nothing but what hangs on the mass is another.
    np.testing.assert_array_equal(data.qpos, where)
    assert set(snapshot.changed()) <= {"body_mass", "body_inertia", *DERIVED}
    env = make_world("pick_place~payload=1")
    for _ in range(2):
        env.reset(env.sample_condition(3), np.random.default_rng(0))
        assert env.inner.model.body_mass[cube] == nominal
        env.inner.model.body_mass[cube] *= 2
    env.close()


def test_a_slower_loop_keeps_its_word_about_the_rate(nominal):
    env = make_world("pusht_ur5e~control_rate=1")
    env.reset(START, np.random.default_rng(0))
    env.apply(Command(0, {TOOL: np.array([0.3, 0.3])}, 0, "test"))
    env.advance()
    assert env.now_ns() == 200_000_000
    batch = env.drain()
    # Signals of 50 Hz keep their rate.
    assert len(batch.signals["arm/joint_position"].t_ns) == 10
    assert len(batch.signals[BLOCK].t_ns) == 1
    assert env.spec.rate_hz == 10.0
    env.close()
    slow = driven("pusht_reference~control_rate=1", ticks=6)
    assert np.allclose(slow, nominal[::2], atol=1e-12)


def test_noise_is_seen_and_recorded_alike_and_judged_without(nominal):
    env = make_world("pusht_reference~sensor_noise=1")
    report = env.reset(START, np.random.default_rng(0))
    assert np.allclose(report.achieved[BLOCK], POSES[BLOCK], atol=1e-9)
    shown, kept, progress = [], [], []
    for k in range(12):
        shown.append(env.observe().value(BLOCK))
        assert np.array_equal(shown[-1], env.observe().value(BLOCK))
        env.apply(Command(k, {TOOL: np.array([0.4, 0.25])}, env.now_ns(), "test"))
        env.advance()
        kept += list(env.drain().signals[BLOCK].value)
        progress.append(env.outcome().progress)
    assert np.array_equal(shown, kept)
    off = np.array(shown) - nominal[:, 2:]
    assert np.abs(off).max() > 0
    assert np.abs(off[:, :2]).std() < 2e-3
    plain = make_world("pusht_reference")
    drive(plain)
    assert plain.outcome().progress == progress[-1]
    assert not env.capabilities.true_state
    env.close()
    plain.close()


def test_what_is_done_wanders_about_what_is_commanded(nominal):
    env = make_world("pusht_reference~action_noise=2")
    env.reset(START, np.random.default_rng(0))
    given = {TOOL: np.array([0.4, 0.25])}
    sent = []
    for k in range(12):
        env.apply(Command(k, given, env.now_ns(), "test"))
        env.advance()
        sent.append(env.drain().sent.action[TOOL][0])
    # The agent's command stays what it was; what was sent is what the world followed.
    assert given[TOOL].tolist() == [0.4, 0.25]
    off = np.array(sent) - given[TOOL]
    assert 0 < np.abs(off).max() < 0.05
    env.close()
    again = driven("pusht_reference~action_noise=2")
    assert np.array_equal(again, driven("pusht_reference~action_noise=2"))
    assert not np.allclose(again, nominal)


def test_noise_of_actions_by_unit():
    low, high = (-1.0,) * 4, (1.0,) * 4
    actions = (
        ActionSpec("tool/xyz_yaw", (4,), unit="m, m, m, rad", low=low, high=high),
        ActionSpec("left_tool/pose", (7,), unit="m, quaternion wxyz"),
        ActionSpec("tool/delta", (1,), unit="m", mode="relative"),
        ActionSpec("grip/switch", (1,), unit=""),
    )
    noise = ActionNoise(EmbodimentSpec("e", (), actions, 20.0), 1.0)
    still = {a.name: np.zeros(a.shape) for a in actions}
    rows, largest = {a.name: [] for a in actions}, []
    for seed in range(40):
        noise.reset(np.random.default_rng(seed))
        done = [noise.disturbed(Command(k, still, 0, "test")).action for k in range(200)]
        for name, values in rows.items():
            values.append([d[name] for d in done])
        largest.append(np.std(rows["tool/xyz_yaw"][-1], axis=0)[:3].mean())
    # Deviations are drawn per episode, uniformly up to 5 mm and 0.05 rad.
    spread = np.sqrt((np.array(rows["tool/xyz_yaw"]) ** 2).mean(axis=(0, 1)))
    assert np.allclose(spread, np.array([5e-3, 5e-3, 5e-3, 0.05]) / np.sqrt(3), rtol=0.3)
    assert min(largest) < 1e-3 < 4e-3 < max(largest)
    pose = np.array(rows["left_tool/pose"])
    assert pose[..., :3].std() > 1e-3
    assert not pose[..., 3:].any()
    assert not np.any(rows["grip/switch"])
    # Steps add up to the same wandering.
    walked = np.cumsum(rows["tool/delta"], axis=1)
    assert np.sqrt((walked**2).mean()) == pytest.approx(5e-3 / np.sqrt(3), rel=0.4)


def test_noise_by_unit():
    signals = (
        SignalSpec("tool/pose", (7,), unit="m, quaternion wxyz"),
        SignalSpec("arm/joint_velocity", (2,), unit="rad/s"),
        SignalSpec("block/pose", (3,), unit="m, m, rad", angular=(2,)),
        SignalSpec("cell/image", (8, 8, 3), dtype="uint8"),
        SignalSpec("grip/switch", (1,), unit=""),
    )
    noise = SensorNoise(EmbodimentSpec("e", signals, (), 10.0), 1.0)
    noise.reset(1)

    def spread(name, value):
        rows = [noise.sample(name, Sample(t, value)).value for t in range(300)]
        return np.array(rows).astype(float)

    pose = np.array([0.1, 0.2, 0.3, 0.0, 1.0, 0.0, 0.0])
    rows = spread("tool/pose", pose)
    assert np.allclose(rows[:, :3].std(axis=0), 1e-3, rtol=0.2)
    assert np.allclose(np.linalg.norm(rows[:, 3:], axis=1), 1.0)
    turn = 2 * np.degrees(np.arccos(np.abs(rows[:, 3:] @ pose[3:])))
    assert np.sqrt((turn**2).mean() / 3) == pytest.approx(0.5, rel=0.2)
    assert spread("arm/joint_velocity", np.zeros(2)).std() == pytest.approx(0.02, rel=0.2)
    angles = spread("block/pose", np.array([0.0, 0.0, np.pi]))[:, 2]
    assert np.abs(angles).max() <= np.pi
    assert angles.min() < 0 < angles.max()
    grey = spread("cell/image", np.full((8, 8, 3), 128, np.uint8))
    assert grey.std() == pytest.approx(8, rel=0.1)
    assert np.array_equal(spread("grip/switch", np.ones(1)), np.ones((300, 1)))


@pytest.mark.parametrize("world", ["pusht_reference", "pick_place", "drawer", "so101_table"])
def test_distractors_are_seen(world):
    pictures = []
    for name in (world, f"{world}~distractors=1"):
        env = make_world(name)
        env.reset(env.sample_condition(0), np.random.default_rng(0))
        pictures.append(env.render(96, 96).astype(int))
        env.close()
    other = np.abs(pictures[1] - pictures[0]).max(axis=2) > 20
    # Three things of 2 to 6 cm; the picture shows about a metre at most.
    assert 10 < other.sum() < 0.2 * other.size


def test_distractors_stand_in_front_of_photographs():
    env = make_world("pusht_ur5e~distractors=1")
    model = env.inner.model
    mine = [b for b in range(model.nbody) if model.body(b).name.startswith("distractor_")]
    assert len(mine) == 3
    assert foreground(model)[[model.body_geomadr[b] for b in mine]].all()
    assert not (model.geom_contype | model.geom_conaffinity)[
        [model.body_geomadr[b] for b in mine]
    ].any()
    env.close()


def test_starts_of_objects_are_moved_and_nothing_overlaps():
    env = make_world("pusht_reference~object_pose=1")
    starts = []
    for seed in range(10):
        # The tool touches the block: half of the draws would put one into the other.
        condition = Condition("c", seed, {TOOL: (0.3, 0.2656), BLOCK: (0.3, 0.25, 0.0)})
        report = env.reset(condition, np.random.default_rng(0))
        assert report.requested == condition
        assert np.allclose(report.achieved[TOOL], condition.poses[TOOL], atol=1e-12)
        starts.append(report.achieved[BLOCK])
        assert env.inner.data.contact.dist.min(initial=0.0) > -2e-3
    off = np.abs(np.array(starts) - [0.3, 0.25, 0.0])
    assert (off <= [0.03, 0.03, np.radians(30)]).all()
    assert len(np.unique(off[:, 0])) == 10
    env.close()


def test_poses_in_space_are_moved_about_the_vertical():
    poses = {"cube/pose": (0.1, 0.2, 0.02, 1.0, 0.0, 0.0, 0.0), "tool/pose": (0.0,) * 7}
    moved = move_objects(Condition("c", 0, poses), 1.0, np.random.default_rng(0))
    assert moved.id == "c"
    assert moved.poses["tool/pose"] == poses["tool/pose"]
    cube = np.array(moved.poses["cube/pose"])
    assert cube[2] == 0.02
    assert np.linalg.norm(cube[3:]) == pytest.approx(1.0)
    assert cube[4] == cube[5] == 0.0
    assert cube[6] != 0.0
    assert [is_object(n) for n in ("left_tool/pose", "arm/joint_position")] == [False, False]


@pytest.mark.parametrize("scene", ["pick_place", "drawer"])
def test_other_scenes_can_be_perturbed(scene):
    everything = "".join(f"~{n}=0.5" for n in PERTURBATIONS if n != "control_rate")
    env = make_world(scene + everything + "~control_rate=1")
    env.reset(env.sample_condition(1), np.random.default_rng(0))
    before = env.now_ns()
    env.advance()
    assert env.now_ns() - before == 2 * round(1e9 / env.spec.rate_hz)
    assert np.isfinite(np.concatenate([s.value for s in env.observe().samples.values()])).all()
    env.close()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pusht_reference~maas=1", r"no perturbation 'maas'\. Did you mean 'mass'"),
        ("pusht_reference~mass=much", "expected ~NAME=MAGNITUDE"),
        ("pusht_reference~mass=-1", "must be 0 to 20 .*times 1/2 to 2.*, got -1"),
        ("pusht_reference~mass=nan", "must be 0 to 20 .*, got nan"),
        ("pusht_reference~friction=999", "must be 0 to 20 .*, got 999"),
        ("pusht_reference~mass=1~seed=1.5", "a seed is a whole number from 0 on, got '1.5'"),
        ("pusht_reference~mass=1~mass=2", "'mass' is given twice"),
        ("gym_pusht~mass=1", r"\['mass'\] need a scene package, which 'gym_pusht' is not"),
    ],
)
def test_what_cannot_be_is_refused(name, text):
    with pytest.raises(ConfigError, match=text):
        make_world(name)


def test_pictures_that_are_observed_are_perturbed_too():
    seen = []
    for world in ("", "~colours=1", "~sensor_noise=1"):
        env = make_world("pusht_reference,camera=top,size=32" + world)
        env.reset(START, np.random.default_rng(0))
        image = env.observe().value("top/image")
        assert image.dtype == np.uint8
        seen.append(image.astype(int))
        env.close()
    assert np.abs(seen[1] - seen[0]).max() > 10
    assert 4 < (seen[2] - seen[0]).std() < 12


def test_seeds_of_starts_and_noise():
    starts, seen = [], []
    for world in ("~object_pose=1~sensor_noise=1", "~object_pose=1~sensor_noise=1~seed=2"):
        for _ in range(2):
            env = make_world("gym_pusht" + world)
            starts.append(env.reset(START, np.random.default_rng(0)).achieved[BLOCK])
            seen.append(env.observe().value(BLOCK))
            env.close()
    for rows in (starts, seen):
        assert np.array_equal(rows[0], rows[1])
        assert np.array_equal(rows[2], rows[3])
        assert not np.array_equal(rows[0], rows[2])


def test_the_document_explains_every_perturbation():
    page = (Path(__file__).parents[3] / "docs" / "perturbations.md").read_text()
    assert all(f"| `{name}` |" in page for name in PERTURBATIONS)
    assert all(kind.meaning for kind in PERTURBATIONS.values())


def test_names_are_read_and_written():
    base, some = split_perturbations("/a/b~c/scene~mass=1~friction=0.5~textures=0~seed=7")
    assert base == "/a/b~c/scene"
    assert some == Perturbations({"mass": 1.0, "friction": 0.5}, 7)
    assert split_perturbations("x" + some.suffix) == ("x", some)
    assert split_perturbations("x") == ("x", Perturbations({}))
    assert isinstance(make_world("gym_pusht~object_pose=1"), PerturbedEnv)
