"""Runs a policy in this process, as one batch over many envs, or in a worker process.

All satisfy :class:`robolearn.contracts.Inference`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.contracts import Policy, PolicySpec
from robolearn.errors import ConfigError, InferenceError
from robolearn.inference.checked import sample_checked
from robolearn.inference.policy_process import Worker
from robolearn.types import PolicyInput, PolicyOutput, Signals


@dataclass(frozen=True, slots=True)
class _Due:
    ready_ns: int
    output: PolicyOutput | None
    request: PolicyInput


class BatchedInference:
    """Answers all pending requests by one forward pass, on the first poll after they came.

    With ``delay_ticks`` a reply is handed out exactly that many control periods after the time of
    its request, on the env's clock: deterministic, whatever the computation really took.
    """

    def __init__(self, policy: Policy, delay_ticks: int = 0, period_ns: int | None = None) -> None:
        if delay_ticks < 0:
            raise ConfigError(f"delay_ticks must be at least 0, got {delay_ticks}")
        period = round(1e9 / policy.spec.task_space.rate_hz) if period_ns is None else period_ns
        # Half a period of slack: the answer is due at a tick, whatever its rounding.
        self._delay_ns = max(0, delay_ticks * period - period // 2)
        self._policy = policy
        self._due: dict[int, _Due] = {}

    def submit(self, env_id: int, request: PolicyInput) -> None:
        """Queue a request of one env; it replaces the one before."""
        ready_ns = int(request.t_ns.max()) + self._delay_ns
        self._due[env_id] = _Due(ready_ns, None, request)

    def poll(self, env_id: int, now_ns: int) -> PolicyOutput | None:
        """The reply for this env if it is due at ``now_ns``."""
        due = self._due.get(env_id)
        if due is None or now_ns < due.ready_ns:
            return None
        if due.output is None:
            self._answer_all()
            due = self._due[env_id]
        del self._due[env_id]
        return due.output

    def close(self) -> None:
        """Forget what is pending."""
        self._due.clear()

    def _answer_all(self) -> None:
        ids = [env_id for env_id, due in self._due.items() if due.output is None]
        requests = [self._due[env_id].request for env_id in ids]
        output = sample_checked(self._policy, stack_requests(requests))
        start = 0
        for env_id, request in zip(ids, requests, strict=True):
            stop = start + len(request.t_ns)
            reply = slice_output(output, start, stop)
            self._due[env_id] = dataclasses.replace(self._due[env_id], output=reply)
            start = stop


class InProcessInference:
    """One forward pass per request, in this process; ``delay_ticks`` as in
    :class:`BatchedInference`.
    """

    def __init__(self, policy: Policy, delay_ticks: int = 0, period_ns: int | None = None) -> None:
        self._policy, self._delay, self._period_ns = policy, delay_ticks, period_ns
        self._envs: dict[int, BatchedInference] = {}

    def submit(self, env_id: int, request: PolicyInput) -> None:
        """Queue a request of one env; it replaces the one before."""
        if env_id not in self._envs:
            self._envs[env_id] = BatchedInference(self._policy, self._delay, self._period_ns)
        self._envs[env_id].submit(env_id, request)

    def poll(self, env_id: int, now_ns: int) -> PolicyOutput | None:
        """The reply for this env if it is due at ``now_ns``."""
        inference = self._envs.get(env_id)
        return None if inference is None else inference.poll(env_id, now_ns)

    def close(self) -> None:
        """Forget what is pending."""
        self._envs.clear()


class WorkerInference:
    """The policy in a process of its own: its crash or stall never takes the caller down.

    ``build`` is picklable and makes the policy inside the worker. The constructor returns when the
    policy is ready. A worker that dies, or does not answer a request within ``timeout_s``, raises
    :class:`InferenceError` at the next :meth:`submit` or :meth:`poll`. One request is in flight at
    a time, so sending never blocks; of those waiting only the newest of each env is kept.
    """

    def __init__(
        self,
        build: Callable[[], Policy],
        *,
        timeout_s: float = 5.0,
        start_timeout_s: float = 120.0,
    ) -> None:
        self._worker = Worker(build, start_timeout_s)
        self._timeout_s = timeout_s
        self._waiting: dict[int, PolicyInput] = {}
        self._done: dict[int, PolicyOutput] = {}
        self._flying: tuple[int, int] | None = None
        self._sent_ns = 0
        self._number = 0
        self._newest: dict[int, int] = {}

    @property
    def spec(self) -> PolicySpec:
        """What the worker's policy reads and writes (known without loading it here)."""
        return self._worker.spec

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._worker.pid

    def submit(self, env_id: int, request: PolicyInput) -> None:
        """Send the request, or keep it until the one in flight is answered."""
        self._receive()
        self._waiting[env_id] = request
        self._done.pop(env_id, None)
        self._newest[env_id] = -1
        self._send_next()

    def poll(self, env_id: int, now_ns: int) -> PolicyOutput | None:
        """The reply if it has arrived; ``latency_ns`` is what the computation took in the worker
        (how long it lay in the pipe depends on when the caller polls).
        """
        del now_ns
        self._receive()
        return self._done.pop(env_id, None)

    def close(self) -> None:
        """Stop the worker; safe to call twice."""
        self._waiting.clear()
        self._worker.close()

    def _send_next(self) -> None:
        if self._flying is not None or not self._waiting:
            return
        env_id = next(iter(self._waiting))
        self._number += 1
        self._newest[env_id] = self._number
        self._flying = (env_id, self._number)
        self._sent_ns = time.monotonic_ns()
        self._worker.send(self._waiting.pop(env_id))

    def _receive(self) -> None:
        output = self._worker.receive()
        if self._flying is None:
            return
        waited_ns = time.monotonic_ns() - self._sent_ns
        if output is None:
            if waited_ns > self._timeout_s * 1e9:
                pid = self.pid
                self.close()
                raise InferenceError(
                    f"policy worker (process {pid}) did not answer within {self._timeout_s:g} s;"
                    " it was stopped"
                )
            return
        env_id, number = self._flying
        self._flying = None
        # An answer to a request that was replaced meanwhile is dropped.
        if self._newest[env_id] == number:
            self._done[env_id] = output
        self._send_next()


