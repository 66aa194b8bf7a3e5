"""Layers with GELU between them and without norms, as actors of the OGBench family have them."""

# The stubs of torch leave some functions untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from policies.nets.shapes import AnyShape
from robolearn.learning import AnyTensor


def activated(x: AnyShape) -> AnyShape:
    """GELU of ``x``, which nobody else holds: without gradients the result takes its place."""
    if torch.is_grad_enabled() or torch.onnx.is_in_onnx_export():
        return functional.gelu(x)
    return torch.ops.aten.gelu_(x)


class Mlp(nn.Sequential):
    """``depth`` hidden layers of ``width``, from ``inputs`` numbers to ``outputs``."""

    def __init__(self, inputs: int, outputs: int, width: int, depth: int) -> None:
        layers: list[nn.Module] = []
        for k in range(depth):
            layers += [nn.Linear(width if k else inputs, width), nn.GELU()]
        super().__init__(*layers, nn.Linear(width, outputs))

    def forward(self, input: AnyTensor) -> AnyTensor:  # noqa: A002 (as torch calls it)
        """Numbers ``[..., outputs]`` of ``input [..., inputs]``."""
        # Layer by layer instead of module by module: sampling a flow asks fifty layers in turn.
        x, (*hidden, last) = input, self._weights
        for weight, bias in hidden:
            x = activated(functional.linear(x, weight, bias))
        return functional.linear(x, *last)

    @cached_property
    def _weights(self) -> tuple[tuple[Tensor, Tensor], ...]:
        return tuple((m.weight, m.bias) for m in self if isinstance(m, nn.Linear))
