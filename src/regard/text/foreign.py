"""Vocabularies from elsewhere: those of the tokenizers library and of sentencepiece, in one file.

The file is JSON: what the vocabulary came as, untouched, and which ids are control ids.
`tokenizers_vocabulary` and `sentencepiece_vocabulary` make it, `read_foreign` reads it.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.text.foreign_library import LibraryText
from regard.text.foreign_pieces import PieceText
from regard.text.lines import writing

MARK = "regard_vocabulary"
FORMAT = 1
_DEEPEST = 100


class ForeignVocabulary:
    """A vocabulary that came with a checkpoint; it cuts text as it did there.

    What is typed is text, a control token's name too. Make one with `read_foreign`.

    Args:
        document: what the file says.
        text: what knows how text is cut.
    """

    def __init__(self, document: dict[str, Any], text: LibraryText | PieceText) -> None:
        self._document = document
        self._text = text
        control = document["control"]
        self.size: int = document["size"]
        self.pad_id: int = control["pad"]
        self.start_id: int = control["start"]
        self.eos_id: int = control["eos"]
        # Files of before there were several have none.
        self.end_ids: frozenset[int] = frozenset({self.eos_id, *document.get("ends", ())})
        self.mask_id: int | None = control["mask"]
        self.prefix: tuple[int, ...] = tuple(document["prefix"])
        self.suffix: tuple[int, ...] = tuple(document["suffix"])
        # A model may have more rows than there are tokens; no text has the ids of the rest.
        self.control_ids: frozenset[int] = text.control_ids | (
            frozenset(range(self.size)) - text.ids
        )

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without control ids."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return self._text.encode(texts)

    def encode_more(self, text: str) -> list[int]:
        """Return the ids of a text that goes on where another ended.

        No space is put before it, but by sentencepiece, which can't be told to leave it out.
        """
        return self._text.encode_more(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; control ids are passed over."""
        return self._text.decode([token for token in ids if token not in self.control_ids])

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return the bytes of each token; together they are the text, as far as it is kept."""
        return [b"" if token in self.control_ids else self._text.piece(token) for token in ids]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return each token for a person to read: a space as "▁", half a character as "\\xe2"."""
        return [
            self._text.name(token)
            if token in self.control_ids
            else self._text.piece(token)
            .decode("utf-8", errors="backslashreplace")
            .replace(" ", "▁")
            for token in ids
        ]

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return what each token is called in the file that it came in."""
        return [self._text.name(token) for token in ids]

    def to_bytes(self) -> bytes:
        """Return the whole vocabulary, as `read_vocabulary` reads it."""
        return json.dumps(self._document, ensure_ascii=False).encode("utf-8")

    def save(self, path: str | Path) -> None:
        """Write the vocabulary to a file.

        Raises:
            DataError: it can't be written.
        """
        with writing(path):
            Path(path).write_bytes(self.to_bytes())


def tokenizers_vocabulary(
    library: bytes,
    *,
    pad: int,
    start: int,
    eos: int,
    mask: int | None = None,
    prefix: Sequence[int] = (),
    suffix: Sequence[int] = (),
    ends: Sequence[int] = (),
    size: int | None = None,
    name: str = "tokenizer.json",
) -> bytes:
    """Make the file of a vocabulary that the tokenizers library reads (a `tokenizer.json`).

    It is kept whole, but its padding, its truncation and what it puts around a text are not used.

    Args:
        library: the contents of the `tokenizer.json`.
        pad: the id of padding.
        start: the id that a decoder starts from.
        eos: the id that ends a text.
        mask: the id to fill in.
        prefix: the ids before a text that an encoder reads.
        suffix: the ids after it.
        ends: ids that end a text too when one of them is generated.
        size: how many ids the model has; left out, as many as the vocabulary.
        name: what to call it in an error.

    Raises:
        ModelError: it is no such file, or has no such ids.
    """
    try:
        content = json.loads(library)
        if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
            raise ValueError("it holds no model")
        if too_deep(content):
            raise ValueError("its tables are nested too deep")
    except (ValueError, RecursionError) as error:
        raise ModelError(f"not a readable tokenizer: {error}", where=name) from None
    control = {"pad": pad, "start": start, "eos": eos, "mask": mask}
    text = {"library": content, "ends": [*ends]}
    return _made("tokenizers", control, prefix, suffix, size, text, name)


def sentencepiece_vocabulary(
    model: bytes,
    *,
    pad: int,
    start: int,
    eos: int,
    mask: int | None = None,
    prefix: Sequence[int] = (),
    suffix: Sequence[int] | None = None,
    ids: dict[str, int] | None = None,
    size: int | None = None,
    name: str = "sentencepiece model",
) -> bytes:
    """Make the file of a sentencepiece vocabulary.

    Args:
        model: the contents of the `.spm` or `.model` file.
        pad: the id of padding.
        start: the id that a decoder starts from.
        eos: the id that ends a text.
        mask: the id to fill in.
        prefix: the ids before a text that an encoder reads.
        suffix: the ids after it; left out, the end.
        ids: the id of each piece, where they are not sentencepiece's own (Marian's
            `vocab.json`).
        size: how many ids the model has; left out, as many as the vocabulary.
        name: what to call it in an error.

    Raises:
        ModelError: it is no such file, has no such ids, or sentencepiece is not installed.
    """
    control = {"pad": pad, "start": start, "eos": eos, "mask": mask}
    text = {"model": base64.b64encode(model).decode("ascii"), "ids": ids}
    after = (eos,) if suffix is None else suffix
    return _made("sentencepiece", control, prefix, after, size, text, name)


def too_deep(document: Any) -> bool:  # noqa: ANN401 - whatever JSON holds
    """Whether tables and lists are nested deeper than any honest file has them."""
    level = [document]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _made(
    kind: str,
    control: dict[str, int | None],
    prefix: Sequence[int],
    suffix: Sequence[int],
    size: int | None,
    text: dict[str, Any],
    name: str,
) -> bytes:
    document: dict[str, Any] = {
        MARK: FORMAT,
        "kind": kind,
        "size": size,
        "control": control,
        "prefix": list(prefix),
        "suffix": list(suffix),
        "ends": [],
        "library": None,
        "model": None,
        "ids": None,
        **text,
    }
    if size is None:
        own = _text_of(document, name).size
        document["size"] = max(own, 1 + max(_control_ids(document)))
    return read_foreign(document, name=name).to_bytes()


def read_foreign(document: dict[str, Any], *, name: str = "tokenizer") -> ForeignVocabulary:
    """Read what a builder made.

    Raises:
        ModelError: it is damaged, of a later format, or needs a package that is missing.
    """
    if document[MARK] != FORMAT:
        raise ModelError(
            f"the vocabulary has format {document[MARK]!r}, and this regard reads {FORMAT}",
            where=name,
            hint="install a newer regard",
        )
    text = _text_of(document, name)
    try:
        needed = max(text.size, 1 + max(_control_ids(document)))
        if not isinstance(document["size"], int) or document["size"] < needed:
            raise ModelError(
                f"the vocabulary has ids up to {needed - 1:,}, but the model only "
                f"{document['size']:,}",
                where=name,
            )
        return ForeignVocabulary(document, text)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(error, name) from None


def _text_of(document: dict[str, Any], name: str) -> LibraryText | PieceText:
    try:
        control = _control_ids(document)
        if document["kind"] == "tokenizers":
            return LibraryText(document["library"], control)
        if document["kind"] == "sentencepiece":
            model = base64.b64decode(document["model"], validate=True)
            return PieceText(model, document["ids"], control, name=name)
    except ModelError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise _damaged(error, name) from None
    raise ModelError(
        f'wanted a vocabulary of kind "tokenizers" or "sentencepiece", got {document["kind"]!r}',
        where=name,
    )


def _control_ids(document: dict[str, Any]) -> frozenset[int]:
    """Return the ids that the file itself says are control ids."""
    named = [token for token in document["control"].values() if token is not None]
    around = (*document["prefix"], *document["suffix"], *document.get("ends", ()))
    ids = frozenset([*named, *around])
    if not all(type(token) is int and token >= 0 for token in ids):
        raise ValueError("a control id is no number")
    return ids


def _damaged(error: Exception, name: str) -> ModelError:
    return ModelError(f"not a readable vocabulary: {error}", where=name)