def stack_requests(requests: Sequence[PolicyInput]) -> PolicyInput:
    """Join requests along the batch dimension; all must carry the same signals."""
    if not requests:
        raise InferenceError("no requests to stack")
    return PolicyInput(
        observations=_stack([r.observations for r in requests]),
        t_ns=np.concatenate([r.t_ns for r in requests]),
        seed=np.concatenate([r.seed for r in requests]),
        prefix=_optional([r.prefix for r in requests]),
        prefix_weight=_optional([r.prefix_weight for r in requests]),
        goal=_stack([r.goal for r in requests]),
        task=tuple(t for r in requests for t in r.task),
    )


def slice_output(output: PolicyOutput, start: int, stop: int) -> PolicyOutput:
    """Rows ``start:stop`` of a batched answer."""
    return dataclasses.replace(
        output,
        actions=output.actions[start:stop],
        scores=output.scores[start:stop],
        t_ns=output.t_ns[start:stop],
        extras={n: v[start:stop] for n, v in output.extras.items()},
    )


def _optional(parts: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    given = [p for p in parts if p is not None]
    if given and len(given) < len(parts):
        raise InferenceError("requests with and without a prefix cannot share a batch")
    return np.concatenate(given) if given else None


def _stack(groups: Sequence[Signals]) -> Mapping[str, Any]:
    names = list(groups[0])
    for group in groups:
        if set(group) != set(names):
            raise InferenceError(
                f"requests of one batch carry different signals: {sorted(names)}, {sorted(group)}"
            )
    return {n: np.concatenate([g[n] for g in groups]) for n in names}
