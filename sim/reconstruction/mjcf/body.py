"""Writes a body as MJCF, and asks the engine whether it takes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import mujoco
import numpy as np

from robolearn.errors import SceneError
from robolearn.geometry import Pose, quat_from_rotation
from sim.reconstruction.bodies import Body
from sim.reconstruction.meshes import obj_text

# Sliding, torsional, rolling; nobody measured it.
FRICTION = "0.6 0.005 0.0001"


def contact_geoms(body: Body) -> list[str]:
    """Names of what an object collides with."""
    if body.primitive is not None:
        return [body.name]
    return [f"{body.name}_{k}" for k in range(len(body.parts))]


def add_body(world: ET.Element, asset: ET.Element, body: Body, T_world_table: Pose) -> None:
    """Add a loose body, whose mesh is ``meshes/NAME.obj``."""
    T = T_world_table @ body.T_table_body
    element = ET.SubElement(
        world,
        "body",
        name=body.name,
        pos=numbers(T[:3, 3]),
        quat=numbers(quat_from_rotation(T[:3, :3])),
    )
    ET.SubElement(element, "freejoint", name=body.name)
    J = body.inertia
    ET.SubElement(
        element,
        "inertial",
        pos=numbers(body.centre_m),
        mass=repr(body.mass.kg),
        fullinertia=numbers([J[0, 0], J[1, 1], J[2, 2], J[0, 1], J[0, 2], J[1, 2]], digits=10),
    )
    ET.SubElement(asset, "mesh", name=body.name, file=_mesh_file(body))
    look = {"rgba": numbers([*body.rgb, 1.0])}
    if body.texture is not None:
        look = {"material": body.name}
    ET.SubElement(
        element,
        "geom",
        name=f"{body.name}_look",
        type="mesh",
        mesh=body.name,
        contype="0",
        conaffinity="0",
        mass="0",
    ).attrib.update(look)
    contact = {
        "contype": "2",
        "conaffinity": "15",
        "condim": "4",
        "friction": FRICTION,
        "mass": "0",
        "group": "3",
        "rgba": "0.3 0.7 0.4 0.5",
    }
    if body.primitive is not None:
        ET.SubElement(
            element,
            "geom",
            name=body.name,
            type=body.primitive.kind,
            size=numbers(body.primitive.size),
            pos=numbers(body.primitive.centre),
            quat=numbers(quat_from_rotation(body.primitive.rotation)),
        ).attrib.update(contact)
    for name, part in zip(contact_geoms(body), body.parts, strict=False):
        ET.SubElement(asset, "mesh", name=name, vertex=numbers(part.ravel()))
        geom = ET.SubElement(element, "geom", name=name, type="mesh", mesh=name)
        geom.attrib.update(contact)


def require_simulable(body: Body) -> None:
    """SceneError for a body that MuJoCo does not take, which would keep the whole scene from
    loading: without an extent, with moments that no solid thing has.
    """
    root = ET.Element("mujoco")
    asset, world = ET.SubElement(root, "asset"), ET.SubElement(root, "worldbody")
    add_body(world, asset, replace(body, texture=None), np.eye(4))
    files = {_mesh_file(body): obj_text(body.vertices, body.faces).encode()}
    try:
        mujoco.MjModel.from_xml_string(ET.tostring(root, encoding="unicode"), files)
    except ValueError as error:
        raise SceneError(f"the engine does not take its body: {error}") from error


def _mesh_file(body: Body) -> str:
    return f"meshes/{body.name}.obj"


def numbers(values: Any, digits: int = 7) -> str:
    """Numbers as an attribute of MJCF holds them."""
    return " ".join(f"{float(v):.{digits}g}" for v in values)
