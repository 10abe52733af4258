"""Texts as the rows of ids that an encoder reads."""

from collections.abc import Callable, Sequence

from regard.text.vocabulary import Vocabulary, framed


def framed_rows(
    vocabulary: Vocabulary,
    texts: Sequence[str],
    *,
    longest: int,
    first_line: int = 1,
    warn: Callable[[str], None] | None = None,
) -> list[list[int]]:
    """The ids of texts as an encoder reads them, cut where they are longer than in training.

    An empty text has nothing between what opens and what ends it.

    Args:
        longest: the most tokens of a row, those around the text counted (`data.max_tokens`).
        first_line: the number of the first text, for warnings.
        warn: called with a sentence that names the line when one is cut.
    """
    return [
        framed_row(vocabulary, ids, longest=longest, name=f"line {number}", warn=warn)
        for number, ids in enumerate(vocabulary.encode_batch(texts), start=first_line)
    ]


def framed_row(
    vocabulary: Vocabulary,
    ids: Sequence[int],
    *,
    longest: int,
    name: str,
    warn: Callable[[str], None] | None = None,
) -> list[int]:
    """As `framed_rows`, of the ids of one text, which a warning calls `name`."""
    kept = ids[: room_for_text(vocabulary, longest)]
    row = framed(vocabulary, kept) or [vocabulary.eos_id]
    if warn is not None and len(kept) < len(ids):
        cut = len(ids) - len(kept)
        warn(
            f"{name}: {len(row) + cut:,} tokens is more than the {longest:,} of data.max_tokens; "
            f"the last {cut:,} are left out"
        )
    return row


def room_for_text(vocabulary: Vocabulary, longest: int) -> int:
    """How many tokens of a text there is room for, in a row of `longest` with those around it."""
    return max(0, longest - len(vocabulary.prefix) - len(vocabulary.suffix))
