"""Replays an episode's scene: the shapes of its scene package, and where they were at each tick.

The recorded signals put bodies and joints where they were measured; what was not measured stays
where the scene package has it. A store's word for its world is no path: the scene is one that comes
with the project, or one that was found under the studio's folders.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robolearn.data.episode import Episode, EpisodeStart
from robolearn.data.view.cameras import read_without_pictures
from robolearn.errors import DataError, SceneError
from robolearn.operations.studio.asking import Ask, NotHere
from robolearn.operations.studio.episodes.shelf import open_store
from robolearn.operations.studio.library import Library
from robolearn.shapes import OwnFloats, OwnIndex, OwnRows

if TYPE_CHECKING:
    from sim.scene.config import SceneConfig

SHAPES: Mapping[int, str] = {
    0: "plane",
    2: "sphere",
    3: "capsule",
    4: "ellipsoid",
    5: "cylinder",
    6: "box",
    7: "mesh",
}
"""By MuJoCo's number of a geom's type."""
MOST_TICKS = 4_000
VISUAL_GROUPS = 3
"""Geoms of the groups below are drawn; those above are shapes for contacts, by MuJoCo's custom."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A geom at ``position`` [m] and ``quaternion`` (w, x, y, z) of its body; ``size`` as MuJoCo
    has it; ``mesh``: which of the meshes, -1: none.
    """

    kind: str
    body: int
    size: OwnFloats
    position: OwnFloats
    quaternion: OwnFloats
    colour: OwnFloats
    mesh: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """``vertices [n, 3]`` [m] and ``faces [m, 3]``."""

    vertices: OwnRows
    faces: OwnRows


@dataclass(frozen=True, slots=True)
class ToolFrame:
    """Where the first ``count`` (2 or 3) values of the action ``name`` are a place of the tool:
    in the frame at ``pose``, position [m] and quaternion (w, x, y, z) in the world.
    """

    name: str
    count: int
    pose: OwnFloats


@dataclass(frozen=True, slots=True)
class StageDocument:
    """``poses [n, b, 7]``: position [m] and quaternion (w, x, y, z) of each body in the world at
    the ticks ``tick [n]``; ``placed``: the signals by which; ``words``: what to know of it.
    """

    scene: str
    words: str
    shapes: tuple[Shape, ...]
    meshes: tuple[Mesh, ...]
    tick: OwnIndex
    poses: OwnRows
    placed: tuple[str, ...]
    tools: tuple[ToolFrame, ...]
    centre: OwnFloats
    extent: float


def stage(ask: Ask) -> StageDocument:
    """The scene of an episode by its number; :class:`NotHere` says why there is none."""
    opened = open_store(ask)
    row = opened.row(ask.number("number"))
    start = EpisodeStart.of(opened.store.meta(row.id))
    if not start.world:
        raise NotHere("the recording does not say in which world it was made")
    folder = _folder(ask.library, start.world)
    episode = read_without_pictures(opened.store, row.id)
    return build_stage(folder, episode, start.scene)


def build_stage(folder: Path, episode: Episode, recorded_hash: str = "") -> StageDocument:
    """The scene in ``folder`` as ``episode`` moved it; ``recorded_hash``: of the scene that it was
    recorded in.
    """
    import mujoco

    from sim.env.placement import placer
    from sim.scene.load import load_scene

    scene = load_scene(folder)
    model = scene.compile()
    data = mujoco.MjData(model)
    mujoco.mj_resetData(model, data)
    known = {s.name: s for s in scene.config.signals}
    places: list[tuple[str, Any]] = []
    for name in episode.view:
        if name not in known or not episode.streams[name].value.size:
            continue
        try:
            places.append((name, placer(model, scene.config, known[name])))
        except SceneError:
            # A signal that follows from others, such as a site's place or a speed.
            continue
    if not places:
        raise NotHere(f"no signal of the recording places anything in the scene '{scene.name}'")
    every = -(-episode.steps // MOST_TICKS)
    ticks = np.arange(0, episode.steps, every, dtype=np.int64)
    seen = {name: np.asarray(episode.observed(name), dtype=np.float64) for name, _ in places}
    poses = np.zeros((len(ticks), model.nbody, 7))
    beyond: set[str] = set()
    for k, tick in enumerate(ticks.tolist()):
        for name, place in places:
            value = seen[name][tick]
            if not np.isfinite(value).all():
                continue
            try:
                place(model, data, value)
            except DataError:
                # Noise may put a joint a hair beyond its range: it stays where it was.
                beyond.add(name)
        mujoco.mj_kinematics(model, data)
        poses[k, :, :3], poses[k, :, 3:] = data.xpos, data.xquat
    words = [f"signals beyond their joints' range: {', '.join(sorted(beyond))}"] if beyond else []
    if recorded_hash and recorded_hash != scene.content_hash:
        words.append("the scene package was changed since the recording")
    shapes, meshes = _shapes(model)
    return StageDocument(
        scene=scene.name,
        words="; ".join(words),
        shapes=shapes,
        meshes=meshes,
        tick=ticks,
        poses=poses,
        placed=tuple(name for name, _ in places),
        tools=tuple(_tools(model, scene.config)),
        centre=np.asarray(model.stat.center, dtype=np.float64),
        extent=float(model.stat.extent),
    )


def _tools(model: Any, config: SceneConfig) -> Iterator[ToolFrame]:
    """The actions that say where the tool is to be, and in which frame."""
    from robolearn.arms.tool_commands import values_from_pose
    from sim.scene.config import world_pose

    for action in config.actions:
        units = [unit.strip() for unit in action.unit.split(",")]
        units = units * len(action.low) if len(units) == 1 else units
        metres = list(itertools.takewhile(lambda unit: unit == "m", units))
        if action.mode == "absolute" and action.frame in config.frames and len(metres) in (2, 3):
            pose = values_from_pose(world_pose(model, config.frames[action.frame]))
            yield ToolFrame(action.name, len(metres), np.asarray(pose, dtype=np.float64))


def _folder(library: Library, world: str) -> Path:
    from sim.scene.load import packaged_scenes, scene_folder
    from sim.world_name import WorldName

    try:
        base = WorldName.parse(world).base
    except (ValueError, LookupError) as error:
        raise NotHere(f"the world '{world}' is none of these scenes") from error
    if base in packaged_scenes():
        return scene_folder(base)
    wanted = Path(base).name
    found = [t.path for t in library.things() if t.kind == "scene" and t.name == wanted]
    if not found:
        raise NotHere(
            f"the scene of the world '{world}' does not come with the project and lies in none of"
            " the folders that are looked into"
        )
    return found[0]


def _shapes(model: Any) -> tuple[tuple[Shape, ...], tuple[Mesh, ...]]:
    """What is drawn of a MuJoCo model; each mesh once."""
    found: list[Shape] = []
    meshes: dict[int, int] = {}
    drawn = [g for g in range(model.ngeom) if int(model.geom_group[g]) < VISUAL_GROUPS]
    for geom in drawn:
        kind = SHAPES.get(int(model.geom_type[geom]))
        colour = np.array(model.geom_rgba[geom], dtype=np.float64)
        material = int(model.geom_matid[geom])
        if material >= 0:
            colour = np.array(model.mat_rgba[material], dtype=np.float64)
        if kind is None or colour[3] <= 0:
            continue
        mesh = int(model.geom_dataid[geom]) if kind == "mesh" else -1
        if mesh >= 0:
            mesh = meshes.setdefault(mesh, len(meshes))
        found.append(
            Shape(
                kind=kind,
                body=int(model.geom_bodyid[geom]),
                size=np.array(model.geom_size[geom], dtype=np.float64),
                position=np.array(model.geom_pos[geom], dtype=np.float64),
                quaternion=np.array(model.geom_quat[geom], dtype=np.float64),
                colour=colour,
                mesh=mesh,
            )
        )
    return tuple(found), tuple(_mesh(model, number) for number in meshes)


def _mesh(model: Any, number: int) -> Mesh:
    first, count = int(model.mesh_vertadr[number]), int(model.mesh_vertnum[number])
    face, faces = int(model.mesh_faceadr[number]), int(model.mesh_facenum[number])
    return Mesh(
        np.array(model.mesh_vert[first : first + count], dtype=np.float64),
        np.array(model.mesh_face[face : face + faces], dtype=np.int64),
    )
