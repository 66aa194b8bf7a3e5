"""Prints what was found of an arm, by ``robolearn identify`` of what moves or was recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.cli.shared.consent import ask, wait_for_enter
from robolearn.cli.shared.parse import counting, print_json, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.operations.scenes.identify_arm import ArmIdentifyResult
    from sim.identification.arm_identify import ArmErrors, ArmIdentified, Found
    from sim.identification.gripper_motion import FoundGripper
    from sim.identification.object_forces import Told
    from sim.identification.object_model import FoundObject


@dataclass(frozen=True, slots=True)
class Moving:
    """How a cell's arm is moved."""

    robot: Path
    scene: str
    seconds: float
    seed: int
    start_lab: bool
    yes: bool
    force_stop: bool


def moved(options: Moving, out: Path, *, json: bool) -> int:
    """Move the arm, identify it, write the scene."""
    from robolearn.operations.cell.operator import CellOperator
    from robolearn.operations.scenes.identify_arm import identify_cell

    yes = options.yes
    operator = CellOperator(partial(ask, yes=yes), None if yes else wait_for_enter)
    with counting("moving", quiet=json) as show:
        result = identify_cell(
            options.robot,
            out,
            operator,
            scene=options.scene,
            seconds=options.seconds,
            seed=options.seed,
            start_lab=options.start_lab,
            force_stop=options.force_stop,
            on_note=lambda text: say(text, quiet=json),
            on_moved=show,
        )
    return _tell(result, json=json)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is said of an arm that was recorded."""

    scene: str
    out: Path
    seed: int
    cell: Path | None
    force_stop: bool


def recorded(store: Path, told: Recorded, *, json: bool) -> int:
    """Identify the arm from a store, write the scene."""
    from robolearn.operations.scenes.identify_arm import identify_episodes

    return _from_record(identify_episodes, store, told, json=json)


def captured(capture: Path, told: Recorded, *, json: bool) -> int:
    """Identify the arm from the motion of a capture, write the scene."""
    from robolearn.operations.scenes.identify_arm import identify_capture

    return _from_record(identify_capture, capture, told, json=json)


def _from_record(
    identify: Callable[..., ArmIdentifyResult], record: Path, told: Recorded, *, json: bool
) -> int:
    if not told.scene:
        raise ConfigError("--scene is missing: the scene whose arm was recorded")
    from sim.identification.arm_fit import FitConfig
    from sim.identification.arm_identify import ArmIdentifyConfig

    def note(text: str) -> None:
        say(text, quiet=json)

    result = identify(
        record,
        told.scene,
        told.out,
        settings=ArmIdentifyConfig(FitConfig(seed=told.seed)),
        cell=told.cell,
        force_stop=told.force_stop,
        on_note=note,
    )
    return _tell(result, json=json)


def _tell(result: ArmIdentifyResult, *, json: bool) -> int:
    if json:
        from sim.identification.gripper_motion import gripper_document
        from sim.identification.object_model import objects_document
        from sim.identification.write_arm_scene import arm_document

        cameras = {
            name: {"latency_s": c.latency_s, "error_s": c.error_s, "correlation": c.correlation}
            for name, c in result.cameras.items()
        }
        print_json(
            {
                "scene": str(result.out),
                "scene_hash": result.scene.content_hash,
                **arm_document(result.found),
                "objects": objects_document(result.objects),
                "gripper": gripper_document(result.gripper),
                "camera_behind_joints": cameras,
            }
        )
        return 0
    found = result.found
    width = max(len(f.name) for f in found.found)
    for f in found.found:
        say(_line(f, width))
    _show_limits(found)
    for thing in result.objects:
        say(f"mass of {thing.before.signal}: {_told(thing.mass, thing.before.mass_kg, 'kg')}")
        friction = _told(thing.friction, thing.before.friction_n, "N")
        say(f"friction of {thing.before.signal} on the table: {friction}{_coefficient(thing)}")
    if result.gripper is not None:
        _show_gripper(result.gripper)
    for name, c in result.cameras.items():
        say(f"{name} is {1e3 * c.latency_s:.1f} +- {1e3 * c.error_s:.1f} ms behind the joints")
    say(f"delay from a set-point to its effect: {1e3 * found.delay_s:.1f} ms, smoothing included")
    say(f"held out ({found.held_out_s:.0f} s), the scene as it was: {_errors(found.before)}")
    say(f"held out ({found.held_out_s:.0f} s), identified:         {_errors(found.after)}")
    worst = max(found.hysteresis_deg, key=lambda k: found.hysteresis_deg[k])
    say(
        f"left over between the two ways of a joint (backlash): at most"
        f" {found.hysteresis_deg[worst]:.3f} deg, of {worst.replace('_', ' ')}"
    )
    for note in found.notes:
        say(f"note: {note}")
    say(f"{found.rollouts} rollouts of {found.fit_s:.0f} s in {found.duration_s:.0f} s")
    say(f"scene package: {result.out}")
    return 0


def _line(f: Found, width: int) -> str:
    scale, unit = (1e3, "ms") if f.unit == "s" else (1.0, f.unit)
    told = f"{f.name:<{width}}  {scale * f.before:>9.4g} -> {scale * f.after:<9.4g} {unit:<10}"
    if f.status == "assumed":
        fits = "" if f.low == f.high else f", {scale * f.low:.3g} to {scale * f.high:.3g} would do"
        return f"{told}  assumed: the motion does not tell it{fits}"
    between = f"95 %: {scale * f.low:.4g} to {scale * f.high:.4g}"
    return f"{told}  {between}" + ("" if f.status == "identified" else "  (see below)")


def _show_limits(found: ArmIdentified) -> None:
    """What the data cannot tell apart, in words."""
    for f in found.found:
        if f.status != "ratio":
            continue
        partners = " and ".join(f.partners[:2]) or "several others"
        say(f"{f.name} is told only together with {partners}: by itself it is not known")


def _show_gripper(found: FoundGripper) -> None:
    if not found.known:
        why = next(t.why for t in (found.delay, found.speed) if t.status == "assumed")
        say(f"drive of {found.signal}: as the scene has it: {why}")
        return
    delay, speed = found.delay, found.speed
    say(
        f"delay of {found.signal}: {1e3 * delay.value:.0f} ms  95 %: {1e3 * delay.low:.0f} to"
        f" {1e3 * delay.high:.0f}, {delay.count} strokes"
    )
    say(
        f"speed of {found.signal}: {speed.value:.3g} m/s  95 %: {speed.low:.3g} to"
        f" {speed.high:.3g}; {1e3 * found.error_m:.1f} mm left over"
    )


def _told(told: Told, before: float, unit: str) -> str:
    if told.status == "assumed":
        return f"{before:.4g} {unit}, assumed: {told.why}"
    between = f"95 %: {told.low:.4g} to {told.high:.4g}, {told.count} times"
    return f"{before:.4g} -> {told.value:.4g} {unit}  {between}"


def _coefficient(thing: FoundObject) -> str:
    if thing.status == "assumed":
        return ""
    only = "" if thing.status == "identified" else ", if it weighs what the scene says"
    return f"; {thing.coefficient:.3g} of its weight{only}"


def _errors(errors: ArmErrors) -> str:
    worst = max(errors.joint_deg, key=lambda k: errors.joint_deg[k])
    return (
        f"tool {errors.tool_mm:.2f} mm, worst joint {errors.joint_deg[worst]:.3f} deg"
        f" ({worst.replace('_', ' ')})"
    )
