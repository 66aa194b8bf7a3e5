"""Says which code drives an arm under a policy: a certificate that rests on real trials is bound to
it, besides to the code that decides simulated ones (``code_hash``).

It is found in the same way, from where ``deploy`` runs a policy and from the env of a cell. A
module of its own: names that stand in quotes count as imports, and ``code_hash`` is one of the
modules that it walks.
"""

from __future__ import annotations

from pathlib import Path

from robolearn.operations.code_hash import (
    ROOT,
    deciding_files,
    digest_of_files,
    plugin_files,
    reached,
)

ENTRIES = ("robolearn.operations.deploy.run", "hardware.env.real_env")
# What is reached from there and moves no arm by itself: a virtual lab, people and their devices,
# films, what is only watched, and what decides on certificates.
LEFT_OUT = (
    *("hardware.emulators", "hardware.teleop", "robolearn.operations.lab"),
    *("robolearn.operations.reality", "robolearn.operations.trust", "eval"),
    *("robolearn.operations.collect", "robolearn.operations.deploy.take_over"),
    *("robolearn.operations.deploy.video", "robolearn.operations.deploy.watch"),
)
# Groups of entry points whose plug-ins move an arm or see for it.
GROUPS = ("robolearn.drivers", "robolearn.devices")


def driving_hash(root: Path = ROOT) -> str:
    """SHA-256 (16 digits) over the sources that drive an arm and decide no simulated trial."""
    named = [(path.relative_to(root).as_posix(), path) for path in driving_files(root)]
    return digest_of_files([*named, *plugin_files(GROUPS)])


def driving_files(root: Path = ROOT) -> tuple[Path, ...]:
    """The sources of :func:`driving_hash`, sorted; ``root`` holds the packages."""
    found = reached(root.resolve(), ENTRIES, (), LEFT_OUT)
    return tuple(sorted(set(found) - set(deciding_files(root))))
