"""Text to ids by the tokenizers library, as a `tokenizer.json` from elsewhere says it."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tokenizers

from regard.text.tokenizer import BYTE_OF, half_character

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
# A space is what no piece holds (it is cut at, or spelled otherwise), and this is no character.
_NO_TEXT = " \uffff"

Content = dict[str, Any]


class LibraryText:
    """A `tokenizer.json`, but that no text gives a control id.

    Args:
        content: what it says.
        control: ids that no text gives; the special tokens of the file are added to them.
    """

    def __init__(self, content: Content, control: frozenset[int]) -> None:
        content = without_control(content, control)
        self._content = content
        self._library = _opened(content)
        self._continuing: tokenizers.Tokenizer | None = None
        vocabulary = self._library.get_vocab()
        self.ids = frozenset(vocabulary.values())
        self.size = 1 + max(self.ids)
        special = {token["id"] for token in content["added_tokens"] if token["special"]}
        self.control_ids = control | (special - {_unknown(content["model"])})
        self._typed: dict[int, str] = {
            token["id"]: token["content"] for token in content["added_tokens"]
        }
        kinds = {part["type"] for part in _parts(content["decoder"])}
        self._bytes = "ByteLevel" in kinds or any(
            part["type"] == "ByteLevel" for part in _parts(content["pre_tokenizer"])
        )
        self._fallback = bool(content["model"].get("byte_fallback")) or "ByteFallback" in kinds
        self._continuation = None
        if content["model"]["type"] == "WordPiece":
            self._continuation = content["model"]["continuing_subword_prefix"]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return _encoded(self._library, texts)

    def encode_more(self, text: str) -> list[int]:
        """Return the ids of a text, with no space put before it."""
        if self._continuing is None:
            self._continuing = _opened(_unspaced(self._content))
        return _encoded(self._continuing, [text])[0]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; special tokens are passed over."""
        return str(self._library.decode(list(ids), skip_special_tokens=True))

    def name(self, token: int) -> str:
        """Return what a token is called in the file."""
        return str(self._library.id_to_token(token) or "").removesuffix(_NO_TEXT)

    def piece(self, token: int) -> bytes:
        """Return the bytes that a token stands for; none where the vocabulary has no such id."""
        name = self._library.id_to_token(token)
        if name is None:
            return b""
        if self._continuation is not None:
            inside = name.startswith(self._continuation)
            return (name[len(self._continuation) :] if inside else " " + name).encode("utf-8")
        if token in self._typed:
            typed = self._typed[token]
            return typed.encode("utf-8")
        if self._bytes:
            if all(letter in BYTE_OF for letter in name):
                return bytes(BYTE_OF[letter] for letter in name)
            return name.encode("utf-8")
        byte = _BYTE_TOKEN.fullmatch(name) if self._fallback else None
        return bytes.fromhex(byte[1]) if byte else name.replace("▁", " ").encode("utf-8")


def without_control(content: Content, control: frozenset[int]) -> Content:
    """Return the content of a `tokenizer.json` by which no text gives a control id.

    The control ids and the special tokens are spelled so that no text is, and no merge leads to
    them. Padding, truncation and what is put around a text are taken out.
    """
    model = dict(content["model"])
    added = [dict(token) for token in content.get("added_tokens") or []]
    unknown = _unknown(model)
    special = {token["id"] for token in added if token["special"]} - {unknown}
    control = control | special
    if model["type"] == "BPE" and unknown in control:
        # A character that is unknown would give the control id; it is left out instead.
        model["unk_token"] = None
    pieces = model["vocab"]
    ids = pieces if isinstance(pieces, dict) else {one[0]: id_ for id_, one in enumerate(pieces)}
    renamed = {piece: piece + _NO_TEXT for piece, token in ids.items() if token in control}
    if isinstance(pieces, dict):
        model["vocab"] = {renamed.get(piece, piece): token for piece, token in pieces.items()}
    else:
        model["vocab"] = [[renamed.get(piece, piece), score] for piece, score in pieces]
    if model.get("merges"):
        model["merges"] = [
            pair
            for pair in map(_pair, model["merges"])
            if not renamed.keys() & {*pair, "".join(pair)}
        ]
    for token in added:
        token["content"] = renamed.get(token["content"], token["content"])
        token["special"] = token["special"] or token["id"] in control
    return {
        "version": "1.0",
        "normalizer": None,
        "pre_tokenizer": None,
        "decoder": None,
        **content,
        "truncation": None,
        "padding": None,
        "post_processor": None,
        "added_tokens": added,
        "model": model,
    }


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    """Return the two parts of a merge, which older files write with a space between."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def _unknown(model: Content) -> int | None:
    """Return the id of what the vocabulary lacks."""
    if model["type"] == "Unigram":
        unknown: int | None = model["unk_id"]
        return unknown
    token: int | None = model["vocab"].get(model.get("unk_token"))
    return token


def _opened(content: Content) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    library.encode_special_tokens = True
    return library


def _encoded(library: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    try:
        encoded = library.encode_batch_fast(list(texts), add_special_tokens=False)
    except (TypeError, UnicodeEncodeError):
        raise half_character() from None
    return [text.ids for text in encoded]


def _parts(section: Content | None) -> Iterator[Content]:
    """Yield a section of the file and, where it is a sequence, those that it is made of."""
    if section is None:
        return
    yield section
    for key in ("normalizers", "pretokenizers", "decoders"):
        for part in section.get(key, ()):
            yield from _parts(part)


def _unspaced(content: Content) -> Content:
    """Return the content without what puts a space before a text."""
    copy: Content = json.loads(json.dumps(content))
    for part in _parts(copy["pre_tokenizer"]):
        if part["type"] == "ByteLevel":
            part["add_prefix_space"] = False
        if part["type"] == "Metaspace":
            part["prepend_scheme"] = "never"
    normalizer = copy["normalizer"]
    if normalizer is not None and normalizer["type"] == "Prepend":
        copy["normalizer"] = None
    for part in _parts(normalizer):
        if part["type"] == "Sequence":
            part["normalizers"] = [
                inner for inner in part["normalizers"] if inner["type"] != "Prepend"
            ]
    return copy
