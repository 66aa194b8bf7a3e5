"""Lets a program that thinks for longer than a tick act in real time: it thinks elsewhere.

    loop      observe -- what is seen --> decide ... the last command stands ... decide
    thinker           (a process)            plans a push                  --> its answer

The scripted expert of a task may plan for longer than a control period. On an arm the loop must not
wait for that: its commands would come late, also those of a policy. A person who thinks does not
move either.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from robolearn.agents.actions import hold_action
from robolearn.contracts import Agent
from robolearn.errors import InferenceError, RobolearnError
from robolearn.machine.process import exit_with_parent, leave_real_time, ordinary_children
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput

_WAIT = 0.3
"""Of a control period: what is no plan is answered in it."""
_START_S = 120.0


class ApartAgent:
    """The agent that ``build`` makes (picklable), in a process of its own; to be closed.

    :meth:`decide` waits for a third of a period. While it is still thinking, what was commanded
    last stands (source ``hold``), and what it wants in the end is by what it saw then.

    Errors: :class:`InferenceError` for one that fails or dies.
    """

    def __init__(self, build: Callable[[], Agent], embodiment: EmbodimentSpec) -> None:
        self._embodiment = embodiment
        self._patience_s = _WAIT / embodiment.rate_hz
        self._told = [s.name for s in embodiment.signals if not s.is_image]
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_think, args=(build, theirs), name="thinker", daemon=True
        )
        with ordinary_children():
            self._process.start()
        theirs.close()
        self._thinking, self._stale = True, True
        self._last: Command | None = None
        self._seq = 0
        try:
            if not self._pipe.poll(_START_S):
                raise InferenceError(f"the expert was not ready within {_START_S:g} s")
            self._name, self._stale = str(self._answer()), False
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """That of the agent."""
        return self._name

    def reset(self, seed: int) -> None:
        """A new episode; what it still thinks about is void."""
        self._stale = self._thinking
        self._last, self._seq = None, 0
        self._send(("reset", seed))

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """Its command, or what stands until it has one."""
        del reply
        wanted = self._arrived(0.0)
        if wanted is None and not self._thinking:
            seen = {n: s for n, s in observation.samples.items() if n in self._told}
            self._send(("decide", dataclasses.replace(observation, samples=seen)))
            self._thinking = True
            wanted = self._arrived(self._patience_s)
        if wanted is not None:
            self._last = wanted
        self._seq += 1
        number, due_ns = self._seq - 1, observation.t_ns
        if wanted is not None:
            return dataclasses.replace(wanted, seq=number, due_ns=due_ns)
        stands = None if self._last is None else self._last.action
        if stands is None:
            stands = hold_action(self._embodiment.actions, observation)
        return Command(seq=number, action=stands, due_ns=due_ns, source="hold")

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._pipe.close()
        self._process.join(1.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _arrived(self, wait_s: float) -> Command | None:
        """Its newest answer to what it was asked in this episode."""
        deadline = time.monotonic() + wait_s
        while self._thinking and self._pipe.poll(max(0.0, deadline - time.monotonic())):
            answer = self._answer()
            if not self._stale and isinstance(answer, Command):
                return answer
            self._stale = False
        return None

    def _send(self, message: object) -> None:
        try:
            self._pipe.send(message)
        except OSError as error:
            raise self._death() from error

    def _answer(self) -> object:
        try:
            answer = self._pipe.recv()
        except (OSError, EOFError) as error:
            raise self._death() from error
        self._thinking = False
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _death(self) -> InferenceError:
        self._process.join(1.0)
        return InferenceError(f"the expert's process died (exit code {self._process.exitcode})")


def _think(build: Callable[[], Agent], pipe: Connection) -> None:
    """The process's main: decide about what is shown until the pipe closes."""
    exit_with_parent()
    leave_real_time()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            agent = build()
            pipe.send(agent.name)
            while True:
                what, value = pipe.recv()
                if what == "reset":
                    agent.reset(value)
                else:
                    pipe.send(agent.decide(value, None))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was, the loop must hear of it
            known = isinstance(error, RobolearnError)
            text = f"the expert failed: {type(error).__name__}: {error}"
            pipe.send(error if known else InferenceError(text))
