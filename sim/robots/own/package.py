"""Writes a scene package of an arm of one's own: at a table, with a cube on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import yaml

from robolearn.errors import SceneError
from robolearn.shapes import Floats
from sim.control.own_arm import OWN
from sim.robots.own.chain import TOOL, make_chain
from sim.robots.own.servos import Arm, finish_arm, given_servos
from sim.robots.own.source import Source, read_robot
from sim.scene.config import Scene
from sim.scene.load import SCHEMA, load_scene
from sim.scene.look import LIGHTS, SKY, VISUAL
from sim.scene.package import replaced_package

ACTIONS = ("arm/joint_position", "tool/pose")
_TRIES, _DEEP_M = 400, 0.002
_POSE = {"frame": "table", "unit": "m, quaternion wxyz"}
_RATE_HZ, _STEP_S = 20, 0.002


@dataclass(frozen=True, slots=True)
class NewScene:
    """The package that was written; ``assumed`` is what the description did not say (``what``,
    ``value``, ``why``), ``notes`` what was left out.
    """

    scene: Scene
    joints: tuple[str, ...]
    assumed: tuple[dict[str, str], ...]
    notes: tuple[str, ...]


def new_scene(
    arm: Path,
    out: Path,
    *,
    tool: str = "",
    home: tuple[float, ...] = (),
    action: str = ACTIONS[0],
) -> NewScene:
    """Write ``out`` from the URDF or MJCF ``arm``: its tool at the body or site ``tool`` ("":
    found), starting at ``home`` [rad] (none: found over the table), commanded by ``action``.

    Raises :class:`SceneError` with the joint, link or file at fault; nothing is written then. Only
    a package that this wrote before is replaced.
    """
    if action not in ACTIONS:
        raise SceneError(f"no action '{action}' for an arm of one's own; one of {list(ACTIONS)}")
    with replaced_package(out, "imported") as folder:
        source = read_robot(arm, folder)
        given = given_servos(source.spec)
        chain = make_chain(source, tool)
        if home and len(home) != len(chain.joints):
            raise SceneError(
                f"home has {len(home)} angles, the arm has joints {list(chain.joints)}"
            )
        found = finish_arm(source, chain, given)
        (folder / "arm.xml").write_text(_arm_xml(source), encoding="utf-8")
        (folder / "scene.xml").write_text(_scene_xml(out.name, found), encoding="utf-8")
        assumed = list(found.assumed)
        if not home:
            home, why = _home(folder, found)
            assumed.append({"what": "home", "value": _list(home), "why": why})
        raw = _document(out.name, source, found, home, action, assumed)
        text = yaml.safe_dump(raw, sort_keys=False, width=100)
        (folder / "scene.yaml").write_text(text, encoding="utf-8")
        load_scene(folder)
    notes = (*source.notes, *chain.notes)
    return NewScene(load_scene(out.resolve()), chain.joints, tuple(assumed), notes)


def _arm_xml(source: Source) -> str:
    source.spec.compile()
    return source.spec.to_xml()


def _scene_xml(name: str, arm: Arm) -> str:
    r = arm.reach_m
    half, x = max(0.3, 0.9 * r), 0.45 * r
    return f"""<!-- Written by 'robolearn scene new'. World frame = the arm's base frame, z = 0 is
     the table top. Contact bits: see sim/robots/mjcf.py. -->
<mujoco model="{name}">
  <compiler autolimits="true"/>
  <option timestep="{_STEP_S}" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <statistic center="{x:.4g} 0 {0.3 * r:.4g}" extent="{1.2 * r:.4g}"/>
  {VISUAL}
  <asset>
    <model name="own_arm" file="arm.xml"/>
    {SKY}
  </asset>
  <worldbody>
    {LIGHTS}
    <geom name="table" type="box" pos="{x:.4g} 0 -.02" size="{half:.4g} {half:.4g} .02"
      contype="1" conaffinity="14" friction=".6 .005 .0001" rgba=".66 .53 .41 1"/>
    <site name="table" pos="{x:.4g} 0 0" rgba="0 0 0 0"/>
    <attach model="own_arm" body="{arm.chain.base}" prefix=""/>
    <camera name="top" pos="{1.6 * r:.4g} 0 {1.7 * r:.4g}" mode="targetbody" target="gaze"/>
    <camera name="agent" pos="{1.5 * r:.4g} {-1.2 * r:.4g} {r:.4g}" mode="targetbody"
      target="gaze"/>
    <body name="gaze" pos="{x:.4g} 0 {0.15 * r:.4g}"/>
    <body name="cube" pos="{0.6 * r:.4g} 0 {_cube(arm):.4g}">
      <freejoint name="cube"/>
      <geom name="cube" type="box" size="{_cube(arm):.4g} {_cube(arm):.4g} {_cube(arm):.4g}"
        mass="{8000 * 0.12 * _cube(arm) ** 3 * 8:.4g}" contype="2" conaffinity="15" condim="4"
        friction=".6 .005 .0001" rgba=".84 .24 .20 1"/>
    </body>
  </worldbody>
