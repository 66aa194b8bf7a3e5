"""Tilts a parent with a field by critics while it samples: DOIT (Zhu et al. 2026).

    acts by  p*(A|o) ~ p(A|o) exp( min_i Q_i(o, A) / temperature )      (policies/chunks/tilt.py)
    Q:       E[ sum_i ( Q_i(o, A) - clip( R + g^s m W(o') ) )^2 ],
             W = sum_j w_j q_j,  w = softmax(q / temperature),  q_j = min_i Qbar_i(o', B_j)

for chunks B_1..B_k of the parent at o': the value of the tilted parent, estimated by its own
samples. The parent is not trained, and need not be differentiated: its reverse diffusion is drawn
several times per step, and what will be worth more goes on (Doob's h-transform by Monte Carlo).
Re-ranking chooses among whole chunks; here the choice is made at every step. The paper takes
critics as given; training them on what the tilted parent would do is ours. Any other worth, such
as a predicate that forbids, is given to :class:`TiltedPolicy` directly.

Method, weights and one-step estimate were read in the authors' code (arXiv 2602.16198).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from policies.chunks.policy import FieldChunkPolicy, encoded_prefix, on
from policies.chunks.request import request_tensors
from policies.chunks.tilt import TiltConfig, tilted
from policies.critics.chunk_critic import ChunkCritic, judged_part, least, repeated
from policies.critics.over_parent import OverParent, OverParentConfig
from policies.critics.parent import inner_policy, kept_parent, policy_for
from policies.nets.shapes import CandidateRows, Candidates, Rows
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Algorithm, Batch, GraphModel, Observed, request_noise
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run, load_weights
from robolearn.types import PolicyInput, PolicyOutput

# What chunks ``[b, k, h, a]`` in SI units are worth at the observations that it is asked for.
Judge = Callable[[Observed], Callable[[Candidates], CandidateRows]]


@dataclass(frozen=True, slots=True)
class DoitConfig(OverParentConfig):
    """Critics that tilt a parent."""

    # How its samples are tilted.
    tilt: TiltConfig = field(default_factory=TiltConfig)

    def algorithm(self) -> type[Doit]:
        """What trains it."""
        return Doit

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """Untrained critics over the policy of ``parent``."""
        built = OverParentConfig.build(self, space, stats, parent)
        if parent is not None:
            _field_of(inner_policy(parent), str(parent.path))
        return built

    def load(self, run: Run) -> TiltedPolicy:
        """The trained critics over the parent kept inside the run directory."""
        critics = self.critic(run.spec, run.stats)
        load_weights(critics, run.weights, str(run.path))
        parent = kept_parent(run)
        policy = _field_of(policy_for(parent, run.spec.task_space), str(parent.path))
        return TiltedPolicy(policy, by_critics(critics.eval()), self.tilt)


class Doit(OverParent[DoitConfig]):
    """Trains the critics alone."""

    name = "doit"

    def __init__(
        self, config: DoitConfig, spec: PolicySpec, stats: DatasetStats, parent: Policy
    ) -> None:
        super().__init__(config, spec, stats, parent)

    def follow(self, batch: Batch, observations: Observed, rng: torch.Generator) -> Rows:  # noqa: ARG002
        """What the tilted parent does is worth."""
        flat, _ = self.judged(batch.next_candidates, observations)
        values = least(self.target, self.critics.observed(observations), flat)
        shares = torch.softmax(values / self.config.tilt.temperature, dim=1)
        return (shares * values).sum(dim=1)

    def policy(self) -> Policy:
        """The parent, tilted by the critics as they are."""
        parent = _field_of(self.parent, "the parent")
        return TiltedPolicy(parent, by_critics(self.critics), self.config.tilt)


class TiltedPolicy:
    """Samples of ``parent``, tilted by what ``judge`` says of chunks; row ``i`` depends on row
    ``i`` of the request alone. Known first actions of a plan are held.
    """

    def __init__(self, parent: FieldChunkPolicy, judge: Judge, config: TiltConfig) -> None:
        self.parent, self.judge, self.config = parent, judge, config

    @property
    def spec(self) -> PolicySpec:
        """The parent's."""
        return self.parent.spec

    def graph(self) -> GraphModel:
        """There is none: raises :class:`ConfigError`."""
        raise ConfigError(
            "a tilted policy draws and weighs many chunks at every step of its parent's sampler,"
            " which is not written as a graph: run it by torch, or export the parent"
        )

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """``n`` chunks per row, best first."""
        begin = time.perf_counter_ns()
        model, config = self.parent.model, self.config
        prefix = encoded_prefix(model, self.spec, request, n)
        with torch.inference_mode():
            seen = on(model.device, request_tensors(request, self.spec))
            context = model.context(seen).repeat_interleave(n, dim=0)
            at = repeated(seen, n)
            shape = (n, config.draws, model.horizon, model.action_size)
            noise = torch.from_numpy(request_noise(request.seed, shape)).flatten(0, 1)
            judge = self.judge(at)

            def decoded(chunks: torch.Tensor) -> torch.Tensor:
                count = chunks.shape[1]
                actions = model.codec.decode(chunks.flatten(0, 1), repeated(at, count))
                return actions.unflatten(0, (-1, count))

            x = tilted(
                model.velocity,
                noise.to(model.device),
                context,
                lambda chunks: judge(decoded(chunks)),
                config,
                prefix,
            )
            actions = decoded(x[:, None])
            scores = judge(actions).view(-1, n).cpu().double().numpy()
            made = actions.view(-1, n, *shape[2:]).cpu().double().numpy()
        order = np.argsort(-scores, axis=1, kind="stable")
        return PolicyOutput(
            actions=np.take_along_axis(made, order[:, :, None, None], axis=1),
            scores=np.take_along_axis(scores, order, axis=1),
            t_ns=request.t_ns,
            latency_ns=time.perf_counter_ns() - begin,
        )


def by_critics(critics: ChunkCritic) -> Judge:
    """The least that any member says."""

    def judge(observations: Observed) -> Callable[[Candidates], CandidateRows]:
        features = critics.observed(observations)

        def worth(chunks: Candidates) -> CandidateRows:
            return least(critics.q, features, judged_part(critics, chunks, observations))

        return worth

    return judge


def _field_of(policy: Policy, where: str) -> FieldChunkPolicy:
    if not isinstance(policy, FieldChunkPolicy):
        raise ConfigError(
            f"'{where}' has no field that could be tilted; take a flow, diffusion, mean_flow,"
            " shortcut, beso or consistency policy, or compose some ('convex'); idql and expo"
            " choose among the chunks of others"
        )
    return policy
