"""Builds the networks over chunks by name: what denoisers are made of."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, cast, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from policies.nets.dit import ChunkTransformer
from policies.nets.mixer import ChunkMixer
from policies.nets.residual_mlp import ChunkMLP
from policies.nets.shapes import Chunks, Features, MarkedChunks
from policies.nets.unet import UNet1D
from robolearn.errors import ConfigError

NetKind = Literal["mlp", "unet", "dit", "mixer"]


@runtime_checkable
class ChunkNet(Protocol):
    """A network over chunks, in two parts: what the condition decides, and the rest."""

    def modulation(self, c: Float[Tensor, "*b c"]) -> Float[Tensor, "*b m"]:
        """Condition ``[*b, c]`` to the scales, shifts and gates of all layers ``[*b, m]``."""
        ...

    def trunk(self, x: MarkedChunks, flat: Features, modulation: Float[Tensor, "b m"]) -> Chunks:
        """``x [b, h, i]``, features ``flat [b, f]``, ``modulation [b, m]`` to ``[b, h, a]``."""
        ...


@dataclass(frozen=True, slots=True)
class ConvConfig:
    """Size of the UNet (``net: unet``); the others take ``width`` and ``blocks``."""

    # Channels of the levels, each half as long as the one before; (256, 512, 1024) is Diffusion
    # Policy's.
    channels: tuple[int, ...] = (64, 128, 256)
    # Taps of a convolution, odd.
    kernel: int = 5
    # Groups of the group norms.
    groups: int = 8


@dataclass(frozen=True, slots=True)
class NetSize:
    """Which network, and how large."""

    kind: NetKind
    width: int
    blocks: int
    expansion: float
    heads: int
    conv: ConvConfig

    def __post_init__(self) -> None:
        if min(self.width, self.blocks, self.heads) < 1 or not self.expansion > 0:
            raise ConfigError("width, blocks and heads must be at least 1, expansion positive")


def build_net(size: NetSize, horizon: int, inputs: int, actions: int, flat: int) -> ChunkNet:
    """A network for chunks ``[horizon, inputs]`` to ``[horizon, actions]`` whose condition has
    ``size.width`` numbers.
    """
    width, conv = size.width, size.conv
    net: nn.Module
    if size.kind == "unet":
        net = UNet1D(horizon, inputs, actions, width, conv.channels, conv.kernel, conv.groups)
    elif size.kind == "dit":
        net = ChunkTransformer(
            horizon, inputs, actions, width, width, size.blocks, size.heads, size.expansion
        )
    elif size.kind == "mixer":
        net = ChunkMixer(horizon, inputs, actions, width, width, size.blocks, size.expansion)
    else:
        net = ChunkMLP(
            horizon * inputs + flat, width, horizon * actions, width, size.blocks, size.expansion
        )
    return cast("ChunkNet", net)
