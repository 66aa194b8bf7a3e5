import json
import socket

import pytest

from robolearn.cli.main import main
from robolearn.machine import devices, doctor
from robolearn.machine.doctor import (
    check_clock,
    check_cores,
    check_disk,
    check_library,
    check_memory,
    check_packages,
    check_port,
    check_real_time,
    check_rendering,
    check_shared_memory,
)


def test_missing_packages_and_libraries_name_what_installs_them():
    assert check_packages().status == "OK"
    missing = check_packages(("numpy", "no-such-package"))
    assert (missing.status, missing.found) == ("FAIL", "missing: no-such-package")
    absent = check_library("libnosuch.so.9")
    assert absent.status == "FAIL"
    assert "apt-get install" in absent.advice


def test_a_busy_port_is_a_warning():
    with socket.socket() as other:
        other.bind(("127.0.0.77", 0))
        other.listen()
        port = other.getsockname()[1]
        busy = check_port(port, "127.0.0.77")
        assert busy.status == "WARN"
        assert "in use" in busy.found
    assert check_port(port, "127.0.0.77").status == "OK"


def test_rendering_is_judged_by_the_picture():
    def says(text):
        return check_rendering(30.0, f"print('{text}')")

    assert says("[[200, 10, 10], [10, 10, 200]]").status == "OK"
    black = says("[[0, 0, 0], [0, 0, 0]]")
    assert black.status == "FAIL"
    assert "wrong colours" in black.found
    broken = check_rendering(30.0, "raise ImportError('no EGL')")
    assert "no EGL" in broken.found
    assert "apt-get install libegl1" in broken.advice
    crashed = check_rendering(30.0, "import os; os.abort()")
    assert "exit code -6" in crashed.found
    stuck = check_rendering(0.05, "import time; time.sleep(9)")
    assert "no picture within" in stuck.found


def test_the_backend_that_takes_over_is_named(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    code = (
        "import os\n"
        "if os.environ['MUJOCO_GL'] == 'egl': raise ImportError('no EGL')\n"
        "print('[[200, 10, 10], [10, 10, 200]]')"
    )
    found = check_rendering(30.0, code)
    assert found.status == "OK"
    assert found.found.startswith("osmesa: picture is right")
    assert found.found.endswith("egl: ImportError: no EGL")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert check_rendering(30.0, code).status == "FAIL"


def test_disk_and_memory_thresholds(tmp_path):
    assert check_disk(tmp_path / "not" / "yet", 0.0, 0.0).status == "OK"
    assert check_disk(tmp_path, 1e9, 0.0).status == "WARN"
    assert check_disk(tmp_path, 1e9, 1e9).status == "FAIL"
    assert check_shared_memory(tmp_path / "absent").status == "WARN"
    assert check_shared_memory(tmp_path, 1e12).status == "WARN"
    assert check_shared_memory(tmp_path, 0.0).status == "OK"
    info = tmp_path / "meminfo"
    info.write_text("MemTotal: 9 kB\nMemAvailable:    8000000 kB\n")
    assert check_memory(4.0, info).found == "8.2 GB available"
    assert check_memory(9.0, info).status == "WARN"
    assert check_memory(4.0, tmp_path / "absent").status == "WARN"


def test_scheduling_clock_and_cores_report_something():
    for check in (check_real_time(), check_clock(3), check_clock(2, -1.0), check_cores()):
        assert check.status in ("OK", "WARN")
        assert bool(check.advice) == (check.status == "WARN")


@pytest.mark.parametrize("status", ["OK", "WARN", "FAIL"])
def test_command(monkeypatch, capsys, status):
    advice = "" if status == "OK" else "do this"
    checks = (doctor.Check("disk", "OK", "fine"), doctor.Check("ports", status, "found", advice))
    monkeypatch.setattr(doctor, "run_checks", lambda folder: checks)
    monkeypatch.setattr(devices, "run_device_checks", tuple)
    code = 2 if status == "FAIL" else 0
    assert main(["doctor"]) == code
    text = capsys.readouterr().out
    assert f"{status:<4}  ports  found" in text
    assert ("-> do this" in text) == bool(advice)
    assert main(["doctor", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] == (code == 0)
    assert report["checks"][1]["status"] == status


def test_every_check_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "check_rendering", lambda: doctor.Check("drawing", "OK", "skipped"))
    names = [c.name for c in doctor.run_checks(tmp_path)]
    assert len(names) == len(set(names)) == 13
    assert {"libEGL.so.1", "port 30004", "port 29999", "port 30003", "disk"} <= set(names)
