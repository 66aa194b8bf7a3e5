"""Serves the policy of a run over a websocket, for deployments with the network elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from robolearn.agents.execution import GuidanceName
from robolearn.inference.server import PolicyServer, ServeConfig
from robolearn.inference.warm import WarmBuilder
from robolearn.operations.builders import policy_builder
from robolearn.training.run_directory import policy_hash

LOCAL = ServeConfig()


@contextmanager
def serve_policy(
    run: Path,
    config: ServeConfig = LOCAL,
    *,
    guidance: GuidanceName = "auto",
    threads: int = 1,
    accept_edited: bool = False,
) -> Generator[PolicyServer]:
    """Serve the policy while the block runs; clients need the server's ``url`` and ``token``.

    ``guidance``: how it continues what is left of a plan; ``threads``: of the network;
    ``accept_edited``: load a run whose files are not what was written.

    Errors: :class:`ConfigError`, :class:`CheckpointError`, OSError for an address that is taken.
    """
    built = policy_builder(run, threads, guidance=guidance, accept_edited=accept_edited)
    policy = WarmBuilder(built)()
    with closing(PolicyServer(policy, config, run.resolve().name, policy_hash(run))) as server:
        yield server
