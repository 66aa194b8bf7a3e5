"""Scales what a denoiser sees and says by the level of noise (Karras et al. 2022, table 1).

    x = a + sigma eps,   D(x) = c_skip x + c_out net(c_in x, sigma)
    c_skip = s^2 / (sigma^2 + s^2),  c_out = sigma s / sqrt(sigma^2 + s^2),  c_in = 1 / sqrt(...)

s: deviation of the data. A consistency function is x itself at the least level that there is, so
that c_skip and c_out count from there (Song et al. 2023, appendix C): sigma - least for sigma,
except below the root.
"""

from __future__ import annotations

from policies.nets.shapes import AnyShape


def denoiser_scales(
    sigma: AnyShape, std: float, least: float = 0.0
) -> tuple[AnyShape, AnyShape, AnyShape]:
    """``c_in, c_skip, c_out`` in the shape of ``sigma``."""
    root = (sigma**2 + std**2).rsqrt()
    above = sigma - least
    return root, std**2 / (above**2 + std**2), above * std * root
