"""Names the files that scene packages take their machines from, and what writes them."""

from __future__ import annotations

from collections.abc import Callable

from sim.robots.panda import panda_mjcf
from sim.robots.so101 import so101_mjcf
from sim.robots.ur5e import ur5e_gripper_mjcf
from sim.robots.xarm7 import xarm7_mjcf

# File name in scene packages -> what writes it.
ROBOTS: dict[str, Callable[[], str]] = {
    "panda.xml": panda_mjcf,
    "so101.xml": so101_mjcf,
    "ur5e_gripper.xml": ur5e_gripper_mjcf,
    "xarm7.xml": xarm7_mjcf,
}
