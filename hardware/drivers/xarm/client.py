"""Wraps the vendor's client of an xArm's controller, without its side effects.

``xarm-python-sdk`` opens fixed ports (502), sets a time-out for all sockets of the process,
prefers a unix socket that anybody may have left in the temporary folder, and prints; here it does
none of these but the first. Arm and gripper have a client each.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

from hardware.drivers.polling.vendor_thread import VendorThread
from robolearn.errors import ConfigError, MissingDependencyError, RobotConnectionError

log = logging.getLogger(__name__)

COMMAND_PORT = 502
# Codes of ``UxbusState``: no answer in time, answer of another length, request, protocol or
# register; and: no connection, sending failed.
LOST = (3, 4, 5, 6, 7)
GONE = (-1, 8)


def open_client(
    address: str,
    *,
    answer_s: float,
    timeout_s: float,
    problem: Callable[[Any], str] = lambda _: "",
) -> Any:
    """Connect to the controller at ``address``; ``problem(client)`` says what is wrong with it ("":
    nothing).

    Raises RobotConnectionError when nobody answers within ``timeout_s`` [s], ConfigError for a
    problem. ``answer_s``: patience with an answer [s].
    """
    _probe(address)
    api = _import_api()
    worker, given_up = VendorThread(f"xArm at {address}"), threading.Event()
    limit = socket.getdefaulttimeout()
    try:
        return worker.call(
            lambda: _open(api, address, answer_s, problem, given_up), timeout_s, "connecting"
        )
    except RobotConnectionError:
        given_up.set()
        raise
    finally:
        socket.setdefaulttimeout(limit)
        worker.close()


def error_text(code: int) -> str:
    """An error of the controller with the manufacturer's words for it."""
    from xarm.core.config.x_code import ControllerError

    title = str(ControllerError(code).title.get("en", "")).strip()
    return f"error {code} ({title})" if title else f"error {code}"


def _open(
    api: Any,
    address: str,
    answer_s: float,
    problem: Callable[[Any], str],
    given_up: threading.Event,
) -> Any:
    """The vendor's client, connected. It may try for minutes: nobody may wait any more."""
    try:
        client = api(address, is_radian=True, enable_report=False, forbid_uds=True, max_cmdnum=512)
    except Exception as error:
        raise RobotConnectionError(f"xArm at {address}: {error}") from error
    reason = "answered too late" if given_up.is_set() else problem(client)
    if given_up.is_set():
        log.warning("xArm at %s %s", address, reason)
    if reason:
        client.disconnect()
        raise ConfigError(f"xArm at {address} {reason}")
    client.set_timeout(answer_s)
    return client


def _import_api() -> Any:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            from xarm.core.utils.log import logger, origin_logger
            from xarm.core.wrapper import uxbus_cmd_tcp
            from xarm.wrapper import XArmAPI
            from xarm.x3 import base
    except ImportError as error:
        raise MissingDependencyError(
            f"the xArm driver needs the package xarm-python-sdk ({error}); install it with"
            " 'pip install robolearn[xarm]' in this environment"
        ) from error
    # It would print a line per call when the mode of a (not requested) report differs.
    for noisy in (logger, origin_logger):
        noisy.setLevel(logging.CRITICAL)
        # The SDK calls what Python deprecates.
        noisy.warn = noisy.warning
    # It prints while it connects; standard output may be somebody's protocol.
    for module in (base, uxbus_cmd_tcp):
        vars(module)["print"] = _silent
    return XArmAPI


def _silent(*_: object, **__: object) -> None:
    """Nothing."""


def _probe(address: str) -> None:
    try:
        socket.create_connection((address, COMMAND_PORT), timeout=2.0).close()
    except OSError as error:
        raise RobotConnectionError(
            f"no xArm controller answers at {address}:{COMMAND_PORT} ({error.strerror or error});"
            " check the address, the cable and that the control box is on"
        ) from error
