import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from robolearn.cli.main import main
from robolearn.config import load_config
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.collect import CollectConfig, choose_operator
from robolearn.pusht import BLOCK, TOOL
from robolearn.seeding import child_seed
from sim.worlds import build_operator, make_world
from tests.hardware.teleop.pages import page
from tests.waiting import paced

CONFIG = Path(__file__).parents[3] / "configs" / "collect" / "pusht.yaml"


def collect(out, *more, agent="scripted", config=CONFIG):
    return main(["collect", "--config", str(config), "--agent", agent, "--out", str(out), *more])


def brief(folder):
    """The config with episodes of 1.2 s, before the expert succeeds."""
    path = folder / "brief.yaml"
    path.write_text(CONFIG.read_text().replace("max_steps: 300", "max_steps: 12"))
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    out = tmp_path_factory.mktemp("collect") / "store"
    assert collect(out, "--episodes", "2", "--yes") == 0
    return out


def test_the_expert_records_episodes_that_succeed(recorded):
    store = EpisodeStore.open(recorded)
    env = make_world("pusht_reference")
    for number, episode_id in enumerate(store.ids()):
        episode = store.read(episode_id)
        assert episode.meta.kind == "scripted"
        assert episode.meta.agent == "scripted:pusht"
        assert episode.meta.env == "pusht_reference"
        assert episode.meta.provenance["number"] == number
        assert episode.meta.provenance["scene_hash"] == env.scene_hash
        assert set(episode.source) == {"scripted"}
        wanted = env.sample_condition(child_seed(20260101, "unattended", number))
        for name in (TOOL, BLOCK):
            assert np.allclose(episode.observed(name)[0], wanted.poses[name], atol=1e-6)
        assert episode.meta.outcome.success
        assert episode.score == 1.0
    env.close()


def test_a_clumsy_expert_and_one_that_plays(tmp_path, capsys):
    out, short = tmp_path / "store", brief(tmp_path)
    assert collect(out, "--episodes", "1", "--noise", "0.5", config=short) == 0
    assert collect(out, "--episodes", "1", "--yes", agent="play", config=short) == 0
    store = EpisodeStore.open(out)
    agents = [store.meta(i).agent for i in store.ids()]
    assert agents == ["scripted:pusht:noise=0.5", "play:pusht"]
    assert {store.meta(i).kind for i in store.ids()} == {"scripted"}
    capsys.readouterr()
    assert collect(out, "--yes", "--noise", "2") == 2
    assert "noise of an expert is 0 to 1" in capsys.readouterr().err
    assert collect(out, "--yes", "--noise", "0.1", agent="browser") == 2
    assert "--noise is for the agents scripted" in capsys.readouterr().err


def test_more_episodes_are_appended_in_order(recorded, capsys):
    before = EpisodeStore.open(recorded).ids()
    assert collect(recorded, "--episodes", "1", "--yes", "--json") == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    store = EpisodeStore.open(recorded)
    assert store.ids() == (*before, *report["saved"])
    assert report["episodes"] == len(before) + 1
    assert err.splitlines() == [f"saved episode {report['saved'][0]}"]
    assert store.meta(report["saved"][0]).provenance["number"] == len(before)


def test_a_world_needs_no_file(tmp_path, capsys):
    out = tmp_path / "store"
    command = ["collect", "--env", "drawer", "--out", str(out), "--episodes", "2"]
    assert main([*command, "--agent", "scripted", "--noise", "0.1"]) == 0
    store = EpisodeStore.open(out)
    first, second = (store.read(i) for i in store.ids())
    assert first.meta.task == "drawer"
    assert first.meta.agent == "scripted:drawer:noise=0.1"
    assert first.meta.kind == "scripted"
    assert first.meta.condition != second.meta.condition
    assert set(first.action) == {"tool/xyz_yaw", "gripper/width"}
    assert first.observed("drawer/opening").shape == (first.steps, 1)
    capsys.readouterr()
    assert main(["collect", "--out", str(out)]) == 2
    assert "--config configs/collect/FILE.yaml or --env WORLD" in capsys.readouterr().err
    assert main(["collect", "--out", str(out), "--env", "drawr"]) == 2
    assert "Did you mean 'drawer'?" in capsys.readouterr().err


