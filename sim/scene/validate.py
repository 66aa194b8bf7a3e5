"""Checks a scene package against its compiled model: everything that can be wrong before an env.

It stands above controllers, cameras and tasks, which check their own parts of ``scene.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import mujoco
import numpy as np

from robolearn.errors import SceneError, did_you_mean
from sim.control.planar import require_controller
from sim.env.force_stop import force_stop
from sim.rendering.cameras import check_cameras
from sim.scene.config import FRAMED, UNPHYSICAL, Scene, SceneConfig, SignalConfig, require_name
from sim.tasks.registry import build_task, derived_signal


def validate(scene: Scene, model: mujoco.MjModel) -> None:
    """Check every reference of ``scene.yaml`` against the compiled model."""
    config, where = scene.config, f"{scene.path}/scene.yaml"
    _check_times(config, model, where)
    for frame, site in config.frames.items():
        require_name(model, mujoco.mjtObj.mjOBJ_SITE, site, f"{where}: frames.{frame}")
    for signal in config.signals:
        _check_signal(signal, config, model, where)
    for action in config.actions:
        _require_frame(action.frame, config, f"{where}: action {action.name}")
        if len(action.low) != len(action.high) or not np.all(
            np.array(action.low) < np.array(action.high)
        ):
            raise SceneError(f"{where}: action {action.name}: low must be below high, per value")
    signals = [s.name for s in config.signals]
    for name in config.reset.settable:
        _require_member(name, signals, f"{where}: reset.settable", "signal")
    check_cameras(scene, model, where)
    task = build_task(config.task.name, config.task.params, where)
    _require_member(
        config.reset.distribution, task.distributions, f"{where}: reset", "distribution"
    )
    require_controller(config.control, where)
    force_stop(config, model)


def check_bodies(folder: Path, model: mujoco.MjModel) -> None:
    """Masses and inertias that rigid bodies can have; MuJoCo's repair of others is refused."""
    where = f"{folder}/scene.xml"
    if mujoco.MjSpec.from_file(str(folder / "scene.xml")).compiler.balanceinertia:
        raise SceneError(
            f"{where}: <compiler balanceinertia> replaces inconsistent inertias silently; remove it"
            " and correct them"
        )
    for body in range(1, model.nbody):
        name = model.body(body).name or f"number {body}"
        inertia = np.sort(model.body_inertia[body])
        if model.body_jntnum[body] > 0 and float(model.body_subtreemass[body]) <= 0.0:
            raise SceneError(f"{where}: body '{name}' moves without any mass; give it some")
        if inertia[2] > (inertia[0] + inertia[1]) * (1.0 + 1e-3) + 1e-12:
            raise SceneError(
                f"{where}: body '{name}' has principal inertias {inertia.tolist()} kg m^2; none may"
                " be larger than the sum of the others"
            )


def _check_times(config: SceneConfig, model: mujoco.MjModel, where: str) -> None:
    step = config.physics.timestep_s
    if not np.isclose(step, model.opt.timestep, rtol=1e-12):
        raise SceneError(
            f"{where}: physics.timestep_s is {step}, scene.xml says {model.opt.timestep};"
            " make them equal"
        )
    if not config.rate_hz > 0 or not step > 0:
        raise SceneError(
            f"{where}: rate_hz and timestep_s must be positive, got {config.rate_hz:g}, {step:g}"
        )
    if not np.isclose(config.substeps * step * config.rate_hz, 1.0, rtol=1e-9):
        raise SceneError(
            f"{where}: a tick of {1 / config.rate_hz:g} s is not a whole number of {step} s steps"
        )
    late = config.control_delay_s / step
    if late < 0.0 or abs(late - round(late)) > 1e-6:
        raise SceneError(
            f"{where}: control_delay_s {config.control_delay_s:g} must be a whole number of"
            f" {step:g} s steps"
        )
    if not 0.0 <= config.control_smoothing_s < 1.0:
        raise SceneError(
            f"{where}: control_smoothing_s must be in [0, 1) s, got {config.control_smoothing_s:g}"
        )
    for signal in config.signals:
        if signal.delay_s < 0.0:
            raise SceneError(f"{where}: signal {signal.name}: delay_s must not be negative")
        steps = 1.0 / (signal.rate_hz * step) if signal.rate_hz > 0 else 0.0
        if steps < 0.999 or abs(steps - round(steps)) > 1e-6 or config.substeps % round(steps):
            raise SceneError(
                f"{where}: signal {signal.name}: rate_hz {signal.rate_hz:g} must be a multiple of"
                f" {config.rate_hz:g} that divides {1 / step:g}"
            )


def _check_signal(
    signal: SignalConfig, config: SceneConfig, model: mujoco.MjModel, where: str
) -> None:
    at = f"{where}: signal {signal.name}"
    kinds = {
        "site_xy": mujoco.mjtObj.mjOBJ_SITE,
        "body_pose_xy": mujoco.mjtObj.mjOBJ_BODY,
        "site_pose": mujoco.mjtObj.mjOBJ_SITE,
        "body_pose": mujoco.mjtObj.mjOBJ_BODY,
        "joint_position": mujoco.mjtObj.mjOBJ_JOINT,
        "joint_velocity": mujoco.mjtObj.mjOBJ_JOINT,
        "joint_sum": mujoco.mjtObj.mjOBJ_JOINT,
    }
    if not signal.of:
        raise SceneError(f"{at}: 'of' is empty; it names what the {signal.kind} is read from")
    if signal.kind in UNPHYSICAL:
        _check_unphysical(signal, config, model, at)
        return
    for name in signal.of:
        require_name(model, kinds[signal.kind], name, at)
    if signal.kind in FRAMED:
        if len(signal.of) != 1:
            raise SceneError(f"{at}: {signal.kind} reads one object, got {list(signal.of)}")
        _require_frame(signal.frame, config, at, required=True)


def _check_unphysical(
    signal: SignalConfig, config: SceneConfig, model: mujoco.MjModel, at: str
) -> None:
    if signal.kind == "derived":
        derived_signal(config.task.name, signal.name, at)
        if signal.rate_hz != config.rate_hz:
            raise SceneError(f"{at}: a derived signal has the control rate, {config.rate_hz:g} Hz")
        return
    needed = sum(len(s.of) for s in config.signals if s.kind == "given")
    if model.nuserdata < needed:
        raise SceneError(
            f'{at}: given signals need <size nuserdata="{needed}"/> in scene.xml, it has'
            f" {model.nuserdata}"
        )


def _require_frame(frame: str, config: SceneConfig, at: str, *, required: bool = False) -> None:
    if frame or required:
        _require_member(frame, config.frames, at, "frame")


def _require_member(name: str, options: Iterable[str], at: str, kind: str) -> None:
    known = list(options)
    if name not in known:
        raise SceneError(f"{at}: no {kind} '{name}'.{did_you_mean(name, known)} Known: {known}")
