"""robosuite, robomimic, Minari, D4RL and OGBench files, written by the test, and real ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.data.importers.recording import ImportOptions, write_recording
from robolearn.data.importers.registry import find_importer
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import DataError

h5py: Any = pytest.importorskip("h5py")

ROBOSUITE = Path(__file__).resolve().parents[5] / "shared/data/robosuite"


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.create(tmp_path / "store")


def run(path: Path, store: EpisodeStore, **options: Any) -> tuple[str, tuple[str, ...]]:
    name, importer = find_importer(path)
    recording = importer.open(path, ImportOptions(**options))
    write_recording(recording, store, ImportOptions(**options))
    return name, recording.left_out


def refused(path: Path, store: EpisodeStore, message: str) -> None:
    with pytest.raises(DataError, match=message):
        run(path, store, images=True)
    assert store.ids() == ()
    assert check_store(store.path).findings == ()


def robomimic_file(path: Path) -> Path:
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        args = {"env_name": "Lift", "env_kwargs": {"control_freq": 25, "robots": ["Panda"]}}
        data.attrs["env_args"] = json.dumps(args)
        for k in (10, 2):  # not in alphabetical order
            demo = data.create_group(f"demo_{k}")
            demo.attrs["model_file"] = "<mujoco/>"
            demo["actions"] = rng.random((k, 7))
            demo["states"] = rng.random((k, 9))
            demo["rewards"] = np.arange(k) == k - 1 if k == 2 else np.zeros(k)
            demo["dones"] = np.arange(k) == k - 1
            demo["obs/eef_pos"] = rng.random((k, 3), dtype=np.float32)
            demo["obs/agentview_image"] = rng.integers(0, 255, (k, 40, 40, 3), dtype=np.uint8)
            demo["next_obs/eef_pos"] = rng.random((k, 3))
    return path


def test_robomimic(tmp_path: Path, store: EpisodeStore) -> None:
    path = robomimic_file(tmp_path / "demo.hdf5")
    name, left_out = run(path, store, images=True)
    assert name == "robomimic"
    assert left_out == ("next_obs (the observations of the following row)",)
    assert [i.steps for i in store.list()] == [2, 10]
    first, second = store.read("ep_000000"), store.read("ep_000001")
    with h5py.File(path) as file:
        demo = file["data/demo_10"]
        np.testing.assert_array_equal(second.action["obs/action"], demo["actions"][:])
        np.testing.assert_array_equal(second.observed("sim/states"), demo["states"][:])
        np.testing.assert_array_equal(second.observed("obs/eef_pos"), demo["obs/eef_pos"][:])
        np.testing.assert_array_equal(
            second.observed("obs/agentview_image"), demo["obs/agentview_image"][:]
        )
    assert first.success
    assert not second.success
    assert first.meta.embodiment.rate_hz == 25
    assert first.meta.embodiment.name == "Panda"
    assert first.meta.env == "Lift"
    assert first.meta.provenance["attributes"]["model_file"] == "<mujoco/>"
    assert first.meta.provenance["demo"] == "demo_2"


def test_robomimic_pictures_only_when_asked(tmp_path: Path, store: EpisodeStore) -> None:
    _, left_out = run(robomimic_file(tmp_path / "demo.hdf5"), store)
    assert left_out[0] == "obs/agentview_image (pictures: give --images)"
    assert "obs/agentview_image" not in store.read("ep_000000").streams


def spoil(path: Path, change: Callable[[Any], None]) -> Path:
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def replace(name: str, values: Any) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        del file[name]
        if values is not None:
            file[name] = values

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace("data/demo_10/actions", np.full((10, 7), np.nan)), "NaN or infinity"),
        (replace("data/demo_10/actions", np.zeros((9, 7))), "has shape"),
        (replace("data/demo_10/actions", None), "expected 'actions'"),
        (replace("data/demo_10/actions", [b"text"] * 10), "expected numbers"),
        (replace("data/demo_10/obs/eef_pos", np.zeros((4, 3))), "eef_pos has shape"),
    ],
)
def test_bad_robomimic_leaves_nothing(
    tmp_path: Path, store: EpisodeStore, change: Callable[[Any], None], message: str
) -> None:
    refused(spoil(robomimic_file(tmp_path / "demo.hdf5"), change), store, message)


def test_truncated_hdf5(tmp_path: Path, store: EpisodeStore) -> None:
    path = robomimic_file(tmp_path / "demo.hdf5")
    path.write_bytes(path.read_bytes()[:-4000])
    refused(path, store, "truncated")


@pytest.mark.skipif(not ROBOSUITE.exists(), reason="the robosuite recordings are not at hand")
def test_the_robosuite_demonstrations(store: EpisodeStore) -> None:
    for task in ("lift", "wipe"):
        name, left_out = run(ROBOSUITE / task / "panda_demo.hdf5", store)
        assert name == "robomimic"
        assert left_out == (
            "observations: the file has none (simulator states only)",
            "model file model_1.xml: not beside the recording",
        )
    lift = store.read("ep_000000")
    assert lift.steps == 412
    assert set(lift.streams) == {"sim/states", "obs/joint_torques"}
    assert lift.observed("sim/states").shape == (412, 32)
    assert lift.action["obs/action"].shape == (412, 7)
    assert lift.meta.task == "lift"
    assert lift.meta.embodiment.name == "Panda"
    assert lift.meta.provenance["file"]["env_info"]["controller_configs"]["kp"] == 150
    assert lift.meta.provenance["attributes"]["model_xml"] is None


def flat_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    rows = np.arange(12)
    return {
        "observations": rng.random((12, 4), dtype=np.float32),
        "actions": rng.random((12, 2), dtype=np.float32),
        "terminals": np.isin(rows, (4, 11)),
    }


def d4rl_file(path: Path, **extra: Any) -> Path:
    arrays: dict[str, Any] = flat_arrays() | {
        "rewards": np.arange(12, dtype=np.float32),
        "timeouts": np.arange(12) == 8,
        "infos/qpos": np.zeros((12, 3)),
    }
    with h5py.File(path, "w") as file:
        for name, values in (arrays | extra).items():
            if values is not None:
                file[name] = values
        file["metadata/algorithm"] = np.bytes_("SAC")
    return path


def test_d4rl(tmp_path: Path, store: EpisodeStore) -> None:
    name, _ = run(d4rl_file(tmp_path / "d.hdf5"), store)
    assert name == "d4rl"
    episodes = [store.read(i) for i in store.ids()]
    assert [e.steps for e in episodes] == [5, 4, 3]
    assert [bool(e.terminal[-1]) for e in episodes] == [True, False, True]
    assert [bool(e.truncated[-1]) for e in episodes] == [False, True, False]
    assert episodes[1].reward.tolist() == [5, 6, 7, 8]
    assert episodes[1].meta.kind == "rollout"
    arrays = flat_arrays()
    np.testing.assert_array_equal(episodes[2].observed("obs/state"), arrays["observations"][9:])
    np.testing.assert_array_equal(episodes[2].action["obs/action"], arrays["actions"][9:])
    assert "obs/infos.qpos" in episodes[0].streams
    assert "assumed" in episodes[0].meta.provenance["rate"]


def test_d4rl_without_timeouts_that_ends_within_an_episode(
    tmp_path: Path, store: EpisodeStore
) -> None:
    path = d4rl_file(tmp_path / "d.hdf5", timeouts=None, terminals=np.arange(12) == 4)
    run(path, store, rate_hz=50.0)
    episode = store.read("ep_000001")
    assert episode.steps == 7
    assert episode.truncated[-1]
    assert episode.meta.embodiment.rate_hz == 50
    assert episode.meta.provenance["last_episode"] == "the file ends within it"


def test_d5rl_says_where_trajectories_end(tmp_path: Path, store: EpisodeStore) -> None:
    """Its legged robot: ends of trajectories are no signal, terminal ones are among them."""
    ends = np.isin(np.arange(12), (4, 8, 11))
    extra = {"timeouts": None, "trajectory_ends": ends, "terminals": np.arange(12) == 8}
    run(d4rl_file(tmp_path / "d.hdf5", **extra), store)
    episodes = [store.read(i) for i in store.ids()]
    assert [e.steps for e in episodes] == [5, 4, 3]
    assert [bool(e.terminal[-1]) for e in episodes] == [False, True, False]
    assert [bool(e.truncated[-1]) for e in episodes] == [True, False, True]
    assert [e.reward[-1] for e in episodes] == [4, 8, 11]
    assert "obs/trajectory_ends" not in episodes[0].streams


def test_d5rl_has_masks_and_timeouts(tmp_path: Path, store: EpisodeStore) -> None:
    """Its hands: timeouts at every end, masks are what is terminal."""
    rows = np.arange(12)
    extra = {"timeouts": np.isin(rows, (4, 11)), "terminals": rows == 4}
    masks = 1.0 - (rows == 4)
    run(d4rl_file(tmp_path / "d.hdf5", masks=masks, **extra), store)
    episodes = [store.read(i) for i in store.ids()]
    assert [(e.steps, bool(e.terminal[-1])) for e in episodes] == [(5, True), (7, False)]
    refused(
        d4rl_file(tmp_path / "e.hdf5", masks=np.ones(12), **extra),
        EpisodeStore.create(tmp_path / "other"),
        r"contradict each other in 1 rows, row 4 the first: expected masks = 1 - terminals",
    )


def test_next_observations_say_where_an_episode_was_cut(
    tmp_path: Path, store: EpisodeStore
) -> None:
    seen = flat_arrays()["observations"]
    following = np.roll(seen, -1, axis=0)
    following[[6, 11]] = 0.5
    extra = {"timeouts": None, "next_observations": following, "terminals": np.arange(12) == 3}
    run(d4rl_file(tmp_path / "d.hdf5", **extra), store)
    episodes = [store.read(i) for i in store.ids()]
    assert [e.steps for e in episodes] == [4, 3, 5]
    assert [bool(e.terminal[-1]) for e in episodes] == [True, False, False]
    assert "next_observations" in episodes[0].meta.provenance["ends"]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"rewards": np.zeros(11)}, "observations have 12 rows"),
        ({"rewards": np.full(12, np.nan)}, "rewards must be finite, got nan in row 0"),
        ({"rewards": np.zeros((12, 1))}, r"rewards must be finite numbers \[12\], got \(12, 1\)"),
        ({"rewards": 1.0}, r"expected one of \['rewards'\] for each step, got one for all"),
        ({"timeouts": True}, r"\['timeouts'\] for each step"),
        ({"observations": np.full((12, 4), np.inf)}, "NaN or infinity"),
        ({"actions": np.zeros((12, 2), dtype="S3")}, "expected numbers"),
    ],
)
def test_bad_d4rl_leaves_nothing(
    tmp_path: Path, store: EpisodeStore, extra: dict[str, Any], message: str
) -> None:
    refused(d4rl_file(tmp_path / "d.hdf5", **extra), store, message)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_ogbench(tmp_path: Path, store: EpisodeStore, save: Callable[..., None]) -> None:
    arrays = flat_arrays() | {"qpos": np.random.default_rng(2).random((12, 5))}
    save(tmp_path / "play-v0.npz", **arrays)
    name, _ = run(tmp_path / "play-v0.npz", store)
    assert name == "ogbench"
    episodes = [store.read(i) for i in store.ids()]
    assert [e.steps for e in episodes] == [5, 7]
    assert all(e.truncated[-1] and not e.terminal[-1] for e in episodes)
    np.testing.assert_array_equal(episodes[1].observed("obs/qpos"), arrays["qpos"][5:])
    np.testing.assert_array_equal(episodes[1].action["obs/action"], arrays["actions"][5:])


def test_ogbench_masks_tell_terminal_from_truncated(tmp_path: Path, store: EpisodeStore) -> None:
    masks = (np.arange(12) != 4).astype(np.float32)
    np.savez(tmp_path / "s.npz", **flat_arrays(), masks=masks, rewards=masks - 1)
    run(tmp_path / "s.npz", store)
    first, second = (store.read(i) for i in store.ids())
    ends = [(bool(e.terminal[-1]), bool(e.truncated[-1])) for e in (first, second)]
    assert ends == [(True, False), (False, True)]
    assert first.reward.tolist() == [0, 0, 0, 0, -1]


def test_ogbench_pictures_are_streamed(tmp_path: Path, store: EpisodeStore) -> None:
    pictures = np.random.default_rng(3).integers(0, 255, (12, 40, 40, 3), dtype=np.uint8)
    np.savez_compressed(tmp_path / "v.npz", **flat_arrays() | {"observations": pictures})
    run(tmp_path / "v.npz", store, images=True)
    np.testing.assert_array_equal(store.read("ep_000001").observed("obs/state"), pictures[5:])


def test_bad_npz(tmp_path: Path, store: EpisodeStore) -> None:
    path = tmp_path / "s.npz"
    np.savez(path, **flat_arrays() | {"actions": np.full((12, 2), np.nan)})
    refused(path, store, "NaN or infinity")
    np.savez(path, **flat_arrays() | {"actions": np.zeros((11, 2))})
    refused(path, store, "observations have 12 rows")
    np.savez(path, **flat_arrays() | {"actions": np.array([object()] * 12)})
    refused(path, store, "expected numbers")
    np.savez_compressed(path, **flat_arrays())
    whole = path.read_bytes()
    path.write_bytes(whole[:-50])
    refused(path, store, "truncated")
    path.write_bytes(whole[:120] + bytes(8) + whole[128:])
    refused(path, store, "damaged|cannot be read")


def minari_dataset(root: Path, **extra: Any) -> Path:
    (root / "data").mkdir(parents=True)
    rng = np.random.default_rng(4)
    with h5py.File(root / "data/main_data.hdf5", "w") as file:
        for k in range(2):
            group = file.create_group(f"episode_{k}")
            rows = 3 + k
            group.attrs["seed"] = k
            group["observations/position"] = rng.random((rows + 1, 2))
            group["observations/camera"] = rng.integers(
                0, 255, (rows + 1, 40, 40, 3), dtype=np.uint8
            )
            group["actions"] = np.arange(rows)  # discrete
            group["rewards"] = np.ones(rows)
            group["terminations"] = (np.arange(rows) == rows - 1) & (k == 0)
            group["truncations"] = (np.arange(rows) == rows - 1) & (k == 1)
            group["infos/success"] = np.zeros(rows)
        for name, values in extra.items():
            del file[f"episode_1/{name}"]
            if values is not None:
                file[f"episode_1/{name}"] = values
    metadata = {"dataset_id": "door/human-v2", "algorithm_name": "teleoperation"}
    (root / "data/metadata.json").write_text(json.dumps(metadata))
    return root


def test_minari(tmp_path: Path, store: EpisodeStore) -> None:
    root = minari_dataset(tmp_path / "human-v2")
    name, left_out = run(root, store, images=True)
    assert name == "minari"
    assert left_out == ("infos",)
    first, second = (store.read(i) for i in store.ids())
    assert (first.steps, second.steps) == (3, 4)
    assert first.terminal[-1]
    assert second.truncated[-1]
    with h5py.File(root / "data/main_data.hdf5") as file:
        position = file["episode_1/observations/position"][:]
    np.testing.assert_array_equal(second.streams["obs/position"].value, position)
    np.testing.assert_array_equal(second.observed("obs/position"), position[:-1])
    assert second.streams["obs/camera"].value.shape == (5, 40, 40, 3)
    assert second.action["obs/action"].tolist() == [[0], [1], [2], [3]]
    assert second.meta.agent == "teleoperation"
    assert second.meta.provenance["metadata"]["dataset_id"] == "door/human-v2"


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"observations/position": np.zeros((4, 2))}, "has 4 rows, expected 5"),
        ({"rewards": np.full(4, np.nan)}, "NaN or infinity"),
        ({"terminations": None}, "expected 'terminations'"),
        ({"actions": np.zeros((4, 2), dtype="S2")}, "expected numbers"),
    ],
)
def test_bad_minari_leaves_nothing(
    tmp_path: Path, store: EpisodeStore, extra: dict[str, Any], message: str
) -> None:
    refused(minari_dataset(tmp_path / "m", **extra), store, message)


def test_hdf5_of_another_kind(tmp_path: Path, store: EpisodeStore) -> None:
    path = tmp_path / "other.hdf5"
    with h5py.File(path, "w") as file:
        file["data"] = np.zeros(3)
    refused(path, store, "in no known format")
    for name in ("robomimic", "minari", "d4rl"):
        with pytest.raises(DataError, match="expected"):
            find_importer(path, name)[1].open(path, ImportOptions())
