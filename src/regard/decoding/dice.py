"""The numbers that a text is drawn by, which anyone can compute from a seed: no torch, no state.

They are the outputs of SplitMix64: number n of the stream that begins at a key. A stream's output
is the key of another one, so each sample has a key, each of its places, and each token there. None
depends on how many were drawn before, so a text is the same in any batch, and by the engine, which
has the same rule in csrc/dice.h.

Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
"""

import hashlib
from collections.abc import Sequence
from typing import Final

ALL: Final = 2**64
STEP: Final = 0x9E3779B97F4A7C15
FACTORS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def random_bits(key: int, number: int) -> int:
    """Output `number`, counted from 0, of the stream of a key: 64 bits."""
    bits = (key + (number + 1) * STEP) % ALL
    bits = (bits ^ bits >> 30) * FACTORS[0] % ALL
    bits = (bits ^ bits >> 27) * FACTORS[1] % ALL
    return bits ^ bits >> 31


def seed_of(seed: int, *ids: Sequence[int]) -> int:
    """A seed out of what is gone on from, so that its samples are the same wherever it stands."""
    told = repr((seed, *map(list, ids))).encode("ascii")
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big")


def sample_keys(seeds: Sequence[int], samples: int) -> list[int]:
    """The keys of `samples` chains for each seed; the first are the same however many there are."""
    return [random_bits(seed % ALL, sample) for seed in seeds for sample in range(samples)]
