"""One owner per device: in this process, beside another one, and after it died."""

import multiprocessing
import os
import signal
import stat

import pytest

from hardware.devices import claim as claim_module
from hardware.devices.claim import DeviceClaim, lock_folder
from robolearn.errors import RobotConnectionError
from tests.waiting import pass_time


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(claim_module, "PLACES", (tmp_path,))
    return tmp_path


def hold(folder, name, pipe):
    claim_module.PLACES = (folder,)
    DeviceClaim(name).take()
    pipe.send(os.getpid())
    pass_time(60, "until it is killed")


def owner(folder, name):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(folder, name, theirs), daemon=True)
    process.start()
    assert ours.poll(30)
    return process, ours.recv()


def test_a_device_has_one_owner_even_inside_one_program():
    first, second = DeviceClaim("UR at 192.0.2.7"), DeviceClaim("UR at 192.0.2.7")
    first.take()
    first.take()
    with pytest.raises(RobotConnectionError, match=f"in use by process {os.getpid()} of"):
        second.take()
    first.release()
    first.release()
    second.take()
    second.release()


def test_another_program_is_named_and_its_death_frees_the_device(folder):
    process, pid = owner(folder, "xArm at 192.0.2.8")
    claim = DeviceClaim("xArm at 192.0.2.8")
    with pytest.raises(RobotConnectionError, match=f"process {pid} of"):
        claim.take()
    os.kill(pid, signal.SIGKILL)
    process.join(10)
    claim.take()
    claim.release()


def test_what_was_released_is_free_although_a_child_has_the_descriptor():
    claim, other = DeviceClaim("Franka at 192.0.2.11"), DeviceClaim("Franka at 192.0.2.11")
    claim.take()
    child = multiprocessing.get_context("fork").Process(
        target=pass_time, args=(60, "until it is killed")
    )
    child.start()
    try:
        claim.release()
        other.take()
        other.release()
    finally:
        child.kill()
        child.join()


def test_names_of_one_device_share_a_lock_and_others_do_not(folder):
    port, link = folder / "ttyX", folder / "by-id"
    port.touch()
    link.symlink_to(port)
    assert DeviceClaim(str(link)).path == DeviceClaim(str(port)).path
    assert DeviceClaim("UR at localhost").path == DeviceClaim("UR at 127.0.0.1").path
    paths = {
        DeviceClaim(n).path
        for n in ("UR at 192.0.2.1", "UR at 192.0.2.2", "gripper at 192.0.2.1:63352")
    }
    assert len(paths) == 3


def test_every_user_may_lock_what_any_user_made():
    claim = DeviceClaim("UR at 192.0.2.9")
    before = os.umask(0o077)
    try:
        claim.take()
    finally:
        os.umask(before)
    assert stat.S_IMODE(claim.path.stat().st_mode) == 0o666
    assert stat.S_IMODE(lock_folder().stat().st_mode) == 0o1777
    claim.release()


def test_a_link_in_the_place_of_a_lock_is_not_followed(folder):
    victim = folder / "victim"
    victim.write_text("precious")
    claim = DeviceClaim("UR at 192.0.2.10")
    claim.path.symlink_to(victim)
    with pytest.raises(RobotConnectionError, match="cannot be opened"):
        claim.take()
    assert victim.read_text() == "precious"
