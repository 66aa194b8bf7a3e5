"""Numerics libraries start no threads beside a loop, and what a person has set stays."""

import os

import pytest

from robolearn.machine.threads import (
    ONE_THREAD,
    VARIABLES,
    one_thread,
    one_thread_in_children,
    prepare_numerics,
)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "OMP_WAIT_POLICY"):
        # Set first, so that what the tests add is taken away again.
        monkeypatch.setenv(name, "")
        del os.environ[name]


def threads() -> dict[str, str]:
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def test_a_command_leaves_torch_its_threads() -> None:
    prepare_numerics()
    assert threads() == {"OPENBLAS_NUM_THREADS": "1"}
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_beside_an_arm_there_are_none() -> None:
    one_thread()
    assert threads() == ONE_THREAD


def test_what_a_person_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    prepare_numerics()
    one_thread()
    assert threads() == {**ONE_THREAD, "OPENBLAS_NUM_THREADS": "4"}
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


def test_children_have_none_whatever_this_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    with one_thread_in_children():
        assert threads() == ONE_THREAD
    assert threads() == {"MKL_NUM_THREADS": "3"}
