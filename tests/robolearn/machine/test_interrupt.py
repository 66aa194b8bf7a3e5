"""Ctrl-C is remembered even where Python would drop it."""

from __future__ import annotations

import os
import signal
import weakref

import pytest

from robolearn.machine.interrupt import check, hang_up, held, hung_up, remembered, stopped_by


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


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_programs_from_outside_is_ctrl_c_to_a_command(number: signal.Signals):
    with remembered():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            check()
    assert number.name in stopped_by()
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize("raises", [False, True])
def test_it_waits_for_a_good_end_as_ctrl_c_does(raises: bool):
    seen = []

    def work() -> None:
        with held() as pressed:
            signal.raise_signal(signal.SIGTERM)
            seen.append(pressed())
            if raises:  # as training does, once its checkpoint is written
                raise KeyboardInterrupt

    with remembered(), pytest.raises(KeyboardInterrupt):
        work()
    assert seen == [True]
    assert "SIGTERM" in stopped_by()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with held():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "in a program of one's own"


def test_a_command_that_outlives_its_terminal_on_purpose_is_obeyed():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        with remembered():
            signal.raise_signal(signal.SIGHUP)
            check()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_may_be_known_to_be_gone_before_the_signal_says_so_or_instead():
    hang_up()
    with remembered():
        assert not hung_up()
        hang_up()
        assert hung_up()
        # That alone ends nothing: whoever was told does.
        check()
    with remembered(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    with remembered():
        assert not hung_up()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGHUP)
        assert hung_up()
    assert not hung_up()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_ends_by_the_signal_as_its_parent_expects():
    with remembered():
        child = os.fork()
        if not child:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                os._exit(7)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
