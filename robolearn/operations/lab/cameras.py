"""Runs the lab's cameras: a process each, which draws (MuJoCo) and serves (MJPEG over HTTP).

The lab's thread leaves the state of the world in shared memory and never waits for a picture.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Literal, Protocol, runtime_checkable

import cv2
import numpy as np

from hardware.emulators.film import LEAST, Film
from hardware.emulators.mjpeg import COUNTED, CameraEmulator
from hardware.emulators.sensor import CameraEmulatorConfig, Exposure, Sensor
from hardware.supervisor.shared_memory import Ring, RingHandle
from robolearn.arms.models import UR5E
from robolearn.arms.shapes import Joints
from robolearn.errors import (
    ConfigError,
    DataError,
    RobolearnError,
    RobotConnectionError,
    did_you_mean,
)
from robolearn.geometry import ObjectPose, Pose, inverse
from robolearn.seeding import child_seed
from robolearn.shapes import Floats
from sim.plants.bracket import Bracket
from sim.plants.look import Hidden, Look, TrueCamera
from sim.plants.person import ARM_DOINGS, DOINGS, Carrying, Person
from sim.plants.printed import PrintedBoard
from sim.plants.pusht import BLOCK
from sim.plants.scene import ScenePlantConfig
from sim.plants.scene_look import SceneLook
from sim.plants.table_view import TableView, TableViewConfig
from sim.scene.load import load_scene

log = logging.getLogger(__name__)
_SLOTS, _START_S = 16, 200.0
# Most pictures of a film: they are kept decoded, too, a megabyte each.
_FILM = 120
# How far its arm sways [rad], and how often while it lasts.
_SWAY_RAD, _SWAYS = 0.1, 2


@dataclass(frozen=True, slots=True)
class LabCameraConfig:
    """One camera of a virtual workcell: ``device`` is what serves, and what it sees is a ``view``
    of Push-T's table, or what a camera of the scene sees that draws the workcell (``of_scene``, its
    name there; one that is mounted on the arm moves with it), or one that a ``bracket`` fixes to
    the flange or that is ``carried`` by a person in that scene's pictures.
    """

    device: CameraEmulatorConfig = field(default_factory=CameraEmulatorConfig)
    view: TableViewConfig = field(default_factory=TableViewConfig)
    of_scene: str = ""
    # Of a camera that the scene does not have: where it sits on the arm's flange.
    bracket: Bracket | None = None
    # Or how a person carries it around.
    carried: Carrying | None = None
    # Pictures are drawn at this share of their width and height and enlarged, as by blurred optics:
    # without a GPU, what fills a picture of 640 x 480 takes half of the time of drawing it.
    drawn: float = 1.0
    # How a scene is drawn (docs/rendering.md): with smooth edges ('plain': what a calibration needs
    # of a board), or in a third of the time ('fast').
    quality: Literal["fast", "plain"] = "plain"
    # So many pictures are taken before it serves, of an arm that sways about its first posture, and
    # then shown in a loop: nobody has to draw, and nobody sees what happens. 0: no film.
    film: int = 0
    # The lens: as given, or drawn from the lab's seed around that (5 % of the focal length, and for
    # the principal point 1.5 % of the width), to be found by a calibration.
    intrinsics: Literal["given", "drawn"] = "given"
    # Where it is fixed: as given, or drawn around that (1 cm along each axis, 1.5 deg about each).
    pose: Literal["given", "drawn"] = "given"

    def __post_init__(self) -> None:
        if not 0.1 <= self.drawn <= 1.0:
            raise ConfigError(
                f"lab.cameras: '{self.device.name}': drawn, the share of width and height that is"
                f" drawn, is in [0.1, 1], got {self.drawn}"
            )
        if self.film and not LEAST <= self.film <= _FILM:
            raise ConfigError(
                f"lab.cameras: '{self.device.name}': a film has {LEAST} to {_FILM} pictures (0:"
                f" none is shown), got {self.film}"
            )
        if self.bracket is not None and self.of_scene:
            raise ConfigError(
                f"lab.cameras: '{self.device.name}' is the scene's camera '{self.of_scene}', or one"
                " that a bracket fixes to the flange: give 'of_scene' or 'bracket'"
            )
        if self.carried is not None and (self.bracket is not None or self.of_scene):
            raise ConfigError(
                f"lab.cameras: '{self.device.name}' is carried by a person, so nothing else holds"
                " it: leave 'of_scene' and 'bracket' out"
            )

    @property
    def in_scene(self) -> bool:
        """Whether it sees a scene, and not Push-T's table."""
        return bool(self.of_scene) or self.bracket is not None or self.carried is not None

    @property
    def drawn_px(self) -> tuple[int, int]:
        """Width and height of what is drawn [px]."""
        device = self.device
        return max(8, round(self.drawn * device.width)), max(8, round(self.drawn * device.height))

    def exposure(self, t_ns: int, look: Look) -> Exposure:
        """What is drawn, in the size of the device; edges of pictures coincide."""
        size = self.device.width, self.device.height
        if self.drawn_px == size:
            return Exposure(t_ns, look.picture, look.metres, look.focal_px)
        picture, metres = cv2.resize(look.picture, size, interpolation=cv2.INTER_LINEAR), None
        if look.metres is not None:
            # A mean over an edge would be where nothing is.
            large = cv2.resize(look.metres, size, interpolation=cv2.INTER_NEAREST_EXACT)
            metres = np.asarray(large, np.float32)
        focal_px = look.focal_px * size[0] / self.drawn_px[0]
        return Exposure(t_ns, np.asarray(picture, np.uint8), metres, focal_px)


