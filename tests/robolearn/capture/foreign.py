"""Writes a capture folder as somebody else's program would: plain json, csv and cv2."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import cv2
import numpy as np

LOOK_DOWN = np.diag([1.0, -1.0, -1.0])


def looking(position: tuple[float, float, float], at: tuple[float, float, float] = (0, 0, 0)):
    """A camera's pose: +z towards ``at``."""
    z = np.array(at, float) - np.array(position, float)
    z /= np.linalg.norm(z)
    x = np.cross(z, [0.0, 0.0, 1.0])
    x = x / np.linalg.norm(x) if np.linalg.norm(x) > 1e-6 else np.array([1.0, 0.0, 0.0])
    T = np.eye(4)
    T[:3, :3] = np.column_stack([x, np.cross(z, x), z])
    T[:3, 3] = position
    return T


def ring(count: int, radius: float = 0.4, height: float = 0.4) -> list[np.ndarray]:
    """Poses around the origin."""
    turns = 2 * np.pi * np.arange(count) / count
    return [looking((radius * np.cos(a), radius * np.sin(a), height)) for a in turns]


def write_foreign(folder: Path, poses: list[np.ndarray], depth_mm: float = 566.0) -> Path:
    """A capture of a flat wall at one depth; JSON is YAML."""
    (folder / "scan").mkdir(parents=True)
    (folder / "capture.yaml").write_text(
        json.dumps(
            {
                "schema": 1,
                "name": "phone",
                "cameras": {
                    "phone": {
                        "mount": "hand",
                        "size": [32, 24],
                        "lens": {"focal_px": [30, 30], "centre_px": [15.5, 11.5]},
                        "depth": {"scale_m": 0.001},
                    }
                },
                "sets": [{"name": "scan", "camera": "phone", "purpose": "scan"}],
                "objects": [{"name": "mug"}],
            }
        )
    )
    noise = np.random.default_rng(0)
    with (folder / "scan" / "frames.csv").open("w", newline="") as stream:
        table = csv.DictWriter(stream, ["file", "depth", "t_s", "T_world_camera"])
        table.writeheader()
        for k, T in enumerate(poses):
            cv2.imwrite(
                str(folder / "scan" / f"{k}.jpg"), noise.integers(20, 230, (24, 32, 3), np.uint8)
            )
            depth = np.full((24, 32), round(depth_mm), np.uint16)
            cv2.imwrite(str(folder / "scan" / f"{k}.png"), depth)
            table.writerow(
                {
                    "file": f"{k}.jpg",
                    "depth": f"{k}.png",
                    "t_s": k * 0.1,
                    "T_world_camera": " ".join(str(v) for v in T.ravel()),
                }
            )
    return folder
