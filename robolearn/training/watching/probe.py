"""Asks an algorithm with a critic how its learning stands, on the same two batches all along."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

import torch

from robolearn.learning import Algorithm, BatchSpec, Diagnosed
from robolearn.seeding import child_seed
from robolearn.training.batch_loader import Batches, on_device
from robolearn.training.diagnosis import PREFIX

HELD_OUT = "_held_out"
COMPARED = (
    *("td_error", "q_data", "v_data", "contrast", "f_data"),
    *("q_whole", "q_return", "q_return_correlation"),
)
"""Figures that are worth telling of held-out episodes, too."""


def watched(spec: BatchSpec) -> BatchSpec:
    """The same batches with the recorded returns besides, where an algorithm learns from recorded
    rewards: its values are told beside them.
    """
    if "transition" not in spec.parts or "returns" in spec.parts or not spec.learns_from_rewards:
        return spec
    return dataclasses.replace(spec, parts=(*spec.parts, "returns"))


class Probe:
    """One batch of what is trained on, and one of held-out episodes where there are some.

    ``seconds``: what it took until now. Neither learning nor its random numbers notice it.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        trained: Batches,
        held_out: Batches | None,
        *,
        device: str,
        seed: int,
    ) -> None:
        self._algorithm, self._seed = algorithm, seed
        self.seconds = 0.0
        self._batches = {}
        if isinstance(algorithm, Diagnosed):
            sources = {"": trained} | ({} if held_out is None else {HELD_OUT: held_out})
            self._batches = {k: on_device(b.batch(0), device) for k, b in sources.items()}

    def figures(self) -> Mapping[str, float]:
        """``critic/...`` by name; nothing for an algorithm without a critic."""
        algorithm = self._algorithm
        if not isinstance(algorithm, Diagnosed) or not self._batches:
            return {}
        begin, found = time.perf_counter(), dict[str, float]()
        kept = torch.random.get_rng_state()
        algorithm.eval()
        for suffix, batch in self._batches.items():
            rng = torch.Generator().manual_seed(child_seed(self._seed, "probe"))
            said = algorithm.diagnose(batch, rng)
            names = COMPARED if suffix else tuple(said)
            found |= {f"{PREFIX}{n}{suffix}": float(said[n]) for n in names if n in said}
        algorithm.train()
        torch.random.set_rng_state(kept)
        self.seconds += time.perf_counter() - begin
        return found