CONFIGS = sorted(CONFIG.parent.glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_config_has_somebody_who_can_act(path):
    config = load_config(CollectConfig, path)
    if config.world.startswith("robosuite/"):
        pytest.importorskip("robosuite")
    if config.world.startswith("ogbench/"):
        pytest.importorskip("ogbench")
    with contextlib.closing(make_world(config.world)) as env:
        who = choose_operator(config.agent, env.task, env.spec)
        assert (who == "browser") == (env.task == "pusht")
        if who != "browser":
            build_operator(env, who, 0.0)


@pytest.mark.parametrize(
    ("agent", "world", "told"),
    [
        ("browser", "so101_table", "a leader arm does (--agent leader)"),
        ("keyboard", "panda_bimanual", "no person can drive 'panda_bimanual'"),
        ("keyboards", "drawer", "Did you mean 'keyboard'?"),
    ],
)
def test_where_no_person_can_drive_it_is_said_and_no_store_is_left(
    tmp_path, capsys, agent, world, told
):
    words = ["collect", "--env", world, "--out", str(tmp_path / "store")]
    assert main([*words, "--agent", agent]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_the_default_records_where_no_person_can(tmp_path, capsys):
    config = tmp_path / "drawer.yaml"
    config.write_text("world: drawer\nmax_steps: 5\n")
    words = ["--out", str(tmp_path / "store"), "--episodes", "1", "--json"]
    assert main(["collect", "--config", str(config), *words]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 1
    assert EpisodeStore.open(tmp_path / "store").meta("ep_000000").agent == "scripted:drawer"


def test_play_wants_nothing_and_tells_what_it_achieved(tmp_path):
    config = tmp_path / "play.yaml"
    config.write_text("world: play_table\nmax_steps: 60\n")
    assert collect(tmp_path / "store", "--episodes", "1", agent="play", config=config) == 0
    episode = EpisodeStore.open(tmp_path / "store").read("ep_000000")
    assert episode.steps == 60
    assert set(episode.source) == {"play"}
    assert not episode.observed("goal/wanted").any()
    assert set(np.unique(episode.observed("goal/achieved"))) <= {0.0, 1.0}
    assert episode.meta.embodiment.signal("goal/achieved").components[0] == "drawer_open"


def test_saved_lines_stand_alone(tmp_path, capsys):
    assert collect(tmp_path / "store", "--episodes", "1", "--yes", config=brief(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"saved episode {EpisodeStore.open(tmp_path / 'store').ids()[0]}"
    assert len(lines) == 4
    assert re.fullmatch(r"recorder: no frame lost; at most \d+ tick\(s\) waited for it", lines[2])
    assert not any("\x1b" in line for line in lines)


def test_an_existing_store_is_not_touched_without_consent(recorded, capsys, monkeypatch):
    count = len(EpisodeStore.open(recorded).ids())
    assert collect(recorded, "--episodes", "1") == 2
    assert "pass --yes" in capsys.readouterr().err

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert collect(recorded, "--episodes", "1") == 2
    assert "Append to it? [y/N]" in capsys.readouterr().err
    assert len(EpisodeStore.open(recorded).ids()) == count
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert collect(recorded, "--episodes", "1") == 0
    assert len(EpisodeStore.open(recorded).ids()) == count + 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"worldd": "x"}, "unknown key 'worldd'. Did you mean 'world'?"),
        ({"world": "pusht_referense"}, "no world 'pusht_referense'. Did you mean 'pusht_refer"),
        ({"max_steps": -1}, "max_steps must be 0 (the task's) or more"),
        ({"demonstrations": "x"}, "unknown key 'demonstrations'"),
    ],
)
def test_bad_configs_are_one_line(tmp_path, capsys, change, text):
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(CONFIG.read_text()) | change))
    assert collect(tmp_path / "store", config=path) == 2
    err = capsys.readouterr().err
    assert text in err
    assert len(err.strip().splitlines()) == 1


def test_bad_arguments_are_one_line(tmp_path, capsys):
    assert collect(tmp_path / "store", "--episodes", "0") == 2
    assert "--episodes must be at least 1" in capsys.readouterr().err
    assert collect(tmp_path / "store", "--port", "99999") == 2
    assert "--port must be 0" in capsys.readouterr().err
    assert collect(tmp_path / "store", "--agent", "scripted", "--noise", "2") == 2
    assert "the noise of an expert is 0 to 1, got 2" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
    (tmp_path / "file").write_text("x")
    assert collect(tmp_path / "file", "--yes") == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@contextlib.contextmanager