@dataclass(frozen=True, slots=True)
class Workcell:
    """What every picture shows, and how it stands before the first step."""

    # The table's frame in the arm's base frame ``[4, 4]``.
    T_base_table: Pose
    # From the flange to the tool's tip, or between the fingers [m].
    tool_length_m: float
    # Joint angles [rad].
    home: tuple[float, ...]
    # The objects and their poses, ``[3]`` on the table or ``[7]`` in space.
    objects: tuple[tuple[str, tuple[float, ...]], ...]
    # What draws it for cameras ``of_scene``; None: no scene does.
    scene: ScenePlantConfig | None = None
    # A printed board in the pictures of Push-T's table.
    board: PrintedBoard | None = None

    @property
    def state(self) -> Floats:
        """The state before the first step, as it is left for cameras: joints, objects, opening of
        the fingers [m] (NaN: there are none).
        """
        poses = [v for _, pose in self.objects for v in pose]
        return np.array([*self.home, *poses, math.nan])

    def T_table_flange(self, q: Joints) -> Pose:  # noqa: N802  (a transform)
        """Where the flange is on the table, by joints ``[6]`` [rad]."""
        return inverse(self.T_base_table) @ UR5E.fk(q)

    def require_drawn(self, config: LabCameraConfig) -> None:
        """Raise ConfigError unless something draws what a camera sees."""
        where = f"lab.cameras: '{config.device.name}'"
        if config.bracket is not None or config.carried is not None:
            if self.scene is None:
                raise ConfigError(
                    f"{where}: no scene draws this workcell, so nothing carries a bracket, and"
                    " nobody a camera; describe what it sees with 'view'"
                )
            return
        if not config.of_scene:
            if [name for name, _ in self.objects] != [BLOCK]:
                raise ConfigError(
                    f"{where} looks at Push-T's table, but this workcell has"
                    f" {[name for name, _ in self.objects]}; name a camera of its scene with"
                    " 'of_scene'"
                )
            if self.board is not None:
                self.board.require_other_tags(config.view.tags, config.view.dictionary)
            return
        if self.scene is None:
            raise ConfigError(
                f"{where}: no scene draws this workcell, so there is no camera"
                f" '{config.of_scene}'; describe what it sees with 'view'"
            )
        names = [c.name for c in load_scene(self.scene.scene).config.cameras]
        if config.of_scene not in names:
            raise ConfigError(
                f"{where}: scene '{self.scene.scene}' has no camera"
                f" '{config.of_scene}'.{did_you_mean(config.of_scene, names)} It has: {names}"
            )

    def require_doable(self, config: LabCameraConfig, doing: str) -> None:
        """Raise DataError for what nobody can do by hand with a camera."""
        at = f"camera '{config.device.name}'"
        if doing not in DOINGS:
            raise DataError(
                f"{at}: a person does one of {DOINGS}, got '{doing}'.{did_you_mean(doing, DOINGS)}"
            )
        if doing in ARM_DOINGS:
            self._require_moved(at, config, doing)
            return
        if doing != "turntable" and config.carried is None:
            raise DataError(f"{at} of this lab is fixed: nobody carries it ('carried' is not set)")
        board = self.board
        if doing == "turntable" and not (config.in_scene and board and board.where == "table"):
            raise DataError(
                f"{at}: a person turns a board that lies on the table ('lab.board', 'where: table')"
                " in the pictures of a scene, and there is none"
            )

    def _require_moved(self, at: str, config: LabCameraConfig, doing: str) -> None:
        """Raise DataError for what nobody can move while an arm is captured."""
        if not config.in_scene:
            raise DataError(f"{at} of this lab sees no scene, so nobody moves anything before it")
        board = self.board
        fixed = board is not None and (board.where == "flange" or board.on_flange is not None)
        if doing == "board_on_flange" and not fixed:
            raise DataError(
                f"{at}: nobody can fix a board to the flange of this lab ('on_flange' of"
                " 'lab.board' says where it goes)"
            )


