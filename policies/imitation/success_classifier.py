"""Classifies success from a picture: small, for where no predicate can look at the true state.

It sees the last picture of an episode, made smaller, and is trained from labelled episodes. How
often it errs is measured on episodes that it never saw, and these counts travel with it: a rate of
its verdicts is corrected by them (:func:`eval.statistics.clusters.corrected_rate`).
"""

# The stubs of torch and safetensors leave some parameters untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional

from robolearn.data.reading.dataset import split_episodes
from robolearn.errors import CheckpointError, ConfigError, DataError
from robolearn.files import write_atomic
from robolearn.seeding import child_seed
from robolearn.shapes import Floats

FILE, WEIGHTS = "success.json", "success.safetensors"

# What is no picture ``[h, w, 3]`` is refused in words.
Given = UInt8[NDArray[np.uint8], "..."]


@dataclass(frozen=True, slots=True)
class SuccessConfig:
    """Which picture, and how the classifier is trained."""

    # Signal whose last picture is judged.
    signal: str = "top/image"
    # Pictures are made this large [px] before anything else.
    side: int = 48
    # Channels of the first of three layers; doubled at each.
    width: int = 16
    epochs: int = 60
    batch_size: int = 32
    lr: float = 1e-3
    # Share of the episodes that only measures the error.
    held_out: float = 0.4
    # Pictures are shifted by up to so many pixels in training.
    shift_px: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.side < 8 or min(self.width, self.epochs, self.batch_size) < 1 or self.lr <= 0:
            raise ConfigError(f"side must be at least 8, the other sizes positive, got {self}")
        if not 0 < self.held_out < 1 or not 0 <= self.shift_px < self.side // 2:
            raise ConfigError(f"expected 0 < held_out < 1 and a small shift_px, got {self}")


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Verdicts on held-out episodes: how many successes were seen, how many failures passed."""

    true_positives: int
    successes: int
    false_positives: int
    failures: int

    @property
    def errors(self) -> int:
        """Wrong verdicts."""
        return self.successes - self.true_positives + self.false_positives

    def words(self) -> str:
        """As a phrase."""
        return (
            f"{self.true_positives} of {self.successes} held-out successes recognised,"
            f" {self.false_positives} of {self.failures} held-out failures mistaken for one"
        )


class SuccessClassifier:
    """Judges pictures ``[n, height, width, 3]``; make it with :func:`train_success`, or load it."""

    def __init__(self, config: SuccessConfig, held_out: HeldOut, net: nn.Module) -> None:
        self.config, self.held_out, self._net = config, held_out, net.eval()

    @property
    def hash(self) -> str:
        """Of weights, settings and held-out counts."""
        digest = hashlib.sha256(save(self._net.state_dict()))
        digest.update(json.dumps(self._plain(), sort_keys=True).encode())
        return digest.hexdigest()[:16]

    def probability(self, pictures: Sequence[Given]) -> Floats:
        """Probability of success ``[n]``, not calibrated; above a half is a yes."""
        with torch.no_grad():
            logits = self._net(_small(pictures, self.config.side))[:, 0]
        return torch.sigmoid(logits).double().numpy()

    def save(self, folder: Path) -> None:
        """Write weights and settings; a folder that has both is whole."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / WEIGHTS, save(self._net.state_dict()))
        write_atomic(folder / FILE, json.dumps(self._plain(), indent=1) + "\n")

    def _plain(self) -> dict[str, Any]:
        return {
            "format": "robolearn success classifier",
            "version": 1,
            "config": dataclasses.asdict(self.config),
            "held_out": dataclasses.asdict(self.held_out),
        }


def load_success(folder: Path) -> SuccessClassifier:
    """Read what :meth:`SuccessClassifier.save` wrote; :class:`CheckpointError` says what lacks."""
    try:
        plain = json.loads((folder / FILE).read_text(encoding="utf-8"))
        config = SuccessConfig(**plain["config"])
        net = _net(config)
        net.load_state_dict(load_file(folder / WEIGHTS))
        return SuccessClassifier(config, HeldOut(**plain["held_out"]), net)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"'{folder}' holds no success classifier ({FILE}, {WEIGHTS}): {error}; make one with"
            " 'robolearn success'"
        ) from error


