import json

import numpy as np
import pytest

from hardware.teleop.device import (
    CameraState,
    Curve,
    HandPose,
    Look,
    Rate,
    TablePoint,
    Thing,
    View,
)
from hardware.teleop.page.messages import (
    PICTURE_HEAD,
    Claim,
    Grip,
    Hand,
    Press,
    Seen,
    decode,
    picture_bytes,
    view_text,
)
from robolearn.errors import DataError

HAND = {
    "v": 1,
    "type": "hand",
    "seq": 3,
    "t_ms": 12.5,
    "held": True,
    "away": False,
    "twist": [0, 1, -1, 0, 0.5, 0],
}


def test_what_a_page_says_is_understood():
    hand = decode(json.dumps(HAND))
    assert isinstance(hand, Hand)
    assert (hand.seq, hand.t_ms, hand.held, hand.control) == (3, 12.5, True, "rate")
    assert isinstance(hand.motion, Rate)
    assert hand.motion.twist.tolist() == [0, 1, -1, 0, 0.5, 0]
    point = {k: v for k, v in HAND.items() if k != "twist"} | {"away": True, "xy": [0.1, 0.2]}
    hand = decode(json.dumps(point))
    assert isinstance(hand, Hand)
    assert hand.away
    assert isinstance(hand.motion, TablePoint)
    assert hand.control == "point"
    turned = {k: v for k, v in HAND.items() if k != "twist"} | {"turn": [0.8, 0, 0, 0.6]}
    hand = decode(json.dumps(turned))
    assert isinstance(hand, Hand)
    assert isinstance(hand.motion, HandPose)
    assert hand.control == "rate"
    assert hand.motion.T[:2, 0].tolist() == pytest.approx([0.28, 0.96])
    assert decode('{"v": 1, "type": "key", "key": "keep"}') == Press("keep")
    assert decode('{"v": 1, "type": "gripper", "opening": 0.5}') == Grip(0.5)
    assert decode('{"v": 1, "type": "claim"}') == Claim()
    assert decode('{"v": 1, "type": "seen"}') == Seen()
    assert decode('{"v": 1, "type": "seen", "camera": 1}') == Seen(1)


ABSURD = {
    "no rotation": json.dumps({k: v for k, v in HAND.items() if k != "twist"} | {"turn": [0] * 4}),
    "nothing": "",
    "no JSON": "nonsense",
    "a list": "[]",
    "deep": "[" * 4000,
    "bytes": b"\x01\x02",
    "no version": '{"type": "claim"}',
    "another version": '{"v": 2, "type": "claim"}',
    "true as version": '{"v": true, "type": "claim"}',
    "no type": '{"v": 1}',
    "unknown": '{"v": 1, "type": "fire"}',
    "a list as type": '{"v": 1, "type": ["key"]}',
    "unknown key": '{"v": 1, "type": "key", "key": "fire"}',
    **{
        f"opening {value}": f'{{"v": 1, "type": "gripper", "opening": {value}}}'
        for value in ("true", "NaN", "-0.1", "1.1", "1e308", '"1"', "null")
    },
    "camera": '{"v": 1, "type": "seen", "camera": "top"}',
    "huge integer": '{"v": 1%s, "type": "claim"}' % ("0" * 400),
    **{
        f"hand {name}": json.dumps(HAND | {name: value})
        for name, value in {
            "held": 1,
            "away": None,
            "seq": -1,
            "t_ms": float("nan"),
        }.items()
    },
    **{
        f"twist {value}": json.dumps(HAND | {"twist": [value, 0, 0, 0, 0, 0]})
        for value in (float("nan"), float("inf"), 1.01, -40, "1", None, True, [1], 10**400)
        if not (isinstance(value, int) and value > 10**300)
    },
    "twist huge": json.dumps(HAND).replace("[0,", f"[1{'0' * 400},"),
    "five axes": json.dumps(HAND | {"twist": [0] * 5}),
    "no motion": json.dumps({k: v for k, v in HAND.items() if k != "twist"}),
    "far point": json.dumps({k: v for k, v in HAND.items() if k != "twist"} | {"xy": [0, 1e9]}),
}


@pytest.mark.parametrize("name", ABSURD)
def test_nothing_else_is(name):
    with pytest.raises(DataError):
        decode(ABSURD[name])


def test_views_have_no_numbers_that_a_browser_refuses():
    view = View(
        "running",
        Thing("tool", (0.1, float("nan"), 0.2), 0.5),
        (Thing("cube", (0.0, 0.1)),),
        progress=float("nan"),
        pictures={"top": np.zeros((2, 2, 3), np.uint8)},
        look=Look((Curve("joint 1", (0.0, float("nan"))),), (("top", ()),)),
    )
    told = json.loads(view_text(view), parse_constant=pytest.fail)
    assert told["tool"] == {"name": "tool", "at": [0.1, None, 0.2], "yaw": 0.5}
    assert told["things"] == [{"name": "cube", "at": [0.0, 0.1], "yaw": 0.0}]
    assert told["progress"] is None
    assert "pictures" not in told
    assert "look" not in told


def test_a_picture_says_whose_it_is():
    data = picture_bytes(2, 2**32 + 7, b"jpeg")
    assert PICTURE_HEAD.unpack_from(data) == (1, 2, 7)
    assert data[PICTURE_HEAD.size :] == b"jpeg"


def test_a_start_in_small_is_for_terminals():
    """The page has the picture itself; nothing of it goes into the text of a view."""
    small = np.zeros((36, 48, 3), np.uint8)
    cameras = (CameraState("top", 0.0), CameraState("wrist", None, old=True))
    placing = View("placing", message="place the cube", start=("top", small), cameras=cameras)
    told = json.loads(view_text(placing))
    assert [c["trouble"] for c in told["cameras"]] == ["", "wrist: no picture"]
    assert "start" not in told
    assert told["message"] == "place the cube"
