"""Cuts a source that is too long for its model into pieces, where that hurts least."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from math import ceil

# Where a text may be cut, the best first; a cut is at the end of a match.
_CUTS = (
    re.compile(r"""[.!?…]+["'»”’)\]]*\s+|[。！？｡]+["'」』”’）]*\s*"""),
    re.compile(r"[;:]\s+|[；：]\s*"),
    re.compile(r",\s+|[，、]\s*"),
    re.compile(r"\s+"),
)
# Pieces of a sentence are made about equal: a last piece of one word translates badly.
_SLACK = 1.1
_ZERO_WIDTH_JOINER = "\u200d"

Count = Callable[[Sequence[str]], list[int]]


def split_source(text: str, limit: int, count: Count) -> list[tuple[int, int]]:
    """Cut a text into pieces of at most `limit` tokens; give their bounds in characters.

    It is cut at sentence ends; a sentence that is too long at semicolons and colons, then at
    commas, then at spaces, and at last anywhere. Blank space around a piece is left out, and
    nothing else: a single character of more than `limit` tokens is a piece of its own.

    Args:
        count: the number of tokens of each text.
    """
    return _split(text, 0, len(text), limit, count, 0)


def _split(
    text: str, start: int, end: int, limit: int, count: Count, level: int
) -> list[tuple[int, int]]:
    start, end = _stripped(text, start, end)
    if start == end:
        return []
    if count([text[start:end]])[0] <= limit:
        return [(start, end)]
    if level == len(_CUTS):
        return _cut_anywhere(text, start, end, limit, count)
    ends = [match.end() for match in _CUTS[level].finditer(text, start, end)]
    if not ends or ends[-1] < end:
        ends.append(end)
    segments = [
        _stripped(text, first, last) for first, last in zip([start, *ends[:-1]], ends, strict=True)
    ]
    if len(segments) == 1:
        return _split(text, start, end, limit, count, level + 1)
    # Tokens don't reach over spaces, so that the sum is right but for odd spacing.
    sizes = count([text[first:last] for first, last in segments])
    goal = limit
    if level:
        share = sum(sizes) / ceil(sum(sizes) / limit)
        goal = min(limit, max(ceil(share), int(_SLACK * share)))
    pieces = []
    for first, last in _packed(segments, sizes, goal):
        pieces += _split(text, first, last, limit, count, level + 1)
    return pieces


def _packed(
    segments: Sequence[tuple[int, int]], sizes: Sequence[int], goal: int
) -> list[tuple[int, int]]:
    """Join neighbours as long as they have `goal` tokens together at most."""
    packed: list[tuple[int, int]] = []
    filled = goal
    for (first, last), size in zip(segments, sizes, strict=True):
        if filled + size <= goal:
            packed[-1] = (packed[-1][0], last)
            filled += size
        else:
            packed.append((first, last))
            filled = size
    return packed


def _cut_anywhere(
    text: str, start: int, end: int, limit: int, count: Count
) -> list[tuple[int, int]]:
    pieces = []
    while start < end:
        size = min(end - start, 8 * limit)
        while size > 1 and (tokens := count([text[start : start + size]])[0]) > limit:
            size = max(1, min(size - 1, size * limit // tokens))
        stop = _before_marks(text, start, start + size) if start + size < end else end
        pieces.append((start, stop))
        start = stop
    return pieces


def _before_marks(text: str, start: int, stop: int) -> int:
    """Move a cut back, so that it parts no letter from its marks."""
    moved = stop
    while moved > start + 1 and (
        unicodedata.category(text[moved]).startswith("M")
        or _ZERO_WIDTH_JOINER in text[moved - 1 : moved + 1]
    ):
        moved -= 1
    return moved if moved > start + 1 else stop


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
