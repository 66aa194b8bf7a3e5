"""Imports ``ur_rtde``, which is optional."""

from __future__ import annotations

from typing import Any

from robolearn.errors import MissingDependencyError


def import_ur_rtde() -> tuple[Any, Any]:
    """Its classes that control and that receive. Errors: :class:`MissingDependencyError`."""
    try:
        from rtde_control import RTDEControlInterface
        from rtde_receive import RTDEReceiveInterface
    except ImportError as error:
        raise MissingDependencyError(
            f"the UR driver needs the package ur_rtde ({error}); install it with"
            " 'pip install ur_rtde' in this environment"
        ) from error
    return RTDEControlInterface, RTDEReceiveInterface
