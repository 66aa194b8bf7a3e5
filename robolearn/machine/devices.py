"""Checks of what is plugged into this machine: serial ports, cameras, their permissions and delays.

Every check takes the folders it reads, so that tests can show it a machine that is not this one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from robolearn.machine.doctor import Check

DEV, SYS, PROC = Path("/dev"), Path("/sys"), Path("/proc")
SERIAL = ("ttyUSB*", "ttyACM*")
# Drivers of arms that stay at their last set-point when the program falls silent.
NO_WATCHDOG = ("feetech", "xarm")
_RULES = "/etc/udev/rules.d/99-robot.rules"


def run_device_checks() -> tuple[Check, ...]:
    """All checks of this file, in order."""
    return (
        check_serial_ports(),
        check_latency_timers(),
        check_video_devices(),
        check_clock_source(),
        check_watchdogs(),
    )


def check_serial_ports(dev: Path = DEV, sys: Path = SYS, proc: Path = PROC) -> Check:
    """USB serial adapters: whether they may be used, and whether somebody else uses them."""
    ports = sorted(p for pattern in SERIAL for p in dev.glob(pattern))
    if not ports:
        return Check("serial ports", "OK", "no USB serial adapter is plugged in")
    found: list[str] = []
    advice: list[str] = []
    holders = _holders(ports, proc)
    for port in ports:
        line = f"{port}{_by_id(port, dev)}"
        if not os.access(port, os.R_OK | os.W_OK):
            line += " (no permission)"
            advice.append(permission_advice(port, _usb_ids(sys / "class" / "tty" / port.name)))
        if port in holders:
            line += f" (in use by {holders[port]})"
            advice.append(f"stop {holders[port]}: two programs on one port garble each other")
        found.append(line)
    return Check("serial ports", "WARN" if advice else "OK", ", ".join(found), "; ".join(advice))


def check_latency_timers(sys: Path = SYS) -> Check:
    """FTDI adapters hold bytes back for up to 16 ms; servo buses need 1 ms."""
    name = "serial latency"
    timers = sorted(sys.glob("bus/usb-serial/devices/*/latency_timer"))
    slow = [t for t in timers if _number(t) > 1]
    if not timers:
        return Check(name, "OK", "no adapter with a latency timer")
    found = ", ".join(f"{t.parent.name} {_number(t)} ms" for t in timers)
    if not slow:
        return Check(name, "OK", found)
    command = "; ".join(f"echo 1 | sudo tee {t}" for t in slow)
    rule = 'ACTION=="add", SUBSYSTEM=="usb-serial", DRIVER=="ftdi_sio", ATTR{latency_timer}="1"'
    return Check(name, "WARN", found, f"{command} (for good: {rule} in {_RULES})")


def check_video_devices(dev: Path = DEV, sys: Path = SYS) -> Check:
    """USB cameras: names and permissions."""
    devices = sorted(dev.glob("video[0-9]*"))
    if not devices:
        return Check("cameras", "OK", "no video device is plugged in")
    found: list[str] = []
    advice: list[str] = []
    for device in devices:
        label = _text(sys / "class" / "video4linux" / device.name / "name")
        line = f"{device} {label}".strip()
        if not os.access(device, os.R_OK | os.W_OK):
            line += " (no permission)"
            ids = _usb_ids(sys / "class" / "video4linux" / device.name)
            advice.append(permission_advice(device, ids))
        found.append(line)
    return Check("cameras", "WARN" if advice else "OK", ", ".join(found), "; ".join(advice))


def check_clock_source(sys: Path = SYS) -> Check:
    """What the kernel reads the time from: some sources take microseconds a reading."""
    name = "clock source"
    file = sys / "devices/system/clocksource/clocksource0/current_clocksource"
    source = _text(file)
    if source in ("hpet", "acpi_pm", "jiffies"):
        return Check(
            name,
            "WARN",
            source,
            "boot with 'tsc=reliable' if this processor's time stamp counter is sound; every"
            " reading of the time is slow with this source",
        )
    return Check(name, "OK", source or "unknown")


def check_watchdogs() -> Check:
    """Which arms go on when this machine dies."""
    return Check(
        "watchdogs",
        "OK",
        f"without one of their own: {', '.join(NO_WATCHDOG)} (keep a switch for their power within"
        " reach; docs/safety.md)",
    )


def permission_advice(device: Path, usb_ids: tuple[str, str] | None = None) -> str:
    """How to get access to a device file: by its group, or by a udev rule."""
    group = _group(device)
    match = (
        f'ATTRS{{idVendor}}=="{usb_ids[0]}", ATTRS{{idProduct}}=="{usb_ids[1]}"'
        if usb_ids
        else f'KERNEL=="{device.name}"'
    )
    return (
        f"'sudo usermod -aG {group} $USER' and log in again, or the udev rule"
        f" '{match}, MODE=\"0666\"' in {_RULES} and 'sudo udevadm control --reload && sudo udevadm"
        " trigger'"
    )


def _group(device: Path) -> str:
    try:
        return device.group()
    except (OSError, KeyError):
        return "video" if device.name.startswith("video") else "dialout"


def _by_id(port: Path, dev: Path) -> str:
    for link in sorted(dev.glob("serial/by-id/*")):
        if link.resolve() == port.resolve():
            return f" = {link.name}"
    return ""


def _usb_ids(node: Path) -> tuple[str, str] | None:
    """Vendor and product of the USB device behind a class entry."""
    here = (node / "device").resolve()
    for folder in (here, *here.parents):
        vendor, product = _text(folder / "idVendor"), _text(folder / "idProduct")
        if vendor and product:
            return vendor, product
    return None


def _holders(ports: Iterable[Path], proc: Path) -> dict[Path, str]:
    """Which process has a port open; only processes that this user may look into are seen."""
    wanted = {str(p): p for p in ports}
    out: dict[Path, str] = {}
    for link in proc.glob("[0-9]*/fd/*"):
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target in wanted:
            pid = link.parent.parent
            out[wanted[target]] = f"process {pid.name} ({_text(pid / 'comm') or '?'})"
    return out


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(file: Path) -> int:
    text = _text(file)
    return int(text) if text.isdigit() else 0
