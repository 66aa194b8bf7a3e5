"""Meshes with fewer faces: what they look like, what stays, and that physics knows nothing."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.errors import RenderError
from sim.rendering.decimation import corner_normals, decimated, face_count, simplify
from sim.rendering.renderer import Renderer, View, update_poses


def ball_model() -> mujoco.MjModel:
    """A ball of more than 5000 faces."""
    spec = mujoco.MjSpec()
    ball = spec.add_mesh(name="ball")
    ball.make_sphere(4)
    ball.scale = [0.2, 0.2, 0.2]
    spec.worldbody.add_light(pos=[0, 0, 3])
    spec.worldbody.add_camera(name="top", pos=[0, 0, 1], fovy=45)
    body = spec.worldbody.add_body(name="ball")
    body.add_freejoint()
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_MESH, meshname="ball", rgba=[1, 0.5, 0, 1], pos=[0.05, 0, 0]
    )
    return spec.compile()


def test_a_tenth_of_the_faces_looks_nearly_the_same() -> None:
    model = ball_model()
    few = decimated(model, 0.1)
    assert face_count(model) >= 5000
    assert face_count(few) <= 0.11 * face_count(model)
    data = mujoco.MjData(model)
    update_poses(model, data)
    pictures = []
    for drawn in (model, few):
        renderer = Renderer(drawn, "plain")
        pictures.append(renderer.image(data, View("top", 84, 84)).astype(int))
        renderer.close()
    # The ball covers a tenth of the picture; without it a pixel of it would be 100 off.
    assert np.abs(pictures[0] - pictures[1]).mean() < 0.6
    assert (pictures[1][..., 0] > 100).mean() == pytest.approx(
        (pictures[0][..., 0] > 100).mean(), rel=0.05
    )


def test_the_model_that_is_simulated_keeps_its_meshes() -> None:
    model = ball_model()
    vertices, faces = model.mesh_vert.copy(), model.mesh_face.copy()
    renderer = Renderer(model, "fast")
    data = mujoco.MjData(model)
    update_poses(model, data)
    renderer.image(data, View("top", 32, 32))
    renderer.close()
    assert np.array_equal(model.mesh_vert, vertices)
    assert np.array_equal(model.mesh_face, faces)
    assert int(model.mesh_facenum[0]) == len(faces)


def test_small_meshes_are_left_alone() -> None:
    model = ball_model()
    assert face_count(decimated(model, 0.1, least_faces=10_000)) == face_count(model)


@pytest.mark.parametrize("pictured", [True, False])
def test_meshes_that_carry_a_picture_are_left_alone(pictured: bool) -> None:
    vertices, faces = grid_with_seam(20)
    spec = mujoco.MjSpec()
    mesh = spec.add_mesh(name="sheet", inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL)
    mesh.uservert, mesh.userface = vertices.reshape(-1), faces.reshape(-1)
    mesh.usertexcoord = vertices[:, :2].reshape(-1)
    spec.add_texture(
        name="checks", type=mujoco.mjtTexture.mjTEXTURE_2D, width=32, height=32,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
    )  # fmt: skip
    material = spec.add_material(name="checks")
    if pictured:
        material.textures[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = "checks"
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="sheet", material="checks")
    model = spec.compile()
    assert int(model.mesh_texcoordadr[0]) >= 0
    assert (face_count(decimated(model, 0.3)) == face_count(model)) == pictured


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1.5, float("nan")])
def test_impossible_shares(ratio: float) -> None:
    with pytest.raises(RenderError, match="above 0 and at most 1"):
        decimated(ball_model(), ratio)


def test_everything_is_everything() -> None:
    model = ball_model()
    assert np.array_equal(decimated(model, 1.0).mesh_face, model.mesh_face)


def grid_with_seam(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A bent sheet of ``2 n^2`` faces, none of which shares a vertex with another."""
    x, y = np.meshgrid(np.linspace(0, 1, n + 1), np.linspace(0, 1, n + 1))
    points = np.stack([x, y, 0.1 * np.sin(3 * x)], axis=-1)
    quads = [
        (points[i, j], points[i, j + 1], points[i + 1, j + 1], points[i + 1, j])
        for i in range(n)
        for j in range(n)
    ]
    vertices = np.array([p for a, b, c, d in quads for p in (a, b, c, a, c, d)])
    return vertices, np.arange(len(vertices)).reshape(-1, 3)


@settings(max_examples=5, deadline=None)
@given(st.integers(8, 14), st.floats(0.2, 0.6))
def test_seams_stay_closed(n: int, ratio: float) -> None:
    vertices, faces = grid_with_seam(n)
    points, kept = simplify(vertices, faces, round(ratio * len(faces)))
    assert 0 < len(kept) < len(faces)
    edges: dict[tuple[int, int], int] = {}
    for a, b, c in kept:
        for edge in ((a, b), (b, c), (c, a)):
            key = (min(edge), max(edge))
            edges[key] = edges.get(key, 0) + 1
    rim = {v for edge, count in edges.items() if count == 1 for v in edge}
    # Open edges are on the rim of the sheet only, whose corners are cut.
    assert all(min(*points[v, :2], *(1 - points[v, :2])) < 1e-5 for v in rim)
    assert area(points, kept) == pytest.approx(area(vertices, faces), rel=0.2)


def area(vertices: np.ndarray, faces: np.ndarray) -> float:
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2)


def test_edges_are_sharp_and_round_things_round() -> None:
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], dtype=float)
    top = np.array([[1, 5, 7], [1, 7, 3]])
    side = np.array([[4, 6, 7], [4, 7, 5]])
    normals = corner_normals(corners, np.concatenate([top, side])).reshape(4, 3, 3)
    assert np.allclose(normals[:2], [0, 0, 1])
    assert np.allclose(normals[2:], [1, 0, 0])
    model = ball_model()
    vertices = model.mesh_vert[: model.mesh_vertnum[0]].astype(np.float64)
    faces = model.mesh_face[: model.mesh_facenum[0]].astype(np.int64)
    radial = vertices / np.linalg.norm(vertices, axis=1, keepdims=True)
    found = corner_normals(vertices, faces)
    assert (np.einsum("ij,ij->i", found, radial[faces.reshape(-1)]) > 0.999).all()
