"""Every number of a cell has a range, and a value beyond it is refused when the cell is loaded."""

import dataclasses
import math
import typing
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.cell.config import DRIVERS, CellConfig
from hardware.cell.load import load_cell
from hardware.cell.ranges import RANGES, Range, check_ranges
from hardware.devices.camera_config import CAMERAS
from hardware.devices.gripper_config import GRIPPERS
from hardware.supervisor.link import SupervisorConfig
from hardware.supervisor.shared_memory import RingHandle
from robolearn.errors import ConfigError
from tests.hardware.lab import CONFIG

CONFIGS = sorted(CONFIG.parent.glob("lab_*.yaml"))


def parts(hint):
    """The plain types inside a type hint."""
    if typing.get_origin(hint) is typing.Literal:
        return []
    inner = typing.get_args(hint)
    return [hint] if not inner else [p for one in inner for p in parts(one)]


def numeric_fields(kind, seen):
    """``(class, field)`` of every number of a dataclass and of those inside it."""
    if kind in seen:
        return
    seen.add(kind)
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        types = parts(hints[field.name])
        for inner in types:
            # A fake's state in shared memory is a test's, not a config's.
            frozen = dataclasses.is_dataclass(inner) and inner.__dataclass_params__.frozen
            if frozen and inner is not RingHandle:
                yield from numeric_fields(inner, seen)
        if int in types or float in types:
            yield kind.__name__, field.name


def test_every_number_of_a_cell_and_of_its_drivers_has_a_range():
    seen = set()
    fields = set(numeric_fields(CellConfig, seen))
    for table in (DRIVERS, CAMERAS, GRIPPERS):
        for name in table:
            fields |= set(numeric_fields(table.find(name), seen))
    ranged = {(kind, name) for kind, rows in RANGES.items() for name in rows}
    assert fields - ranged == set()
    assert ranged - fields == set()


def numbers(raw, path=()):
    """Paths of all numbers that a YAML section states."""
    items = raw.items() if isinstance(raw, dict) else enumerate(raw)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from numbers(value, (*path, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, key)


STATED = [
    (path, place)
    for path in CONFIGS
    for place in numbers(yaml.safe_load(path.read_text())["robot"])
]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_a_lab_says_of_its_tracker_what_that_does(path):
    """Two sections that must not read each other state one thing."""
    cell, raw = load_cell(path), yaml.safe_load(path.read_text())
    streamed = [name for name, tracked in cell.trackers.items() if tracked.udp is not None]
    noise = raw["lab"]["devices"].get("tracker", {}) if streamed else {}
    told = (noise.get("noise_xy_m"), noise.get("noise_yaw_rad"))
    assert cell.standard_errors == dict.fromkeys(streamed, told)


@settings(max_examples=30, deadline=None)
@given(
    stated=st.sampled_from(STATED),
    absurd=st.sampled_from([1e12, -1e12, math.nan, math.inf, -math.inf]),
)
def test_no_number_of_a_shipped_cell_may_be_absurd(tmp_path_factory, stated, absurd):
    path, place = stated
    raw = yaml.safe_load(path.read_text())
    inside = raw["robot"]
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = int(absurd) if absurd == 1e12 and "port" in place else absurd
    file = tmp_path_factory.mktemp("cell") / "cell.yaml"
    file.write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError):
        load_cell(file)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_value_just_outside_is_refused_with_its_place_and_range(data):
    name, allowed = data.draw(st.sampled_from(sorted(RANGES["SupervisorConfig"].items())))
    above = data.draw(st.floats(allowed.high * 1.001, 1e300))
    config = SupervisorConfig()
    object.__setattr__(config, name, above)
    with pytest.raises(ConfigError, match=rf"cell: robot\.{name} is .* expected .* to"):
        check_ranges(config, "cell: robot", lab=False)
    below = data.draw(st.floats(-1e300, allowed.low * 0.999))
    object.__setattr__(config, name, below)
    with pytest.raises(ConfigError, match=name):
        check_ranges(config, "cell: robot", lab=False)


def edited(tmp_path, config, changes):
    raw = yaml.safe_load((CONFIG.parent / config).read_text())
    for path, value in changes.items():
        inside = raw["robot"]
        *way, last = path.split(".")
        for key in way:
            inside = inside.setdefault(key, {})
        inside[last] = value
    file = tmp_path / "cell.yaml"
    file.write_text(yaml.safe_dump(raw))
    calibration = CONFIG.parent / "calibration"
    if not (tmp_path / "calibration").exists():
        (tmp_path / "calibration").symlink_to(calibration)
    return file


