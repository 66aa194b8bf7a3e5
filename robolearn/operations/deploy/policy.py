"""Opens the policy of a deployment: a worker process of its own, or a server."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from robolearn.agents.execution import GuidanceName, Runtime
from robolearn.contracts import PolicySpec
from robolearn.errors import ConfigError, InferenceError
from robolearn.inference.blank import blank_request
from robolearn.inference.client import RemoteInference
from robolearn.inference.local import WorkerInference
from robolearn.inference.warm import WarmBuilder
from robolearn.operations.builders import SERVER_VARIABLE, policy_builder
from robolearn.timing.latencies import Latencies
from robolearn.training.run_directory import policy_hash, run_provenance
from robolearn.types import PolicyInput, PolicyOutput


@runtime_checkable
class SpecInference(Protocol):
    """An inference that knows what its policy reads and writes."""

    @property
    def spec(self) -> PolicySpec:
        """Task space, horizons."""
        ...

    def submit(self, env_id: int, request: PolicyInput) -> None:
        """See :class:`robolearn.contracts.Inference`."""
        ...

    def poll(self, env_id: int, now_ns: int) -> PolicyOutput | None:
        """See :class:`robolearn.contracts.Inference`."""
        ...

    def close(self) -> None:
        """Safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """A running policy, what it is called, the hash of what decides its answers, and the latencies
    it was trained with (None: not known, it runs elsewhere).
    """

    inference: SpecInference
    name: str
    hash: str
    where: str
    trained: Latencies | None = None


def open_policy(
    run: Path | None,
    server: str,
    runtime: Runtime = "torch",
    guidance: GuidanceName = "auto",
    *,
    accept_edited: bool = False,
) -> Source:
    """Start a worker for a run directory, or connect to a server."""
    if (run is None) == (not server):
        raise ConfigError("give a run directory or a server (ws://HOST:PORT), and not both")
    if run is None and runtime != "torch":
        raise ConfigError(f"runtime {runtime} is for a run directory; a server has its own")
    if run is None and guidance != "auto":
        raise ConfigError(f"guidance {guidance}: tell the server ('robolearn serve' has it, too)")
    if run is None and accept_edited:
        raise ConfigError("edited runs are accepted by the server: tell 'robolearn serve'")
    if run is None:
        remote = RemoteInference(server, os.environ.get(SERVER_VARIABLE, ""))
        return Source(remote, remote.name, remote.policy_hash, server)
    built = policy_builder(run, runtime=runtime, guidance=guidance, accept_edited=accept_edited)
    inference = WorkerInference(WarmBuilder(built))
    trained = Latencies.of(run_provenance(run))
    return Source(inference, run.resolve().name, policy_hash(run), str(run), trained)


def policy_latency_s(inference: SpecInference, calls: int = 3) -> float:
    """Latency of the last of a few calls on made-up observations [s]."""
    request = blank_request(inference.spec)
    latency_s = 0.0
    for _ in range(calls):
        start = time.monotonic()
        inference.submit(0, request)
        while inference.poll(0, time.monotonic_ns()) is None:
            if time.monotonic() - start > 10.0:
                raise InferenceError("the policy did not answer within 10 s")
            time.sleep(0.0005)
        latency_s = time.monotonic() - start
    return latency_s
