"""Runs a policy and refuses an answer that does not fit."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from robolearn.contracts import Policy, PolicySpec
from robolearn.errors import InferenceError
from robolearn.types import PolicyInput, PolicyOutput


def sample_checked(policy: Policy, request: PolicyInput, n: int = 1) -> PolicyOutput:
    """Sample, measure the latency, refuse answers that are not finite or of the wrong shape."""
    start = time.perf_counter_ns()
    output = policy.sample(request, n)
    latency = time.perf_counter_ns() - start
    check_output(policy.spec, request, output)
    return dataclasses.replace(output, latency_ns=latency)


def check_output(spec: PolicySpec, request: PolicyInput, output: PolicyOutput) -> None:
    """Raise :class:`InferenceError` unless the answer fits the request and the specification."""
    batch, size = len(request.t_ns), spec.task_space.action_size
    actions, shape = output.actions, output.actions.shape
    if len(shape) != 4 or shape[1] < 1 or (shape[0], *shape[2:]) != (batch, spec.horizon, size):
        raise InferenceError(
            f"policy answered with actions {shape}, expected ({batch}, n, {spec.horizon}, {size})"
        )
    if output.scores.shape != shape[:2] or output.t_ns.shape != (batch,):
        raise InferenceError(
            f"policy answered with scores {output.scores.shape} and times {output.t_ns.shape},"
            f" expected {shape[:2]} and ({batch},)"
        )
    if not np.array_equal(output.t_ns, request.t_ns):
        raise InferenceError(
            f"policy answered for the time(s) {output.t_ns.tolist()} ns, but was asked for"
            f" {request.t_ns.tolist()} ns: an answer carries the times of its request"
        )
    bad = ~np.isfinite(actions).all(axis=(1, 2, 3))
    if bad.any():
        raise InferenceError(
            f"policy answered with non-finite actions in row(s) {np.flatnonzero(bad).tolist()};"
            " check the checkpoint and the observations it was given"
        )
