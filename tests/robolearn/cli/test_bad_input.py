"""What users get wrong at the command line: one line that says what to do, and exit code 2."""

import os
import shutil
import stat
import subprocess
import sys

import pytest

from robolearn.cli.main import main
from robolearn.cli.shared.output_path import output_file, output_folder
from robolearn.cli.shared.parse import one_line
from robolearn.config import load_yaml
from robolearn.errors import CheckpointError, ConfigError
from robolearn.training.run_directory import load_state, write_json, write_tensors
from sim.scene.load import load_scene


@pytest.mark.parametrize("arguments", [[], ["--help"], ["scene", "ls"], ["data", "--help"]])
@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_reader_that_has_gone_is_no_error(arguments, unbuffered):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "robolearn.cli.main", *arguments]
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=env)
    os.close(write)
    assert (result.returncode, result.stderr) == (0, "")


def test_an_unknown_renderer_is_named(tmp_path):
    command = [sys.executable, "-m", "robolearn.cli.main", "scene", "view", "pusht_reference"]
    result = subprocess.run(
        [*command, "--out", str(tmp_path / "x.png")],
        env=os.environ | {"MUJOCO_GL": "elg"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert "MUJOCO_GL is 'elg', which does not load" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["replay", "x", "--scen", "y"], ["--scene STR", "Did you mean '--scene'?"]),
        (["doctor", "--jsn"], ["Unrecognized options: --jsn", "--json"]),
        (["report", "runs/eval"], ["Unrecognized options: runs/eval", "--results, --runs"]),
        (["collect", "--config", "a", "--out", "b", "--episodes", "x"], ["--episodes", "'x'"]),
        (["replay", "x", "--scene", "y", "--episodes", "z"], ["matching INT could", "['z']"]),
        (["lab"], ["--config PATH"]),
    ],
)
def test_bad_arguments_are_told_in_one_line(capsys, arguments, parts):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"robolearn {arguments[0]}: ")
    assert len(err.splitlines()) == 1
    for part in [*parts, f"robolearn {arguments[0]} --help"]:
        assert part in err


def test_a_name_of_nobody_is_told_in_one_line(capsys, tmp_path):
    arguments = ["collect", "--config", "configs/collect/pusht.yaml", "--agent", "scrpted"]
    assert main([*arguments, "--out", str(tmp_path / "store")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("robolearn collect: nobody is called 'scrpted'. Did you mean 'scripted'?")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["scene", "view", "pusht_reference", "--seed", "-1"],
        ["identify", "x", "--out", "y", "--seed", "-1"],
        ["deploy", "x", "--robot", "y", "--out", "z", "--lab-seed", "-2"],
    ],
)
def test_seeds_are_not_negative(capsys, arguments):
    assert main(arguments) == 2
    assert "seed must be at least 0, got -" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["store", "--scene", "pusht_ur5e"], "--scene: of an arm, not with STORE"),
        (["store", "--seconds", "5"], "--seconds: with --robot alone"),
        (["--capture", "c", "--scene", "s", "--start-lab"], "--start-lab: with --robot alone"),
        (["--episodes", "e", "--scene", "s", "--yes"], "--yes: with --robot alone"),
        (["--capture", "c", "--scene", "s", "--template", "t"], "--template: with STORE alone"),
        (["store", "--force-stop"], "--force-stop: of an arm"),
        (["store", "--cell", "c"], "--cell: with --episodes STORE"),
        (["--robot", "r", "--cell", "c"], "--cell: with --episodes STORE"),
    ],
)
def test_identify_refuses_options_that_it_has_no_use_for(capsys, tmp_path, arguments, text):
    assert main(["identify", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert text in capsys.readouterr().err


def test_identify_replaces_no_other_scene_and_says_so_before_it_works(capsys, tmp_path):
    out = tmp_path / "scene"
    shutil.copytree(load_scene("pusht_reference").path, out)
    assert main(["identify", "nowhere", "--out", str(out)]) == 2
    assert "scene; choose another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--episodes", "0"), ("--max-steps", "0"), ("--execute", "0"), ("--lead-ticks", "-1")],
)
def test_deploy_refuses_counts_before_anything_moves(capsys, option, value):
    assert main(["deploy", "run", "--robot", "r", "--out", "o", option, value]) == 2
    assert f"{option} must be at least" in capsys.readouterr().err


