"""What every vocabulary offers, whether it was made here or came with a checkpoint."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from regard.errors import ModelError
from regard.text.foreign import MARK, read_foreign
from regard.text.tokenizer import Tokenizer


@runtime_checkable
class Vocabulary(Protocol):
    """Text to token ids and back. No text gives a control id: those are put in by id only."""

    @property
    def size(self) -> int:
        """How many ids there are."""
        ...

    @property
    def pad_id(self) -> int:
        """What fills places that nobody looks at."""
        ...

    @property
    def start_id(self) -> int:
        """What a decoder starts from."""
        ...

    @property
    def eos_id(self) -> int:
        """What ends a text that is generated."""
        ...

    @property
    def end_ids(self) -> frozenset[int]:
        """All that end a text that is generated: `eos_id`, and what means the same."""
        ...

    @property
    def mask_id(self) -> int | None:
        """What stands for a token to fill in; None where there is no such id."""
        ...

    @property
    def prefix(self) -> tuple[int, ...]:
        """The ids before a text that an encoder reads."""
        ...

    @property
    def suffix(self) -> tuple[int, ...]:
        """The ids after a text that an encoder reads."""
        ...

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids that no text gives; of them only the ends are ever generated."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without control ids."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        ...

    def encode_more(self, text: str) -> list[int]:
        """Return the ids of a text that goes on where another ended: nothing is put before it."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; control ids are passed over."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return the bytes of each token; together they are the text, as far as it is kept.

        A space that was put before the text is there too, and control ids have no bytes.
        """
        ...

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return each token for a person to read."""
        ...

    def to_bytes(self) -> bytes:
        """Return all of it, as `read_vocabulary` reads it."""
        ...

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        ...


def framed(vocabulary: Vocabulary, ids: Sequence[int]) -> list[int]:
    """Return what an encoder reads: the ids of a text between the prefix and the suffix."""
    return [*vocabulary.prefix, *ids, *vocabulary.suffix]


def never_generated(vocabulary: Vocabulary) -> tuple[int, ...]:
    """Return the ids that a search must leave out, in order: all control ids but the ends."""
    return tuple(sorted(vocabulary.control_ids - vocabulary.end_ids))


def read_vocabulary(data: bytes, *, name: str = "tokenizer") -> Vocabulary:
    """Read a vocabulary, one made here or one from elsewhere, told apart by what it says.

    Raises:
        ModelError: it is neither, or needs a package that is missing.
    """
    try:
        document = json.loads(data)
    except ValueError as error:
        raise ModelError(f"not a readable tokenizer: {error}", where=name) from None
    if isinstance(document, dict) and MARK in document:
        return read_foreign(document, name=name)
    return Tokenizer.from_bytes(data, name=name)


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read a vocabulary from a file.

    Raises:
        ModelError: the file is missing, or as `read_vocabulary`.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", where=str(path)) from None
    return read_vocabulary(data, name=str(path))
