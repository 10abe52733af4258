"""The first pass over the training text: every fault in it is found, and what to hold out."""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from regard.counts import counted
from regard.errors import DataError
from regard.text.inputs import PairFile
from regard.text.split import hash_of

VALIDATION_SALT = "validation"
SMALLEST_SHARE = 10
# Of a text too small to split, so many pairs or documents are validated on.
SMALLEST_VALIDATION = 100

Log = Callable[[str], None]


def is_empty(pair: tuple[str, str]) -> bool:
    """Return whether a side holds nothing but space."""
    return not (pair[0].strip() and pair[1].strip())


@dataclass(frozen=True)
class Survey:
    """What one pass over the training text found.

    `threshold` is the largest hash that is held out, or -1 for none; `hold_out` is how many
    pairs to keep of those for validation. There is no threshold and still some to hold out
    where all pairs are near twins: the whole group would go, and leave nothing to train on.
    """

    pairs: int
    characters: int
    threshold: int
    hold_out: int

    def holds_out(self, source: str) -> bool:
        """Return whether pairs with this source are kept from training."""
        return self.threshold >= 0 and hash_of(source, salt=VALIDATION_SALT) <= self.threshold


def survey(files: tuple[PairFile, ...], valid_pairs: int, log: Log) -> Survey:
    """Read and check all pairs, and choose what to hold out.

    At most a tenth of the pairs is held out, and all near twins of a pair with it. The memory
    that it takes grows with `valid_pairs` only.

    Args:
        files: the training files.
        valid_pairs: how many pairs to hold out; 0 for none.
        log: is told how many pairs each file has.

    Raises:
        DataError: as `PairFile.pairs`, or not one pair has text on both sides.
    """
    pairs = whole = characters = 0
    largest = 0
    # heapq puts the smallest on top; negated, the largest of the smallest hashes is there.
    smallest: list[int] = []
    for file in files:
        before = pairs
        for pair in file.pairs():
            pairs += 1
            characters += len(pair[0]) + len(pair[1])
            if is_empty(pair):
                continue
            whole += 1
            if valid_pairs:
                number = -hash_of(pair[0], salt=VALIDATION_SALT)
                largest = max(largest, -number)
                if len(smallest) < valid_pairs:
                    heapq.heappush(smallest, number)
                else:
                    heapq.heappushpop(smallest, number)
        log(f"text: {counted(pairs - before, 'pair')} in {file.name}")
    if not whole:
        raise DataError(
            f"wanted pairs of text, but of {counted(pairs, 'pair')} each has an empty side",
            where=", ".join(file.name for file in files),
        )
    hold_out = min(valid_pairs, whole // SMALLEST_SHARE)
    threshold = _threshold(sorted(-number for number in smallest), hold_out)
    if threshold >= largest:
        threshold = -1
    return Survey(pairs, characters, threshold, hold_out)


def _threshold(hashes: list[int], wanted: int) -> int:
    """Return the largest hash to hold out, so that whole groups of twins make at most `wanted`.

    The first group is held out even where it alone has more pairs than that.
    """
    if not wanted:
        return -1
    threshold, total = hashes[0], 0
    for number, size in sorted(Counter(hashes[: wanted + 1]).items()):
        total += size
        if total > wanted:
            break
        threshold = number
    return threshold