def test_outputs_are_checked_first(tmp_path):
    store, file = tmp_path / "store", tmp_path / "file"
    store.mkdir()
    (store / "store.json").write_text("{}")
    file.write_text("")
    assert output_folder(tmp_path / "new" / "run", "--out", "a run") == tmp_path / "new" / "run"
    for path, text in (
        (store, "is an episode store; choose another folder"),
        (file, "is a file; give a folder"),
        (file / "run", "is a file, not a folder"),
    ):
        with pytest.raises(ConfigError, match=text):
            output_folder(path, "--out", "a run")
    assert output_folder(store, "--out", "an episode store") == store
    assert output_file(tmp_path / "a.PNG", "--plot", (".png",)) == tmp_path / "a.PNG"
    for path, text in (
        (store, "is a folder"),
        (file / "x.png", "is a file"),
        (tmp_path / "x.xyz", "must end in one of .png"),
    ):
        with pytest.raises(ConfigError, match=text):
            output_file(path, "--plot", (".png",))


def test_commands_do_not_write_into_a_store(tmp_path, capsys):
    store = tmp_path / "store"
    assert main(["data", "import", "--out", str(store), "--limit", "1"]) == 0
    for arguments in (
        ["identify", str(store), "--out", str(store)],
        ["evaluate", str(tmp_path / "run"), "--out", str(store)],
        ["deploy", "run", "--robot", "robot", "--out", str(store)],
    ):
        assert main(arguments) == 2
        assert "is an episode store; choose another folder" in capsys.readouterr().err
    assert main(["data", "check", str(store)]) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--limit", "0"], "--limit must be at least 1, got 0"),
        (["--images"], "has no pictures; leave the option out"),
    ],
)
def test_import_refuses_what_would_do_nothing(tmp_path, capsys, arguments, text):
    assert main(["data", "import", "--out", str(tmp_path / "store"), *arguments]) == 2
    assert text in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_the_store_inside_a_folder_is_suggested(tmp_path, capsys):
    assert main(["data", "import", "--out", str(tmp_path / "store"), "--limit", "1"]) == 0
    assert main(["data", "ls", str(tmp_path)]) == 2
    assert f"did you mean '{tmp_path / 'store'}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"\xff\xfe\x00", "not a text file"), (b"", "must hold a mapping, got an empty file")],
)
def test_files_that_are_no_yaml(tmp_path, content, text):
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=text):
        load_yaml(tmp_path / "c.yaml")


def test_files_of_a_run_may_be_read_by_others(tmp_path):
    before = os.umask(0o022)
    try:
        write_json(tmp_path / "spec.json", {})
        write_tensors(tmp_path / "weights.safetensors", {}, {})
    finally:
        os.umask(before)
    for name in ("spec.json", "weights.safetensors"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o644


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"step": "x", "figures": {}}'])
def test_a_damaged_state_of_training_says_what_to_delete(tmp_path, content):
    folder = tmp_path / "state" / "000000001"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(content)
    write_tensors(folder / "tensors.safetensors", {}, {})
    with pytest.raises(CheckpointError, match=r"is damaged .*; delete it to train from the start"):
        load_state(tmp_path)


@pytest.mark.parametrize("side", ["│", " "])
def test_boxes_become_lines(side):
    rule = "─" if side == "│" else "-"
    body = [f"{side} An error: --x,  {side}", f"{side} {rule * 9} {side}", f"{side} See y.  {side}"]
    assert one_line("\n".join(["╭─ Title ─╮", *body, "╰───╯"])) == "An error: --x,; See y"
