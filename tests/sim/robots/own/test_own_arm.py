"""An arm of one's own becomes a scene package; what its file lacks or cannot mean is told."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from robolearn.arms.models import XARM7
from robolearn.cli.main import main
from robolearn.errors import SceneError
from robolearn.types import Command
from sim.env.scene_check import check_scene
from sim.env.scene_env import SceneEnv
from sim.identification.arm_model import ArmModel
from sim.robots.own.package import NewScene, new_scene
from sim.scene.load import load_scene

LENGTHS = (0.1, 0.25, 0.2, 0.08)
AXES = ("0 0 1", "0 1 0", "0 -1 0", "0.6 0.8 0")
TURNS = ("0 0 0", "0 0 0.4", "0.3 0 0.2", "0 0.1 0")
LIMIT = '<limit lower="-2.5" upper="2.5" effort="60" velocity="2"/>'
INERTIAL = (
    '<inertial><origin xyz="0 0 0.05"/><mass value="0.9"/><inertia ixx="0.006" iyy="0.006"'
    ' izz="0.002" ixy="0" ixz="0" iyz="0"/></inertial>'
)
VISUAL = '<visual><geometry><mesh filename="package://toy/meshes/a.stl"/></geometry></visual>'


def triangle(path: Path, size: float = 0.05) -> Path:
    """A tetrahedron as a binary STL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    p = size * np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    faces = p[[[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]]].astype("<f4")
    rows = b"".join(np.zeros(3, "<f4").tobytes() + f.tobytes() + b"\0\0" for f in faces)
    path.write_bytes(b"\0" * 80 + struct.pack("<I", 4) + rows)
    return path


def urdf(folder: Path, *changes: tuple[str, str]) -> Path:
    """A crooked arm of four joints with a tool frame and a finger; ``changes`` of its text."""
    links = "".join(
        f'<link name="l{k}">{INERTIAL}{VISUAL if k == 2 else ""}<collision><origin xyz="0 0'
        f' {0.5 * n}"/><geometry><box size="0.05 0.05 {0.7 * n}"/></geometry></collision></link>'
        for k, n in enumerate(LENGTHS, 1)
    )
    joints = "".join(
        f'<joint name="j{k}" type="revolute"><parent link="{f"l{k - 1}" if k > 1 else "foot"}"/>'
        f'<child link="l{k}"/><origin xyz="0 0 {0.1 if k == 1 else LENGTHS[k - 2]}"'
        f' rpy="{TURNS[k - 1]}"/><axis xyz="{AXES[k - 1]}"/>{LIMIT}</joint>'
        for k in range(1, 5)
    )
    text = (
        '<robot name="toy"><link name="foot"><collision><geometry><cylinder radius="0.05"'
        f' length="0.1"/></geometry></collision></link>{links}<link name="tool0"/>'
        f'<link name="finger">{INERTIAL}</link>{joints}'
        '<joint name="at" type="fixed"><parent link="l4"/><child link="tool0"/>'
        '<origin xyz="0 0 0.1"/></joint><joint name="grip" type="prismatic"><parent link="l4"/>'
        '<child link="finger"/><axis xyz="1 0 0"/><limit lower="0" upper="0.03" effort="1"'
        ' velocity="1"/></joint></robot>'
    )
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    triangle(folder / "toy" / "meshes" / "a.stl")
    path = folder / "toy" / "urdf" / "toy.urdf"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> NewScene:
    folder = tmp_path_factory.mktemp("arm")
    return new_scene(urdf(folder), folder / "cell")


def test_the_package_is_checked_and_moves(made: NewScene) -> None:
    assert made.joints == ("j1", "j2", "j3", "j4")
    assert check_scene(made.scene).provenance == "imported"
    assert (made.scene.path / "assets" / "a.stl").is_file()
    assert any("grip" in note for note in made.notes)
    env = SceneEnv(made.scene)
    env.reset(env.sample_condition(0), np.random.default_rng(0))
    start = env.observe().value("arm/joint_position")
    goal = start - 0.2 * np.sign(start)
    for seq in range(20):
        env.apply(Command(seq, {"arm/joint_position": goal}, env.now_ns(), "test"))
        env.advance()
    np.testing.assert_allclose(env.observe().value("arm/joint_position"), goal, atol=0.01)
    env.close()


def test_its_kinematics_are_those_of_the_file(made: NewScene) -> None:
    arm = ArmModel(made.scene).arm
    assert arm.max_speed == (2.0,) * 4
    assert arm.max_torque == (60.0,) * 4
    # Straight up at zero but for the turns of the joints' frames, which this adds up by hand.
    T = np.eye(4)
    for k, length in enumerate((0.1, *LENGTHS[:3], 0.1)):
        step = np.eye(4)
        step[2, 3] = length
        if k < 4:
            step[:3, :3] = rpy(TURNS[k])
        T = T @ step
    # MuJoCo writes six digits.
    np.testing.assert_allclose(arm.fk(np.zeros(4)), T, atol=3e-6)