def started(out, *more, agent="scripted", config=CONFIG, **options):
    command = [
        *(sys.executable, "-m", "robolearn.cli.main", "collect", "--config", str(config)),
        *("--agent", agent, "--out", str(out), "--yes", *more),
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)], ids=["kill", "ctrl-c"]
)
def test_what_was_announced_survives_the_end_of_the_process(tmp_path, number, code):
    out = tmp_path / "store"
    announced = []
    with started(out, "--episodes", "500", config=brief(tmp_path)) as process:
        for line in process.stdout:
            if line.startswith("saved episode "):
                announced.append(line.split()[2])
            if len(announced) == 2:
                break
        process.send_signal(number)
        rest, err = process.communicate(timeout=30)
    announced += re.findall(r"^saved episode (\S+)$", rest, re.MULTILINE)
    assert process.returncode == code
    if number == signal.SIGINT:
        assert "stopped by Ctrl-C" in err
        assert "Traceback" not in err
    assert main(["data", "check", str(out)]) == 0
    there = EpisodeStore.open(out).ids()
    assert set(announced) <= set(there)
    # The lock of the killed writer is taken over, and recording goes on with the next one.
    assert collect(out, "--episodes", "1", "--yes", config=brief(tmp_path)) == 0
    store = EpisodeStore.open(out)
    assert len(store.ids()) == len(there) + 1
    assert store.meta(store.ids()[-1]).provenance["number"] == len(there)


def test_a_page_records_a_demonstration(tmp_path):
    out = tmp_path / "store"
    with started(out, "--episodes", "1", "--operator", "me", agent="browser") as process:
        url = next(line.split()[-1] for line in process.stdout if line.startswith("open this page"))
        with page(SimpleNamespace(url=url)) as ours:
            x, y = ours.hear("view")["tool"]["at"]
            ours.say("key", key="start")
            for i in range(8):
                ours.say("seen")
                ours.point(x + 0.002 * i, y)
                ours.hear("view")
            ours.say("key", key="keep")
            ours.say("seen")
            # It is short for an episode: that is said before it is kept.
            while not (last := ours.hear("view"))["warnings"]:
                ours.say("seen")
            assert last["phase"] == "review"
            ours.say("key", key="keep")
            ours.say("seen")
            while (last := ours.hear("view"))["phase"] != "done":
                ours.say("seen")
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert last["message"].startswith("1 episode saved")
    assert re.search(r"^saved episode ep_000000$", rest, re.MULTILINE)
    episode = EpisodeStore.open(out).read("ep_000000")
    assert episode.meta.kind == "demonstration"
    assert episode.meta.operator == "me"
    assert episode.meta.outcome.reason == "operator"
    assert "human:browser" in episode.source
    assert episode.observed(TOOL)[-1][0] > x


def wait_for(stream, word):
    """Read until ``word``; a process that ends before it has said so fails the test at once."""
    seen = ""
    while word not in seen:
        said = stream.read(1)
        assert said, seen
        seen += said


def test_keys_record_a_demonstration(tmp_path):
    master, slave = os.openpty()
    try:
        with started(tmp_path / "store", "--episodes", "1", agent="keyboard", stdin=slave) as run:
            wait_for(run.stderr, "ready")
            os.write(master, b" ")
            wait_for(run.stderr, "running")
            for _ in paced(10, 3):
                os.write(master, b"d")
            os.write(master, b"\r")
            # It is short for an episode: that is said before it is kept.
            wait_for(run.stderr, "keep it?")
            os.write(master, b"\r")
            out, _ = run.communicate(timeout=30)
    finally:
        os.close(master)
        os.close(slave)
    assert run.returncode == 0
    assert "saved episode ep_000000" in out.splitlines()
    episode = EpisodeStore.open(tmp_path / "store").read("ep_000000")
    assert set(episode.source) == {"human:keyboard"}
    assert episode.action[TOOL][-1][0] > episode.observed(TOOL)[0][0]


def test_keys_need_a_terminal(tmp_path, capsys, monkeypatch):
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert collect(tmp_path / "store", agent="keyboard") == 2
    assert "--agent browser" in capsys.readouterr().err


def test_a_codec_for_a_camera_that_is_not_there_is_refused(tmp_path, capsys):
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG.read_text() + "codecs: {wrist/image: jpeg}\n")
    assert collect(tmp_path / "store", "--yes", config=config) == 2
    assert "'wrist/image', which is no camera" in capsys.readouterr().err
    assert not (tmp_path / "store").exists(), "nothing was recorded"
