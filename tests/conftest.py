"""Settings that must be in the environment before numpy, torch or MuJoCo are imported."""

from __future__ import annotations

import os
import signal

for name, value in {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "OPENBLAS_NUM_THREADS": "1",
    "MUJOCO_GL": "egl",
    "SDL_VIDEODRIVER": "dummy",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}.items():
    os.environ.setdefault(name, value)

from hypothesis import settings  # noqa: E402 - the environment comes first

# A busy machine must not fail a property: examples have no time limit. The same examples in every
# run, so that a change is judged by itself; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("house", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: the tests that
# press Ctrl-C in a child need the handler of a foreground process.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
