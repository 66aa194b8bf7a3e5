"""``robolearn calibrate latency``: what it prints, and its bad input."""

import json

from robolearn.cli.main import main
from tests.episodes import TOOL
from tests.hardware.lab import CONFIG
from tests.robolearn.operations.cell.late_store import LATE_S, late_store


def test_a_recording_tells_how_late_its_robot_follows(capsys, tmp_path):
    store = str(late_store(tmp_path / "store"))
    names = ["--command", TOOL, "--response", TOOL, "--json"]
    assert main(["calibrate", "latency", "--store", store, *names]) == 0
    found = json.loads(capsys.readouterr().out)
    assert abs(found["median_s"] - LATE_S) < 5e-3
    assert list(found["episodes"][0]) == ["episode", "latency_s", "error_s", "correlation"]
    assert main(["calibrate", "latency", "--store", store, *names[:-1]]) == 0
    assert f"{TOOL} follows {TOOL} after 1" in capsys.readouterr().out
    names[1] = "tool/xz"
    assert main(["calibrate", "latency", "--store", store, *names]) == 2
    assert "tool/xy_table" in capsys.readouterr().err


def test_bad_input_is_one_line(capsys, tmp_path):
    assert main(["calibrate", "latency"]) == 2
    assert "either --config" in capsys.readouterr().err
    assert main(["calibrate", "latency", "--config", str(CONFIG), "--seconds", "0"]) == 2
    assert "--seconds must be positive, got 0" in capsys.readouterr().err
    assert main(["calibrate", "latency", "--store", str(tmp_path)]) == 2
    assert "--command" in capsys.readouterr().err
    assert main(["calibrate", "latenzy"]) == 2
    assert "Did you mean 'latency'" in capsys.readouterr().err
