"""Reads somebody's robot, URDF or MJCF, and copies every file that it names."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

import mujoco

from robolearn.errors import SceneError

ASSETS = "assets"
# What MuJoCo reads as a mesh.
_MESHES = (".stl", ".obj", ".msh")
_COMPILER = {
    "fusestatic": "false",
    "discardvisual": "false",
    "strippath": "false",
    "balanceinertia": "false",
    "angle": "radian",
}


@dataclass(frozen=True, slots=True)
class Source:
    """A robot as it was given: ``speed`` [rad/s] by joint as far as the file says, joints that are
    bound to others, and what people should know of the reading.
    """

    path: Path
    kind: str
    spec: mujoco.MjSpec
    speed: dict[str, float] = field(default_factory=dict[str, float])
    bound: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def read_robot(path: Path, folder: Path) -> Source:
    """Read ``path``; the files that it names are copied into ``folder / "assets"``.

    Raises :class:`SceneError` for what is no URDF or MJCF, and names every file that is missing.
    """
    if not path.is_file():
        raise SceneError(f"no file '{path}'; expected a URDF or an MJCF of an arm")
    try:
        root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 (the user's own file)
    except (ET.ParseError, UnicodeDecodeError) as error:
        raise SceneError(f"'{path}' is no XML: {error}; expected a URDF or an MJCF") from error
    folder.mkdir(parents=True, exist_ok=True)
    if root.tag == "robot":
        return _urdf(path, root, folder)
    if root.tag == "mujoco":
        return _mjcf(path, folder)
    raise SceneError(
        f"'{path}' begins with <{root.tag}>; a URDF begins with <robot>, an MJCF with <mujoco>"
    )


class _Files:
    """Copies files into the package's assets, each once, and remembers what was not there."""

    def __init__(self, robot: Path, folder: Path) -> None:
        self._robot, self._folder = robot, folder
        self._copied: dict[Path, str] = {}
        self.missing: list[str] = []

    def take(self, name: str, places: list[Path]) -> str:
        """The file's name in the package; "" where it lies at none of ``places``."""
        found = next((p.resolve() for p in places if p.is_file()), None)
        if found is None:
            self.missing.append(f"'{name}' (looked at {', '.join(str(p) for p in places[:3])})")
            return ""
        if found not in self._copied:
            target = f"{ASSETS}/{found.name}"
            count = 1
            while target in self._copied.values():
                count += 1
                target = f"{ASSETS}/{found.stem}_{count}{found.suffix}"
            (self._folder / ASSETS).mkdir(exist_ok=True)
            shutil.copyfile(found, self._folder / target)
            self._copied[found] = target
        return self._copied[found]

    def require_all(self) -> None:
        """SceneError with all that are missing."""
        if self.missing:
            raise SceneError(
                f"'{self._robot}' names {len(self.missing)} file(s) that are not there:"
                f" {'; '.join(self.missing)}. Copy them beside it, or correct the names"
            )


def _urdf(path: Path, root: ET.Element, folder: Path) -> Source:
    if any("xacro" in e.tag or any("xacro" in k for k in e.attrib) for e in root.iter()):
        raise SceneError(
            f"'{path}' is a xacro template; make a URDF of it first:"
            " xacro my_arm.urdf.xacro > my_arm.urdf"
        )
    files, notes = _Files(path, folder), []
    for link in root.findall("link"):
        for shape in [*link.findall("visual"), *link.findall("collision")]:
            mesh = shape.find("geometry/mesh")
            if mesh is None:
                continue
            name = mesh.get("filename", "")
            if Path(name).suffix.lower() not in _MESHES:
                link.remove(shape)
                notes.append(
                    f"{shape.tag} of {link.get('name')} is left out: '{name}' is none of"
                    f" {', '.join(_MESHES)}; convert it"
                )
                continue
            mesh.set("filename", files.take(name, _urdf_places(path, name)))
    files.require_all()
    speed: dict[str, float] = {}
    for joint in root.findall("joint"):
        limit = joint.find("limit")
        text = "" if limit is None else limit.get("velocity", "")
        if text and float(text) > 0.0:
            speed[joint.get("name", "")] = float(text)
    bound = {j.get("name", "") for j in root.findall("joint") if j.find("mimic") is not None}
    for old in root.findall("mujoco"):
        root.remove(old)
    ET.SubElement(ET.SubElement(root, "mujoco"), "compiler", _COMPILER)
    written = folder / "robot.urdf"
    written.write_text(ET.tostring(root, encoding="unicode"), encoding="utf-8")
    try:
        spec = _spec(path, written)
    finally:
        written.unlink()
    return Source(path, "URDF", spec, speed, frozenset(bound), tuple(notes))


def _urdf_places(path: Path, name: str) -> list[Path]:
    """Where a mesh of a URDF may lie: its package is a folder above, beside, or the URDF's own."""
    if name.startswith("file://"):
        return [Path(name.removeprefix("file://"))]
    here = path.resolve().parent
    if not name.startswith("package://"):
        return [here / name]
    package, _, rest = name.removeprefix("package://").partition("/")
    above = [here, *here.parents][:6]
    own = [p / rest for p in above if p.name == package]
    return [*own, *(p / package / rest for p in above), here / rest, here.parent / rest]


def _mjcf(path: Path, folder: Path) -> Source:
    spec = _spec(path, path)
    files, here = _Files(path, folder), path.resolve().parent
    meshes, textures = here / spec.compiler.meshdir, here / spec.compiler.texturedir
    for mesh in spec.meshes:
        if mesh.file:
            mesh.name = mesh.name or Path(mesh.file).stem
            mesh.file = files.take(mesh.file, [meshes / mesh.file, meshes / Path(mesh.file).name])
    for texture in spec.textures:
        if texture.file:
            texture.name = texture.name or Path(texture.file).stem
            texture.file = files.take(texture.file, [textures / texture.file])
        sides = [str(side) for side in texture.cubefiles]
        texture.cubefiles = [files.take(s, [textures / s]) if s else "" for s in sides]
    others = [*spec.hfields, *spec.skins]
    if others or spec.plugins:
        raise SceneError(
            f"'{path}' has height fields, skins or plugins, which are no part of an arm: remove"
            " them"
        )
    files.require_all()
    spec.compiler.meshdir = spec.compiler.texturedir = ""
    bound = {str(e.name1) for e in spec.equalities if e.type == mujoco.mjtEq.mjEQ_JOINT}
    return Source(path, "MJCF", spec, bound=frozenset(bound))


def _spec(path: Path, file: Path) -> mujoco.MjSpec:
    try:
        return mujoco.MjSpec.from_file(str(file))
    except ValueError as error:
        raise SceneError(f"'{path}': {' '.join(str(error).split())}") from error
