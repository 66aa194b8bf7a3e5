"""Plans a guided move and checks its whole way before it begins."""

from __future__ import annotations

from collections.abc import Sequence

from hardware.supervisor.checks import CollisionGuard
from hardware.supervisor.follower import Follower
from hardware.supervisor.guided_move import GuidedMove
from hardware.supervisor.link import SupervisorConfig
from robolearn.arms.shapes import Joints

# Set-points per waypoint that are looked at.
_POINTS = 20


def plan_move(
    q: Joints,
    points: Sequence[Joints],
    config: SupervisorConfig,
    follower: Follower,
    guard: CollisionGuard | None,
    dt_s: float,
) -> GuidedMove | str:
    """From rest at ``q [joints]`` through ``points`` [rad] at a period of ``dt_s``; why not, where
    a set-point on the way would break a limit or come too near to something.
    """
    c = config
    guided = GuidedMove(q, points, c.goto_speed, c.goto_acceleration, c.goto_jerk, dt_s)
    guided.slow_to(follower.tool_speed, follower.travel)
    if guard is not None:
        guard.begin(q)
    for on_the_way in guided.path(_POINTS * len(points)):
        if why := follower.violation(on_the_way, None, dt_s, guided=True):
            return why
        near = None if guard is None else guard.ahead(on_the_way)
        if near is not None:
            return f"{near.kind}: {near.value:.3f} of {near.limit:.3f}"
    return guided