def train_success(
    pictures: Sequence[Given], labels: Sequence[bool], config: SuccessConfig
) -> SuccessClassifier:
    """Train on one picture and label per episode; the held-out ones only measure the error.

    Classes weigh the same however often they occur. The same input gives the same classifier.
    Raises :class:`DataError` unless both parts have both outcomes.
    """
    wins = np.asarray(labels, dtype=np.bool_)
    if len(pictures) != wins.size:
        raise DataError(f"every picture needs a label, got {len(pictures)} and {wins.size}")
    # Of both outcomes the same share is held out.
    parts = [np.flatnonzero(wins == kind) for kind in (True, False)]
    if min(p.size for p in parts) < 4:
        raise DataError(
            f"expected at least 4 successes and 4 failures, got {parts[0].size} and"
            f" {parts[1].size}; label more episodes (robolearn data note)"
        )
    split = [split_episodes(p.size, config.held_out, config.seed) for p in parts]
    fit = np.concatenate([p[s[0]] for p, s in zip(parts, split, strict=True)])
    test = np.concatenate([p[s[1]] for p, s in zip(parts, split, strict=True)])
    x = _small(pictures, config.side)
    y = torch.from_numpy(wins.astype(np.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(child_seed(config.seed, "weights"))
        net = _net(config)
        _fit(net, x[torch.from_numpy(fit)], y[torch.from_numpy(fit)], config)
    blank = HeldOut(0, 0, 0, 0)
    verdicts = SuccessClassifier(config, blank, net).probability([pictures[i] for i in test]) > 0.5
    truth = wins[test]
    held_out = HeldOut(
        true_positives=int((verdicts & truth).sum()),
        successes=int(truth.sum()),
        false_positives=int((verdicts & ~truth).sum()),
        failures=int((~truth).sum()),
    )
    if min(held_out.successes, held_out.failures) == 0:
        raise DataError("no success or no failure was held out; raise held_out or label more")
    return SuccessClassifier(config, held_out, net)


def _net(config: SuccessConfig) -> nn.Module:
    w = config.width
    layers: list[nn.Module] = []
    for before, after in ((3, w), (w, 2 * w), (2 * w, 4 * w)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
    size = -(-config.side // 8)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * w * size * size, 1))


def _fit(net: nn.Module, x: Tensor, y: Tensor, config: SuccessConfig) -> None:
    optimizer = torch.optim.AdamW(net.parameters(), lr=config.lr, weight_decay=1e-2)
    weight = torch.where(y > 0.5, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
    for _ in range(config.epochs):
        for rows in torch.randperm(len(y)).split(config.batch_size):
            logits = net(_shifted(x[rows], config.shift_px))[:, 0]
            loss = functional.binary_cross_entropy_with_logits(logits, y[rows], weight[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def _shifted(x: Tensor, most: int) -> Tensor:
    if most == 0:
        return x
    padded = functional.pad(x, (most, most, most, most), mode="replicate")
    dx, dy = (int(v) for v in torch.randint(0, 2 * most + 1, (2,)))
    return padded[:, :, dy : dy + x.shape[2], dx : dx + x.shape[3]]


def _small(pictures: Sequence[Given], side: int) -> Tensor:
    """``[n, 3, side, side]`` in [-1, 1]; every picture may have a size of its own."""
    rows: list[Tensor] = []
    for picture in pictures:
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise DataError(
                f"expected 8-bit colour pictures [height, width, 3], got {picture.shape}"
                f" {picture.dtype}"
            )
        x = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)[None].float()
        rows.append(functional.interpolate(x, (side, side), mode="area"))
    return torch.cat(rows) / 127.5 - 1.0
