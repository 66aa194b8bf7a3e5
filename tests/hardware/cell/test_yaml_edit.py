"""One number changes, everything else stays as it was written."""

import pytest
import yaml

from hardware.cell.yaml_edit import set_number, set_value
from robolearn.errors import ConfigError

TEXT = """# my cell
robot:
  name: mine # do not touch
  cameras:
    - driver: {kind: fake}
      stream: {name: top, latency_s: 0.1} # flow
    - stream:
        name: wrist # block
        width: 4
"""


def test_comments_and_order_stay():
    out = set_number(TEXT, ("robot", "cameras", 0, "stream", "latency_s"), 0.0425)
    assert out == TEXT.replace("latency_s: 0.1", "latency_s: 0.0425")
    out = set_number(TEXT, ("robot", "cameras", 1, "stream", "latency_s"), 0.02)
    assert yaml.safe_load(out)["robot"]["cameras"][1]["stream"]["latency_s"] == 0.02
    assert "# block" in out
    out = set_number(TEXT, ("robot", "command_latency_s"), 0.5)
    assert yaml.safe_load(out)["robot"]["command_latency_s"] == 0.5
    assert out.startswith("# my cell\n")
    out = set_number(TEXT, ("robot", "cameras", 0, "driver", "x"), 3.0)
    assert yaml.safe_load(out)["robot"]["cameras"][0]["driver"] == {"x": 3, "kind": "fake"}


def test_places_that_are_not_there_are_named():
    with pytest.raises(ConfigError, match="'lab' is missing"):
        set_number(TEXT, ("lab", "x"), 1.0)
    with pytest.raises(ConfigError, match="not in a mapping"):
        set_number(TEXT, ("robot", "name", "x"), 1.0)
    anchored = "a: &x {v: 1}\nb: *x\n"
    with pytest.raises(ConfigError, match="by hand"):
        set_number(anchored, ("a", "v"), 2.0)


def test_a_block_becomes_one_line_and_what_follows_stays():
    text = "a:\n  lens:\n    f: [1, 2]\n    c:\n      - 3\n      - 4\n  # why\n  b: 5 # kept\n"
    out = set_value(text, ("a", "lens"), {"f": [1.5, 1e-7], "p": [0.0]})
    assert yaml.safe_load(out) == {"a": {"lens": {"f": [1.5, 1e-7], "p": [0]}, "b": 5}}
    assert "# why\n  b: 5 # kept" in out
    added = set_value("a: {x: 1}\n", ("a", "lens"), {"f": [2.0]})
    assert yaml.safe_load(added) == {"a": {"lens": {"f": [2]}, "x": 1}}
