"""Datasets that LeRobot itself opens, and datasets that it wrote.

LeRobot cannot share this environment. ``LEROBOT_PYTHON`` names the interpreter of another one:

    python3.12 -m venv peer && peer/bin/pip install 'lerobot[dataset]==0.6.1'
    LEROBOT_PYTHON=peer/bin/python pytest -m slow tests/robolearn/data/exporters/test_export_peer.py
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from robolearn.data.exporters.common import ExportOptions
from robolearn.data.exporters.registry import export_store
from robolearn.data.importers.recording import ImportOptions, write_recording
from robolearn.data.importers.registry import find_importer
from robolearn.data.store.store import EpisodeStore
from tests.episodes import IMAGE, TOOL, small_episode

PYTHON = os.environ.get("LEROBOT_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="LEROBOT_PYTHON names no environment with LeRobot"),
]

READ = """
import sys
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
found = LeRobotDataset("local/x", root=sys.argv[1], video_backend="pyav")
assert (len(found), found.num_episodes, found.fps) == (39, 3, 10), len(found)
items = [found[12 + k] for k in range(13)]
assert {item["task"] for item in items} == {"move"}
frames = np.stack([i["observation.images.top"].permute(1, 2, 0).numpy() * 255 for i in items])
np.savez(
    sys.argv[2],
    frames=frames,
    action=np.stack([i["action"].numpy() for i in items]),
    mean=found.meta.stats["action"]["mean"],
)
"""

WRITE = """
import sys
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
names = ["height", "width", "channels"]
features = {
    "observation.state": {"dtype": "float32", "shape": (1,), "names": ["x"]},
    "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    "observation.images.top": {"dtype": "video", "shape": (64, 96, 3), "names": names},
    "observation.images.wrist": {"dtype": "image", "shape": (48, 40, 3), "names": names},
}
made = LeRobotDataset.create("local/x", fps=10, features=features, root=sys.argv[1])
for episode, rows in enumerate((6, 9)):
    for k in range(rows):
        made.add_frame({
            "observation.state": np.array([k], np.float32),
            "action": np.array([episode, k], np.float32),
            "observation.images.top": np.full((64, 96, 3), (episode * 6 + k) * 10, np.uint8),
            "observation.images.wrist": np.random.default_rng(episode * 6 + k).integers(
                0, 255, (48, 40, 3), dtype=np.uint8
            ),
            "task": f"task {episode}",
        })
    made.save_episode()
made.finalize()
"""


def peer(script: str, *arguments: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [PYTHON, "-c", script, *arguments],
        env=environment | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_lerobot_opens_an_export(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
    store = EpisodeStore.create(tmp_path / "store")
    with store.writer() as writer:
        for k in range(3):
            writer.append(small_episode(k, 12 + k, image=True))
    export_store(store, tmp_path / "out", "lerobot", ExportOptions(lossless=True))
    peer(READ, str(tmp_path / "out"), str(tmp_path / "read.npz"))
    read, episode = np.load(tmp_path / "read.npz"), store.read("ep_000001")
    np.testing.assert_allclose(read["frames"], episode.observed(IMAGE), atol=1e-3)
    # LeRobot hands tensors out as float32, whatever the file holds.
    np.testing.assert_allclose(read["action"], episode.action[TOOL], rtol=1e-6)
    actions = np.concatenate([store.read(i).action[TOOL] for i in store.ids()])
    np.testing.assert_allclose(read["mean"], actions.mean(axis=0))


def test_what_lerobot_wrote(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
    source = tmp_path / "dataset"
    peer(WRITE, str(source))
    store, options = EpisodeStore.create(tmp_path / "store"), ImportOptions(images=True)
    name, importer = find_importer(source)
    assert name == "lerobot-v3.0"
    write_recording(importer.open(source, options), store, options)
    episode = store.read("ep_000001")
    assert episode.meta.task_text == "task 1"
    assert episode.action["obs/action"].tolist() == [[1, k] for k in range(9)]
    grey = episode.observed("top/image").mean(axis=(1, 2, 3))
    np.testing.assert_allclose(grey, 10 * np.arange(6, 15), atol=3)
    for k, frame in enumerate(episode.observed("wrist/image")):
        rng = np.random.default_rng(6 + k)
        np.testing.assert_array_equal(frame, rng.integers(0, 255, (48, 40, 3), dtype=np.uint8))
