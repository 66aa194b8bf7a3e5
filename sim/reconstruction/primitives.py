"""Fits boxes, cylinders and spheres to an object's surface; where one fits, contacts are exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import cv2
import numpy as np
from scipy import optimize

from robolearn.geometry import (
    Rotation,
    Vector,
    rot_x,
    rot_y,
    rot_z,
    rotation_from_rotvec,
)
from robolearn.shapes import Floats, OwnFloats
from sim.reconstruction.shapes import Points, Vertices

_least_squares: Callable[..., Any] = cast("Any", optimize).least_squares
Kind = Literal["box", "cylinder", "sphere"]

# Points of the surface that are fitted.
_SOME = 1500
# A simpler shape is taken though another is this much nearer [m].
_SIMPLER_M = 0.0002


@dataclass(frozen=True, slots=True)
class Primitive:
    """A shape in some frame: half sizes as MuJoCo has them (box: 3, cylinder: radius and half
    length along z, sphere: radius) [m], centre [m], rotation, and its distance from the surface:
    mean and 95th percentile [m].
    """

    kind: Kind
    size: tuple[float, ...]
    centre: Vector
    rotation: Rotation
    error_m: float
    worst_m: float

    @property
    def volume_m3(self) -> float:
        """Of the ideal shape."""
        s = self.size
        if self.kind == "box":
            return 8.0 * s[0] * s[1] * s[2]
        return 2.0 * np.pi * s[0] ** 2 * s[1] if self.kind == "cylinder" else 4.19 * s[0] ** 3


def fit_primitive(vertices: Vertices) -> Primitive:
    """The shape that lies nearest to a surface ``[n, 3]`` [m]; whether it is near enough is the
    caller's to say.
    """
    rng = np.random.default_rng(0)
    some = vertices[rng.choice(len(vertices), min(_SOME, len(vertices)), replace=False)]
    fits = [_sphere(some), *(_cylinder(some, R) for R in _axes(some)), _box(some)]
    best = min(fits, key=lambda f: f.error_m)
    order: Sequence[Kind] = ("sphere", "cylinder", "box")
    near = [f for f in fits if f.error_m < best.error_m + _SIMPLER_M]
    return min(near, key=lambda f: (order.index(f.kind), f.error_m))


def upright(vertices: Vertices) -> tuple[Vector, float]:
    """Middle of the smallest upright box around a surface [m] and the heading of its longer side
    in (-pi/2, pi/2] [rad].
    """
    flat = np.ascontiguousarray(1e3 * vertices[:, :2], dtype=np.float32)
    (x, y), (w, h), degrees = cv2.minAreaRect(flat)
    yaw = np.deg2rad(degrees if w >= h else degrees + 90.0)
    yaw = float((yaw + np.pi / 2) % np.pi - np.pi / 2)
    low, high = float(vertices[:, 2].min()), float(vertices[:, 2].max())
    return np.array([1e-3 * x, 1e-3 * y, 0.5 * (low + high)]), yaw


def _axes(points: Points) -> list[Rotation]:
    """Frames whose z is where a cylinder's axis may be: up, along the longer side, across it."""
    _, yaw = upright(points)
    return [np.eye(3), rot_z(yaw) @ rot_y(np.pi / 2), rot_z(yaw) @ rot_x(np.pi / 2)]


def _box_distance(local: Points, half: Vector) -> Floats:
    q = np.abs(local) - half
    return np.linalg.norm(np.maximum(q, 0.0), axis=1) + np.minimum(q.max(axis=1), 0.0)


def _cylinder_distance(local: Points, radius: float, half: float) -> Floats:
    q = np.column_stack([np.hypot(local[:, 0], local[:, 1]) - radius, np.abs(local[:, 2]) - half])
    return np.linalg.norm(np.maximum(q, 0.0), axis=1) + np.minimum(q.max(axis=1), 0.0)


def _fitted(residual: Callable[[OwnFloats], OwnFloats], start: OwnFloats) -> OwnFloats:
    """Robustly: some of the surface is not the shape's."""
    found = _least_squares(residual, start, loss="soft_l1", f_scale=1e-3, max_nfev=60)
    return np.asarray(found.x, dtype=np.float64)


def _errors(distance: Floats) -> tuple[float, float]:
    size = np.abs(distance)
    return float(size.mean()), float(np.quantile(size, 0.95))


def _box(points: Points) -> Primitive:
    middle, yaw = upright(points)
    R0 = rot_z(yaw)
    half = 0.5 * np.ptp((points - middle) @ R0, axis=0)

    def local(p: OwnFloats) -> Points:
        return (points - middle - p[:3]) @ (R0 @ rotation_from_rotvec(p[3:6]))

    p = _fitted(
        lambda p: _box_distance(local(p), np.abs(p[6:])), np.concatenate([np.zeros(6), half])
    )
    error, worst = _errors(_box_distance(local(p), np.abs(p[6:])))
    a, b, c = (float(v) for v in np.abs(p[6:]))
    return Primitive(
        "box", (a, b, c), middle + p[:3], R0 @ rotation_from_rotvec(p[3:6]), error, worst
    )


def _cylinder(points: Points, R0: Rotation) -> Primitive:
    middle, _ = upright(points)
    there = (points - middle) @ R0
    half = 0.5 * float(np.ptp(there[:, 2]))
    radius = 0.25 * float(np.ptp(there[:, 0]) + np.ptp(there[:, 1]))

    def frame(p: OwnFloats) -> Rotation:
        return R0 @ rotation_from_rotvec(np.array([p[3], p[4], 0.0]))

    def residual(p: OwnFloats) -> OwnFloats:
        local = (points - middle - p[:3]) @ frame(p)
        return _cylinder_distance(local, abs(float(p[5])), abs(float(p[6])))

    p = _fitted(residual, np.array([0.0, 0.0, 0.0, 0.0, 0.0, radius, half]))
    error, worst = _errors(residual(p))
    size = (abs(float(p[5])), abs(float(p[6])))
    return Primitive("cylinder", size, middle + p[:3], frame(p), error, worst)


def _sphere(points: Points) -> Primitive:
    middle, _ = upright(points)
    radius = float(np.ptp(points, axis=0).mean()) / 2

    def residual(p: OwnFloats) -> OwnFloats:
        return np.linalg.norm(points - middle - p[:3], axis=1) - p[3]

    p = _fitted(residual, np.array([0.0, 0.0, 0.0, radius]))
    error, worst = _errors(residual(p))
    return Primitive("sphere", (abs(float(p[3])),), middle + p[:3], np.eye(3), error, worst)
