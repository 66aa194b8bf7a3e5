"""What ``doctor --robot`` finds of the ports that a cell's config names."""

import socket
import sys
from pathlib import Path

import pytest
import yaml

from hardware.commissioning.connections import check_connections


@pytest.fixture
def cell(tmp_path, monkeypatch):
    """Writes a cell of an arm whose driver takes any port."""
    module = tmp_path / "tcp_toy_arm.py"
    module.write_text(
        "from dataclasses import dataclass\n"
        "from tests.hardware.toy_arm import ToyArm, ToyConfig\n"
        "@dataclass(frozen=True)\n"
        "class Config:\n"
        "    port: int | str = 0\n"
        "    address: str = ''\n"
        "    def build(self):\n"
        "        return ToyArm(ToyConfig())\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "cell.yaml"

    def write(driver, **more) -> Path:
        limits = {"low": [-1.0], "high": [1.0], "speed": [1.0], "acceleration": [1.0]}
        joints = {"home": [0.0], "limits": limits, "max_tool_speed": None}
        driver = {"kind": "tcp_toy_arm:Config", **driver}
        robot = {"name": "x", "driver": driver, "arm": "", "joints": joints, **more}
        path.write_text(yaml.safe_dump({"robot": robot}))
        return path

    return write


def found(path):
    return {c.name: (c.status, c.found, c.advice) for c in check_connections(path)}


def test_a_number_is_a_port_of_the_network(cell):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for driver in (
            {"port": port, "address": "127.0.0.1"},
            {"port": f"socket://127.0.0.1:{port}"},
        ):
            status, told, _ = found(cell(driver))["tcp_toy_arm:Config port"]
            assert (status, f"127.0.0.1:{port} answers" in told) == ("OK", True)
    status, told, _ = found(cell({"port": port, "address": "127.0.0.1"}))["tcp_toy_arm:Config port"]
    assert (status, f"nobody answers at 127.0.0.1:{port}" in told) == ("FAIL", True)
    status, told, _ = found(cell({"port": "/dev/ttyUSB96"}))["tcp_toy_arm:Config port"]
    assert (status, "there is no /dev/ttyUSB96" in told) == ("FAIL", True)


def test_cameras_and_trackers_of_the_network_are_looked_at(cell):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken,
    ):
        taken.bind(("127.0.0.1", 0))
        picture, stream = server.getsockname()[1], taken.getsockname()[1]
        cameras = [
            {
                "driver": {"kind": "mjpeg", "url": f"http://127.0.0.1:{picture}/top"},
                "stream": {"name": "top", "width": 8, "height": 8},
            }
        ]
        trackers = {"block/pose": {"udp": {"address": "127.0.0.1", "port": stream}}}
        here = found(cell({}, cameras=cameras, trackers=trackers))
        assert here["camera top"][0] == "OK"
        assert here["tracker port"][0] == "FAIL"
        assert "in use" in here["tracker port"][1]
    gone = found(cell({}, cameras=cameras, trackers=trackers))
    assert (gone["camera top"][0], gone["tracker port"][0]) == ("FAIL", "OK")
