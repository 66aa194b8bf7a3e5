"""Waits for conditions, paces streams and lets time pass: the one place in which tests sleep."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from robolearn.timing.clocks import Rate

T = TypeVar("T")

# Long enough for a machine that is busy with something else: a wait ends with what it waits for,
# so only a failure takes that long.
TIMEOUT_S = 10.0
_POLL_S = 0.005


def wait_until(
    condition: Callable[[], T],
    timeout_s: float = TIMEOUT_S,
    poll_s: float = _POLL_S,
    *,
    what: str = "",
) -> T:
    """The first truthy value of a condition; AssertionError says what did not come.

    A limit that a test asserts (a fault is noticed within 2 s) is given as ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what or 'it'}; last: {value!r}")
        time.sleep(poll_s)


def wait_for_error(
    call: Callable[[], object],
    kind: type[Exception] | tuple[type[Exception], ...],
    match: str = "",
    timeout_s: float = TIMEOUT_S,
) -> Exception:
    """The first error of a kind, with words that match, that a repeated call raises.

    Calls that succeed and errors of that kind with other words are passed over; errors of other
    kinds are raised.
    """
    passed: list[Exception] = []

    def raised() -> Exception | None:
        try:
            call()
        except kind as error:
            if re.search(match, str(error)):
                return error
            passed[:] = [error]
        return None

    deadline = f"an error that matches {match!r}" if match else f"{kind}"
    try:
        error = wait_until(raised, timeout_s, what=deadline)
    except AssertionError as late:
        raise AssertionError(f"{late}; passed over: {passed}") from None
    assert error is not None
    return error


def paced(rate_hz: float, count: int | None = None) -> Iterator[int]:
    """``0, 1, ...`` at absolute deadlines, the first one at once; what a late machine missed is
    skipped and not made up for. The last one has its period, too.
    """
    rate = Rate(float(rate_hz))
    for k in itertools.count() if count is None else range(count):
        yield k
        rate.wait()


def pass_time(seconds: float, why: str) -> None:
    """Let time itself pass: nothing may happen meanwhile, or a device is slow on purpose."""
    assert why, "say why there is nothing to wait for"
    time.sleep(max(0.0, seconds))