def rpy(text: str) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    return Rotation.from_euler("xyz", [float(v) for v in text.split()]).as_matrix()


def test_what_the_file_does_not_say_is_marked(made: NewScene, tmp_path: Path) -> None:
    told = {a["what"] for a in made.assumed}
    assert {"armature of j1", "servo of j4", "home", "weight"} <= told
    assert not told & {"speed of j1", "torque of j1", "range of j1"}
    bare = urdf(
        tmp_path,
        ('type="revolute"', 'type="continuous"'),
        (LIMIT, ""),
        (f'<link name="l3">{INERTIAL}', '<link name="l3">'),
    )
    other = new_scene(bare, tmp_path / "cell", home=(0.0, 0.5, 0.5, 0.0))
    more = {a["what"] for a in other.assumed}
    assert {"speed of j1", "torque of j1", "range of j1", "mass and inertia of l3"} <= more
    assert "home" not in more
    kept = load_scene(tmp_path / "cell").config.provenance.details["assumed"]
    assert kept == list(other.assumed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("meshes/a.stl", "meshes/lost.stl"), "lost.stl"),
        (('lower="-2.5" upper="2.5"', 'lower="-143" upper="143"'), "degrees"),
        (('xyz="0 0 0.25"', 'xyz="0 0 250"'), "look like mm"),
        (('<inertia ixx="0.006"', '<inertia ixx="6000"'), "A [+] B >= C"),
        (('<inertia ixx="0.006" iyy="0.006"', '<inertia ixx="60" iyy="60"'), "other units"),
        (('<mass value="0.9"/>', '<mass value="9000"/>'), "look like g"),
        (('lower="-2.5" upper="2.5"', 'lower="2.5" upper="-2.5"'), "j1"),
        (
            (
                '<robot name="toy">',
                '<robot name="toy"><xacro:x xmlns:xacro="http://ros.org/wiki/xacro"/>',
            ),
            "xacro my_arm",
        ),
        (('name="j2" type="revolute"', 'name="j2" type="prismatic"'), "2 joint|prismatic|slide"),
        (('<robot name="toy">', "<sdf>"), "no XML"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(SceneError, match=message):
        new_scene(urdf(tmp_path, change), tmp_path / "cell", tool="tool0")
    assert not (tmp_path / "cell").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy"]


def test_a_link_without_shape_and_mass_is_named(tmp_path: Path) -> None:
    arm = urdf(tmp_path)
    text = arm.read_text()
    begin = text.index('<link name="l3">')
    arm.write_text(text[:begin] + '<link name="l3">' + text[text.index("</link>", begin) :])
    with pytest.raises(SceneError, match="'l3' moves and has neither"):
        new_scene(arm, tmp_path / "cell")


def test_names_of_tools_and_other_peoples_folders(tmp_path: Path, made: NewScene) -> None:
    arm = urdf(tmp_path)
    with pytest.raises(SceneError, match="Did you mean 'tool0'"):
        new_scene(arm, tmp_path / "cell", tool="tol0")
    with pytest.raises(SceneError, match="slide joint"):
        new_scene(arm, tmp_path / "cell", tool="finger")
    with pytest.raises(SceneError, match="1 angles, the arm has joints"):
        new_scene(arm, tmp_path / "cell", home=(0.0,))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("mine")
    with pytest.raises(SceneError, match="no scene package"):
        new_scene(arm, tmp_path / "mine")
    assert (tmp_path / "mine" / "a.txt").read_text() == "mine"


def test_meshes_of_one_name_do_not_meet(tmp_path: Path) -> None:
    second = VISUAL.replace("meshes/a.stl", "other/a.stl")
    arm = urdf(tmp_path, (f'<link name="l3">{INERTIAL}', f'<link name="l3">{INERTIAL}{second}'))
    triangle(tmp_path / "toy" / "other" / "a.stl", 0.08)
    made = new_scene(arm, tmp_path / "cell")
    sizes = {p.read_bytes() for p in (made.scene.path / "assets").iterdir()}
    assert len(sizes) == 2


def test_an_mjcf_keeps_its_servos_and_its_kinematics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = load_scene("xarm7_table").path / "xarm7.xml"
    out = tmp_path / "cell"
    call = ["scene", "new", "--arm", str(file), "--out", str(out), "--action", "tool/pose"]
    assert main(call) == 0
    assert "assumed: speed of joint1" in capsys.readouterr().out
    model = ArmModel(load_scene(out))
    own = load_scene("xarm7_table").compile()
    kp = own.actuator_gainprm[own.actuator("joint1").id, 0]
    assert model.model.actuator_gainprm[model.actuators[0], 0] == kp
    rng, ends = np.random.default_rng(0), []
    for _ in range(4):
        q = rng.uniform(XARM7.low, XARM7.high)
        ends.append(np.linalg.inv(XARM7.fk(q)) @ model.arm.fk(q))
    np.testing.assert_allclose(ends, np.broadcast_to(ends[0], (4, 4, 4)), atol=1e-9)
