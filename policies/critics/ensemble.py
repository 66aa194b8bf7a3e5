"""Computes several networks of one shape at once: one batched matrix product per layer.

    x [b, f] -> [members, b, f] -(W [members, f, w], b)-> GELU -> layer norm -> ... -> [members, b]

Layer norms after the activations keep values from running away where there are no data, as in the
OGBench family (Park et al. 2025; Ball et al. 2023).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from policies.nets.mlp import activated
from policies.nets.shapes import Features, MemberFeatures, MemberIndex, MemberNumbers, MemberRows
from robolearn.learning import AnyTensor, Weights


class Ensemble(nn.Module):
    """``members`` networks from ``inputs`` numbers to one (or ``outputs``, see :meth:`several`),
    with ``depth`` hidden layers.

    Initial weights are those of as many ``nn.Linear`` stacks that are made one after the other.
    """

    def __init__(
        self, members: int, inputs: int, width: int, depth: int = 2, outputs: int = 1
    ) -> None:
        super().__init__()
        self.members, self.depth, self.width = members, depth, width
        sizes = [inputs, *[width] * depth, outputs]
        pairs = list(itertools.pairwise(sizes))
        made = [[nn.Linear(i, o) for i, o in pairs] for _ in range(members)]
        layers = list(zip(*made, strict=True))
        self.weights = nn.ParameterList(
            torch.stack([m.weight.detach().T for m in layer]) for layer in layers
        )
        self.biases = nn.ParameterList(
            torch.stack([m.bias.detach()[None] for m in layer]) for layer in layers
        )
        self.gains = nn.ParameterList(torch.ones(members, 1, width) for _ in range(depth))
        self.shifts = nn.ParameterList(torch.zeros(members, 1, width) for _ in range(depth))
        self._ones: Tensor
        self._zeros: Tensor
        self.register_buffer("_ones", torch.ones(width), persistent=False)
        self.register_buffer("_zeros", torch.zeros(width), persistent=False)

    def forward(self, x: Features, asked: MemberIndex | None = None) -> MemberRows:
        """What every member says of the rows ``x [b, f]``; ``asked``: only those of these numbers,
        and only their work is done.
        """
        return self.several(x, asked).squeeze(-1)

    def several(self, x: Features, asked: MemberIndex | None = None) -> MemberNumbers:
        """All numbers that every member (of ``asked``) says of the rows ``x [b, f]``."""
        features = self.hidden(x, asked)[1]
        weight, bias = _of(self._last, asked)
        if weight.shape[2] == 1:
            # A product with one column takes several times as long as its sums.
            return (features * weight.transpose(1, 2)).sum(dim=-1, keepdim=True) + bias
        return torch.baddbmm(bias, features, weight)

    def hidden(
        self, x: Features, asked: MemberIndex | None = None
    ) -> tuple[list[MemberFeatures], MemberFeatures]:
        """Activations of every hidden layer at ``x [b, f]``, and the last features: the activations
        of the last one after its norm.
        """
        count = self.members if asked is None else len(asked)
        return self.layers(x[None].expand(count, -1, -1), asked)

    def layers(
        self, y: MemberNumbers, asked: MemberIndex | None = None
    ) -> tuple[list[MemberFeatures], MemberFeatures]:
        """:meth:`hidden` of what every member (of ``asked``) sees by itself."""
        activations = list[MemberFeatures]()
        for layer in self._hidden:
            weight, bias, gain, shift = _of(layer, asked)
            y = activated(torch.baddbmm(bias, y, weight))
            activations.append(y)
            y = self._normed(y, gain, shift)
        return activations, y

    # Asked for in every pass, and a list of parameters looks each of them up by its name.
    @cached_property
    def _hidden(self) -> tuple[tuple[Tensor, ...], ...]:
        found = zip(self.weights, self.biases, self.gains, self.shifts, strict=False)
        return tuple(found)

    @cached_property
    def _last(self) -> tuple[Tensor, ...]:
        return self.weights[-1], self.biases[-1]

    def _normed(self, y: MemberFeatures, gain: Tensor, shift: Tensor) -> MemberFeatures:
        """The layer norm of every member's own ``gain`` and ``shift [members, 1, w]``."""
        shape = (self.width,)
        if len(gain) == 1:
            return functional.layer_norm(y, shape, gain[0, 0], shift[0, 0])
        # Ones and zeros: PyTorch's kernel for a norm without them is half as fast on a CPU.
        normed = functional.layer_norm(y, shape, self._ones, self._zeros)
        return torch.addcmul(shift, normed, gain)


def _of(layer: tuple[Tensor, ...], asked: MemberIndex | None) -> tuple[Tensor, ...]:
    return layer if asked is None else tuple(parameter[asked] for parameter in layer)


def from_sequential(weights: Weights, prefix: str, members: tuple[str, ...]) -> Weights:
    """Weights of ``nn.Sequential`` stacks (linear, GELU, norm, ..., linear) at ``prefix + member``
    as those of an :class:`Ensemble`; how runs of earlier versions kept their critics.
    """
    steps = sorted(
        {int(k.removeprefix(prefix + members[0]).split(".")[0]) for k in weights
         if k.startswith(prefix + members[0])}
    )  # fmt: skip
    linear, norms = steps[::2], steps[1::2]

    def stacked(step: int, name: str) -> AnyTensor:
        return torch.stack([weights[f"{prefix}{member}{step}.{name}"] for member in members])

    found: dict[str, AnyTensor] = {}
    for layer, step in enumerate(linear):
        found[f"weights.{layer}"] = stacked(step, "weight").transpose(1, 2).contiguous()
        found[f"biases.{layer}"] = stacked(step, "bias")[:, None]
    for layer, step in enumerate(norms):
        found[f"gains.{layer}"] = stacked(step, "weight")[:, None]
        found[f"shifts.{layer}"] = stacked(step, "bias")[:, None]
    return found


def prefixed(weights: Mapping[str, AnyTensor], prefix: str) -> dict[str, AnyTensor]:
    """The same weights by longer names."""
    return {f"{prefix}{name}": value for name, value in weights.items()}
