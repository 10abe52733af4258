"""BPE-dropout that a seed repeats: the same generator gives the same segmentations."""

from collections import OrderedDict
from collections.abc import Sequence
from random import Random

import numpy as np

VARIANTS = 64
CACHED_WORDS = 1 << 17


class BpeDropout:
    """Cuts words by BPE with merges skipped at random (Provilkov et al. 2020, arXiv:1910.13267).

    A word has 64 random segmentations, each a pure function of the word, its number and the
    dropout; the generator picks among them. So frequent words come from a bounded cache, and
    cutting a text costs about a look-up a word.

    Args:
        vocabulary: the id of each piece.
        merges: the pairs of pieces in the order in which they were learnt.
    """

    def __init__(self, vocabulary: dict[str, int], merges: Sequence[Sequence[str]]) -> None:
        self._id_of = vocabulary
        self._merges = {
            (vocabulary[left], vocabulary[right]): (rank, vocabulary[left + right])
            for rank, (left, right) in enumerate(merges)
        }
        self._cache: OrderedDict[tuple[str, int, float], tuple[int, ...]] = OrderedDict()

    def encode(
        self, words: Sequence[str], dropout: float, generator: np.random.Generator
    ) -> list[int]:
        """Return the ids of the words (in byte-level letters), one after another."""
        ids: list[int] = []
        for word, variant in zip(
            words, generator.integers(VARIANTS, size=len(words)).tolist(), strict=True
        ):
            key = (word, variant, dropout)
            cut = self._cache.get(key)
            if cut is None:
                cut = self._segment(word, dropout, Random(f"{dropout} {variant} {word}"))
                self._cache[key] = cut
                if len(self._cache) > CACHED_WORDS:
                    self._cache.popitem(last=False)
            ids.extend(cut)
        return ids

    def _segment(self, word: str, dropout: float, random: Random) -> tuple[int, ...]:
        ids = [self._id_of[letter] for letter in word]
        while len(ids) > 1:
            best: tuple[int, int, int] | None = None
            for position in range(len(ids) - 1):
                merge = self._merges.get((ids[position], ids[position + 1]))
                if merge is None or random.random() < dropout:
                    continue
                if best is None or merge[0] < best[0]:
                    best = (merge[0], position, merge[1])
            if best is None:
                break
            _, position, merged = best
            ids[position : position + 2] = [merged]
        return tuple(ids)
