"""Training of a unigram vocabulary over bytes: the same words give the same pieces and scores.

The `tokenizers` library has such a trainer too, but its sums follow the order of a hash map that
is seeded anew in each process, so two runs on the same data differ.

Source: Kudo 2018, arXiv:1804.10959, section 3.2.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

LONGEST_PIECE = 16
LONGEST_WORD = 32
MOST_WORDS = 100_000
SEEDS_PER_PIECE = 8
KEPT_PER_ROUND = 0.75
LEAST_PROBABILITY = 1e-9


def train_unigram(
    words: Iterable[str], size: int, alphabet: Sequence[str]
) -> list[tuple[str, float]]:
    """Choose at most `size` pieces and their log-probabilities.

    Args:
        words: the words of the text, each in letters of the alphabet; counted as they come.
        size: how many pieces are wanted, every letter of the alphabet among them.
        alphabet: the letters, all of which are pieces so that any word can be cut.

    Returns:
        The pieces, the likeliest first. Fewer than `size` where the text supplies no more.
    """
    number_of = {letter: index for index, letter in enumerate(alphabet)}
    text = _count(words, number_of)
    piece_at, where, length = _seed(text, size * SEEDS_PER_PIECE, alphabet)
    forward = _sweep(text.starts, text.lengths, piece_at)
    probability = _first_guess(text, piece_at, len(length))
    while True:
        for _ in range(2):
            expected = _expect(text, forward, probability)
            probability = np.maximum(expected / max(expected.sum(), 1.0), LEAST_PROBABILITY)
        surplus = len(length) - size
        if surplus <= 0:
            break
        wanted = max(size, int(len(length) * KEPT_PER_ROUND))
        kept = _most_useful(piece_at, where, length, probability, expected, wanted)
        renumbered = np.full(len(length) + 1, -1, dtype=np.int64)
        renumbered[kept] = np.arange(len(kept))
        piece_at = renumbered[piece_at]
        where, length, probability = where[kept], length[kept], probability[kept]
        forward = _sweep(text.starts, text.lengths, piece_at)
    spelled = [
        "".join(alphabet[letter] for letter in text.letters[start : start + count])
        for start, count in zip(where.tolist(), length.tolist(), strict=True)
    ]
    # Rounded, so that the last bits of a sum never decide anything.
    scores = [round(float(score), 6) for score in np.log(probability)]
    return sorted(zip(spelled, scores, strict=True), key=lambda item: (-item[1], item[0]))


@dataclass(frozen=True)
class _Text:
    """Distinct words end to end, after every letter of the alphabet once."""

    letters: Integers
    starts: Integers
    lengths: Integers
    counts: Numbers


def _count(words: Iterable[str], number_of: dict[str, int]) -> _Text:
    counter = Counter(words)
    parts: Counter[str] = Counter()
    common = sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:MOST_WORDS]
    for word, count in common:
        for start in range(0, len(word), LONGEST_WORD):
            parts[word[start : start + LONGEST_WORD]] += count
    # Each letter is there as a word of no weight, so that each has a place and a piece.
    every = [(letter, 0) for letter in number_of] + sorted(parts.items())
    lengths = np.array([len(word) for word, _ in every], dtype=np.int64)
    return _Text(
        letters=np.array([number_of[letter] for word, _ in every for letter in word]),
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        counts=np.array([count for _, count in every], dtype=np.float64),
    )


def _seed(text: _Text, limit: int, alphabet: Sequence[str]) -> tuple[Integers, Integers, Integers]:
    """Choose the first pieces: the letters, and the substrings that cover most text.

    Returns:
        the piece of each length (row) at each place (column) or -1; a place where each piece
        occurs; its length.
    """
    places = len(text.letters)
    ends = np.repeat(text.starts + text.lengths, text.lengths)
    weights = np.repeat(text.counts, text.lengths)
    piece_at = np.full((LONGEST_PIECE, places), -1, dtype=np.int64)
    piece_at[0] = text.letters
    live, names = np.arange(places), text.letters
    found: list[tuple[Numbers, Integers, int]] = []
    for size in range(2, LONGEST_PIECE + 1):
        fits = live + size <= ends[live]
        live, names = live[fits], names[fits]
        if not len(live):
            break
        keys = names * len(alphabet) + text.letters[live + size - 1]
        _, first, names = np.unique(keys, return_index=True, return_inverse=True)
        count = np.bincount(names, weights=weights[live])
        piece_at[size - 1, live] = names
        found.append((np.where(count >= 2, count * size, 0.0), live[first], size))
        often = count[names] >= 2
        live, names = live[often], names[often]
    return _number_seeds(piece_at, found, limit, len(alphabet))


def _number_seeds(
    piece_at: Integers, found: list[tuple[Numbers, Integers, int]], limit: int, letters: int
) -> tuple[Integers, Integers, Integers]:
    """Keep the best substrings and give them, after the letters, one numbering of all lengths."""
    score = np.concatenate([np.zeros(0), *(scores for scores, _, _ in found)])
    best = np.argsort(-score, kind="stable")[: max(0, limit - letters)]
    best = np.sort(best[score[best] > 0])
    number = np.full(len(score) + 1, -1, dtype=np.int64)
    number[best] = letters + np.arange(len(best))
    offset = 0
    for scores, _, size in found:
        row = piece_at[size - 1]
        piece_at[size - 1] = np.where(row >= 0, number[row + offset], -1)
        offset += len(scores)
    no_places = [np.zeros(0, dtype=np.int64)]
    firsts = np.concatenate(no_places + [first for _, first, _ in found])
    sizes = np.concatenate(no_places + [np.full(len(s), size) for s, _, size in found])
    where = np.concatenate([np.arange(letters), firsts[best]])
    return piece_at, where, np.concatenate([np.ones(letters, dtype=np.int64), sizes[best]])


def _first_guess(text: _Text, piece_at: Integers, pieces: int) -> Numbers:
    weights = np.repeat(text.counts, text.lengths)
    guess = np.zeros(pieces)
    for row in piece_at:
        guess += np.bincount(row[row >= 0], weights=weights[row >= 0], minlength=pieces)
    return cast(Numbers, np.maximum(guess / max(guess.sum(), 1.0), LEAST_PROBABILITY))


@dataclass(frozen=True)
class _Sweep:
    """The edges of many small lattices: one lattice a string, a node before each letter and at
    the end, an edge a piece that fits there. Sorted by the offset of the edge's end."""

    nodes: int
    first_node: Integers
    last_node: Integers
    start: Integers
    end: Integers
    piece: Integers
    owner: Integers
    offset_start: Integers
    offset_end: Integers


