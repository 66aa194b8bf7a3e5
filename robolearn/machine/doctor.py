"""Checks of this machine: what the chain needs, whether it is there, and what to do if not."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

Status = Literal["OK", "WARN", "FAIL"]
PACKAGES = ("numpy", "torch", "mujoco", "zarr", "gym-pusht", "pybullet", "ur-rtde", "websockets")
# RTDE, dashboard and script interface of a UR controller (Universal Robots, "Remote control via
# TCP/IP"); the emulator of the virtual lab listens on them.
UR_PORTS = (30004, 29999, 30003)
GL_PACKAGES = {"libEGL.so.1": "libegl1", "libGL.so.1": "libgl1"}
# In the order in which they are tried for pictures (sim/rendering/gl.py).
GL_BACKENDS = ("egl", "osmesa", "glfw")
RENDER_TIMEOUT_S = 60.0
_RENDER = """
import json, mujoco, numpy as np
model = mujoco.MjModel.from_xml_string('''<mujoco>
  <visual><headlight ambient=".6 .6 .6" diffuse=".4 .4 .4"/></visual>
  <worldbody><geom type="plane" size="2 2 .1" rgba="0 0 1 1"/>
  <geom type="box" size=".3 .3 .1" pos="0 0 .1" rgba="1 0 0 1"/>
  <camera name="top" pos="0 0 2"/></worldbody></mujoco>''')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 64, 64) as renderer:
    renderer.update_scene(data, "top")
    image = renderer.render()
print(json.dumps([image[32, 32].tolist(), image[4, 4].tolist()]))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, what was found, and what to do (empty when OK)."""

    name: str
    status: Status
    found: str
    advice: str = ""


def run_checks(folder: Path | None = None) -> tuple[Check, ...]:
    """All checks, in order; ``folder`` is where results will be written (default: here)."""
    checks: list[Callable[[], Check]] = [
        check_packages,
        *(lambda name=name: check_library(name) for name in GL_PACKAGES),
        check_rendering,
        *(lambda port=port: check_port(port) for port in UR_PORTS),
        lambda: check_disk(folder or Path.cwd()),
        check_shared_memory,
        check_memory,
        check_cores,
        check_real_time,
        check_clock,
    ]
    return tuple(check() for check in checks)


def check_packages(names: Sequence[str] = PACKAGES) -> Check:
    """Whether the Python packages of the chain are installed."""
    missing: list[str] = []
    found: list[str] = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", "FAIL", f"missing: {', '.join(missing)}", "run 'make setup'")
    return Check("packages", "OK", ", ".join(found))


def check_library(name: str) -> Check:
    """Whether a shared library loads."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        package = GL_PACKAGES.get(name, name)
        return Check(
            name,
            "FAIL",
            str(error),
            f"install it: apt-get install {package} (without root: ask whoever administers this"
            " machine; everything but pictures works without)",
        )
    return Check(name, "OK", "loads")


def check_rendering(timeout_s: float = RENDER_TIMEOUT_S, code: str = _RENDER) -> Check:
    """Which OpenGL backend draws a red box on a blue plane: those that ``MUJOCO_GL`` allows, in the
    order in which they are tried, each in a process of its own (drivers crash).
    """
    name = "MuJoCo rendering"
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    advice = (
        "apt-get install libegl1 libgl1 libgl1-mesa-dri, or libosmesa6;"
        " training and evaluation without videos work without it"
    )
    failures: list[str] = []
    for backend in (asked,) if asked in GL_BACKENDS else GL_BACKENDS:
        start = time.monotonic()
        failure = _draw(backend, timeout_s, code)
        if not failure:
            took = time.monotonic() - start
            found = f"{backend}: picture is right ({took:.1f} s with start-up)"
            return Check(name, "OK", "; ".join([found, *failures]))
        failures.append(f"{backend}: {failure}")
    return Check(name, "FAIL", "; ".join(failures), advice)


def _draw(backend: str, timeout_s: float, code: str) -> str:
    """What is wrong with the picture of a backend; empty when nothing is."""
    if backend == "glfw" and not any(os.environ.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY")):
        return "there is no display"
    try:
        result = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "MUJOCO_GL": backend},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return f"no picture within {timeout_s:g} s"
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        # Finalisers of half-made objects complain last; what failed is the first error line.
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return (errors or lines[-1:])[0][:200]
    centre, corner = json.loads(result.stdout.strip().splitlines()[-1])
    if not (centre[0] > 100 > centre[2] and corner[2] > 100 > corner[0]):
        return f"wrong colours {centre} {corner}"
    return ""


