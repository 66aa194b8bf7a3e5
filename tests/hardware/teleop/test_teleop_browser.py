import json
import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hardware.teleop.device import View
from hardware.teleop.devices.browser import BrowserDevice
from hardware.teleop.session import SessionConfig, TeleopSession
from robolearn.errors import ConfigError
from robolearn.pusht import BLOCK, TABLE_SIZE_M, TOOL
from robolearn.types import Condition
from sim.worlds import make_world
from tests.browser import chromium
from tests.mocks import Listener
from tests.waiting import paced, wait_until

VIEW = View("ready", (0.1, 0.2), (0.2, 0.3, 0.5), wanted=2)


@pytest.fixture
def device():
    device = BrowserDevice()
    yield device
    device.close()
    device.close()


def ws_url(device):
    return device.url.replace("http://", "ws://").replace("/?", "/ws?")


def test_page_needs_the_token_and_is_the_only_one(device):
    with urllib.request.urlopen(device.url) as answer:
        page = answer.read().decode()
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "<canvas" in page
    assert "http://" not in page
    assert "https://" not in page
    assert urlsplit(device.url).hostname == "127.0.0.1"
    for url, code in (
        (device.url.split("?")[0], 403),
        (device.url + "x", 403),
        (device.url.replace("/?", "/etc?"), 404),
    ):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(url)
        assert error.value.code == code
        error.value.close()
    with pytest.raises(InvalidStatus):
        connect(ws_url(device) + "x")


def test_pointer_keys_and_views(device):
    assert not device.poll().clutch
    device.show(VIEW)
    with connect(ws_url(device)) as page:
        assert json.loads(page.recv())["type"] == "scene"
        assert json.loads(page.recv())["phase"] == "ready"
        page.send('{"type": "pointer", "x": 0.1, "y": 0.25, "inside": true}')
        wait_until(lambda: device.poll().clutch)
        assert device.poll().motion.xy.tolist() == [0.1, 0.25]
        for text in ("nonsense", "[]", '{"type": "key"}', '{"type": "key", "key": "fire"}'):
            page.send(text)
        page.send('{"type": "key", "key": "start"}')
        page.send('{"type": "pointer", "x": 0.1, "y": 0.25, "inside": false}')
        wait_until(lambda: not device.poll().clutch)
        assert device.pressed() == ("start",)
        page.send('{"type": "pointer", "x": 0.3, "y": 0.3, "inside": true}')
        wait_until(lambda: device.poll().clutch)
        device.show(VIEW)
        assert json.loads(page.recv())["wanted"] == 2
    # A closed tab lets go of the tool.
    wait_until(lambda: not device.poll().clutch)
    wait_until(lambda: not device.connected)


def test_a_busy_port_is_explained(device):
    with pytest.raises(ConfigError, match="choose another --port"):
        BrowserDevice(port=device.port)


class Keeper(Listener):
    verdict = ""

    def keep(self):
        self.verdict = "keep"
        return "ep_000000"

    def discard(self):
        self.verdict = "discard"


def test_a_drawn_pointer_path_becomes_an_episode(device, tmp_path):
    env, keeper = make_world("pusht_reference"), Keeper()
    start = Condition("drawn", 0, {TOOL: (0.1, 0.1), BLOCK: (0.25, 0.32, 0.6)})
    config = SessionConfig(1, 300, 0, "pusht", "pusht_reference", lambda _: start)
    session = TeleopSession(env, device, keeper, config)
    with chromium() as tab:
        thread = threading.Thread(target=session.run)
        thread.start()
        try:
            tab.open(device.url)
            tab.wait_for("document.title.startsWith('Ready')")
            box = tab.evaluate("(({x, y, width}) => [x, y, width])(canvas.getBoundingClientRect())")

            def move(x, y):
                size = TABLE_SIZE_M
                tab.pointer(box[0] + box[2] * x / size, box[1] + box[2] * (1 - y / size))

            tab.screenshot(tmp_path / "ready.png")
            move(0.4, 0.4)
            tab.key(" ")
            tab.wait_for("document.title.startsWith('Recording')")
            # Far from the tool nothing is taken.
            tab.wait_for("$('hint').textContent.includes('blue disc')")
            path = np.linspace([0.1, 0.1], [0.3, 0.34], 25)
            for k in paced(25, len(path)):
                move(*path[k])
            tab.wait_for("view.engaged")
            tab.screenshot(tmp_path / "running.png")
            tab.pointer(5, 5)
            tab.wait_for("$('held').textContent === 'holds'")
            tab.key("Enter")
            tab.wait_for("document.title.startsWith('Finished')")
            tab.screenshot(tmp_path / "done.png")
            assert tab.errors == []
        finally:
            device.close()
            thread.join(timeout=10)
    env.close()
    assert keeper.verdict == "keep"
    assert keeper.ends[0].reason == "operator"
    sources = [t.command.source for t in keeper.ticks]
    assert sources[0] == "hold"
    assert sources[-1] == "hold"
    assert "human:browser" in sources
    tool = np.array([t.observation.value(TOOL) for t in keeper.ticks])
    block = np.array([t.observation.value(BLOCK) for t in keeper.ticks])
    assert np.linalg.norm(tool[-1] - tool[0]) > 0.15
    assert np.linalg.norm(block[-1, :2] - block[0, :2]) > 0.005


def test_a_page_from_elsewhere_is_refused_even_with_the_token(device):
    with pytest.raises(InvalidStatus) as refused:
        connect(ws_url(device), origin="http://elsewhere.example")
    assert refused.value.response.status_code == 403
    host = urlsplit(device.url).netloc
    with connect(ws_url(device), origin=f"http://{host}") as page:
        assert json.loads(page.recv())["type"] == "scene"


HOSTILE = ["[" * 4000, '{"type": "pointer", "x": 1%s, "y": 0, "inside": true}' % ("0" * 400)]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_message_does_not_end_the_page(device, text):
    with connect(ws_url(device)) as page:
        page.send(text)
        page.send('{"type": "pointer", "x": 0.1, "y": 0.25, "inside": true}')
        wait_until(lambda: device.poll().clutch)
        assert device.poll().motion.xy.tolist() == [0.1, 0.25]
