"""A shuffle of any size without a table: where each position goes is computed on its own."""

from typing import cast

import numpy as np
import numpy.typing as npt

from regard.text.arrays import Indices

ROUNDS = 6

_Words = npt.NDArray[np.uint64]


def shuffled(positions: Indices, size: int, key: int) -> Indices:
    """Return where a shuffle of `size` things puts each of these positions.

    Over all positions it is a permutation, the same for the same size and key. It is a Feistel
    network on the bits of the position; what falls outside the size goes through it again.

    Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains", cycle walking.
    """
    bits = max(2, (size - 1).bit_length())
    bits += bits % 2
    values = positions.astype(np.uint64)
    keys = _mix(np.arange(1, ROUNDS + 1, dtype=np.uint64) ^ _mix(np.array([key], dtype=np.uint64)))
    outside = np.arange(len(values))
    while len(outside):
        values[outside] = _network(values[outside], np.uint64(bits // 2), keys)
        outside = outside[values[outside] >= size]
    return cast(Indices, values.astype(np.int64))


def _network(values: _Words, half: np.uint64, keys: _Words) -> _Words:
    mask = np.uint64((1 << int(half)) - 1)
    left, right = values >> half, values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return cast(_Words, (left << half) | right)


def _mix(values: _Words) -> _Words:
    """Stir 64 bits so that each depends on all (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cast(_Words, values ^ (values >> np.uint64(31)))
