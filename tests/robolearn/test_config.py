import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from robolearn.config import (
    check_finite,
    config_hash,
    from_dict,
    load_config,
    load_yaml,
    parse_yaml,
    to_dict,
)
from robolearn.errors import ConfigError, DataError


@dataclass(frozen=True)
class Net:
    width: int = 256
    dropout: float = 0.0


@dataclass(frozen=True)
class Experiment:
    name: str
    kind: Literal["flow", "diffusion"] = "flow"
    lr: float = 1e-3
    net: Net = Net()
    betas: tuple[float, float] = (0.9, 0.95)
    seeds: tuple[int, ...] = ()
    worlds: list[str] = field(default_factory=list)
    store: Path | None = None
    table: dict[str, float] = field(default_factory=dict)
    free: Any = None
    fast: bool = False

    def __post_init__(self):
        if self.lr <= 0:
            raise ValueError("lr must be positive")


def test_values_are_converted_and_nested():
    config = from_dict(
        Experiment,
        {
            "name": "a",
            "lr": "1e-4",
            "net": {"width": 64, "dropout": 0},
            "seeds": [1, 2],
            "store": "data/x",
            "table": {"mass": 1},
            "free": [1, {"a": None}],
        },
    )
    assert config.lr == 1e-4
    assert config.net == Net(64, 0.0)
    assert config.seeds == (1, 2)
    assert config.store == Path("data/x")
    assert config.table == {"mass": 1.0}


def test_errors_are_of_the_callers_kind():
    with pytest.raises(DataError, match="row 3: key 'name' is missing"):
        from_dict(Experiment, {}, "row 3", error=DataError)
    with pytest.raises(DataError, match="row 3: net: unknown key 'widthh'"):
        from_dict(Experiment, {"name": "a", "net": {"widthh": 1}}, "row 3", error=DataError)


@dataclass(frozen=True)
class Drawn:
    seed: int = 0
    net_seed: int = 0
    inner: tuple[Net, ...] = ()
    poses: dict[str, tuple[float, ...]] = field(default_factory=dict)
    pair: tuple[float, float] | None = None


NETS = st.builds(Net, st.integers(), st.floats(allow_nan=False))
NUMBERS = st.floats(allow_nan=False)


@given(
    st.builds(
        Drawn,
        st.integers(0, 9),
        st.integers(0, 9),
        st.lists(NETS, max_size=3).map(tuple),
        st.dictionaries(st.text(), st.lists(NUMBERS, max_size=3).map(tuple), max_size=3),
        st.none() | st.tuples(NUMBERS, NUMBERS),
    )
)
def test_what_asdict_gives_is_read_again(config):
    assert from_dict(Drawn, to_dict(config)) == config


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"name": "a", "ntt": {}}, "unknown key 'ntt'. Did you mean 'net'?"),
        ({"name": "a", "net": {"widthh": 3}}, "net: unknown key 'widthh'. Did you mean 'width'?"),
        ({"name": "a", "kind": "flo"}, "got 'flo'. Did you mean 'flow'?"),
        ({}, "key 'name' is missing"),
        ({"name": 3}, "name: expected str, got 3"),
        ({"name": "a", "seeds": [1, "x"]}, "seeds[1]: expected int, got 'x'"),
        ({"name": "a", "seeds": 3}, "expected a list, got 3"),
        ({"name": "a", "betas": [0.9]}, "expected 2 values, got 1"),
        ({"name": "a", "lr": "fast"}, "expected a number, got 'fast'"),
        ({"name": "a", "lr": -1}, "lr must be positive"),
        ({"name": "a", "net": 3}, "expected a mapping"),
        ({"name": "a", "table": [1]}, "expected a mapping"),
        ({"name": "a", "net": {"width": True}}, "expected int, got True"),
        ({"name": "a", "fast": 1}, "expected bool, got 1"),
    ],
)
def test_errors_say_where_and_what(raw, text):
    with pytest.raises(ConfigError) as error:
        from_dict(Experiment, raw, where="x.yaml")
    assert text in str(error.value)
    assert str(error.value).startswith("x.yaml")


