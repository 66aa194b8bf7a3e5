"""A page in Chromium drives an arm with a gripper under its supervisor: what goes wrong there stops
the arm, and is read on the page.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import pytest

from hardware.cell.config import CellConfig
from hardware.devices.gripper_config import GripperCellConfig
from hardware.drivers.fakes.gripper import FakeGripperFault
from hardware.env.real_env import RealEnv
from hardware.supervisor.shared_memory import Ring
from robolearn.arms.tool_path import ToolPathLimits
from robolearn.operations.cell import collect as cell_collect
from robolearn.operations.cell.collect import teleoperate_on_cell
from robolearn.operations.collect import CollectConfig
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.stores.collect_options import CellOptions
from robolearn.operations.stores.collection import CollectListener
from tests.browser import Tab, browsing
from tests.hardware.env.test_real_env_tool import cell
from tests.waiting import paced, pass_time, wait_until


@dataclass(frozen=True)
class Driven:
    """The arm behind the page."""

    env: RealEnv
    tab: Tab
    url: str
    faults: Ring

    def start(self) -> None:
        self.tab.wait_for("document.title.startsWith('Ready')")
        self.tab.key(" ")
        self.tab.wait_for("link.view.engaged")

    def push(self, key: str, until: str = "false") -> None:
        """Hold a key until the arm moves, or until an expression of the page is true. On a busy
        machine a page may fall silent, and then it has to be let go of first.
        """

        def comes() -> bool:
            moves = until == "false" and self.speed() > 0.05
            return moves or bool(self.tab.evaluate(until))

        def done() -> bool:
            self.tab.hold("keyUp", key)
            pass_time(0.3, "a key that was held has to be let go of first")
            self.tab.hold("keyDown", key)
            return any(comes() for _ in paced(20, 60))

        wait_until(done, 30.0)

    def speed(self) -> float:
        return float(np.abs(self.env.supervisor.state().joint_velocity).max())

    def rests(self) -> bool:
        """For half a second: what brakes goes back to where it was let go of."""
        before = self.env.supervisor.state().joint_position
        pass_time(0.5, "rest is told from two places of the arm")
        after = self.env.supervisor.state()
        return bool(np.abs(after.joint_position - before).max() < 1e-4) and self.speed() < 0.005

    def says(self, words: str) -> None:
        self.tab.wait_for(f"document.body.textContent.includes({words!r})")


def near() -> ToolPathLimits:
    """Borders that a key reaches in half a second."""
    limits = cell().tool.limits
    return dataclasses.replace(
        limits, workspace_low=(-0.1, -0.1, 0.15), workspace_high=(0.1, 0.1, 0.35)
    )


@pytest.fixture(scope="module")
def browser():
    with browsing() as running:
        yield running


@pytest.fixture
def driven(browser, monkeypatch: pytest.MonkeyPatch) -> Generator[Driven]:
    faults = Ring.create(4, 1)
    driver = {"kind": "fake", "speed_m_s": 0.5, "faults": dataclasses.asdict(faults.handle)}
    gripper = GripperCellConfig(driver, high_m=0.08, max_age_s=1.0, rate_hz=50.0)
    config: CellConfig = dataclasses.replace(cell(limits=near()), gripper=gripper)
    urls: queue.Queue[str] = queue.Queue()
    envs: queue.Queue[RealEnv] = queue.Queue()
    opened = cell_collect.open_cell

    def open_cell(*args, **more):
        found = opened(*args, **more)
        envs.put(found.env)
        return found

    monkeypatch.setattr(cell_collect, "load_cell", lambda _: config)
    monkeypatch.setattr(cell_collect, "open_cell", open_cell)
    thread = threading.Thread(
        target=teleoperate_on_cell,
        args=(CollectConfig(robot="cell.yaml"), CellOptions(), Unattended(agreed=True)),
        kwargs={"agent": "browser", "listener": CollectListener(on_page=urls.put)},
        daemon=True,
    )
    thread.start()
    env, url = envs.get(timeout=60), urls.get(timeout=60)
    tab = browser.tab()
    tab.open(url)
    yield Driven(env, tab, url, faults)
    tab.wait_for("link.view && link.view.keys.includes('quit')")
    tab.key("q")
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert tab.errors == []
    faults.unlink()
    faults.close()


def test_a_key_that_is_held_ends_at_the_border_and_with_the_focus(driven: Driven) -> None:
    driven.start()
    tab = driven.tab
    driven.push("d", "link.view.slowed.includes('border of the workspace')")
    wait_until(driven.rests)
    tab.hold("keyUp", "d")
    driven.push("a")
    tab.evaluate("window.dispatchEvent(new Event('blur'))")
    wait_until(driven.rests)
    driven.says("lost the focus")
    assert driven.env.interventions == []


def test_a_tab_that_is_closed_while_a_key_is_held_stops_the_arm(driven: Driven) -> None:
    driven.start()
    driven.push("w")
    driven.tab.open("data:text/html,closed")
    wait_until(driven.rests)
    at = driven.env.supervisor.state().joint_position
    driven.tab.open(driven.url)
    driven.tab.wait_for("link.view && link.driving && !link.view.engaged")
    np.testing.assert_allclose(driven.env.supervisor.state().joint_position, at, atol=1e-3)


def test_a_gripper_that_fails_and_the_emergency_stop_are_told_and_cleared(driven: Driven) -> None:
    driven.start()
    driven.push("w")
    driven.tab.key("Escape")
    driven.tab.wait_for("document.title.startsWith('Stopped')")
    driven.tab.hold("keyUp", "w")
    wait_until(driven.rests)
    driven.says("estop")
    driven.tab.key(" ")
    driven.start()
    driven.faults.put(time.monotonic_ns(), [float(FakeGripperFault.REFUSES)])
    driven.tab.wait_for("document.title.startsWith('Stopped')")
    driven.says("gripper_fault")
    driven.faults.put(time.monotonic_ns(), [float(FakeGripperFault.NONE)])
    driven.tab.key(" ")
    driven.start()
