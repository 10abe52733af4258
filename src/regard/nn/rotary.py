"""Rotary positions: queries and keys turned by angles that grow with the position."""

import math
from typing import Literal, NamedTuple, assert_never

import torch

from regard.nn.config import (
    LinearScalingConfig,
    Llama3ScalingConfig,
    NoScalingConfig,
    NTKScalingConfig,
    RotaryConfig,
    YarnScalingConfig,
)
from regard.shapes import Float, Int, Tensor


class Rotation(NamedTuple):
    """Cosines and sines of the angles of some places, float32 whatever the model's type."""

    cos_bqr: Float[Tensor, "#b q r"]
    sin_bqr: Float[Tensor, "#b q r"]
    layout: Literal["halves", "interleaved"]


def rotate(x_bhqe: Float[Tensor, "b h q e"], rotation: Rotation) -> Float[Tensor, "b h q e"]:
    """Turn each pair of dimensions by its angle; those without an angle stay as they are.

    The arithmetic is in float32 at least; the result has the type of `x_bhqe`.

    Source: Su et al. 2021, arXiv:2104.09864, equation 34.
    """
    cos, sin = rotation.cos_bqr[:, None], rotation.sin_bqr[:, None]
    turned = 2 * cos.shape[-1]
    wide = x_bhqe[..., :turned].to(torch.promote_types(x_bhqe.dtype, torch.float32))
    if rotation.layout == "halves":
        first, second = wide.chunk(2, -1)
        out = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    else:
        first, second = wide[..., 0::2], wide[..., 1::2]
        pairs = torch.stack([first * cos - second * sin, second * cos + first * sin], -1)
        out = pairs.flatten(-2)
    out = out.to(x_bhqe.dtype)
    return out if turned == x_bhqe.shape[-1] else torch.cat([out, x_bhqe[..., turned:]], -1)


class Phases:
    """How fast each pair of dimensions turns, in float32, and from positions to angles.

    Args:
        config: base, layout and scaling.
        head_dim: the width of a head's queries and keys.
    """

    def __init__(self, config: RotaryConfig, head_dim: int) -> None:
        self.layout = config.layout
        self._rates_r = rotary_rates(config, head_dim)
        self._factor = _amplitude(config)

    def at(self, positions: Int[Tensor, "#b q"]) -> Rotation:
        """The rotation of these positions."""
        if self._rates_r.device != positions.device:
            self._rates_r = self._rates_r.to(positions.device)
        angles_bqr = positions[..., None].float() * self._rates_r
        cos, sin = angles_bqr.cos(), angles_bqr.sin()
        if self._factor != 1.0:
            cos, sin = cos * self._factor, sin * self._factor
        return Rotation(cos, sin, self.layout)


def rotary_rates(config: RotaryConfig, head_dim: int) -> Float[Tensor, " r"]:
    """The angle, in radians, that each pair of dimensions turns from a position to the next."""
    dim = head_dim if config.dim is None else config.dim
    exponents_r = torch.arange(0, dim, 2).float() / dim
    match config.scaling:
        case NoScalingConfig():
            return 1.0 / config.theta**exponents_r
        case LinearScalingConfig(factor=factor):
            return 1.0 / config.theta**exponents_r / factor
        case NTKScalingConfig():
            return 1.0 / rotary_base(config, head_dim) ** exponents_r
        case YarnScalingConfig() as yarn:
            return _yarn(yarn, config.theta**exponents_r, config.theta, dim)
        case Llama3ScalingConfig() as llama:
            return _llama3(llama, 1.0 / config.theta**exponents_r)
        case _ as never:
            assert_never(never)


def rotary_base(config: RotaryConfig, head_dim: int) -> float:
    """What the angles are powers of, NTK scaling told by it; one pair alone has no power."""
    dim = head_dim if config.dim is None else config.dim
    if not isinstance(config.scaling, NTKScalingConfig) or dim == 2:
        return config.theta
    return float(config.theta * config.scaling.factor ** (dim / (dim - 2)))


def _amplitude(config: RotaryConfig) -> float:
    """What sines and cosines are multiplied by; more than 1 sharpens the scores (YaRN)."""
    if not isinstance(config.scaling, YarnScalingConfig):
        return 1.0
    given = config.scaling.attention_factor
    return 0.1 * math.log(config.scaling.factor) + 1.0 if given is None else given


def _yarn(config: YarnScalingConfig, periods_r: Tensor, theta: float, dim: int) -> Tensor:
    """Kept below the dimension of `beta_fast` turns, divided above that of `beta_slow` turns."""

    def dimension(turns: float) -> float:
        # The pair that turns so often over the positions the model was first trained on.
        return (
            dim
            * math.log(config.original_positions / (2 * math.pi * turns))
            / (2 * math.log(theta))
        )

    low, high = dimension(config.beta_fast), dimension(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    slow_r = ((torch.arange(dim // 2).float() - low) / (high - low)).clamp(0, 1)
    kept_r = 1 - slow_r
    return (1.0 / (config.factor * periods_r)) * (1 - kept_r) + (1.0 / periods_r) * kept_r


def _llama3(config: Llama3ScalingConfig, rates_r: Tensor) -> Tensor:
    """Kept for short wavelengths, divided for long ones, blended between them."""
    wavelengths_r = 2 * math.pi / rates_r
    turns_r = config.original_positions / wavelengths_r
    share_r = (turns_r - config.low_factor) / (config.high_factor - config.low_factor)
    blended_r = (1 - share_r) * rates_r / config.factor + share_r * rates_r
    out_r = torch.where(turns_r < config.low_factor, rates_r / config.factor, blended_r)
    return torch.where(turns_r > config.high_factor, rates_r, out_r)
