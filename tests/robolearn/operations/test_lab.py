"""Who may reach a virtual lab, and from where it can be started."""

import os
import threading

import pytest

from robolearn.cli.main import main
from robolearn.errors import ConfigError
from robolearn.operations.lab.arm import make_arm_lab
from robolearn.operations.lab.options import LabOptions
from robolearn.operations.lab.serve import serve_lab
from tests.hardware.lab import CONFIG, address


@pytest.mark.parametrize(
    "reachable", ["0.0.0.0", "192.168.7.9", "8.8.8.8", "::", "0", "::ffff:0.0.0.0"]
)
def test_an_address_that_others_reach_needs_a_word(reachable, capsys):
    with pytest.raises(ConfigError, match=r"without a password.*'expose'"):
        LabOptions(address=reachable)
    assert LabOptions(address=reachable, expose=True).address == reachable
    assert main(["lab", "--config", str(CONFIG), "--address", reachable]) == 2
    assert "'expose'" in capsys.readouterr().err


@pytest.mark.parametrize("none", ["", " ", "no.such.host.invalid", "a..b"])
def test_what_is_no_address_is_refused_not_taken_for_all(none):
    for expose in (False, True):
        with pytest.raises(ConfigError, match="is no address"):
            LabOptions(address=none, expose=expose)


@pytest.mark.parametrize("own", ["127.0.0.1", "127.1.2.3", "localhost"])
def test_loopback_needs_none(own):
    assert not LabOptions(address=own).expose


def test_a_lab_is_served_by_a_function_and_ends_with_who_started_it(tmp_path):
    config = tmp_path / "lab.yaml"
    config.write_text("lab: {world: kinematic, real_time: false}\n")
    theirs, ours = os.pipe()
    found = []

    def ready(serving):
        with serving.where.connect() as door:
            found.append((serving, door.truth()))
        os.close(ours)

    thread = threading.Thread(
        target=serve_lab,
        args=(config, LabOptions(address=address(91))),
        kwargs={"ready": lambda s: threading.Thread(target=ready, args=(s,)).start()}
        | {"stop": lambda: False, "follow": theirs},
    )
    thread.start()
    thread.join(30.0)
    os.close(theirs)
    assert not thread.is_alive()
    serving, truth = found[0]
    assert serving.where.address == address(91)
    assert serving.where.world == "kinematic"
    assert any(line.startswith("robot: ") for line in serving.devices)
    assert "block" in truth.poses


def test_a_shipped_lab_is_served_from_another_folder(tmp_path, monkeypatch):

    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/lab").mkdir(parents=True)
    path = CONFIG.parent.relative_to(CONFIG.parents[2]) / "lab_so101.yaml"
    lab, config = make_arm_lab(path, world="kinematic", address=address(92), token="t", seed=0)
    lab.close()
    assert config.arm == "so101"
