"""Files of blinded trials on an emulated arm: a cell, a suite of two starts, two runs."""

from pathlib import Path

import yaml

from tests.hardware.lab import CONFIG, address

PATIENT = {
    "late_s": 0.4,
    "heartbeat_s": 0.4,
    "frozen_s": 2.0,
    "state_late_s": 0.1,
    "state_stale_s": 0.4,
    "goto_speed": 2.5,
    "goto_acceleration": 12.0,
}
RUNS = ("kestrel", "osprey")
PLAN = ("--robot", "cell.yaml", "--policies", *RUNS, "--suite", "suite.yaml", "--out", "out")


def write_files(folder: Path, last: int) -> None:
    """An engine-less lab at an address of its own, and the rest."""
    raw = yaml.safe_load(CONFIG.read_text())
    raw["lab"] = {"world": "kinematic", "devices": {"tracker": {"rate_hz": 100}}}
    robot = raw["robot"]
    robot["driver"] |= {"address": address(last), "watchdog_hz": 5}
    robot["trackers"]["block/pose"]["udp"] |= {"address": address(last), "max_age_s": 1.0}
    robot["supervisor"] = PATIENT
    (folder / "cell.yaml").write_text(yaml.safe_dump(raw))
    suite = yaml.safe_load((CONFIG.parents[1] / "eval" / "pusht.yaml").read_text())
    suite["conditions"], suite["subset"] = suite["conditions"][:2], 1
    (folder / "suite.yaml").write_text(yaml.safe_dump(suite))
    for name in RUNS:
        (folder / name).mkdir()
        (folder / name / "config.yaml").write_text(f"policy: {name}\n")