# What was loaded without a word (an attack from outside), and its like.
ABSURD = [
    ("lab_ur5e.yaml", {"supervisor.late_s": 100}, "late_s is 100; expected 0.002 to 2 s"),
    (
        "lab_ur5e.yaml",
        {"supervisor.heartbeat_s": 900, "supervisor.frozen_s": 900},
        "heartbeat_s is 900; expected 0.005 to 2 s",
    ),
    ("lab_ur5e.yaml", {"supervisor.max_tool_force_n": 1e9}, "max_tool_force_n is 1e.09; expected"),
    ("lab_ur5e.yaml", {"limits.max_tool_speed": 40.0}, "max_tool_speed is 40; expected 0.001 to"),
    ("lab_ur5e.yaml", {"table.tip_height_m": 7.0}, "tip_height_m is 7"),
    (
        "lab_ur5e.yaml",
        {"trackers.block/pose.udp.max_age_s": 60.0},
        r"trackers.block/pose.udp.max_age_s is 60",
    ),
    ("lab_ur5e.yaml", {"driver.connect_timeout_s": 1e6}, "driver.connect_timeout_s is 1e"),
    ("lab_ur5e_gripper.yaml", {"gripper.driver.stroke_m": 85.0}, "stroke_m is 85"),
    ("lab_ur5e_camera.yaml", {"start_tolerance.position_m": 20.0}, "position_m is 20; .* 0.1 m"),
    ("lab_so101.yaml", {"joints.max_tool_speed": None}, "max_tool_speed is null"),
    ("lab_koch.yaml", {"joints.max_tool_speed": 0.3}, "'max_tool_speed: null'"),
    ("lab_so101.yaml", {"joints.home": [0.0, -0.9, 0.9, 2.6, 0.0]}, "outside the limits"),
    ("lab_so101.yaml", {"joints.home": [0.0, -0.9, 0.9]}, "home has 3 joints"),
]


@pytest.mark.parametrize(("config", "changes", "text"), ABSURD)
def test_an_absurd_value_is_refused_when_the_cell_is_loaded(tmp_path, config, changes, text):
    with pytest.raises(ConfigError, match=text):
        load_cell(edited(tmp_path, config, changes))


def test_a_home_inside_the_table_is_refused(tmp_path):
    home = yaml.safe_load((CONFIG.parent / "lab_ur5e_gripper.yaml").read_text())["robot"]["joints"]
    for changes, text in (
        ({"joints.table_height_m": 0.5}, "inside the table"),
        ({"joints.home": [*home["home"][:1], -0.6, *home["home"][2:]]}, r"home: .*table"),
    ):
        with pytest.raises(ConfigError, match=text):
            load_cell(edited(tmp_path, "lab_ur5e_gripper.yaml", changes))
    low = {"table.tip_height_m": 0.4, "table.tool_length_m": 0.6}
    with pytest.raises(ConfigError, match="inside the table"):
        load_cell(edited(tmp_path, "lab_ur5e.yaml", low))
    post = [{"name": "post", "start": [-0.5, 0.0, 0.0], "end": [-0.5, 0.0, 1.0], "radius": 0.4}]
    with pytest.raises(ConfigError, match=r"home: .*post"):
        load_cell(edited(tmp_path, "lab_ur5e.yaml", {"collision.obstacles": post}))


def test_a_real_cell_has_less_patience_than_a_lab_on_a_shared_machine(tmp_path):
    patient = {"supervisor.late_s": 1.0, "supervisor.heartbeat_s": 0.4}
    assert load_cell(edited(tmp_path, "lab_ur5e.yaml", patient)).supervisor.late_s == 1.0
    with pytest.raises(ConfigError, match="max_tool_force_n is 400; expected 1 to 250 N"):
        load_cell(edited(tmp_path, "lab_ur5e.yaml", {"lab": False}))
    real = {"lab": False, "supervisor.max_tool_force_n": 120.0, **patient}
    with pytest.raises(ConfigError, match=r"late_s is 1; expected 0.002 to 0.5 s"):
        load_cell(edited(tmp_path, "lab_ur5e.yaml", real))


def test_every_cell_has_a_limit_of_its_tools_speed(tmp_path):
    raw = yaml.safe_load((CONFIG.parent / "lab_so101.yaml").read_text())
    assert "max_tool_speed" in raw["robot"]["joints"]
    del raw["robot"]["joints"]["max_tool_speed"]
    (tmp_path / "calibration").symlink_to(CONFIG.parent / "calibration")
    (tmp_path / "cell.yaml").write_text(yaml.safe_dump(raw))
    cell = load_cell(tmp_path / "cell.yaml")
    assert cell.joints.max_tool_speed == 0.25
    assert cell.follower().build(100.0).tool_speed == 0.25
    for path in CONFIGS:
        robot = yaml.safe_load(path.read_text())["robot"]
        if "tool" in robot:
            assert "max_speed" in robot["tool"]["limits"], path
            continue
        stated = robot.get("joints", robot.get("limits"))
        assert "max_tool_speed" in stated, path


def test_files_that_a_cell_names_are_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (Path("configs/hardware/lab_so101.yaml"), CONFIG.parent / "lab_so101.yaml"):
        calibration = Path(load_cell(path).driver["calibration"])
        assert calibration.is_file()
        assert calibration.parent.name == "calibration"


def test_ranges_say_themselves():
    assert Range(0.0, 1.0, "s", lab=2.0).of(lab=True).text() == "0 to 2 s"
    assert Range(1.0, 7.0).of(lab=True).text() == "1 to 7"
    assert not Range(-1e9, 1e9).holds(math.nan)


def test_a_whole_number_beyond_floats_is_out_of_range(tmp_path):
    raw = yaml.safe_load((CONFIG.parent / "lab_ur5e.yaml").read_text())
    raw["robot"]["trackers"]["block/pose"]["udp"]["port"] = 10**400
    (tmp_path / "cell.yaml").write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError, match=r"port"):
        load_cell(tmp_path / "cell.yaml")
