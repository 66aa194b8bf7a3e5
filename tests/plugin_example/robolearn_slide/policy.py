"""A policy: behaviour cloning of the median. One of your own has these three methods."""

from dataclasses import dataclass
from typing import Literal

from policies.imitation.bc import BcConfig


@dataclass(frozen=True, slots=True)
class MedianConfig(BcConfig):
    """Behaviour cloning that does the median of the demonstrations."""

    loss: Literal["squared", "absolute"] = "absolute"
