"""``robolearn doctor`` tells whether this machine is fit for the chain, and if not, what to do."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from robolearn.cli.shared.parse import parse, print_json, say


@dataclass(frozen=True, slots=True)
class Args:
    """Check libraries, rendering, ports, disk, memory and timing of this machine."""

    # Where results will be written (its disk is checked).
    folder: Path = Path()
    # Also check what this file of configs/hardware/ names: ports of this machine and of the
    # network, cameras, tracker, gripper, watchdog.
    robot: Path | None = None
    # Print one JSON document instead of lines.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run all checks; exit code 2 when one of them failed."""
    args = parse(Args, argv, "doctor", "Check this machine.")
    from robolearn.machine.devices import run_device_checks
    from robolearn.machine.doctor import run_checks

    checks = [*run_checks(args.folder), *run_device_checks()]
    if args.robot is not None:
        from hardware.commissioning.connections import check_connections

        checks += check_connections(args.robot)
    failed = [c.name for c in checks if c.status == "FAIL"]
    if args.json:
        print_json({"ok": not failed, "checks": [dataclasses.asdict(c) for c in checks]})
        return 2 if failed else 0
    width = max(len(c.name) for c in checks)
    for check in checks:
        say(f"{check.status:<4}  {check.name:<{width}}  {check.found}")
        if check.advice:
            say(f"      {'':<{width}}  -> {check.advice}")
    warned = sum(c.status == "WARN" for c in checks)
    say(f"{len(checks)} checks, {warned} warning(s), {len(failed)} failure(s)")
    return 2 if failed else 0
