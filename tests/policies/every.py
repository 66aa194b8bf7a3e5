"""Every registered policy at toy size, trained by the real command's way into a run directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

from policies.critics.hindsight import HindsightConfig
from policies.nets.pictures import PictureConfig
from policies.registry import POLICIES, PolicyConfig, load_policy, policy_config
from robolearn.contracts import Policy
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.proposed import Proposed
from robolearn.data.reading.selection import DataConfig
from robolearn.learning import Algorithm
from robolearn.operations.compose import ComposedBuilder, write_composed
from robolearn.representation import RepresentationConfig
from robolearn.spec import SignalSpec, TaskSpace
from robolearn.training.experiment import Experiment, TrainResult, train
from robolearn.training.loop import FitConfig, Hooks, Progress
from robolearn.training.run_directory import (
    WEIGHTS,
    load_run,
    read_tensors,
    seal_run,
    write_tensors,
)
from robolearn.types import PolicyInput
from tests.learning_mocks import BLOCK, SPACE, TOOL, ArraySource, random_request, random_source

# Those that learn from a trained one.
STUDENTS = (
    "consistency",
    "dice_rl",
    "distilled",
    "doit",
    "dppo",
    "dsrl",
    "expo",
    "filtered_bc",
    "idql",
    "pa_rl",
    "reinflow",
    "residual",
    "wsrl",
)
# Of another one than the flow policy.
TEACHERS = {"dppo": "diffusion", "wsrl": "cql"}
TRAINED = tuple(sorted(set(POLICIES) - {"compose"}))
# Whose loss and network are the same for every observation there is.
SEEING = TRAINED

# Those that learn to reach goals.
AIMING = ("crl", "gciql", "gcivl", "hilp", "hiql")

# Those that learn from their own decisions; from recordings, values alone.
DECIDING = ("dppo", "reinflow")

# Those that ask where a window is from.
MIXED = ("adversarial", "h2o")

CAMERA, GOAL, LEFT, RIGHT = "top/image", "goal/block", "Go left", "Go right"
SEEN = dataclasses.replace(
    SPACE,
    observations=(*SPACE.observations, SignalSpec(CAMERA, (16, 16, 3), "", 10.0, "uint8")),
)
SIZES: dict[str, Any] = {
    "n_obs": 2,
    "horizon": 4,
    "execute": 2,
    "width": 16,
    "blocks": 1,
    "heads": 2,
    "batch_size": 8,
    "levels": 20,
    "spread": 1.0,
    "rank": 8,
    "stride": 2,
    "discount": 0.9,
    "next_candidates": 3,
    "diffusion_steps": 2,
    "bins": 3,
    "critics_first": 0,
    "actor_every": 2,
    "cosines": 2,
    "picture": PictureConfig((8, 16), stride=2, points=4, crop=0.9),
}


def tiny(name: str, **more: Any) -> PolicyConfig:
    """The policy ``name`` with a network of a few thousand parameters."""
    kind: Any = policy_config(name)
    known = {f.name for f in dataclasses.fields(kind)}
    goal: dict[str, Any] = {"goal": (BLOCK,)} if name == "beso" else needed(name)
    return kind(**{k: v for k, v in (SIZES | goal | more).items() if k in known})


def needed(name: str) -> dict[str, Any]:
    """What the policy ``name`` has no default of: the goals that it learns to reach."""
    return {"goals": HindsightConfig(((GOAL, BLOCK),))} if name in AIMING else {}


def pictured(lengths: tuple[int, ...] = (12, 9), seed: int = 0) -> ArraySource:
    """:func:`random_source` with a camera."""
    rng = np.random.default_rng(seed)
    items = tuple(
        dataclasses.replace(
            e,
            observations={
                **e.observations,
                CAMERA: rng.integers(0, 256, (len(e.actions), 16, 16, 3), dtype=np.uint8),
            },
        )
        for e in random_source(lengths, seed).items
    )
    return ArraySource(items, "pictured", SEEN)


def aimed(source: ArraySource) -> ArraySource:
    """``source`` with a signal for goals, which says nothing."""
    items = tuple(
        dataclasses.replace(
            e, observations={**e.observations, GOAL: np.zeros((len(e.actions), 3), np.float32)}
        )
        for e in source.items
    )
    space = source.task_space
    goal = SignalSpec(GOAL, (3,), "m, m, rad", 10.0, angular=(2,))
    space = dataclasses.replace(space, observations=(*space.observations, goal))
    told = f"{source.content_hash}-aimed"
    return dataclasses.replace(source, items=items, content_hash=told, task_space=space)


def of_two_stores(source: ArraySource) -> ArraySource:
    """``source`` as a mixture names it, whose episodes are of two stores in turn."""
    items = tuple(dataclasses.replace(e, id=f"{i % 2}/{e.id}") for i, e in enumerate(source.items))
    return dataclasses.replace(source, items=items, content_hash=f"{source.content_hash}-mixed")


def costly(source: ArraySource) -> ArraySource:
    """Rewards as ``data.reward`` makes them of a recording: -1 added, times .02; every third step
    costs something, as ``data.cost`` would say.
    """
    items = tuple(
        dataclasses.replace(
            e, reward=0.02 * (e.reward - 1.0), cost=(np.arange(len(e.reward)) % 3 == 1) * 1.0
        )
        for e in source.items
    )
    return dataclasses.replace(source, items=items, content_hash=f"{source.content_hash}-costly")


class StoppedError(Exception):
    """Training is killed."""


class Family:
    """Runs of every policy in one folder; ``space`` decides what they see."""

    def __init__(self, folder: Path, *, told: bool = False, actions: str = "absolute") -> None:
        self.folder, self.told = folder, told
        self.source = pictured() if told else random_source((12, 9))
        self.kinds: Any = {} if actions == "absolute" else {TOOL: actions}

    @property
    def space(self) -> TaskSpace:
        return SEEN if self.told else SPACE

    def source_of(self, name: str) -> ArraySource:
        """What the policy ``name`` learns from, rewards aside."""
        if name in MIXED:
            return of_two_stores(self.source)
        return aimed(self.source) if name in AIMING else self.source

    def data_of(self, name: str) -> DataConfig:
        observed = tuple(s.name for s in self.source_of(name).task_space.observations)
        return DataConfig(
            observed,
            success=True if name == "filtered_bc" else None,
            text=self.told,
            representation=RepresentationConfig(actions=self.kinds),
        )

    def train(
        self,
        name: str,
        out: str = "",
        *,
        fit: FitConfig | None = None,
        stop_at: int | None = None,
        resume: bool = False,
        parent: str = "",
        **more: Any,
    ) -> TrainResult:
        """Train the policy ``name`` into ``folder/out`` (default: its name)."""
        found = None
        if name in STUDENTS:
            parent = parent or TEACHERS.get(name, "flow")
            self.run(parent)
            found = load_run(self.folder / parent)

        def stop(progress: Progress) -> None:
            if progress.step == stop_at:
                raise StoppedError

        config = FitConfig(steps=2, warmup=1, log_every=1) if fit is None else fit
        experiment = Experiment(name, self.data_of(name), tiny(name, **more), config)
        rewarded, source = experiment.algorithm.batches().learns_from_rewards, self.source_of(name)
        source = costly(source) if rewarded else source
        return train(
            experiment,
            dataclasses.replace(source, texts=(LEFT, RIGHT) if self.told else ()),
            self.folder / (out or name),
            parent=found,
            resume=resume,
            cache_dir=self.folder / "cache",
            hooks=Hooks(on_step=stop),
        )

    def run(self, name: str, **more: Any) -> Path:
        """A run whose weights are not near zero, which would hide mistakes; made once."""
        path = self.folder / name
        if path.is_dir():
            return path
        if name == "compose":
            parts = (self.run("flow"), self.run("diffusion"))
            write_composed(path, ComposedBuilder(parts, "convex", (0.4, 0.6), 4))
            return path
        self.train(name, **more)
        shake(path)
        return path

    def policy(self, name: str) -> Policy:
        return load_policy(self.run(name))

    def request(self, batch: int, n_obs: int = 2, seed: int = 0) -> PolicyInput:
        """What every policy of the folder can be asked."""
        plain = random_request(batch, n_obs, seed)
        rng = np.random.default_rng(seed)
        goal = plain.observations[BLOCK] + rng.normal(0, 0.05, (batch, n_obs, 3))
        plain = dataclasses.replace(plain, observations={**plain.observations, GOAL: goal})
        if not self.told:
            return plain
        # Pictures do not depend on the goals that are drawn before them.
        rng = np.random.default_rng(seed)
        seen = rng.integers(0, 256, (batch, n_obs, 16, 16, 3), dtype=np.uint8)
        return dataclasses.replace(
            plain,
            observations={**plain.observations, CAMERA: seen},
            task=tuple((LEFT, RIGHT)[i % 2] for i in range(batch)),
        )


def shake(run: Path) -> None:
    """Move the weights of a run away from zero."""
    rng = torch.Generator().manual_seed(0)
    weights = {
        k: v + 0.05 * torch.randn(v.shape, generator=rng)
        if v.is_floating_point() and v.ndim >= 2
        else v
        for k, v in read_tensors(run / WEIGHTS).items()
    }
    write_tensors(run / WEIGHTS, weights, {})
    seal_run(run)


def batches_of(family: Family, name: str, size: int) -> EpisodeDataset:
    """What the policy ``name`` is fed with, ``size`` at a time."""
    spec = dataclasses.replace(tiny(name).batches(), batch_size=size)
    dataset = EpisodeDataset(flatten(costly(family.source_of(name))), spec, 0)
    if spec.proposed:
        near = np.random.default_rng(0).normal(0, 0.01, (len(dataset.flat.actions), 3, 4, 2))
        chunks = (dataset.flat.actions[:, None, None] + near).astype(np.float32)
        dataset.candidates = Proposed(np.arange(len(chunks)), chunks)
    return dataset


def untrained(name: str, family: Family) -> Algorithm:
    """Without noise on what it observes; students on their parent."""
    parent = load_run(family.run(TEACHERS.get(name, "flow"))) if name in STUDENTS else None
    torch.manual_seed(0)
    config = tiny(name, observation_noise=0.0, imitate_padding=True)
    space = family.source_of(name).task_space
    return config.build(space, batches_of(family, name, 8).stats(), parent)
