"""The numbers that positions inside attention are computed from, as float32 rounds them.

They are those of `regard.nn.rotary` and `regard.nn.positions`, found without torch. Each operation
is rounded as there; powers and logarithms are rounded correctly here, and by torch to within a unit
or two of the last place.
"""

import math
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from regard.nn.config import (
    LinearScalingConfig,
    Llama3ScalingConfig,
    NoScalingConfig,
    NTKScalingConfig,
    RelativeConfig,
    RotaryConfig,
    YarnScalingConfig,
)

Floats = NDArray[np.float32]


def rotary_rates(config: RotaryConfig, head_dim: int) -> Floats:
    """The angle, in radians, that each pair of dimensions turns from a position to the next."""
    dim = head_dim if config.dim is None else config.dim
    exponents = np.arange(0, dim, 2).astype(np.float32) / np.float32(dim)
    scaling, theta = config.scaling, config.theta
    if isinstance(scaling, NTKScalingConfig) and dim > 2:
        theta *= scaling.factor ** (dim / (dim - 2))
    periods = _power(theta, exponents)
    rates: Floats = np.float32(1) / periods
    match scaling:
        case NoScalingConfig() | NTKScalingConfig():
            return rates
        case LinearScalingConfig(factor=factor):
            return rates / np.float32(factor)
        case YarnScalingConfig():
            return _yarn(scaling, periods, config.theta, dim)
        case Llama3ScalingConfig():
            return _llama3(scaling, rates)
        case _ as never:
            assert_never(never)


def rotary_amplitude(config: RotaryConfig) -> float:
    """What sines and cosines are multiplied by."""
    scaling = config.scaling
    if not isinstance(scaling, YarnScalingConfig):
        return 1.0
    given = scaling.attention_factor
    return 0.1 * math.log(scaling.factor) + 1.0 if given is None else given


def alibi_slopes(num_heads: int) -> Floats:
    """How fast the scores of each head fall with the distance."""

    def powers(heads: int) -> Floats:
        steps = np.arange(1, heads + 1).astype(np.float32)
        return _power(2.0, np.float32(-8.0 / heads) * steps)

    whole = 2 ** int(math.log2(num_heads))
    return np.concatenate([powers(whole), powers(2 * whole)[0 : 2 * (num_heads - whole) : 2]])


def relative_limits(config: RelativeConfig, *, bidirectional: bool) -> list[int]:
    """For each bucket of far distances but the first, the least distance that falls into it."""
    buckets = config.buckets // 2 if bidirectional else config.buckets
    exact = buckets // 2
    span = np.float32(math.log(config.max_distance / exact))

    def far(distance: int) -> int:
        ratio = np.float32(math.log(np.float32(distance) / np.float32(exact))) / span
        return exact + int(ratio * np.float32(buckets - exact))

    limits = []
    low = exact
    for bucket in range(exact + 1, buckets):
        high = max(2 * config.max_distance, low + 1)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if far(middle) >= bucket else (middle + 1, high)
        limits.append(min(low, 2**31 - 1))
    return limits


def _power(base: float, exponents: Floats) -> Floats:
    wide = np.power(float(np.float32(base)), exponents.astype(np.float64))
    return wide.astype(np.float32)


def _yarn(config: YarnScalingConfig, periods: Floats, theta: float, dim: int) -> Floats:
    def dimension(turns: float) -> float:
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
    one = np.float32(1)
    places = np.arange(dim // 2).astype(np.float32)
    slow = ((places - np.float32(low)) / np.float32(high - low)).clip(0, 1)
    kept = one - slow
    divided = one / (np.float32(config.factor) * periods) * (one - kept)
    rates: Floats = divided + one / periods * kept
    return rates


def _llama3(config: Llama3ScalingConfig, rates: Floats) -> Floats:
    one, factor = np.float32(1), np.float32(config.factor)
    low, high = np.float32(config.low_factor), np.float32(config.high_factor)
    turns = np.float32(config.original_positions) / (np.float32(2 * math.pi) / rates)
    share = (turns - low) / np.float32(config.high_factor - config.low_factor)
    blended = (one - share) * rates / factor + share * rates
    out = np.where(turns < low, rates / factor, blended)
    return np.where(turns > high, rates, out)
