"""Measures how far an arm is behind its commands, from recorded episodes of a tool's pose.

    python -m tests.benchmarks.tool_lag STORE...

What a person feels is the time from the input to the command (``bench_teleop``) and this on top:
the path that the supervisor lays to the command, the robot's own servo, and the way of the state
back. It is the shift of time by which the commands lie nearest to the measured place, while the
tool moves.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from robolearn.data.episode import Episode
from robolearn.data.store.store import EpisodeStore
from robolearn.data.view.cameras import read_without_pictures

MEASURED = "tool/pose"
COMMANDED = ("tool/xyz_yaw", MEASURED)
# Shifts that are tried [s], and below which speed the tool tells nothing [m/s].
SHIFTS_S = np.arange(0.0, 0.5, 0.002)
MOVING_M_S = 0.02


def tool_lag(episode: Episode) -> tuple[float, float]:
    """How late the tool is [s], and what then still lies between it and the commands [m] (root of
    the mean square).
    """
    name = next(name for name in COMMANDED if name in episode.action)
    commands, due_s = episode.action[name][:, :3], 1e-9 * episode.due_ns
    measured = episode.streams[MEASURED]
    place, t_s = measured.value[:, :3], 1e-9 * measured.t_ns
    speed = np.linalg.norm(np.gradient(place, axis=0), axis=1) / np.gradient(t_s)
    # As many samples for every shift.
    told = (t_s - SHIFTS_S[-1] > due_s[0]) & (t_s < due_s[-1]) & (speed > MOVING_M_S)
    place, t_s = place[told], t_s[told]
    apart = [
        np.sqrt(sum(_square(t_s - shift, due_s, commands[:, k], place[:, k]) for k in range(3)))
        for shift in SHIFTS_S
    ]
    best = int(np.argmin(apart))
    return float(SHIFTS_S[best]), float(apart[best])


def _square(t_s, due_s, commands, place) -> float:
    return float(np.mean((np.interp(t_s, due_s, commands) - place) ** 2))


def main(stores: list[str]) -> None:
    """Print every episode, and the median."""
    lags = []
    for path in stores:
        store = EpisodeStore.open(Path(path))
        for name in store.ids():
            episode = read_without_pictures(store, name)
            lag, apart = tool_lag(episode)
            lags.append(lag)
            print(
                f"{path} {name}: {1e3 * lag:.0f} ms late, then {1e3 * apart:.1f} mm apart"
                f" ({episode.meta.git_revision[:8]})"
            )
    print(
        f"{len(lags)} episodes: {1e3 * np.median(lags):.0f} ms (median),"
        f" {1e3 * min(lags):.0f} to {1e3 * max(lags):.0f} ms"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
