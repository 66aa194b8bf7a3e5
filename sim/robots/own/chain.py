"""Finds the arm in a robot description: its base, its joints in order, and its tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco

from robolearn.errors import SceneError, did_you_mean
from sim.robots.own.source import Source

_HINGE, _SLIDE = mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE
# Frames that people put where a tool is, the likeliest first.
_TOOLS = (
    *("tool", "tcp", "tool0", "tool_center_point", "ee", "ee_link", "end_effector"),
    *("attachment_site", "gripper_frame_link", "grasp", "hand", "flange"),
)
TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Chain:
    """Names of the base's body, the joints of the arm, and what the tool's frame was taken from;
    what is left out or was assumed, in sentences.
    """

    base: str
    joints: tuple[str, ...]
    tool_from: str
    assumed: tuple[str, ...]
    notes: tuple[str, ...]


def make_chain(source: Source, tool: str = "") -> Chain:
    """Reduce the robot to one chain of hinges from a base to ``tool`` (a body or site; "": found),
    where a site ``tool`` is put. Other joints stand still from here on.

    Raises :class:`SceneError` for what is no such arm.
    """
    spec, at = source.spec, f"'{source.path}'"
    for k, body in enumerate(spec.bodies):
        body.name = body.name or f"body_{k}"
    for k, joint in enumerate(spec.joints):
        joint.name = joint.name or f"joint_{k}"
    base = _base(spec, at)
    assumed: list[str] = []
    if tool:
        frame = _named(spec, tool, at)
        path = _up(_body_of(frame), base, at)
        arm = [j for b in path for j in b.joints]
    else:
        path = _follow(base)
        frame, end = _likely_tool(path)
        arm = [j for b in path[: end + 1] for j in b.joints]
        assumed.append(f"the tool is at '{frame.name}'")
    _require_hinges(arm, source, at)
    names = tuple(str(j.name) for j in arm)
    notes = _stand_still(spec, set(names))
    notes += _alone(spec, base)
    tool_from = str(frame.name)
    _mark_tool(spec, frame)
    return Chain(str(base.name), names, tool_from, tuple(assumed), tuple(notes))


def _base(spec: mujoco.MjSpec, at: str) -> Any:
    roots = [b for b in spec.worldbody.bodies if _joints_below(b)]
    if not roots:
        raise SceneError(f"{at} has no joint that moves anything")
    if len(roots) > 1:
        raise SceneError(
            f"{at} has several things that move ({[b.name for b in roots]}); give one arm, without"
            " the objects around it"
        )
    return roots[0]


def _joints_below(body: Any) -> int:
    return len(body.joints) + sum(_joints_below(child) for child in body.bodies)


def _named(spec: mujoco.MjSpec, name: str, at: str) -> Any:
    for thing in (spec.body(name), spec.site(name)):
        if thing is not None:
            return thing
    known = [str(x.name) for x in (*spec.bodies, *spec.sites) if x.name and x.name != "world"]
    raise SceneError(
        f"{at} has no body or site '{name}' for the tool.{did_you_mean(name, known)} It has:"
        f" {known}"
    )


def _body_of(frame: Any) -> Any:
    return frame.parent if isinstance(frame, mujoco.MjsSite) else frame


def _up(body: Any, base: Any, at: str) -> list[Any]:
    path: list[Any] = []
    while body.name != "world":
        path.append(body)
        if body.name == base.name:
            return path[::-1]
        body = body.parent
    raise SceneError(f"{at}: the tool's frame does not hang on '{base.name}', which moves")


def _follow(base: Any) -> list[Any]:
    """From the base outwards, as long as one way alone leads to more hinges."""
    path, body = [base], base
    while True:
        ahead = [child for child in body.bodies if _joints_below(child)]
        if len(ahead) != 1 or any(j.type == _SLIDE for j in ahead[0].joints):
            return path
        body = ahead[0]
        path.append(body)


def _likely_tool(path: list[Any]) -> tuple[Any, int]:
    """A frame with a usual name and the index of the link that it is fixed to, the outermost one
    that has any: a jaw turns behind it. Else the last link's own frame.
    """
    for end in range(len(path) - 1, 0, -1):
        frames: list[Any] = []
        waiting = [path[end]]
        while waiting:
            body = waiting.pop()
            frames += [body, *body.sites]
            waiting += [b for b in body.bodies if not b.joints]
        for name in _TOOLS:
            for frame in frames:
                if str(frame.name).lower().removesuffix("_site") in (name, f"{name}_link"):
                    return frame, end
    return path[-1], len(path) - 1


def _require_hinges(arm: list[Any], source: Source, at: str) -> None:
    for joint in arm:
        if joint.type != _HINGE:
            kind = joint.type.name.removeprefix("mjJNT_").lower()
            raise SceneError(
                f"{at}: joint '{joint.name}' is a {kind} joint; arms here have revolute joints only"
                + (". Fix the base to the world" if kind == "free" else "")
            )
        if joint.name in source.bound:
            raise SceneError(
                f"{at}: joint '{joint.name}' follows another one; joints of an arm move by"
                " themselves"
            )
    if len(arm) < 2:
        raise SceneError(
            f"{at}: {len(arm)} joint(s) between base and tool; name the tool's body or site"
        )


def _stand_still(spec: mujoco.MjSpec, arm: set[str]) -> list[str]:
    """Remove joints that are not the arm's, and everything that is about joints."""
    notes: list[str] = []
    others = [j for j in spec.joints if j.name not in arm]
    if others:
        notes.append(
            f"{', '.join(str(j.name) for j in others)} stand(s) still: not between base and tool"
        )
    for thing in (
        *(*spec.keys, *spec.sensors, *spec.equalities, *spec.tendons, *spec.actuators),
        *(*spec.pairs, *spec.excludes, *others),
    ):
        spec.delete(thing)
    return notes


def _alone(spec: mujoco.MjSpec, base: Any) -> list[str]:
    """Remove what stands around the arm."""
    world = spec.worldbody
    around = [b for b in world.bodies if b.name != base.name]
    around += [*world.geoms, *world.sites, *world.cameras, *world.lights]
    for thing in around:
        spec.delete(thing)
    return [f"{len(around)} thing(s) beside the arm are left out"] if around else []


def _mark_tool(spec: mujoco.MjSpec, frame: Any) -> None:
    """A site ``tool`` at the frame; another one of that name gives way."""
    for site in spec.sites:
        if site.name == TOOL:
            site.name = "tool_before"
    if isinstance(frame, mujoco.MjsSite):
        frame.name = TOOL
    else:
        frame.add_site(name=TOOL)
