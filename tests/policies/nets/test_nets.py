"""The shared networks: shapes, the start as the zero function, sizes, symmetry, pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from policies.nets.chunk_net import ConvConfig, NetKind, NetSize, build_net
from policies.nets.encoder import GAINS, TURN_GAIN, pose_in_pose
from policies.nets.pictures import PictureConfig, PictureEncoder, spatial_softmax
from policies.nets.unet import UNet1D
from robolearn.errors import CheckpointError, ConfigError
from robolearn.geometry import inverse, pose, rotation_from_rotvec
from robolearn.spec import SignalSpec
from robolearn.training.run_directory import write_tensors

CAMERA = SignalSpec("wrist/image", (20, 24, 3), "", 10.0, "uint8")
TINY = PictureConfig(channels=(8, 16), stride=2, points=4)


def size(kind: NetKind, conv: ConvConfig | None = None) -> NetSize:
    return NetSize(kind, 16, 2, 2.0, 4, conv or ConvConfig((8, 16), 3, 4))


@pytest.mark.parametrize("kind", ["mlp", "unet", "dit", "mixer"])
def test_every_network_sees_chunk_condition_and_each_row_alone(kind: NetKind) -> None:
    torch.manual_seed(0)
    net = build_net(size(kind), horizon=8, inputs=3, actions=2, flat=5)
    assert isinstance(net, nn.Module)
    for p in net.parameters():
        p.data.add_(0.1 * torch.randn(p.shape))
    x, flat, c = torch.randn(4, 8, 3), torch.randn(4, 5), torch.randn(4, 16)
    out = net.trunk(x, flat, net.modulation(c))
    assert out.shape == (4, 8, 2)
    torch.testing.assert_close(net.trunk(x[:1], flat[:1], net.modulation(c[:1])), out[:1])
    assert (net.trunk(x, flat, net.modulation(c + 1)) - out).abs().max() > 1e-4
    assert (net.trunk(x + 1, flat, net.modulation(c)) - out).abs().max() > 1e-4
    # The last action sees the first one: nothing is causal.
    other = x.clone()
    other[:, 0] += 1
    assert (net.trunk(other, flat, net.modulation(c)) - out)[:, -1].abs().max() > 1e-6


@pytest.mark.parametrize("kind", ["mlp", "dit", "mixer"])
def test_gated_networks_start_as_the_zero_function(kind: NetKind) -> None:
    net = build_net(size(kind), horizon=8, inputs=2, actions=2, flat=5)
    out = net.trunk(torch.randn(4, 8, 2), torch.randn(4, 5), net.modulation(torch.randn(4, 16)))
    assert out.abs().max() == 0


def test_the_published_unet_has_its_published_size() -> None:
    """65.8 M with a condition of 296: 256 of the clock, and two observations of 20."""
    with torch.device("meta"):
        net = UNet1D(16, 2, 2, 296, (256, 512, 1024))
        clock = nn.Sequential(nn.Linear(256, 1024), nn.Linear(1024, 256))
    count = sum(p.numel() for part in (net, clock) for p in part.parameters())
    assert count / 1e6 == pytest.approx(65.8, abs=0.05)


def test_wrong_sizes_are_explained() -> None:
    with pytest.raises(ConfigError, match="divisible by 2, got 5"):
        build_net(size("unet"), horizon=5, inputs=2, actions=2, flat=5)
    with pytest.raises(ConfigError, match="multiples of groups"):
        build_net(size("unet", ConvConfig((6, 12), 3, 4)), 4, 2, 2, 5)
    with pytest.raises(ConfigError, match="multiple of heads"):
        build_net(NetSize("dit", 18, 2, 2.0, 4, ConvConfig()), 4, 2, 2, 5)
    with pytest.raises(ConfigError, match="channels must be multiples of 8"):
        PictureConfig(channels=(12,))


def test_spatial_softmax_finds_the_peak() -> None:
    maps = torch.zeros(1, 2, 5, 9)
    maps[0, 0, 0, 8] = 50.0  # Top right.
    maps[0, 1, 2, 4] = 50.0  # The middle.
    torch.testing.assert_close(spatial_softmax(maps), torch.tensor([[1.0, 0.0, -1.0, 0.0]]))


def test_crops_are_central_without_a_generator_and_random_with_one() -> None:
    torch.manual_seed(0)
    encoder = PictureEncoder((CAMERA,), 2, PictureConfig((8, 16), stride=2, points=4, crop=0.5))
    rows = np.random.default_rng(0).integers(0, 255, (3, 2, 20, 24, 3), dtype=np.uint8)
    pictures = torch.from_numpy(rows)
    cut, middle = encoder.crop(pictures, None)
    torch.testing.assert_close(cut, pictures[:, :, 5:15, 6:18])
    assert middle.tolist() == [[6.0, 5.0]]
    drawn, edges = encoder.crop(pictures, torch.Generator().manual_seed(0))
    again, _ = encoder.crop(pictures, torch.Generator().manual_seed(0))
    assert drawn.shape == cut.shape
    assert torch.equal(drawn, again)
    for row, (x, y) in enumerate(edges.int().tolist()):
        assert torch.equal(drawn[row], pictures[row, :, y : y + 10, x : x + 12])
    assert not torch.equal(drawn, cut)
    features = encoder({CAMERA.name: pictures}, None)
    assert features.shape == (3, encoder.size) == (3, 16)
    one = encoder({CAMERA.name: pictures[1:2]}, None)
    torch.testing.assert_close(one, features[1:2], atol=1e-5, rtol=0)


def test_jitter_changes_brightness_in_training_alone() -> None:
    config = PictureConfig((8,), stride=2, points=4, crop=1.0, jitter=0.3)
    encoder = PictureEncoder((CAMERA,), 1, config)
    x = torch.linspace(-1, 1, 4 * 3 * 2 * 2).view(4, 3, 2, 2)
    changed = encoder.jitter(x, 2, torch.Generator().manual_seed(0))
    gain = (changed[0, 2, 1, 1] - changed[0, 0, 0, 0]) / (x[0, 2, 1, 1] - x[0, 0, 0, 0])
    assert 0.7 <= gain.item() <= 1.3
    # The pictures of one row change alike.
    second = (changed[1, 2, 1, 1] - changed[1, 0, 0, 0]) / (x[1, 2, 1, 1] - x[1, 0, 0, 0])
    assert gain.item() == pytest.approx(second.item(), rel=1e-4)


def test_weights_of_an_encoder_come_from_a_local_file_only(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = PictureEncoder((CAMERA,), 1, TINY)
    file = tmp_path / "encoder.safetensors"
    write_tensors(file, source.nets[0].state_dict(), {})
    torch.manual_seed(1)
    target = PictureEncoder(
        (CAMERA,), 1, PictureConfig((8, 16), stride=2, points=4, weights=str(file))
    )
    target.start_from_file()
    torch.testing.assert_close(target.nets[0].state_dict(), source.nets[0].state_dict())
    absent = PictureConfig((8, 16), weights=str(tmp_path / "none"))
    with pytest.raises(CheckpointError, match="Nothing is downloaded"):
        PictureEncoder((CAMERA,), 1, absent).start_from_file()
    other = PictureConfig((8, 24), stride=2, points=4, weights=str(file))
    with pytest.raises(CheckpointError, match="do not fit"):
        PictureEncoder((CAMERA,), 1, other).start_from_file()


def test_a_pose_is_seen_from_another_pose() -> None:
    rng = np.random.default_rng(0)
    T_world_a, T_world_b = (
        pose(rotation_from_rotvec(rng.normal(size=3)), 0.05 * rng.normal(size=3)) for _ in range(2)
    )
    one, other = (
        torch.tensor(np.concatenate([T[:3, 3], T[:3, 0], T[:3, 1]])) for T in (T_world_a, T_world_b)
    )
    T_b_a = inverse(T_world_b) @ T_world_a
    features = pose_in_pose(one, other).numpy()
    steps = np.concatenate([T_world_a[:3, 3] - T_world_b[:3, 3], T_b_a[:3, 3]])
    columns = T_b_a[:3, :2].T.ravel()
    fine = np.tanh(TURN_GAIN * columns)
    expected = [*(np.tanh(gain * steps) for gain in GAINS), columns, fine]
    np.testing.assert_allclose(features, np.concatenate(expected), atol=1e-12)
