"""gym-pusht 0.1.8, the world that the human recordings come from, behind the env contract.

Pixels stay inside this file; actions and signals are SI in the table frame. Nothing is drawn
unless asked, so it steps faster than through its pixel observations.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import MissingDependencyError
from robolearn.pusht import (
    BLOCK,
    RATE_HZ,
    TOOL,
    block_signal,
    pose_from_px,
    px_from_pose,
    px_from_table,
    table_from_px,
    target_action,
    tool_signal,
)
from robolearn.spec import EmbodimentSpec
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    ResetReport,
    SampleBatch,
)
from sim.actions import check_action
from sim.logs import SampleLog, SentLog, check_poses
from sim.tasks.pusht import PushT

TICK_NS = round(1e9 / RATE_HZ)
# Where gym-pusht puts the block and the agent when nothing is asked for [px].
DEFAULT_PX = {TOOL: (256.0, 400.0), BLOCK: (256.0, 300.0, 0.0)}

SPEC = EmbodimentSpec(
    name="gym_pusht",
    signals=(
        tool_signal(),
        block_signal(),
    ),
    actions=(target_action(),),
    rate_hz=RATE_HZ,
)


class GymPushTEnv:
    """The original simulator; starts exactly at the requested pose."""

    def __init__(self) -> None:
        self._gym = _build()
        versions = {n: importlib.metadata.version(n) for n in ("gym-pusht", "pymunk")}
        self._engine = f"gym-pusht {versions['gym-pusht']} (pymunk {versions['pymunk']})"
        self._task = PushT()
        self._tick = -1
        self._target: NDArray[np.float64] = np.zeros(2)
        self._samples = SampleLog(SPEC.name, SPEC.signals)
        self._sent = SentLog(TOOL, 2)
        self._outcome: Outcome | None = None

    @property
    def spec(self) -> EmbodimentSpec:
        """The two Push-T signals and the tool's target."""
        return SPEC

    @property
    def capabilities(self) -> Capabilities:
        """A simulator: everything."""
        return Capabilities(settable_poses=True, true_state=True, faster_than_real_time=True)

    @property
    def engine(self) -> str:
        """Physics engine and versions."""
        return self._engine

    @property
    def scene_hash(self) -> str:
        """Digest of the versions, which describe this world completely."""
        return hashlib.sha256(self._engine.encode()).hexdigest()[:16]

    @property
    def task(self) -> str:
        """Name of the task."""
        return self._task.name

    def sample_condition(self, seed: int) -> Condition:
        """The start that gym-pusht draws for the same seed."""
        return self._task.sample_condition(seed)

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Start at exactly the requested poses (1e-9), at rest; the physics has no randomness."""
        del rng
        poses = check_poses(condition, DEFAULT_PX, SPEC)
        agent = px_from_table(poses[TOOL]) if TOOL in poses else np.array(DEFAULT_PX[TOOL])
        block = px_from_pose(poses[BLOCK]) if BLOCK in poses else np.array(DEFAULT_PX[BLOCK])
        # The public reset sets the position before the angle, which shifts the block; otherwise
        # this is what it does. The one step moves nothing (all velocities are zero) but finds the
        # contacts of an overlapping start, as in the recordings.
        self._gym._setup()  # noqa: SLF001
        self._gym.agent.position = tuple(agent.tolist())
        self._gym.block.angle = float(block[2])
        self._gym.block.position = tuple(block[:2].tolist())
        self._gym.space.step(self._gym.dt)
        self._gym._last_action = None  # noqa: SLF001
        self._target = np.array(self._gym.agent.position)
        self._task.reset()
        self._tick, self._outcome = 0, None
        self._sent.clear()
        self._samples.clear()
        self._samples.add(0, self._read())
        achieved = {name: self._samples.newest[name].value for name in poses}
        return ResetReport(requested=condition, achieved=achieved)

    def now_ns(self) -> int:
        """Simulated time since the reset."""
        return max(0, self._tick) * TICK_NS

    def observe(self) -> Observation:
        """The state at this tick."""
        self._samples.require()
        return Observation(t_ns=self.now_ns(), samples=dict(self._samples.newest))

    def apply(self, command: Command) -> None:
        """Set the agent's target."""
        self._samples.require()
        check_action(command, SPEC)
        value = np.array(command.action[TOOL], dtype=np.float64)
        self._target = px_from_table(value)
        self._sent.add(command.seq, self.now_ns(), value)

    def advance(self) -> None:
        """Ten physics steps of 10 ms."""
        self._samples.require()
        self._gym.step(self._target)
        self._tick += 1
        self._samples.add(self.now_ns(), self._read())
        self._outcome = None

    def drain(self) -> SampleBatch:
        """The samples of the last tick; those of the current one come next time."""
        return SampleBatch(signals=self._samples.drain(self.now_ns()), sent=self._sent.drain())

    def outcome(self) -> Outcome:
        """Coverage, progress and success, as gym-pusht scores them."""
        self._samples.require()
        if self._outcome is None:
            self._outcome = self._task.judge(self._samples.values())
        return self._outcome

    def render(self, width: int, height: int) -> NDArray[np.uint8]:
        """gym-pusht's own picture from above ``[height, width, 3]``."""
        self._samples.require()
        self._gym.visualization_width, self._gym.visualization_height = width, height
        return np.asarray(self._gym.render(), dtype=np.uint8)

    def close(self) -> None:
        """Nothing is held; safe to call twice."""
        self._gym.close()

    def _read(self) -> dict[str, NDArray[np.float64]]:
        block = self._gym.block
        return {
            TOOL: table_from_px(np.array(self._gym.agent.position)),
            BLOCK: pose_from_px(np.array([*block.position, block.angle])),
        }


def _build() -> Any:
    # pygame greets on standard output, which belongs to --json.
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        with warnings.catch_warnings():
            # pkg_resources (pygame) and SWIG types warn on import; not ours to fix.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", UserWarning)
            from gym_pusht.envs.pusht import PushTEnv
    except ImportError as error:
        if ".so" in str(error):
            # A system library that one of its dependencies needs; the package itself is there.
            raise
        raise MissingDependencyError(
            f"the world 'gym_pusht' needs gym-pusht 0.1.8 and pymunk < 7 ({error});"
            " run: pip install -c constraints.txt gym-pusht"
        ) from error
    return PushTEnv(obs_type="state", render_mode="rgb_array")
