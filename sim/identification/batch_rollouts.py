"""Rolls out many episodes open loop at once, on threads inside MuJoCo (``mujoco.rollout``).

For planning, identification and checks of data: whatever needs thousands of simulated seconds from
given states under given set-points, without a policy in the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import mujoco
import numpy as np
from jaxtyping import Float64
from mujoco import rollout
from numpy.typing import NDArray

from robolearn.errors import DataError
from robolearn.shapes import AnyFloats, Flags
from sim.shapes import Values

RolledStates = Float64[NDArray[np.float64], "n ticks nstate"]
RolledPositions = Float64[NDArray[np.float64], "n ticks nq"]
RolledSpeeds = Float64[NDArray[np.float64], "n ticks nv"]
RolledSensors = Float64[NDArray[np.float64], "n ticks nsensordata"]


_log = logging.getLogger(__name__)
# As in ``sim.env.scene_env``: otherwise unstable rollouts write into the user's folder.
mujoco.set_mju_user_warning(_log.info)
_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS.value


@dataclass(frozen=True, slots=True)
class Rolled:
    """What ``n`` rollouts of ``ticks`` control ticks did, after every tick.

    ``qpos [n, ticks, nq]``, ``qvel [n, ticks, nv]``, ``sensors [n, ticks, nsensordata]`` and the
    whole ``state [n, ticks, nstate]``, from which a rollout can go on. ``diverged [n]``: the state
    became not finite or too fast; what follows in that rollout means nothing.
    """

    state: RolledStates
    qpos: RolledPositions
    qvel: RolledSpeeds
    sensors: RolledSensors
    diverged: Flags


class Rollouts:
    """Rolls out one model, or one per rollout (all of the same sizes), on ``threads`` threads.

    The results do not depend on the number of threads, bit for bit. Close it, or use it in a
    ``with`` statement: the threads live as long as it does.
    """

    def __init__(
        self,
        models: Sequence[mujoco.MjModel],
        *,
        substeps: int,
        threads: int = 1,
        max_speed: float = 1000.0,
    ) -> None:
        if threads < 1 or substeps < 1:
            raise DataError(f"threads and substeps are at least 1, got {threads} and {substeps}")
        if not models:
            raise DataError("rollouts need at least one model")
        self._models = list(models)
        self.model = self._models[0]
        self._substeps, self._max_speed = substeps, max_speed
        self._data = [mujoco.MjData(self.model) for _ in range(threads)]
        # With one thread the pool is left out and the caller's thread does the work.
        self._pool = rollout.Rollout(nthread=threads if threads > 1 else 0)

    def __enter__(self) -> Rollouts:  # noqa: PYI034 - beartype cannot check Self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads; safe to call twice."""
        self._pool.close()

    @property
    def state_size(self) -> int:
        """Numbers in a state: time, positions, velocities, activations."""
        return int(mujoco.mj_stateSize(self.model, _STATE))

    def state(self, data: mujoco.MjData) -> Values:
        """The state ``[nstate]`` of a simulation, from which rollouts can start."""
        out = np.empty(self.state_size)
        mujoco.mj_getState(self.model, data, out, _STATE)
        return out

    def roll(self, states: AnyFloats, controls: AnyFloats) -> Rolled:
        """From ``states [n or 1, nstate]`` under ``controls [n or 1, ticks, nu]``, each held for a
        tick. Raises :class:`DataError` for other shapes and values that are not finite.
        """
        self._check(states, controls)
        n = max(len(states), len(controls), len(self._models))
        held = controls if self._substeps == 1 else np.repeat(controls, self._substeps, axis=1)
        state, sensors = self._pool.rollout(
            self._models if len(self._models) > 1 else self.model,
            self._data,
            np.ascontiguousarray(np.broadcast_to(states, (n, states.shape[1]))),
            np.ascontiguousarray(np.broadcast_to(held, (n, *held.shape[1:]))),
        )
        last = slice(self._substeps - 1, None, self._substeps)
        state = np.ascontiguousarray(state[:, last])
        nq, nv = self.model.nq, self.model.nv
        # Time comes first. MuJoCo's automatic reset of an unstable simulation turns it back.
        elapsed = (np.arange(state.shape[1]) + 1) * self._substeps * self.model.opt.timestep
        qpos, qvel = state[..., 1 : 1 + nq], state[..., 1 + nq : 1 + nq + nv]
        # A sum of finite numbers of this size is finite; one pass over much memory is enough.
        sane = np.isfinite(state.sum(axis=(1, 2)))
        expected = np.broadcast_to(states[:, :1], (n, 1)) + elapsed
        sane &= (np.abs(state[..., 0] - expected) < 0.5 * self.model.opt.timestep).all(axis=1)
        # What is not a number is not below a limit either.
        fastest = np.maximum(qvel.max(axis=(1, 2)), -qvel.min(axis=(1, 2)))
        sane &= fastest < self._max_speed
        return Rolled(state, qpos, qvel, np.ascontiguousarray(sensors[:, last]), ~sane)

    def _check(self, states: AnyFloats, controls: AnyFloats) -> None:
        wanted = f"states [n or 1, {self.state_size}] and controls [n or 1, ticks, {self.model.nu}]"
        shapes = (
            states.ndim == 2
            and states.shape[1] == self.state_size
            and controls.ndim == 3
            and controls.shape[1] > 0
            and controls.shape[2] == self.model.nu
        )
        sizes = {len(states), len(controls), len(self._models)} - {1}
        if not shapes or len(sizes) > 1 or 0 in sizes:
            raise DataError(
                f"rollouts of {len(self._models)} model(s) need {wanted}; got {states.shape} and"
                f" {controls.shape}"
            )
        if not (np.isfinite(states).all() and np.isfinite(controls).all()):
            raise DataError("states and controls of rollouts must be finite")
