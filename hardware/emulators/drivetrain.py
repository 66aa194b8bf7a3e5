"""Puts delays, backlash and encoders between a controller and the arm that it believes to move.

A controller's emulator gets a :class:`Drivetrain` in place of the plant; tracker, cameras and the
side door go on looking at the plant itself, which is the truth. Any engine may be behind it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from hardware.emulators.plant import Plant, ServoPlant
from robolearn.arms.shapes import JointFlags, Joints
from robolearn.errors import ConfigError
from robolearn.geometry import ObjectPose, RotvecPose, Vector
from robolearn.seeding import child_seed

_LONGEST_S, _WIDEST_RAD = 0.5, 0.2
# The emulated controllers see an arm at rest below 0.01 rad/s: five times this.
_NOISIEST_RAD_S = 0.002
_ROUNDING_S = 1e-9


@dataclass(frozen=True, slots=True)
class DrivetrainConfig:
    """Hidden parameters of every lab's arm; all 0: the controller moves the plant itself."""

    # Play between motor and link, per joint (one value: of every joint; empty: none) [rad].
    backlash_rad: tuple[float, ...] = ()
    # From the controller's set-point to the servo, in whole control periods [s].
    command_delay_s: float = 0.0
    # From the encoder to the controller [s].
    state_delay_s: float = 0.0
    # Standard deviation of the measured angles [rad].
    position_noise_rad: float = 0.0
    # Standard deviation of the measured speeds [rad/s].
    velocity_noise_rad_s: float = 0.0
    # Relative half-width of the uniform draw around all of these, from the lab's seed.
    spread: float = 0.0

    def __post_init__(self) -> None:
        limits = {
            "command_delay_s": _LONGEST_S,
            "state_delay_s": _LONGEST_S,
            "position_noise_rad": 0.01,
            "velocity_noise_rad_s": _NOISIEST_RAD_S,
        }
        for name, high in limits.items():
            if not 0.0 <= getattr(self, name) <= high:
                raise ConfigError(
                    f"drivetrain: {name} must be in [0, {high:g}], got {getattr(self, name)}"
                )
        if not all(0.0 <= v <= _WIDEST_RAD for v in self.backlash_rad):
            raise ConfigError(
                f"drivetrain: backlash_rad must be in [0, {_WIDEST_RAD}], got {self.backlash_rad}"
            )
        if not 0.0 <= self.spread < 1.0:
            raise ConfigError(f"drivetrain: spread must be in [0, 1), got {self.spread}")

    @property
    def ideal(self) -> bool:
        """True when there is nothing between controller and arm."""
        return not any((*self.backlash_rad, *self._scalars))

    @property
    def _scalars(self) -> tuple[float, float, float, float]:
        delays = (self.command_delay_s, self.state_delay_s)
        return (*delays, self.position_noise_rad, self.velocity_noise_rad_s)

    def drawn(self, joints: int, seed: int) -> Imperfections:
        """The values of this seed, with the backlash of each of ``joints``."""
        given = self.backlash_rad or (0.0,)
        if len(given) not in (1, joints):
            raise ConfigError(
                f"drivetrain: backlash_rad needs one value or one per joint ({joints}), got"
                f" {len(given)}"
            )
        rng = np.random.default_rng(child_seed(seed, "drivetrain"))
        wide = np.array(given * (joints if len(given) == 1 else 1))
        play = wide * (1.0 + self.spread * rng.uniform(-1.0, 1.0, joints))
        scale = 1.0 + self.spread * rng.uniform(-1.0, 1.0, len(self._scalars))
        return Imperfections(play, *(scale * np.array(self._scalars)).tolist())


@dataclass(frozen=True, slots=True)
class Imperfections:
    """The truth of one lab: backlash ``[n]`` [rad], the others as in :class:`DrivetrainConfig`."""

    backlash: Joints
    command_delay_s: float
    state_delay_s: float
    position_noise_rad: float
    velocity_noise_rad_s: float


class Play:
    """Backlash: the link rests until one of the motor's flanks takes it along.

    The play (or backstop) operator of hysteresis models, for a link that friction holds where it
    is; ``width [n]`` [rad] is what the motor turns between the two flanks.
    """

    def __init__(self, width: Joints, motor: Joints) -> None:
        self._half = 0.5 * np.asarray(width, dtype=np.float64)
        self.link = np.array(motor, dtype=np.float64)

    def follow(self, motor: Joints) -> Joints:
        """Where the links ``[n]`` are [rad] when the motors are at ``motor``."""
        self.link = np.minimum(np.maximum(self.link, motor - self._half), motor + self._half)
        return self.link


@dataclass(frozen=True, slots=True)
class _Measured:
    t_s: float
    q: Joints
    qd: Joints
    torque: Joints
    tool_pose: RotvecPose
    tool_force: Vector


