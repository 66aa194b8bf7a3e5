"""Says how much pictures are varied in training (``robolearn/training/pictures.py`` does it)."""

from __future__ import annotations

from dataclasses import dataclass

from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PictureConfig:
    """Limits of the variation; every window draws its own, the same for all of its pictures."""

    # Moved by up to so many pixels, edges repeated (Kostrikov et al. 2020, "DrQ").
    shift_px: int = 0
    # Brightness times 1 +- this.
    brightness: float = 0.0
    # Contrast around the mean colour, times 1 +- this.
    contrast: float = 0.0
    # Distance from grey, times 1 +- this.
    saturation: float = 0.0

    def __post_init__(self) -> None:
        shares = (self.brightness, self.contrast, self.saturation)
        if self.shift_px < 0 or not all(0 <= share < 1 for share in shares):
            raise ConfigError(
                "pictures: expected shift_px >= 0 and brightness, contrast, saturation in [0, 1),"
                f" got {self}"
            )

    @property
    def plain(self) -> bool:
        """Whether nothing is varied."""
        return self == PictureConfig()