class CameraProcess:
    """A camera that runs elsewhere; satisfies ``hardware.emulators.lab.workcell.LabCamera``."""

    def __init__(
        self, config: LabCameraConfig, workcell: Workcell, address: str, seed: int
    ) -> None:
        self.config, self._workcell = config, workcell
        self._ring = Ring.create(_SLOTS, len(workcell.state))
        self._named = True
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._counts = context.RawArray("q", len(COUNTED))
        self._process = context.Process(
            target=_camera,
            args=(config, workcell, address, seed, self._ring.handle, theirs, self._counts),
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self.port = config.device.port
        # How it really sees; known once it serves.
        self.truth: TrueCamera | None = None

    @property
    def name(self) -> str:
        """The camera's name."""
        return self.config.device.name

    @property
    def counts(self) -> Mapping[str, int]:
        """What became of its pictures, by ``COUNTED``."""
        return dict(zip(COUNTED, self._counts, strict=True))

    def wait(self) -> None:
        """Until it serves; raises what hindered it."""
        answer: Any = f"camera '{self.name}' did not start within {_START_S:g} s"
        try:
            if self._pipe.poll(_START_S):
                answer = self._pipe.recv()
        except EOFError:
            answer = (
                f"the process of camera '{self.name}' ended (exit code {self._process.exitcode})"
            )
        # Attached or gone: the name is needed no more, and nothing is left behind on a kill.
        self._forget_name()
        if isinstance(answer, str):
            raise RobotConnectionError(answer)
        self.port, self.truth = answer

    def see(
        self, t_ns: int, q: Joints, poses: Sequence[ObjectPose], opening_m: float | None
    ) -> None:
        """Leave the state for the camera."""
        opening = math.nan if opening_m is None else opening_m
        self._ring.put(t_ns, np.concatenate([q, *poses, [opening]]))

    def fault(self, kind: str, seconds: float, amount: float) -> None:
        """Pass a fault on."""
        self._pipe.send(("fault", kind, seconds, amount))

    def by_hand(self, doing: str, thing: str, t_ns: int) -> None:
        """A person does something by hand before this camera, or with it, from ``t_ns`` on;
        DataError for what nobody can.
        """
        self._workcell.require_doable(self.config, doing)
        self._pipe.send(("hands", doing, thing, t_ns))

    def close(self) -> None:
        """End the process; safe to call twice."""
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()
        self._forget_name()
        self._ring.close()

    def _forget_name(self) -> None:
        if self._named:
            self._ring.unlink()
            self._named = False


def start_cameras(
    configs: Sequence[LabCameraConfig], workcell: Workcell, address: str, seed: int
) -> list[CameraProcess]:
    """Start all, then wait for all: each takes seconds to begin."""
    cameras: list[CameraProcess] = []
    try:
        for config in configs:
            workcell.require_drawn(config)
            own = child_seed(seed, f"camera {config.device.name}")
            cameras.append(CameraProcess(config, workcell, address, own))
        for camera in cameras:
            camera.wait()
    except BaseException:
        for camera in cameras:
            camera.close()
        raise
    return cameras


def _camera(
    config: LabCameraConfig,
    workcell: Workcell,
    address: str,
    seed: int,
    handle: RingHandle,
    pipe: Connection[Any, Any],
    counts: MutableSequence[int],
) -> None:
    """The camera's process: until the lab ends."""
    from robolearn.machine.process import exit_with_parent

    exit_with_parent()
    # Mesa draws on a thread per core unless told otherwise; they mostly wait for each other.
    os.environ.setdefault("LP_NUM_THREADS", "0")
    ring = handle.attach()
    start, view = workcell.state, drawing(config, workcell, seed)
    own = child_seed(seed, "person")
    person = Person(config.carried, workcell.board, own, workcell.tool_length_m)

    def seen(t_ns: int, state: Floats) -> Exposure:
        poses: dict[str, ObjectPose] = {}
        at = UR5E.dof
        for name, pose in workcell.objects:
            poses[name] = state[at : at + len(pose)]
            at += len(pose)
        opening_m = None if math.isnan(state[at]) else float(state[at])
        held = person.arranged(t_ns, poses, workcell.T_table_flange(state[: UR5E.dof]))
        view.arrange(held.T_table_camera, held.T_table_board)
        return config.exposure(t_ns, view.look(state[: UR5E.dof], held.poses, opening_m))

    def draw() -> Exposure:
        row = ring.latest()
        return seen(0, start) if row is None else seen(row.t_ns, row.value)

    def sway(k: int) -> Exposure:
        swung = start.copy()
        swung[: UR5E.dof] += _SWAY_RAD * math.sin(math.tau * _SWAYS * k / config.film)
        return seen(0, swung)

    try:
        draw()
        rng = np.random.default_rng(seed)
        film = Film.of(Sensor(config.device, rng), sway, config.film) if config.film else None
        emulator = CameraEmulator(config.device, address, draw, rng, film=film)
    except RobolearnError as error:
        view.close()
        pipe.send(str(error))
        return
    pipe.send((emulator.port, view.truth(config.device.width, config.device.height)))

    def stopped() -> bool:
        counts[:] = list(emulator.counts.values())
        try:
            while pipe.poll():
                kind, *rest = pipe.recv()
                (emulator.fault if kind == "fault" else person.begin)(*rest)
        except (EOFError, OSError):
            return True
        return False

    emulator.run(stopped)
    emulator.close()
    view.close()


@runtime_checkable
class Drawing(Protocol):
    """Draws what one camera sees."""

    def look(self, q: Joints, poses: Mapping[str, ObjectPose], opening_m: float | None) -> Look:
        """What it sees of joints ``[6]``, objects, and fingers so far apart."""
        ...

    def arrange(self, T_table_camera: Pose | None, T_table_board: Pose | None) -> None:
        """What a person holds is there in the looks that follow (None: nobody holds it)."""
        ...

    def truth(self, width: int, height: int) -> TrueCamera:
        """How it sees pictures of this size."""
        ...

    def close(self) -> None:
        """Free what draws; safe to call twice."""
        ...


def drawing(config: LabCameraConfig, workcell: Workcell, seed: int = 0) -> Drawing:
    """What draws the pictures of one camera, in this process and thread."""
    width, height = config.drawn_px
    hidden = Hidden(seed, lens=config.intrinsics == "drawn", mount=config.pose == "drawn")
    depth, board = config.device.depth is not None, workcell.board
    if config.in_scene and workcell.scene is not None:
        return SceneLook(
            workcell.scene,
            config.of_scene or config.device.name,
            width,
            height,
            board=board,
            bracket=config.bracket,
            carried=config.carried,
            depth=depth,
            hidden=hidden,
            quality=config.quality,
        )
    return TableView(
        config.view,
        T_base_table=workcell.T_base_table,
        tool_length_m=workcell.tool_length_m,
        width=width,
        height=height,
        block=BLOCK,
        board=board,
        depth=depth,
        hidden=hidden,
    )
