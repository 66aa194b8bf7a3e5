"""Tests that look into the product's private parts: the places that are left, and no new ones."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# What has no public way: a number may only become smaller. Mostly the state of an engine or a
# generator that a test sets or compares, a fault that is put in, and constants of time that a test
# shortens.
LEFT = {
    "tests/benchmarks/bench_arms.py": 1,
    "tests/benchmarks/bench_sim.py": 3,
    "tests/eval/report/test_report.py": 1,
    "tests/eval/trials/test_ray.py": 2,
    "tests/hardware/arm_fault_trials.py": 1,
    "tests/hardware/commissioning/test_check.py": 4,
    "tests/hardware/commissioning/test_hidden_delays.py": 1,
    "tests/hardware/devices/test_gripper.py": 3,
    "tests/hardware/drivers/serial_bus/test_serial_bus.py": 7,
    "tests/hardware/drivers/test_aruco_tracker.py": 1,
    "tests/hardware/drivers/ur/test_driver.py": 4,
    "tests/hardware/drivers/ur/test_recover.py": 1,
    "tests/hardware/drivers/xarm/test_xarm.py": 1,
    "tests/hardware/emulators/lab/test_emulator_lab.py": 2,
    "tests/hardware/emulators/servos/test_arm_fuzz.py": 1,
    "tests/hardware/emulators/test_wire_fuzz.py": 7,
    "tests/hardware/emulators/ur/test_emulator_motion.py": 3,
    "tests/hardware/emulators/ur/test_emulator_rtde.py": 1,
    "tests/hardware/real_cell.py": 1,
    "tests/hardware/supervisor/test_freedrive.py": 2,
    "tests/hardware/supervisor/test_link_pause.py": 3,
    "tests/hardware/supervisor/test_shared_memory.py": 1,
    "tests/hardware/supervisor/test_supervisor.py": 4,
    "tests/hardware/supervisor/test_supervisor_gripper.py": 1,
    "tests/hardware/supervisor/test_supervisor_process.py": 1,
    "tests/hardware/workcell.py": 1,
    "tests/policies/imitation/test_one_step.py": 1,
    "tests/robolearn/cli/deploy/test_deploy_keys.py": 2,
    "tests/robolearn/data/importers/test_importer.py": 1,
    "tests/robolearn/data/upkeep/test_mirror.py": 1,
    "tests/robolearn/data/upkeep/test_repair.py": 1,
    "tests/robolearn/operations/test_deploy_where.py": 1,
    "tests/sim/adapters/bullet/test_bullet_scene.py": 5,
    "tests/sim/adapters/robosuite/test_robosuite.py": 4,
    "tests/sim/plants/test_plant.py": 1,
    "tests/sim/scene/test_ur5e_scene.py": 2,
    "tests/sim/tasks/test_pusht_task.py": 3,
}


def _private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_names(tree: ast.Module) -> list[str]:
    """What a test reads, imports or patches; its own classes' attributes do not count."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _private(node.attr):
            owner = node.value
            own = isinstance(owner, ast.Name) and owner.id in ("self", "cls", "os")
            above = isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "super"
            found += [] if own or above else [ast.unparse(node)]
        elif isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names if _private(alias.name)]
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            if called in ("setattr", "getattr", "delattr"):
                names = [a.value for a in node.args if isinstance(a, ast.Constant)]
                found += [n for n in names if isinstance(n, str) and _private(n.split(".")[-1])]
    return found


def test_private_attributes_become_fewer() -> None:
    told: list[str] = []
    for path in TESTS:
        name = path.relative_to(ROOT).as_posix()
        found = private_names(ast.parse(path.read_text(encoding="utf-8")))
        allowed = LEFT.get(name, 0)
        if len(found) > allowed:
            told.append(f"{name}: use a public way; {allowed} are allowed: {found}")
    assert not told, "\n".join(told)


def test_the_list_names_files_that_exist() -> None:
    assert set(LEFT) <= {p.relative_to(ROOT).as_posix() for p in TESTS}


def test_what_counts() -> None:
    source = """
from robolearn.x import _hidden, shown
from __future__ import annotations
class Fake:
    def go(self): return self._own + super()._theirs
robot._cycle._goals[0] = 1
os._exit(0); robot.__class__
monkeypatch.setattr(module, "_LIMIT_S", 1); monkeypatch.setattr("a.b._wait", None)
setattr(robot, "fault", 1)
"""
    assert sorted(private_names(ast.parse(source))) == [
        "_LIMIT_S",
        "_hidden",
        "a.b._wait",
        "robot._cycle",
        "robot._cycle._goals",
    ]
