"""``robolearn replay STORE --scene robosuite/Lift``: recorded states set, actions replayed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from robolearn.cli.shared.parse import print_json, progress, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.cli.replay import Args
    from robolearn.data.episode import Episode
    from sim.adapters.robosuite.replay import StateReplay
    from sim.contract import World

AFTER_S = (1.0, 5.0, 10.0)


def replay_states(env: World, episodes: Sequence[Episode], args: Args) -> int:
    """Replay and report; closes ``env``."""
    import numpy as np

    from sim.adapters.robosuite.env import RobosuiteEnv
    from sim.adapters.robosuite.replay import replay_recording

    results: list[StateReplay] = []
    try:
        if args.plot is not None:
            raise ConfigError("--plot draws Push-T replays only; leave it out here")
        if not isinstance(env, RobosuiteEnv):
            raise ConfigError(f"'{args.scene}' is not a robosuite world")
        with progress("replay", len(episodes), quiet=args.json) as advance:
            for episode in episodes:
                results.append(replay_recording(env, episode))
                advance()
    finally:
        env.close()
    rows = [_row(r) for r in results]
    if args.json:
        print_json({"scene": args.scene, "engine": env.engine, "per_episode": rows})
        return 0
    say(f"{len(results)} episodes in {args.scene} ({env.engine})")
    for result in results:
        apart = [result.tool_after(t) * 1e3 for t in AFTER_S]
        say(
            f"  {result.episode}: states exact to {result.state_error:.1e},"
            f" their end {'succeeds' if result.states_succeed else 'is no success'} here"
        )
        say(
            f"    actions: tool {np.median(result.one_step_m) * 1e3:.2f} mm apart one tick after a"
            f" recorded state (median), {apart[0]:.1f} / {apart[1]:.1f} / {apart[2]:.1f} mm after"
            f" 1 / 5 / 10 s open loop; the task {'succeeds' if result.actions_succeed else 'fails'}"
        )
    return 0


def _row(result: StateReplay) -> dict[str, Any]:
    import numpy as np

    return {
        "id": result.episode,
        "state_error": result.state_error,
        "states_succeed": result.states_succeed,
        "one_step_tool_mm": float(np.median(result.one_step_m)) * 1e3,
        "tool_mm_after_s": {f"{t:g}": _finite(result.tool_after(t) * 1e3) for t in AFTER_S},
        "actions_succeed": result.actions_succeed,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