def _sweep(starts: Integers, lengths: Integers, piece_at: Integers) -> _Sweep:
    owner = np.repeat(np.arange(len(lengths)), lengths)
    offset = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    place = starts[owner] + offset
    first_node = np.cumsum(lengths + 1) - (lengths + 1)
    columns: list[Integers] = []
    for row in range(LONGEST_PIECE):
        fits = np.flatnonzero((offset + row + 1 <= lengths[owner]) & (piece_at[row, place] >= 0))
        columns.append(np.stack([owner[fits], offset[fits], offset[fits] + row + 1,
                                 piece_at[row, place[fits]]]))  # fmt: skip
    owner, offset_start, offset_end, piece = np.concatenate(columns, axis=1)
    order = np.lexsort((offset_start, owner, offset_end))
    owner, piece = owner[order], piece[order]
    offset_start, offset_end = offset_start[order], offset_end[order]
    return _Sweep(
        nodes=int((lengths + 1).sum()),
        first_node=first_node,
        last_node=first_node + lengths,
        start=first_node[owner] + offset_start,
        end=first_node[owner] + offset_end,
        piece=piece,
        owner=owner,
        offset_start=offset_start,
        offset_end=offset_end,
    )


def _along(
    at: Numbers, level: Integers, source: Integers, goal: Integers, edge: Numbers, combine: np.ufunc
) -> Numbers:
    """Fill `at` along edges sorted by level, then goal: combine at[source] * edge at the goal."""
    bounds = np.flatnonzero(np.diff(level, prepend=-1, append=-1))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        goals = goal[low:high]
        firsts = np.flatnonzero(np.diff(goals, prepend=-1))
        at[goals[firsts]] = combine.reduceat(at[source[low:high]] * edge[low:high], firsts)
    return at


def _expect(text: _Text, sweep: _Sweep, probability: Numbers) -> Numbers:
    """Return how often each piece is expected in the text, over all ways to cut each word."""
    edge = probability[sweep.piece]
    before = np.zeros(sweep.nodes)
    before[sweep.first_node] = 1.0
    before = _along(before, sweep.offset_end, sweep.start, sweep.end, edge, np.add)
    back = np.lexsort((sweep.start, -sweep.offset_start))
    after = np.zeros(sweep.nodes)
    after[sweep.last_node] = 1.0
    after = _along(
        after, sweep.offset_start[back], sweep.end[back], sweep.start[back], edge[back], np.add
    )
    scale = text.counts / before[sweep.last_node]
    share = before[sweep.start] * edge * after[sweep.end] * scale[sweep.owner]
    return cast(Numbers, np.bincount(sweep.piece, weights=share, minlength=len(probability)))


def _most_useful(
    piece_at: Integers,
    where: Integers,
    length: Integers,
    probability: Numbers,
    expected: Numbers,
    wanted: int,
) -> Integers:
    """Return, in order, the pieces to keep: the letters, and those whose loss would cost most."""
    sweep = _sweep(where, length, piece_at)
    letters = length == 1
    whole = (sweep.piece == sweep.owner) & ~letters[sweep.owner]
    edge = np.where(whole, 0.0, probability[sweep.piece])
    best = np.zeros(sweep.nodes)
    best[sweep.first_node] = 1.0
    best = _along(best, sweep.offset_end, sweep.start, sweep.end, edge, np.maximum)
    without = np.maximum(best[sweep.last_node], np.finfo(np.float64).tiny)
    cost = expected * np.log(probability / without)
    cost[letters] = np.inf
    # Rounded, so that the last bits of a sum never decide between two equal pieces.
    order = np.argsort(-np.round(cost, 6), kind="stable")
    return np.sort(order[:wanted])
