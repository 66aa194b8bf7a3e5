import dataclasses
import math

import pytest

from hardware.teleop.device import Surroundings
from hardware.teleop.page.assembly import document
from hardware.teleop.page.layout import layout_of
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.spec import ActionSpec
from robolearn.types import Outline
from robolearn.web.address import Served, is_loopback, require_one_address
from tests.hardware.teleop.pages import ARM
from tests.mocks import SPEC


def test_an_arm_is_driven_along_what_its_action_leaves_free():
    layout = layout_of(Surroundings(task="pick_place", spec=ARM))
    assert layout.control == "rate"
    assert layout.free == (True, True, True, False, False, True)
    assert layout.gripper
    assert (layout.low, layout.high) == ((-0.3, -0.4, 0.0), (0.3, 0.4, 0.5))
    assert [(c.name, c.width, c.height) for c in layout.cameras] == [("top", 640, 480)]
    assert layout.outlines == ()
    assert layout.heading_rad == 0.0
    square = Outline("cube", (((0.0, 0.0), (0.1, 0.0), (0.0, 0.1)),))
    assert layout_of(Surroundings(spec=ARM, outlines=(square,))).outlines == (square,)
    turned = layout_of(Surroundings(spec=ARM, heading_rad=0.5))
    assert turned.heading_rad == 0.5


def test_a_tool_on_the_table_is_driven_by_a_point():
    layout = layout_of(Surroundings(task="pusht", spec=SPEC))
    assert layout.control == "point"
    assert not layout.gripper
    assert layout.heading_rad == math.pi / 2
    assert [o.name for o in layout.outlines] == ["goal", "block", "tool"]


def test_joints_are_no_matter_of_a_page():
    joints = ActionSpec("arm/joint_position", (6,), low=(-3.0,) * 6, high=(3.0,) * 6)
    spec = dataclasses.replace(ARM, actions=(joints, ARM.actions[1]))
    with pytest.raises(SpecMismatchError, match="--agent leader"):
        layout_of(Surroundings(spec=spec))


def test_the_page_is_one_document_that_executes_nothing_else():
    found = document()
    text = found.body.decode()
    policy = found.policy("ws://127.0.0.1:1")
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert all(digest in policy for digest in (*found.scripts, *found.styles))
    assert text.count("<script>") == len(found.scripts) > 1
    # The name of a language, not a place where something is fetched.
    text = text.replace("http://www.w3.org/2000/svg", "")
    for fetched in ("http://", "https://", " src=", "@import", "url(", "style=", " on", "import("):
        if fetched == " on":
            continue
        assert fetched not in text, fetched


def test_only_requests_that_mean_this_page_are_its_own():
    local = Served("127.0.0.1", 80, secure=False)
    assert local.asked_by_name("localhost:9000")
    assert not local.asked_by_name("elsewhere.example")
    assert not local.asked_by_name("[")
    assert local.own_origin("http://localhost:9000", "localhost:9000")
    assert not local.own_origin("https://localhost:9000", "localhost:9000")
    tablet = Served("192.0.2.7", 80, secure=True)
    assert tablet.url("x") == "https://192.0.2.7:80/?token=x"
    assert tablet.asked_by_name("192.0.2.7:80")
    assert not tablet.asked_by_name("localhost:80")
    assert tablet.socket("192.0.2.7:80") == "wss://192.0.2.7:80"


def test_all_addresses_are_none():
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert not is_loopback("192.0.2.7")
    for host in ("0.0.0.0", "::", ""):
        with pytest.raises(ConfigError, match="one address"):
            require_one_address(host)