</mujoco>
"""


def _cube(arm: Arm) -> float:
    """Half of the cube's side [m]."""
    return float(np.clip(0.03 * arm.reach_m, 0.01, 0.025))


def _home(folder: Path, arm: Arm) -> tuple[tuple[float, ...], str]:
    """Joint angles at which nothing touches and the tool is over the table's middle."""
    try:
        model = mujoco.MjModel.from_xml_path(str(folder / "scene.xml"))
    except ValueError as error:
        raise SceneError(f"the arm does not fit into its scene: {error}") from error
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    low, high = np.maximum(arm.low, -np.pi), np.minimum(arm.high, np.pi)
    qpos = [int(model.joint(n).qposadr[0]) for n in arm.chain.joints]
    want = arm.reach_m * np.array([0.5, 0.0, 0.35])
    best: tuple[float, Floats] | None = None
    tries = [np.clip(np.zeros(len(low)), low, high), 0.5 * (low + high)]
    tries += list(rng.uniform(low, high, (_TRIES, len(low))))
    links = [model.joint(n).bodyid[0] for n in arm.chain.joints]
    for q in tries:
        data.qpos[qpos] = q
        mujoco.mj_forward(model, data)
        deep = data.ncon and float(data.contact.dist[: data.ncon].min()) < -_DEEP_M
        tip = data.site(TOOL).xpos
        if deep or tip[2] < 0.05 * arm.reach_m or float(data.xpos[links, 2].min()) < -_DEEP_M:
            continue
        off = float(np.linalg.norm(tip - want))
        if best is None or off < best[0]:
            best = off, q
    if best is None:
        raise SceneError(
            "no pose was found at which the arm stands over its table without touching it; give"
            " home, or look whether the base's frame is at its foot with z up"
        )
    q = tuple(round(float(v), 4) for v in best[1])
    return q, "over the table, where nothing touches"


def _document(
    name: str, source: Source, arm: Arm, home: tuple[float, ...], action: str, assumed: list[Any]
) -> dict[str, Any]:
    joints, r = list(arm.chain.joints), arm.reach_m
    if action == ACTIONS[0]:
        limits = {"unit": "rad", "low": list(arm.low), "high": list(arm.high)}
    else:
        side = [round(1.1 * r, 4)] * 3
        limits = {**_POSE, "low": [-v for v in side] + [-1.0] * 4, "high": [*side, *[1.0] * 4]}
    around = round(0.1 * r, 4)
    height = round(_cube(arm), 5)
    return {
        "schema": SCHEMA,
        "name": name,
        "description": f"The arm of {source.path.name} at a table with one cube; no task.",
        "robot": {"name": source.spec.modelname or name, "description": f"from {source.path.name}"},
        "rate_hz": _RATE_HZ,
        "physics": {"timestep_s": _STEP_S, "max_speed": 50},
        "frames": {"table": "table"},
        "signals": _signals(joints),
        "actions": [{"name": action, **limits}],
        "control": {
            "kind": "arms",
            "arms": [
                {
                    "arm": OWN,
                    "action": action,
                    "joints": joints,
                    "actuators": joints,
                    "base": arm.chain.base,
                    "tool": TOOL,
                    "home": [float(v) for v in home],
                    "max_speed": list(arm.max_speed),
                    "max_acceleration": list(arm.max_acceleration),
                }
            ],
        },
        "cameras": [{"name": n, "width": 256, "height": 256} for n in ("top", "agent")],
        "task": {
            "name": "free",
            "params": {
                "uniform": {
                    "cube/pose": {
                        "low": [round(0.1 * r, 4), -around, height, -3.1],
                        "high": [round(0.25 * r, 4), around, height, 3.1],
                    }
                }
            },
        },
        "reset": {
            "distribution": "uniform",
            "settable": ["cube/pose", "tool/pose", "arm/joint_position"],
        },
        "provenance": {
            "kind": "imported",
            "source": f"{source.kind} {source.path.name}",
            "details": {
                "assumed": assumed,
                "tool_from": arm.chain.tool_from,
                "left_out": [*source.notes, *arm.chain.notes],
            },
        },
    }


def _signals(joints: list[str]) -> list[dict[str, Any]]:
    """What is measured: the joints, the tool and the cube."""
    rows = (
        ("arm/joint_position", "joint_position", joints, {"unit": "rad"}),
        ("arm/joint_velocity", "joint_velocity", joints, {"unit": "rad/s"}),
        ("tool/pose", "site_pose", [TOOL], _POSE),
        ("cube/pose", "body_pose", ["cube"], _POSE),
    )
    return [
        {"name": name, "kind": kind, "of": of, "rate_hz": _RATE_HZ, **unit}
        for name, kind, of, unit in rows
    ]


def _list(values: tuple[float, ...]) -> str:
    return ", ".join(f"{v:.4g}" for v in values)
