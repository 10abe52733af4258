"""How well labels are told apart: accuracy, macro F1, and what is taken for what."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Confusion:
    """How often a text of one label was given another: `counts[right][given]`."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def total(self) -> int:
        """How many texts there are."""
        return sum(map(sum, self.counts))

    @property
    def accuracy(self) -> float:
        """The share of texts that were given their own label."""
        right = sum(row[place] for place, row in enumerate(self.counts))
        return right / self.total if self.total else 0.0

    @property
    def macro_f1(self) -> float:
        """The mean over the labels of 2 * precision * recall / (precision + recall).

        It counts rare labels as much as common ones. A label that neither occurs nor is given
        has no part in it.
        """
        scores = []
        for place, row in enumerate(self.counts):
            given = sum(other[place] for other in self.counts)
            if sum(row) + given:
                scores.append(2 * row[place] / (sum(row) + given))
        return sum(scores) / len(scores) if scores else 0.0


def confusion(names: Sequence[str], right: Sequence[int], given: Sequence[int]) -> Confusion:
    """Count what was given for what, labels by their number among `names`."""
    counts = [[0] * len(names) for _ in names]
    for truth, said in zip(right, given, strict=True):
        counts[truth][said] += 1
    return Confusion(tuple(names), tuple(map(tuple, counts)))
