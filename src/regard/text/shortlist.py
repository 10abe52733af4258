"""Which target tokens a sentence may be translated with: those that go with its source tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.counts import counted
from regard.errors import ModelError

Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Shortlist:
    """For each source token the target tokens that go with it, and those that go with all.

    `tokens[offsets[i]:offsets[i + 1]]` go with source token i, `always` with every sentence, those
    that end it among them. `targets` is the size of the target vocabulary.

    Raises:
        ModelError: rows are not within `tokens`, or an id is none of a vocabulary's.
    """

    offsets: Integers
    tokens: Integers
    always: Integers
    targets: int

    def __post_init__(self) -> None:
        offsets = self.offsets
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(self.tokens):
            raise ModelError(
                f"the rows of a shortlist do not cover its {counted(len(self.tokens), 'token')}"
            )
        if bool((offsets[1:] < offsets[:-1]).any()):
            raise ModelError("a row of a shortlist ends before it begins")
        for name, ids in (("rows", self.tokens), ("always", self.always)):
            if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < self.targets):
                wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
                raise ModelError(
                    f"a shortlist's {name} hold the target id {wrong:,}, and the vocabulary has "
                    f"{self.targets:,} entries"
                )

    @property
    def sources(self) -> int:
        """The size of the source vocabulary."""
        return len(self.offsets) - 1

    def allowed(self, source: Sequence[int], prefix: Sequence[int] = ()) -> NDArray[np.int64]:
        """What a sentence may be translated with, in order: nothing else ever comes.

        Args:
            source: all ids that the encoder reads of it.
            prefix: the target ids that its translation must begin with.
        """
        rows = [self.tokens[self.offsets[each] : self.offsets[each + 1]] for each in set(source)]
        given = np.asarray(prefix, np.int64)
        return np.unique(np.concatenate([self.always, given, *rows]).astype(np.int64))