class Drivetrain:
    """A plant as its controller sees it; see :class:`hardware.emulators.plant.Plant` for the
    contract.

    The encoders are on the motors: they show the gap that the link does not follow. ``tool_pose``
    is that of the links.
    """

    def __init__(self, plant: Plant, config: DrivetrainConfig, seed: int) -> None:
        q = plant.joint_positions()
        self._plant, self.truth = plant, config.drawn(len(q), seed)
        self._rng = np.random.default_rng(child_seed(seed, "encoders"))
        self._rest(q)

    def _rest(self, q: Joints) -> None:
        self._play = Play(self.truth.backlash, q)
        self._gap = self._shown = self._gap_speed = np.zeros(len(q))
        self._waiting: deque[tuple[float, Joints, Joints]] = deque()
        self._line = deque([self._measure()])

    @property
    def time_s(self) -> float:
        """Simulated time [s]."""
        return self._plant.time_s

    @property
    def object_names(self) -> tuple[str, ...]:
        """As the plant's."""
        return self._plant.object_names

    def joint_positions(self) -> Joints:
        """What the encoders told [rad]."""
        return self._line[0].q.copy()

    def joint_velocities(self) -> Joints:
        """What the encoders told [rad/s]."""
        return self._line[0].qd.copy()

    def joint_torques(self) -> Joints:
        """Motor torques [N m]."""
        return self._line[0].torque.copy()

    def tool_pose(self) -> RotvecPose:
        """Tool of the links in the arm's base frame: [m], rotation vector."""
        return self._line[0].tool_pose.copy()

    def tool_force(self) -> Vector:
        """Contact force on the tool [N]."""
        return self._line[0].tool_force.copy()

    def set_joint_targets(self, q: Joints, qd: Joints) -> None:
        """Targets of the motors [rad], [rad/s], which reach them after the delay."""
        now_s = self.time_s
        self._waiting.append((now_s + self.truth.command_delay_s, q.copy(), qd.copy()))
        while self._waiting and self._waiting[0][0] <= now_s + _ROUNDING_S:
            _, motor, speed = self._waiting.popleft()
            before = self._play.link
            link = self._play.follow(motor)
            self._gap = motor - link
            # Between the flanks the link has no speed to be fed forward.
            carried = (link != before) | (self.truth.backlash == 0.0)
            self._plant.set_joint_targets(link, np.where(carried, speed, 0.0))

    def set_joints(self, q: Joints) -> None:
        """Put the arm at ``q`` at rest, in the middle of its backlash."""
        self._plant.set_joints(q)
        self._rest(q)

    def step(self, dt_s: float) -> None:
        """Advance by ``dt_s`` [s]."""
        self._gap_speed, self._shown = (self._gap - self._shown) / dt_s, self._gap
        self._plant.step(dt_s)
        self._line.append(self._measure())
        due_s = self.time_s - self.truth.state_delay_s + _ROUNDING_S
        while len(self._line) > 1 and self._line[1].t_s <= due_s:
            self._line.popleft()

    def place_object(self, name: str, pose: ObjectPose) -> None:
        """As the plant's."""
        self._plant.place_object(name, pose)

    def true_pose(self, name: str) -> ObjectPose:
        """As the plant's."""
        return self._plant.true_pose(name)

    def close(self) -> None:
        """Release the engine; safe to call twice."""
        self._plant.close()

    def _measure(self) -> _Measured:
        c, plant = self.truth, self._plant
        q, qd = plant.joint_positions() + self._gap, plant.joint_velocities() + self._gap_speed
        if c.position_noise_rad:
            q = q + self._rng.normal(0.0, c.position_noise_rad, len(q))
        if c.velocity_noise_rad_s:
            qd = qd + self._rng.normal(0.0, c.velocity_noise_rad_s, len(qd))
        return _Measured(
            *(self.time_s, q, qd, plant.joint_torques().copy()),
            *(plant.tool_pose(), plant.tool_force()),
        )


class ServoDrivetrain(Drivetrain):
    """The same of an arm of serial servos."""

    def __init__(self, plant: ServoPlant, config: DrivetrainConfig, seed: int) -> None:
        super().__init__(plant, config, seed)
        self._servos = plant

    def set_powered(self, powered: JointFlags) -> None:
        """Which motors hold their joint; the others are limp."""
        self._servos.set_powered(powered)

    def full_torque(self) -> Joints:
        """Largest motor torques [N m]."""
        return self._servos.full_torque()


def behind(plant: Plant, config: DrivetrainConfig, seed: int) -> Plant:
    """What a controller sees of ``plant``: itself, or what is in between."""
    return plant if config.ideal else Drivetrain(plant, config, seed)


def behind_servos(plant: ServoPlant, config: DrivetrainConfig, seed: int) -> ServoPlant:
    """The same of an arm of serial servos."""
    return plant if config.ideal else ServoDrivetrain(plant, config, seed)
