"""Ctrl-C is remembered even where Python would drop it."""

from __future__ import annotations

import signal
import weakref

import pytest

from robolearn.machine.interrupt import check, remembered


class Thing:
    pass


@pytest.fixture
def foreground():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("foreground")
def test_a_key_press_inside_a_weak_reference_callback_is_not_lost():
    def drop(_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    with remembered():
        check()
        thing = Thing()
        reference = weakref.ref(thing, drop)
        del thing  # Python ignores the KeyboardInterrupt that is raised in the callback.
        assert reference() is None
        with pytest.raises(KeyboardInterrupt):
            check()
    check()


@pytest.mark.usefixtures("foreground")
def test_the_handler_is_put_back():
    with remembered():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_key_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with remembered():
            signal.raise_signal(signal.SIGINT)
            check()
    finally:
        signal.signal(signal.SIGINT, before)
