"""Identifies the arm of a cell, by moving it, or from what was recorded of it (episodes, or the
motion of a capture), and writes the scene.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.cell.motion import JOINT_POSITION, JOINT_SETPOINT
from hardware.commissioning.excite import Excited, excitation_cell, excite
from hardware.commissioning.no_task import NoScore, clear_table
from hardware.env.real_env import RealEnv
from robolearn.arms.models import named_arm
from robolearn.calibration.latency import Latency, TimeSeries, latency, principal_motion
from robolearn.capture.clocks import joint_table
from robolearn.capture.folder import read_capture
from robolearn.data.episode import Episode
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.cell.lab import cell_lab
from robolearn.operations.cell.operator import CellOperator
from robolearn.operations.scenes.handled_objects import found_objects, handled_episodes
from robolearn.operations.scenes.known_of_cell import known_of, recorded_in
from robolearn.operations.scenes.recorded_gripper import recorded_gripper
from robolearn.shapes import FloatRows
from sim.identification.arm_excitation import (
    Excitation,
    ExcitationConfig,
    Room,
    informed,
    multisine,
)
from sim.identification.arm_identify import ArmIdentified, ArmIdentifyConfig, identify_arm
from sim.identification.arm_model import ArmModel
from sim.identification.arm_motion import ArmMotion, require_usable
from sim.identification.gripper_motion import FoundGripper
from sim.identification.object_model import FoundObject
from sim.identification.write_arm_scene import write_identified_arm
from sim.scene.config import Scene
from sim.scene.load import load_scene, packaged_scenes

USUAL = ArmIdentifyConfig()
# More than a minute of motion tells little that a minute does not.
_MOST_S = 60.0
_HELD_OUT_S = 12.0


@dataclass(frozen=True, slots=True)
class ArmIdentifyResult:
    """The scene package that was written to ``out``, what was found of the arm, how late each
    camera is behind the joints (by signal; only of episodes with pictures), and what was found of
    the objects that were handled (only of episodes with forces at the tool) and of the gripper
    (only of episodes, of an arm that has one).
    """

    out: Path
    scene: Scene
    found: ArmIdentified
    cameras: dict[str, Latency]
    objects: tuple[FoundObject, ...] = ()
    gripper: FoundGripper | None = None


def identify_cell(
    config: Path,
    out: Path,
    operator: CellOperator,
    *,
    scene: str = "",
    seconds: float = _MOST_S,
    seed: int = 0,
    start_lab: bool = False,
    settings: ArmIdentifyConfig = USUAL,
    force_stop: bool = False,
    on_note: Callable[[str], None] | None = None,
    on_moved: Callable[[int, int], None] | None = None,
) -> ArmIdentifyResult:
    """Move the arm of a file of ``configs/hardware/`` for ``seconds`` [s] and a few more to check
    on, and identify it in ``scene`` ("": the packaged one that is commanded as the cell is).

    The motion is chosen on the scene's model, within the cell's limits, and made under its
    supervisor. A scene that is commanded as the cell is, by the tool's pose, gets the cell's limits
    of the tool; with ``force_stop`` episodes in it end where the cell stops the robot for its
    force. ``on_note``: told in a sentence what is done; ``on_moved``: (done, of) of control
    ticks.

    Errors: :class:`ConfigError`, also when the operator does not agree; :class:`DataError` for a
    motion that tells too little; those of the devices. Nothing is written then.
    """
    if not 10.0 <= seconds <= 600.0:
        raise ConfigError(f"seconds must be in [10, 600], got {seconds:g}")
    tell: Callable[[str], None] = on_note or _silent
    cell = load_cell(config)
    still = excitation_cell(cell)
    template = load_scene(scene or _scene_of(cell))
    known = known_of(cell, template, force_stop=force_stop)
    model = ArmModel(template)
    if model.arm.name != cell.arm:
        raise ConfigError(
            f"scene '{template.name}' has the arm {model.arm.name}, the cell {cell.arm}; name"
            " another one with 'scene'"
        )
    room = room_of(still)
    tell("choosing a motion")
    planned = informed(room, model, ExcitationConfig(seconds=seconds, seed=seed))
    check = multisine(room, _HELD_OUT_S, seed=seed + 1, lines=7)
    with ExitStack() as stack:
        lab = stack.enter_context(cell_lab(config, cell, start=start_lab))
        operator.consent(
            f"the arm moves in all joints for {planned.seconds + check.seconds:.0f} s, by up to"
            f" {np.degrees(np.abs(planned.q - room.home).max()):.0f} degrees about a pose high over"
            " the table"
        )
        env = RealEnv(still, place=clear_table(still, lab, operator.place), scorer=NoScore())
        stack.callback(env.close)
        motions = _move(env, [planned, check], on_moved)
        env.home()
    tell("fitting")
    found = identify_arm(motions[:1], template, settings, motions[1:], tell)
    written = write_identified_arm(
        found, template, settings, out, source=f"cell {cell.name}", of_cell=known
    )
    return ArmIdentifyResult(out, written, found, {})


def identify_episodes(
    store: Path,
    scene: str,
    out: Path,
    *,
    episodes: int | None = None,
    settings: ArmIdentifyConfig = USUAL,
    cell: Path | None = None,
    force_stop: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> ArmIdentifyResult:
    """Identify the arm of ``scene`` from what a store recorded of set-points and joints, of the
    first ``episodes`` (None: all) up to a minute; a fifth of them is checked on. Mass and friction
    of objects are found from all of these episodes that recorded forces at the tool, delay and
    speed of the gripper from all that recorded its width. ``cell``, ``force_stop``: as in
    :func:`recorded_in`.

    Episodes without joints or set-points, with holes or of another arm are left out and named.
    Errors: :class:`DataError` where nothing is left, or the arm hardly moves; :class:`ConfigError`,
    :class:`SceneError`. Nothing is written then.
    """
    if episodes is not None and episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {episodes}")
    template = load_scene(scene)
    known, unknown = recorded_in(cell, template, force_stop=force_stop)
    model = ArmModel(template)
    opened = EpisodeStore.open(store)
    ids = opened.ids()[:episodes]
    if not ids:
        raise DataError(f"'{store}' has no episodes")
    tell: Callable[[str], None] = on_note or _silent
    recorded, motions, left_out = _usable(opened, ids, model, settings.held_out)
    for text in left_out:
        tell(text)
    found = identify_arm(motions, template, settings, note=tell)
    cameras = _camera_latencies(recorded)
    handled = handled_episodes(opened, ids, template)
    objects, notes = found_objects(handled, template)
    gripper, said = recorded_gripper(opened, ids, template)
    found = dataclasses.replace(found, notes=(*left_out, *found.notes, *notes, *said, *unknown))
    source = f"store {store.name}"
    written = write_identified_arm(found, template, settings, out, source, objects, gripper, known)
    return ArmIdentifyResult(out, written, found, cameras, objects, gripper)


def identify_capture(
    folder: Path,
    scene: str,
    out: Path,
    *,
    settings: ArmIdentifyConfig = USUAL,
    cell: Path | None = None,
    force_stop: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> ArmIdentifyResult:
    """Identify the arm of ``scene`` from the motion that a capture keeps (``motion/``); a part of
    it is checked on. ``cell``, ``force_stop``: as in :func:`recorded_in`.

    Errors: :class:`ConfigError` for a folder without a motion, or of another arm;
    :class:`DataError` where it tells too little; :class:`SceneError`. Nothing is written then.
    """
    tell: Callable[[str], None] = on_note or _silent
    capture = read_capture(folder)
    template = load_scene(scene)
    known, unknown = recorded_in(cell, template, force_stop=force_stop)
    arm, wanted = capture.config.arm, ArmModel(template).arm.name
    if arm is not None and arm.model and arm.model != wanted:
        raise ConfigError(
            f"scene '{template.name}' has the arm {wanted}, the capture {arm.model}; name another"
            " one with 'scene'"
        )
    files = [folder / "motion" / f"{name}.csv" for name in ("sent", "measured")]
    missing = [str(f.relative_to(folder)) for f in files if not f.is_file()]
    if missing:
        raise ConfigError(
            f"'{folder}' has no {' and no '.join(missing)}: capture it with excite_s=60, or let the"
            " arm be moved for it"
        )
    (sent_t_s, sent), (t_s, q) = (joint_table(f) for f in files)
    start_s = float(t_s[0])
    motion = ArmMotion(f"of {folder.name}", sent_t_s - start_s, sent, t_s - start_s, q)
    found = identify_arm([motion], template, settings, note=tell)
    found = dataclasses.replace(found, notes=(*found.notes, *unknown))
    source = f"capture {folder.name}"
    written = write_identified_arm(found, template, settings, out, source, of_cell=known)
    return ArmIdentifyResult(out, written, found, {})


def _usable(
    store: EpisodeStore, ids: Sequence[str], model: ArmModel, held_out: float
) -> tuple[list[Episode], list[ArmMotion], tuple[str, ...]]:
    """The first episodes that tell something, as long as is needed; of the others why not.

    Raises :class:`DataError` where none does.
    """
    recorded: list[Episode] = []
    motions: list[ArmMotion] = []
    left_out: list[str] = []
    seconds = 0.0
    for name in ids:
        episode = store.read(name)
        try:
            motion = motion_of(episode, model.arm.dof)
            require_usable(motion, model.arm)
        except DataError as error:
            left_out.append(f"left out: {error}")
            continue
        recorded.append(episode)
        motions.append(motion)
        seconds += motion.span_s[1] - motion.span_s[0]
        if seconds > _MOST_S * (1.0 + held_out):
            break
    if not motions:
        first = left_out[0].partition(": ")[2]
        raise DataError(f"none of {len(left_out)} episodes can be used; the first: {first}")
    return recorded, motions, tuple(left_out)


def _silent(text: str) -> None:
    """Nobody is told."""
    del text


def motion_of(episode: Episode, joints: int) -> ArmMotion:
    """The motion in an episode. :class:`DataError` without joints or what they were told."""
    name = f"episode {episode.id}"
    measured = episode.streams.get(JOINT_POSITION)
    if measured is None:
        raise DataError(
            f"{name} has no signal '{JOINT_POSITION}', so nothing tells how the arm moved; it has"
            f" {sorted(episode.streams)}"
        )
    told = episode.streams.get(JOINT_SETPOINT)
    if told is not None:
        sent_t_ns, sent, was_sent = told.t_ns, told.value, told.valid
    elif JOINT_POSITION in episode.sent.action and len(episode.sent.t_ns):
        sent_t_ns, sent = episode.sent.t_ns, episode.sent.action[JOINT_POSITION]
        was_sent = np.ones(len(sent), dtype=np.bool_)
    else:
        raise DataError(
            f"{name} has no signal '{JOINT_SETPOINT}' and no sent '{JOINT_POSITION}', so nothing"
            f" tells what the joints were told; it has {sorted(episode.streams)}. Record it anew"
            " with this version, or let the arm be moved for it"
        )
    for what, rows in ((JOINT_POSITION, measured.value), ("set-points", sent)):
        if rows.ndim != 2 or rows.shape[1] != joints:
            raise DataError(
                f"{name}: {what} have the shape {rows.shape[1:]}, the scene's arm has {joints}"
                " joints: they are of another arm"
            )
    start_ns = int(measured.t_ns[0]) if len(measured.t_ns) else 0
    # Samples that were lost leave a gap in the times, at which motions are cut.
    there = measured.valid
    return ArmMotion(
        name,
        (sent_t_ns[was_sent] - start_ns) * 1e-9,
        sent[was_sent].astype(np.float64),
        (measured.t_ns[there] - start_ns) * 1e-9,
        measured.value[there].astype(np.float64),
    )


def room_of(cell: CellConfig) -> Room:
    """Where the supervisor of a cell in joint space lets its arm be."""
    space = cell.joints
    if space is None:
        raise ConfigError(f"cell '{cell.name}' is not commanded in joint space")
    limits, recipe = space.limits, cell.follower()
    guard = recipe.guard(500.0)
    fastest = float("inf") if space.max_tool_speed is None else 0.9 * space.max_tool_speed
    return Room(
        named_arm(cell.arm),
        np.array(space.home),
        np.array(limits.low),
        np.array(limits.high),
        np.array(limits.speed),
        np.array(limits.acceleration),
        tool_m=space.tool_length_m,
        tool_speed=fastest,
        collision=None if guard is None else guard.model,
    )


def _scene_of(cell: CellConfig) -> str:
    """The packaged scene that is commanded as the cell is."""
    wanted = f"pusht_{cell.arm}" if cell.table is not None else f"{cell.arm}_table"
    if wanted not in packaged_scenes():
        raise ConfigError(
            f"no packaged scene has a {cell.arm} as this cell has it ('{wanted}'); name one with"
            f" 'scene'. Packaged: {packaged_scenes()}"
        )
    return wanted


def _move(
    env: RealEnv,
    motions: list[Excitation],
    on_moved: Callable[[int, int], None] | None,
) -> list[ArmMotion]:
    ticks = sum(round(m.seconds * env.spec.rate_hz) + 1 for m in motions)
    done = itertools.count()

    def moved() -> None:
        if on_moved is not None:
            on_moved(min(next(done), ticks), ticks)

    moved()
    out: list[ArmMotion] = []
    for name, planned in zip(("excitation", "check"), motions, strict=True):
        rows = excite(env, planned.q, planned.rate_hz, moved)
        out.append(_motion(name, rows))
    return out


def _motion(name: str, rows: Excited) -> ArmMotion:
    start_s = float(rows.measured_t_s[0])
    return ArmMotion(
        *(name, rows.sent_t_s - start_s, rows.sent),
        *(rows.measured_t_s - start_s, rows.measured),
    )


def _camera_latencies(episodes: list[Episode]) -> dict[str, Latency]:
    """How late pictures are behind the joints, of the first episode that tells; a camera whose
    pictures do not follow the arm is left out.
    """
    found: dict[str, Latency] = {}
    for episode in episodes:
        joints = episode.streams[JOINT_POSITION]
        # Samples that did not come are zeros, or no numbers.
        there = joints.valid & np.isfinite(joints.value).all(axis=1)
        q = np.asarray(joints.value[there], dtype=np.float64)
        for signal, stream in episode.streams.items():
            if stream.value.ndim != 4 or signal in found:
                continue
            around: FloatRows = q - q.mean(axis=0)
            _, vectors = np.linalg.eigh(around.T @ around)
            along: FloatRows = around @ np.asarray(vectors[:, -1:], dtype=np.float64)
            try:
                late = latency(
                    TimeSeries(joints.t_ns[there] * 1e-9, along),
                    TimeSeries(
                        stream.t_ns[stream.valid] * 1e-9,
                        principal_motion(stream.value[stream.valid]),
                    ),
                    any_sign=True,
                )
            except DataError:
                continue
            if np.isfinite(late.error_s):
                found[signal] = late
    return found
