"""Encodes what critics see: vectors, pictures and instructions, as the chunk policies do."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from policies.nets.bisimulation import BisimulationConfig, HistoryEncoder
from policies.nets.encoder import FocusConfig, SignalEncoder
from policies.nets.pictures import PictureConfig, PictureEncoder
from policies.nets.shapes import Features
from robolearn.contracts import Normalization, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.instructions import TEXT, text_encoder
from robolearn.learning import Observed


class ObservedFeatures(nn.Module):
    """Observations ``[b, n_obs, *shape]`` to flat features ``[b, size]``; ``scaling`` of vectors,
    None: that of the policy. Learned are the encoder of pictures and, with ``bisimulation``, one of
    all of it.
    """

    def __init__(
        self,
        spec: PolicySpec,
        stats: DatasetStats,
        *,
        relative: tuple[tuple[str, str], ...] = (),
        focus: FocusConfig | None = None,
        picture: PictureConfig | None = None,
        scaling: Normalization | None = None,
        bisimulation: BisimulationConfig | None = None,
    ) -> None:
        super().__init__()
        if scaling is not None:
            spec = dataclasses.replace(spec, normalization=scaling)
        self.encoder = SignalEncoder(spec, stats, relative, 0, focus)
        cameras = tuple(s for s in spec.task_space.observations if s.is_image)
        self.pictures: PictureEncoder | None = None
        if cameras:
            self.pictures = PictureEncoder(cameras, spec.n_obs, picture or PictureConfig())
        text = text_encoder(spec.task_space)
        self.reads = text is not None
        self.size = spec.n_obs * self.encoder.size
        self.size += 0 if self.pictures is None else self.pictures.size
        self.size += 0 if text is None else text.size
        self.history: HistoryEncoder | None = None
        if bisimulation is not None:
            self.history = HistoryEncoder(self.size, bisimulation)
            self.size = self.history.size

    def forward(self, observations: Observed, rng: torch.Generator | None = None) -> Features:
        """``rng``: in training, for crops of pictures."""
        parts = [self.encoder(observations).flatten(1)]
        if self.pictures is not None:
            parts.append(self.pictures(observations, rng))
        if self.reads:
            parts.append(observations[TEXT])
        features = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        return features if self.history is None else self.history(features)
