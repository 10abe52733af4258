"""Which pairs are held out: decided by a hash of the source, so that near twins stay together."""

import re
from hashlib import blake2b

_NOT_LETTERS = re.compile(r"[\W\d_]+")


def twin_key(source: str) -> str:
    """Return what near twins have in common: the letters, without case, digits, punctuation.

    A text without letters is its own key.
    """
    return _NOT_LETTERS.sub(" ", source.casefold()).strip() or source


def hash_of(source: str, *, salt: str) -> int:
    """Return a 64-bit hash that a source shares with its near twins; another salt, another hash."""
    digest = blake2b(
        twin_key(source).encode("utf-8"),
        digest_size=8,
        key=blake2b(salt.encode("utf-8"), digest_size=32).digest(),
    )
    return int.from_bytes(digest.digest(), "big")


def holds_out(source: str, share: float, *, salt: str) -> bool:
    """Return whether a text belongs to a share, from 0 to 1, that is kept apart."""
    return share > 0 and place(source, salt=salt) < share


def place(source: str, *, salt: str) -> float:
    """Return a number in [0, 1), even over all texts, that a source shares with its near twins.

    To split into three, compare it with two thresholds: every pair falls on one side, on every
    machine and in any order of the data.
    """
    return (hash_of(source, salt=salt) >> 11) / 2**53
