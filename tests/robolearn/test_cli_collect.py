import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from websockets.sync.client import connect

from robolearn.assets import pusht_demonstrations_path
from robolearn.cli.main import main
from robolearn.data.store import EpisodeStore
from robolearn.errors import ConfigError
from robolearn.pusht import BLOCK, TOOL
from robolearn.scripted import PushTReplay, scripted_operator
from tests.mocks import SPEC as POINT
from tests.mocks import TOOL as POINT_TOOL

CONFIG = Path(__file__).parents[2] / "configs" / "collect" / "pusht.yaml"


def collect(out, *more, agent="scripted", config=CONFIG):
    return main(["collect", "--config", str(config), "--agent", agent, "--out", str(out), *more])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    out = tmp_path_factory.mktemp("collect") / "store"
    assert collect(out, "--episodes", "2", "--yes") == 0
    return out


def test_scripted_episodes_replay_the_demonstrations(recorded):
    store = EpisodeStore.open(recorded)
    operator = PushTReplay(pusht_demonstrations_path(), store.meta(store.ids()[0]).embodiment)
    assert len(operator) == 206
    for number, episode_id in enumerate(store.ids()):
        episode, wanted = store.read(episode_id), operator.episode(number)
        assert episode.meta.kind == "scripted"
        assert episode.meta.agent == "scripted:pusht-human"
        assert episode.meta.env == "pusht_reference"
        assert episode.meta.provenance["source_episode"] == number
        assert "open loop" in episode.meta.provenance["operator"]
        assert episode.meta.provenance["scene_hash"]
        assert set(episode.source) == {"scripted"}
        for name in (TOOL, BLOCK):
            start = np.array(wanted.condition.poses[name])
            assert np.allclose(episode.observed(name)[0], start, atol=1e-6)
        assert episode.steps <= wanted.steps
        assert episode.score > 0.5


def test_more_episodes_are_appended_in_order(recorded, capsys):
    before = EpisodeStore.open(recorded).ids()
    assert collect(recorded, "--episodes", "1", "--yes", "--json") == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    store = EpisodeStore.open(recorded)
    assert store.ids() == (*before, *report["saved"])
    assert report["episodes"] == len(before) + 1
    assert err.splitlines() == [f"saved episode {report['saved'][0]}"]
    assert store.meta(report["saved"][0]).provenance["source_episode"] == len(before)


def test_saved_lines_stand_alone(tmp_path, capsys):
    assert collect(tmp_path / "store", "--episodes", "1", "--yes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"saved episode {EpisodeStore.open(tmp_path / 'store').ids()[0]}"
    assert len(lines) == 4
    assert re.fullmatch(r"recorder: no frame lost; at most \d+ tick\(s\) waited for it", lines[2])
    assert not any("\x1b" in line for line in lines)


def test_after_the_last_demonstration_the_first_follows(recorded):
    store = EpisodeStore.open(recorded)
    operator = PushTReplay(pusht_demonstrations_path(), store.meta(store.ids()[0]).embodiment)
    first, again = operator.episode(1), operator.episode(207)
    assert again.condition == first.condition
    assert again.provenance["source_episode"] == 1
    assert (first.provenance["round"], again.provenance["round"]) == (0, 1)


def test_operators_are_refused_where_they_do_not_fit(tmp_path):
    with pytest.raises(ConfigError, match=r"no scripted operator for task 'push'\. Did you mean"):
        scripted_operator("push", "bundled", POINT)
    assert POINT_TOOL == TOOL
    fast = POINT.__class__("fast", POINT.signals, POINT.actions, 50.0)
    with pytest.raises(ConfigError, match="control rate"):
        scripted_operator("pusht", "bundled", fast)


def test_an_existing_store_is_not_touched_without_consent(recorded, capsys, monkeypatch):
    count = len(EpisodeStore.open(recorded).ids())
    assert collect(recorded, "--episodes", "1") == 2
    assert "pass --yes" in capsys.readouterr().err

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert collect(recorded, "--episodes", "1") == 2
    assert "append to it? [y/N]" in capsys.readouterr().err
    assert len(EpisodeStore.open(recorded).ids()) == count
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert collect(recorded, "--episodes", "1") == 0
    assert len(EpisodeStore.open(recorded).ids()) == count + 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"worldd": "x"}, "unknown key 'worldd'. Did you mean 'world'?"),
        ({"world": "pusht_referense"}, "no world 'pusht_referense'. Did you mean 'pusht_refer"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"demonstrations": "/nowhere/at/all"}, "no recording at /nowhere/at/all"),
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
    (tmp_path / "file").write_text("x")
    assert collect(tmp_path / "file", "--yes") == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@contextlib.contextmanager
def started(out, *more, agent="scripted", **options):
    command = [
        *(sys.executable, "-m", "robolearn.cli.main", "collect", "--config", str(CONFIG)),
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
    with started(out, "--episodes", "500") as process:
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
    assert collect(out, "--episodes", "1", "--yes") == 0
    store = EpisodeStore.open(out)
    assert len(store.ids()) == len(there) + 1
    assert store.meta(store.ids()[-1]).provenance["source_episode"] == len(there)


def test_a_page_records_a_demonstration(tmp_path):
    out = tmp_path / "store"
    with started(out, "--episodes", "1", "--operator", "me", agent="browser") as process:
        url = next(line.split()[-1] for line in process.stdout if line.startswith("open this page"))
        with connect(url.replace("http://", "ws://").replace("/?", "/ws?")) as page:
            assert json.loads(page.recv())["type"] == "scene"
            tool = json.loads(page.recv())["tool"]
            page.send('{"type": "key", "key": "start"}')
            for i in range(8):
                page.recv()
                x, y = tool[0] + 0.002 * i, tool[1]
                page.send(json.dumps({"type": "pointer", "x": x, "y": y, "inside": True}))
            page.send('{"type": "key", "key": "keep"}')
            last = list(page)[-1]
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(last)["message"].startswith("1 episode saved")
    assert re.search(r"^saved episode ep_000000$", rest, re.MULTILINE)
    episode = EpisodeStore.open(out).read("ep_000000")
    assert episode.meta.kind == "demonstration"
    assert episode.meta.operator == "me"
    assert episode.meta.outcome.reason == "operator"
    assert "human:browser" in episode.source
    assert episode.observed(TOOL)[-1][0] > tool[0]


def test_keys_record_a_demonstration(tmp_path):
    master, slave = os.openpty()
    try:
        with started(tmp_path / "store", "--episodes", "1", agent="keyboard", stdin=slave) as run:
            seen = ""
            while "ready" not in seen:
                seen += run.stderr.read(1)
            os.write(master, b" ")
            while "running" not in seen:
                seen += run.stderr.read(1)
            for _ in range(3):
                os.write(master, b"d")
                time.sleep(0.1)
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
