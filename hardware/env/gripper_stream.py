"""Adds the gripper to a :class:`~hardware.env.real_env.RealEnv`: its signal, action and start."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hardware.devices.gripper_config import WIDTH, GripperCellConfig
from hardware.shapes import Widths
from hardware.streams.signal_buffer import SignalBuffer
from hardware.supervisor.client import SupervisorClient, require_width
from robolearn.errors import RobotError
from robolearn.types import Condition, Signals


class GripperStream:
    """Nothing at all in a cell without a gripper."""

    def __init__(self, config: GripperCellConfig | None, supervisor: SupervisorClient) -> None:
        self._config, self._supervisor = config, supervisor
        self._index = 0
        self._wanted = np.zeros(0) if config is None else np.array([config.start])

    @property
    def count(self) -> int:
        """Values of a command: 1, or 0 without a gripper."""
        return len(self._wanted)

    def make_ready(self, condition: Condition) -> None:
        """To the width at which the condition starts. RobotError while something is held that
        nobody allowed to let go.
        """
        if self._config is None:
            return
        start = float(condition.poses.get(WIDTH, (self._config.start,))[0])
        state = self._supervisor.gripper_state()
        if state.holding and start > state.width_m and not self._config.release_on_reset:
            raise RobotError(
                f"the gripper holds something ({1e3 * state.width_m:.0f} mm wide) and the next"
                " start is open: take it out (RealEnv.release), or let resets let go of it"
                " ('release_on_reset: true' in the cell's gripper)"
            )
        self.go(start)

    def go(self, width_m: float) -> None:
        """To a width [m] while the arm holds; returns when it is there or something is between."""
        self._supervisor.grip(width_m)
        self._wanted = np.array([width_m])

    @property
    def standing(self) -> Signals:
        """The width that is in force, by its action's name; nothing without a gripper."""
        return {WIDTH: self._wanted.copy()} if self.count else {}

    def command(self, action: Signals) -> Widths:
        """The commanded width ``[count]`` [m]; an action without one leaves it as it was."""
        if self.count and WIDTH in action:
            self._wanted = require_width(np.asarray(action[WIDTH], dtype=np.float64), 1)
        return self._wanted

    def restart(self, buffers: Mapping[str, SignalBuffer]) -> None:
        """An episode starts with the newest state."""
        self._index = max(0, self._supervisor.gripper_states(2**62).next_index - 1)
        self.collect(buffers)

    def collect(self, buffers: Mapping[str, SignalBuffer]) -> None:
        """What has arrived, by the time at which it was measured."""
        if self._config is None:
            return
        rows = self._supervisor.gripper_states(self._index)
        self._index = rows.next_index
        late_ns = round(1e9 * self._config.latency_s)
        buffers[WIDTH].extend(rows.t_ns - late_ns, rows.value[:, :1])