def test_files(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text("name: demo\nlr: 1e-4\n")
    assert load_config(Experiment, path).lr == 1e-4
    with pytest.raises(ConfigError, match=r"Did you mean 'good\.yaml'"):
        load_yaml(tmp_path / "god.yaml")
    with pytest.raises(ConfigError, match="folder"):
        load_yaml(tmp_path)
    path.write_text("a: [1\nb: 2")
    with pytest.raises(ConfigError, match="line 2"):
        load_yaml(path)
    path.write_text("- 1\n")
    with pytest.raises(ConfigError, match="must hold a mapping, got list"):
        load_yaml(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: demo\nlr: 1e-3\nlr: 1.0\n", r"the key 'lr' stands twice.*line 3"),
        ("name: demo\nnet: {width: 4, dropout: 0.1, width: 8}\n", "'width' stands twice"),
        ("name: demo\nlr: .nan\n", r"'.nan' is no finite number.*line 2"),
        ("name: demo\nbetas: [0.9, -.inf]\n", r"'-.inf' is no finite number.*line 2"),
        ("name: demo\nnet: {dropout: 1.0e+999}\n", r"is no finite number.*line 2"),
        ("name: 2024-02-31\n", "day is out of range"),
        (f"name: demo\nlr: {'1' * 400}\n", r"lr: expected a number up to"),
        (f"name: demo\nlr: {'1' * 5000}\n", "4300 digits"),
        ("name: " + "[" * 5000, "recursion"),
    ],
)
def test_files_that_yaml_takes_and_a_person_does_not_mean(tmp_path, text, told):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        load_config(Experiment, path)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (Experiment("demo", lr=math.nan), "here: lr must be finite, got nan"),
        (Experiment("demo", net=Net(dropout=math.inf)), "here: net: dropout must be finite"),
        (Experiment("demo", betas=(0.9, -math.inf)), "here: betas must be finite"),
    ],
)
def test_numbers_that_come_from_no_file_are_finite_too(config: Experiment, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_finite(config, "here")
    check_finite(Experiment("demo"), "here")


def test_a_file_that_the_system_does_not_open(tmp_path):
    path = tmp_path / "loop.yaml"
    path.symlink_to(path)
    with pytest.raises(ConfigError, match=r"loop\.yaml' cannot be read"):
        load_yaml(path)


@given(
    st.builds(
        Experiment,
        name=st.text(),
        lr=st.floats(1e-6, 1),
        net=st.builds(Net, st.integers(), st.floats(0, 1)),
        seeds=st.lists(st.integers(), max_size=3).map(tuple),
        table=st.dictionaries(st.text(max_size=3), st.floats(-1, 1), max_size=2),
        fast=st.booleans(),
    )
)
def test_plain_values_round_trip(config):
    assert from_dict(Experiment, to_dict(config)) == config
    assert config_hash(config) == config_hash(to_dict(config))


def test_hash_ignores_order_and_sees_values():
    assert config_hash({"a": 1, "b": 2}) == config_hash({"b": 2, "a": 1})
    assert config_hash({"a": 1}) != config_hash({"a": 2})
    assert len(config_hash({})) == 16


def test_only_dataclasses_are_built():
    with pytest.raises(TypeError):
        from_dict(int, {})


@pytest.mark.parametrize("opens", ["[", "{a: ", "- ", "? ", "? - "])
def test_a_file_that_nests_without_end_is_refused_and_brings_nobody_down(tmp_path, opens):
    """The loader in C has no limit but its stack; what may reach it goes to the other one."""
    path = tmp_path / "deep.yaml"
    path.write_text("a: " + opens * 50_000 if opens[0] in "[{" else opens * 50_000)
    with pytest.raises(
        ConfigError, match=r"deep\.yaml' (is not valid YAML|cannot be read as YAML)"
    ):
        load_yaml(path)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    )
)
def test_both_loaders_read_the_same(values):
    text = yaml.safe_dump(values, allow_unicode=True)
    assert parse_yaml(text) == yaml.safe_load(text)


def test_what_is_wrong_is_quoted(tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text("width: 3\nlayers: [1, 2\nname: x\n")
    with pytest.raises(ConfigError, match=r"line 3.*name: x"):
        load_yaml(path)