def check_port(port: int, host: str = "127.0.0.1") -> Check:
    """Whether the virtual lab could listen on a port."""
    name = f"port {port}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            text = "in use" if error.errno == errno.EADDRINUSE else str(error.strerror)
            return Check(
                name,
                "WARN",
                f"{host}:{port} is {text}",
                "stop the program that uses it ('ss -ltnp' names it), or give the lab another"
                " loopback address",
            )
    return Check(name, "OK", f"free on {host} for the virtual UR")


def check_disk(folder: Path, warn_gb: float = 5.0, fail_gb: float = 1.0) -> Check:
    """Free space and write permission where results go."""
    name = "disk"
    wanted = folder.expanduser().absolute()
    existing = next(p for p in (wanted, *wanted.parents) if p.exists())
    free_gb = shutil.disk_usage(existing).free / 1e9
    found = f"{free_gb:.1f} GB free at {existing}"
    if not os.access(existing, os.W_OK):
        return Check(name, "FAIL", f"{existing} is read-only", "work in a folder you may write to")
    if free_gb < warn_gb:
        status: Status = "FAIL" if free_gb < fail_gb else "WARN"
        return Check(name, status, found, f"free at least {warn_gb:g} GB, or use another disk")
    return Check(name, "OK", found)


def check_shared_memory(folder: Path = Path("/dev/shm"), need_mb: float = 64.0) -> Check:  # noqa: S108
    """Shared memory between robot, supervisor and policy."""
    name = "shared memory"
    if not folder.is_dir():
        return Check(name, "WARN", f"{folder} is absent", "mount a tmpfs there (deploy needs it)")
    free_mb = shutil.disk_usage(folder).free / 1e6
    if free_mb < need_mb:
        return Check(
            name,
            "WARN",
            f"{free_mb:.0f} MB free in {folder}",
            "remove stale files there; in a container start it with --shm-size=1g",
        )
    return Check(name, "OK", f"{free_mb:.0f} MB free in {folder}")


def check_memory(need_gb: float = 4.0, file: Path = Path("/proc/meminfo")) -> Check:
    """Available memory."""
    try:
        lines = dict(line.split(":", 1) for line in file.read_text().splitlines())
        available_gb = int(lines["MemAvailable"].split()[0]) * 1024 / 1e9
    except (OSError, KeyError, ValueError) as error:
        return Check("memory", "WARN", f"unknown ({error})", "check that 4 GB are available")
    found = f"{available_gb:.1f} GB available"
    if available_gb < need_gb:
        return Check("memory", "WARN", found, f"close programs; {need_gb:g} GB are comfortable")
    return Check("memory", "OK", found)


def check_cores() -> Check:
    """Cores that this process may use, and how busy they are."""
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    threads = os.environ.get("OMP_NUM_THREADS", "unset")
    found = f"{cores} core(s), load {load:.1f}, OMP_NUM_THREADS {threads}"
    if cores < 2:
        return Check("cores", "WARN", found, "use a machine with at least two cores for real time")
    if load > cores + 0.5:
        return Check(
            "cores", "WARN", found, "stop other programs before deploying or taking timings"
        )
    return Check("cores", "OK", found)


def check_real_time() -> Check:
    """Whether the supervisor may ask for real-time scheduling."""
    name, policy, param = "real-time scheduling", os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return Check(
            name,
            "WARN",
            "SCHED_FIFO is not permitted",
            "the virtual lab works without; before a real robot allow it ('rtprio 10' for your user"
            " in /etc/security/limits.conf, or --cap-add=SYS_NICE for a container)",
        )
    os.sched_setscheduler(0, policy, param)
    return Check(name, "OK", "SCHED_FIFO is permitted")


def check_clock(ticks: int = 30, warn_ms: float = 5.0) -> Check:
    """Resolution of the monotonic clock, and how late short sleeps wake up."""
    resolution = time.get_clock_info("monotonic").resolution
    late: list[float] = []
    for _ in range(ticks):
        due = time.monotonic_ns() + 2_000_000
        time.sleep(0.002)
        late.append((time.monotonic_ns() - due) * 1e-6)
    worst = max(late)
    found = f"resolution {1e9 * resolution:.0f} ns, worst of {ticks} wake-ups {worst:.2f} ms late"
    if resolution > 1e-5 or worst > warn_ms:
        return Check(
            "clock", "WARN", found, "stop other programs; a virtual machine may need a quieter host"
        )
    return Check("clock", "OK", found)
