"""Foreign files that lie about themselves: one typed error each, nothing allocated, nothing run."""

from __future__ import annotations

import json
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.data.importers.foreign import patterned, reading, refuse_pointer, require_plausible
from robolearn.data.importers.recording import ImportOptions, storable, write_recording
from robolearn.data.importers.registry import find_importer
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError, UnsafePathError

h5py: Any = pytest.importorskip("h5py")
HUGE = 10**11
DEEP = "[" * 100_000


class Boom:
    """Unpickling it leaves a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("unpickled",))


def npz(path: Path, **arrays: np.ndarray) -> None:
    rows = {
        "observations": np.zeros((4, 2)),
        "actions": np.zeros((4, 1)),
        "terminals": np.array([0, 0, 0, 1.0]),
    }
    np.savez(path, **(rows | arrays))


def npz_header(path: Path, shape: str, descr: str = "<f8") -> None:
    npz(path)
    with zipfile.ZipFile(path, "a") as archive:
        text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
        text += " " * (63 - (len(text) + 10) % 64) + "\n"
        data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
        archive.writestr("extra.npy", data)


def d4rl(path: Path, change: Callable[[Any], None]) -> None:
    with h5py.File(path, "w") as file:
        file["observations"] = np.zeros((4, 2))
        file["actions"] = np.zeros((4, 1))
        file["terminals"] = np.array([0, 0, 0, 1.0])
        change(file)


def huge(file: Any) -> None:
    for name in ("observations", "actions", "terminals"):
        del file[name]
        file.create_dataset(name, shape=(HUGE, 1), chunks=(1024, 1), dtype="f8")
    del file["terminals"]
    file.create_dataset("terminals", shape=(HUGE,), chunks=(1024,), dtype="f8")


def external(file: Any) -> None:
    secret = Path(file.filename).with_suffix(".secret")
    with h5py.File(secret, "w") as other:
        other["secret"] = np.zeros((4, 2))
    del file["observations"]
    file["observations"] = h5py.ExternalLink(secret.name, "/secret")


def outside(file: Any) -> None:
    raw = Path(file.filename).with_suffix(".raw")
    raw.write_bytes(bytes(64))
    del file["observations"]
    file.create_dataset("observations", (4, 2), "f8", external=[(str(raw), 0, 64)])


def loop(file: Any) -> None:
    file["inner"] = file["/"]


def zarr_group(path: Path, change: Callable[[Path], None]) -> None:
    import zarr

    library: Any = zarr
    root = library.open_group(str(path), mode="w", zarr_format=2)
    root.create_group("meta").create_array("episode_ends", data=np.array([4]))
    data = root.create_group("data")
    data.create_array("action", data=np.zeros((4, 2)))
    data.create_array("state", data=np.zeros((4, 3)))
    change(path)


def edit(name: str, **values: Any) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        raw = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps(raw | values))

    return apply


def write(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes(data) and None


def lerobot(path: Path, **values: Any) -> None:
    (path / "meta").mkdir(parents=True)
    info = {
        "codebase_version": "v2.1",
        "fps": 10,
        "total_episodes": 1,
        "data_path": "data/episode_{episode_index:06d}.parquet",
        "video_path": "videos/{video_key}/episode_{episode_index:06d}.mp4",
        "features": {"action": {"dtype": "float32", "shape": [2]}},
    }
    (path / "meta/info.json").write_text(json.dumps(info | values))
    row = {"episode_index": 0, "length": 1, "tasks": ["x"]}
    (path / "meta/episodes.jsonl").write_text(json.dumps(row) + "\n")


def shape(value: Any, dtype: str = "float32") -> dict[str, Any]:
    return {"features": {"action": {"dtype": dtype, "shape": value}}}


def deep_lines(path: Path) -> None:
    lerobot(path)
    (path / "meta/episodes.jsonl").write_text(DEEP)


def foreign_picture(path: Path) -> None:
    path.mkdir()
    (path / "a.csv").write_text("t,action.x,camera:top\n0,1,/etc/x.png\n1,1,../x.png\n")


SOURCES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "npz of objects": ("a.npz", lambda p: npz(p, extra=np.array([Boom()] * 4, dtype=object))),
    "npz of complex numbers": ("a.npz", lambda p: npz(p, actions=np.zeros((4, 1), complex))),
    "npz of dates": ("a.npz", lambda p: npz(p, extra=np.zeros(4, dtype="datetime64[s]"))),
    "npz of 10^11 rows": ("a.npz", lambda p: npz_header(p, f"({HUGE}, 2)")),
    "npz of -4 rows": ("a.npz", lambda p: npz_header(p, "(-4, 2)")),
    "npz of a scalar": ("a.npz", lambda p: npz_header(p, "()")),
    "npz that is text": ("a.npz", lambda p: p.write_text("hello") and None),
    "hdf5 of 10^11 rows": ("a.hdf5", lambda p: d4rl(p, huge)),
    "hdf5 with a link to another file": ("a.hdf5", lambda p: d4rl(p, external)),
    "hdf5 with data in another file": ("a.hdf5", lambda p: d4rl(p, outside)),
    "hdf5 linked into itself": ("a.hdf5", lambda p: d4rl(p, loop)),
    "hdf5 of complex numbers": (
        "a.hdf5",
        lambda p: d4rl(p, lambda f: f.create_dataset("infos/x", data=np.zeros(4, complex))),
    ),
    "zarr with bad JSON": ("a.zarr", lambda p: zarr_group(p, write("data/action/.zarray", b"{"))),
    "zarr with a list": ("a.zarr", lambda p: zarr_group(p, write("data/action/.zarray", b"[1]"))),
    "zarr of 10^11 rows": (
        "a.zarr",
        lambda p: zarr_group(p, edit("meta/episode_ends/.zarray", shape=[HUGE], chunks=[HUGE])),
    ),
    "zarr in chunks of 10^11": (
        "a.zarr",
        lambda p: zarr_group(p, edit("data/state/.zarray", chunks=[HUGE, 3])),
    ),
    "zarr of -4 rows": (
        "a.zarr",
        lambda p: zarr_group(p, edit("data/state/.zarray", shape=[-4, 3])),
    ),
    "zarr of a scalar": (
        "a.zarr",
        lambda p: zarr_group(p, edit("data/state/.zarray", shape=[], chunks=[])),
    ),
    "zarr of complex numbers": (
        "a.zarr",
        lambda p: zarr_group(p, edit("data/action/.zarray", dtype="<c16")),
    ),
    "zarr of dates": (
        "a.zarr",
        lambda p: zarr_group(p, edit("data/action/.zarray", dtype="<M8[s]")),
    ),
    "zarr packed with pickle": (
        "a.zarr",
        lambda p: zarr_group(p, edit("data/action/.zarray", filters=[{"id": "pickle"}])),
    ),
    "lerobot with deep JSON": ("a", deep_lines),
    "lerobot with a list": ("a", lambda p: lerobot(p, features=[])),
    "lerobot of shape [-1, -1]": ("a", lambda p: lerobot(p, **shape([-1, -1]))),
    "lerobot of a scalar shape": ("a", lambda p: lerobot(p, **shape(3))),
    "lerobot of a flat video": (
        "a",
        lambda p: lerobot(
            p,
            features={
                "action": {"dtype": "float32", "shape": [2]},
                "top": {"dtype": "video", "shape": [3]},
            },
        ),
    ),
    "lerobot at no rate": ("a", lambda p: lerobot(p, fps=float("nan"))),
    "lerobot that leads out": ("a", lambda p: lerobot(p, data_path="../../x.parquet")),
    "lerobot with an absolute path": ("a", lambda p: lerobot(p, data_path="/etc/passwd")),
    "lerobot with a wide field": (
        "a",
        lambda p: lerobot(p, data_path="{episode_index:099999999999d}.parquet"),
    ),
    "lerobot that asks for attributes": (
        "a",
        lambda p: lerobot(p, data_path="{episode_index.__class__}.parquet"),
    ),
    "csv with a picture elsewhere": ("a", foreign_picture),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_hostile_source_is_a_typed_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, make = SOURCES[name]
    path = tmp_path / file
    make(path)
    store = EpisodeStore.create(tmp_path / "store")
    tracemalloc.start()
    options = ImportOptions(images=True, rate_hz=10.0)
    try:
        with pytest.raises(DataError), reading(path):
            write_recording(find_importer(path)[1].open(path, options), store, options)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    assert store.ids() == ()
    assert not (tmp_path / "unpickled").exists()


def test_a_pickled_chunk_is_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.zarr"
    zarr_group(path, edit("data/action/.zarray", filters=[{"id": "pickle"}], compressor=None))
    (path / "data/action/0.0").write_bytes(b"cos\nmkdir\n(S'unpickled'\ntR.")
    with pytest.raises(DataError, match="pickle"):
        find_importer(path)[1].open(path, ImportOptions())
    assert not (tmp_path / "unpickled").exists()


def test_a_git_lfs_pointer_is_called_by_its_name(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    for name in ("a.hdf5", "a.npz", "a.csv"):
        (tmp_path / name).write_bytes(pointer)
        with pytest.raises(DataError, match=r"Git LFS pointer.*git lfs pull"):
            find_importer(tmp_path / name)
    refuse_pointer(tmp_path / "absent")
    lerobot(tmp_path / "set")
    (tmp_path / "set/data").mkdir()
    (tmp_path / "set/data/episode_000000.parquet").write_bytes(pointer)
    recording = find_importer(tmp_path / "set")[1].open(tmp_path / "set", ImportOptions())
    with pytest.raises(DataError, match="Git LFS pointer"):
        recording.episode(0)


def test_patterns_name_files_below_the_dataset(tmp_path: Path) -> None:
    fields = {"episode_index": 7, "video_key": "top"}
    made = patterned(tmp_path, "{video_key}/{episode_index:06d}.mp4", fields)
    assert made == tmp_path / "top/000007.mp4"
    with pytest.raises(UnsafePathError):
        patterned(tmp_path, "{video_key}/x", {"video_key": "../.."})


def test_sizes_that_codecs_reach_are_plausible() -> None:
    require_plausible(1_000_000_000, 1_000_000, "here", at_once=0)
    with pytest.raises(DataError, match="declares an array of 800 GB"):
        require_plausible(8 * HUGE, 1000, "here")


def test_nothing_is_converted_with_a_loss() -> None:
    for dtype in ("complex128", "datetime64[s]", "O", "U3"):
        with pytest.raises(DataError, match="expected numbers"):
            storable("x", np.zeros(3, dtype=dtype))


@pytest.mark.timeout(30)
def test_a_pipe_in_place_of_a_file_keeps_no_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.parquet")
    with pytest.raises(DataError, match="is no file"):
        refuse_pointer(tmp_path / "data.parquet")
