"""Turns camera pictures into features: crop, a small ResNet with group norm, spatial softmax."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from robolearn.errors import CheckpointError, ConfigError
from robolearn.learning import Observed
from robolearn.spec import SignalSpec
from robolearn.training.run_directory import load_weights, read_tensors

GROUP = 8
# Initial maps are sharpened by this: nearly flat ones put all points into the middle of the
# picture, which learning takes long to leave.
SHARPNESS = 10.0


@dataclass(frozen=True, slots=True)
class PictureConfig:
    """The encoder of camera pictures; every camera has one of its own."""

    # Channels of the stages; each halves the resolution. (64, 128, 256, 512) with 2 blocks is the
    # size of a ResNet-18.
    channels: tuple[int, ...] = (32, 64, 96)
    # Residual blocks per stage.
    blocks: int = 1
    # Stride of the first convolution.
    stride: int = 3
    # Points of the spatial softmax: two features each.
    points: int = 32
    # Side of the crop as a share of the picture: at random in training, central afterwards.
    crop: float = 0.9
    # Largest relative change of brightness and contrast in training; 0: none.
    jitter: float = 0.0
    # Weights of an encoder of this size to start from, a local safetensors file; empty: none.
    weights: str = ""

    def __post_init__(self) -> None:
        if not self.channels or any(c < GROUP or c % GROUP for c in self.channels):
            raise ConfigError(f"channels must be multiples of {GROUP}, got {self.channels}")
        if min(self.blocks, self.stride, self.points) < 1:
            raise ConfigError("blocks, stride and points must be at least 1")
        if not 0.0 < self.crop <= 1.0 or not 0.0 <= self.jitter < 1.0:
            raise ConfigError(f"crop must be in (0, 1], got {self.crop}; jitter in [0, 1)")


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with group norm instead of batch norm, which an average of weights
    would leave with statistics of other weights.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm = nn.GroupNorm(outputs // GROUP, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.after = nn.GroupNorm(outputs // GROUP, outputs)
        same = inputs == outputs and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b o down across"]:
        """``[b, c, h, w]``."""
        y = functional.relu(self.norm(self.first(x)))
        return functional.relu(self.after(self.second(y)) + self.skip(x))


class SmallResNet(nn.Module):
    """Pictures ``[b, 3, h, w]`` in [-1, 1] to ``[b, 2 points]``: where each learned feature is,
    from -1 (left, top) to 1 (spatial softmax, Levine et al. 2016).
    """

    def __init__(self, config: PictureConfig) -> None:
        super().__init__()
        first = config.channels[0]
        self.stem = nn.Conv2d(3, first, 5, config.stride, 2, bias=False)
        self.norm = nn.GroupNorm(first // GROUP, first)
        blocks: list[nn.Module] = []
        inputs = first
        for i, outputs in enumerate(config.channels):
            for j in range(config.blocks):
                blocks.append(ResidualBlock(inputs, outputs, 2 if i > 0 and j == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.points = nn.Conv2d(inputs, config.points, 1)
        with torch.no_grad():
            self.points.weight.mul_(SHARPNESS)

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b f"]:
        """See the class."""
        y = self.points(self.blocks(functional.relu(self.norm(self.stem(x)))))
        return spatial_softmax(y)


def spatial_softmax(maps: Float[Tensor, "b k h w"]) -> Float[Tensor, "b f"]:
    """Mean column and row of every map under the softmax of its values, ``[b, 2 k]``."""
    height, width = (int(v) for v in maps.shape[-2:])
    weight = maps.flatten(2).softmax(dim=-1).unflatten(-1, (height, width))
    across = torch.linspace(-1.0, 1.0, width, device=maps.device)
    down = torch.linspace(-1.0, 1.0, height, device=maps.device)
    x = (weight.sum(dim=2) * across).sum(dim=-1)
    y = (weight.sum(dim=3) * down).sum(dim=-1)
    return torch.cat([x, y], dim=-1)


class PictureEncoder(nn.Module):
    """All cameras ``[b, n_obs, h, w, 3]`` uint8 to features ``[b, size]``."""

    def __init__(self, cameras: tuple[SignalSpec, ...], n_obs: int, config: PictureConfig) -> None:
        super().__init__()
        self.config = config
        self.cameras = tuple(c.name for c in cameras)
        self.nets = nn.ModuleList(SmallResNet(config) for _ in cameras)
        self.size = len(cameras) * n_obs * 2 * config.points

    def forward(self, observations: Observed, rng: torch.Generator | None) -> Float[Tensor, "b f"]:
        """With ``rng``: random crops and jitter, the same for all pictures of a row and camera.

        Places are told in the whole picture, so that a crop does not move what is seen.
        """
        parts: list[Tensor] = []
        for name, net in zip(self.cameras, self.nets, strict=True):
            cut, corners = self.crop(observations[name], rng)
            # Stored as [h, w, 3], which is channels_last: the fast layout, without a copy.
            x = cut.flatten(0, 1).permute(0, 3, 1, 2).float() / 127.5 - 1.0
            if rng is not None and self.config.jitter > 0:
                x = self.jitter(x, len(cut), rng)
            points = net(x).view(*cut.shape[:2], 2, -1)
            share, middle = _placed(cut, observations[name], corners)
            parts.append((points * share + middle).flatten(1))
        return torch.cat(parts, dim=-1)

    def start_from_file(self) -> None:
        """Load the configured weights into every camera's encoder."""
        if not self.config.weights:
            return
        path = Path(self.config.weights)
        if not path.is_file():
            raise CheckpointError(
                f"no file '{path}' with weights of a picture encoder (picture.weights). Nothing is"
                " downloaded: put a safetensors file there, or leave it empty to start from scratch"
            )
        for net in self.nets:
            load_weights(net, read_tensors(path), str(path))

    def crop(
        self, pictures: UInt8[Tensor, "b n h w 3"], rng: torch.Generator | None
    ) -> tuple[UInt8[Tensor, "b n ch cw 3"], Float[Tensor, "_ 2"]]:
        """The crops, and their left and upper edges ``[b or 1, 2]`` [px]; central without ``rng``,
        and with one the same for all pictures of a row.
        """
        # Numbers, which they are not while a graph is traced.
        height, width = (int(v) for v in pictures.shape[2:4])
        tall, wide = round(height * self.config.crop), round(width * self.config.crop)
        free_y, free_x = height - tall, width - wide
        if rng is None:
            y, x = free_y // 2, free_x // 2
            middle = torch.tensor([[x, y]], dtype=torch.float32, device=pictures.device)
            return pictures[:, :, y : y + tall, x : x + wide], middle
        places = torch.rand(len(pictures), 2, generator=rng).tolist()
        corners = [(int(v * (free_y + 1)), int(u * (free_x + 1))) for v, u in places]
        # Slices: an indexed gather of bytes is many times slower.
        cut = torch.stack(
            [p[:, y : y + tall, x : x + wide] for p, (y, x) in zip(pictures, corners, strict=True)]
        )
        edges = torch.tensor([(x, y) for y, x in corners], dtype=torch.float32)
        return cut, edges.to(pictures.device)

    def jitter(
        self, x: Float[Tensor, "n 3 h w"], rows: int, rng: torch.Generator
    ) -> Float[Tensor, "n 3 h w"]:
        """Brightness and contrast, changed alike in all pictures of each of ``rows`` rows."""
        draw = 2 * torch.rand(2, rows, generator=rng) - 1
        gain, shift = (self.config.jitter * draw).repeat_interleave(len(x) // rows, dim=1)
        gain, shift = gain.to(x.device), shift.to(x.device)
        return x * (1 + gain[:, None, None, None]) + shift[:, None, None, None]


def _placed(cut: Tensor, whole: Tensor, corners: Tensor) -> tuple[Tensor, Tensor]:
    """``point in the picture = share * point in the crop + middle``, both in [-1, 1]."""
    size = [float(cut.shape[3]), float(cut.shape[2])]
    full = [float(whole.shape[3]), float(whole.shape[2])]
    part, all_of_it = (torch.tensor(v, device=cut.device) for v in (size, full))
    middle = (2 * corners + part) / all_of_it - 1
    return (part / all_of_it)[:, None], middle[:, None, :, None]
