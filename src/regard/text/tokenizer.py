"""The subword tokenizer: any string to ids and back without loss, and no text gives a control id.

Text is cut into words, numbers (digit by digit), runs of punctuation and of space, each with the
space before it, and these into pieces over the 256 bytes. A run of more than 256 characters,
which is no word of any language, is cut after each 256. One space is put before the text and
taken off again after, so that a word has the same pieces at the start of a line and inside it.
Nothing is normalised.

A vocabulary of characters cuts text into these alone, and those that it lacks into bytes; no
space is put before.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tokenizers
from tokenizers import Regex, models, pre_tokenizers, trainers

from regard.arguments import items_of, path_of, require, whole_number
from regard.errors import DataError, ModelError
from regard.text.background import in_background
from regard.text.bpe_dropout import BpeDropout
from regard.text.config import VocabularyConfig
from regard.text.lines import writing
from regard.text.unigram import train_unigram

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
CONTROL_TOKENS = ("<pad>", "<s>", "</s>")
MASK_TOKEN = "<mask>"

# The time that BPE takes for a word grows faster than the word, so a longer one is cut.
_LONGEST = 256

# A word may open with a space or an apostrophe. No alternative holds both "<" and a letter, so
# no piece can ever be spelled like a control token.
_WORDS = (
    rf"[ '’]?\p{{L}}[\p{{L}}\p{{M}}]{{0,{_LONGEST - 1}}}"
    r"| ?\p{N}"
    rf"| ?[^\s\p{{L}}\p{{N}}]{{1,{_LONGEST}}}"
    rf"|\s{{1,{_LONGEST}}}(?!\S)"
    rf"|\s{{1,{_LONGEST}}}"
)


def _byte_alphabet() -> dict[str, int]:
    """Return the character that stands for each byte in a byte-level vocabulary.

    Printable Latin-1 characters stand for themselves; the rest are moved up from 256.
    Source: GPT-2, Radford et al. 2019.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + index): byte for index, byte in enumerate(moved)
    }


BYTE_OF = _byte_alphabet()
# How the library spells the bytes that stand in for a character that a vocabulary lacks.
_BYTE_TOKENS = {f"<0x{byte:02X}>": byte for byte in range(256)}


def half_character() -> DataError:
    """The error for a text that Python can hold and UTF-8 can't."""
    return DataError("the text holds half of a surrogate pair, which no UTF-8 can")


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


class Tokenizer:
    """Text to token ids and back; ids 0, 1, 2 are padding, begin and end, and never come of text.

    The vocabulary of an encoder has the mask token as id 3, and its texts are put between the
    begin and the end token. Make one with `train`, `load` or `from_bytes`.
    """

    pad_id = PAD_ID
    start_id = BOS_ID
    eos_id = EOS_ID
    end_ids = frozenset({EOS_ID})

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self._library = library
        document = json.loads(library.to_str())
        self.kind = _kind(document["model"])
        masked = library.id_to_token(len(CONTROL_TOKENS)) == MASK_TOKEN
        self._control = (*CONTROL_TOKENS, MASK_TOKEN) if masked else CONTROL_TOKENS
        self.mask_id: int | None = len(CONTROL_TOKENS) if masked else None
        self.prefix: tuple[int, ...] = (BOS_ID,) if masked else ()
        self.suffix: tuple[int, ...] = (EOS_ID,)
        self.control_ids: frozenset[int] = frozenset(range(len(self._control)))
        vocabulary = library.get_vocab()
        self.size: int = len(vocabulary)
        self._pieces: list[bytes] = [b""] * self.size
        spell = _spell_character if self.kind == "char" else _spell_bytes
        for piece, token in vocabulary.items():
            if token >= len(self._control):
                self._pieces[token] = spell(piece)
        self._space = "" if self.kind == "char" else " "
        self._dropout: BpeDropout | None = None
        self._document = document

    @classmethod
    def train(
        cls, lines: Iterator[str], config: VocabularyConfig, *, mask: bool = False
    ) -> "Tokenizer":
        """Make the vocabulary of these lines; the same lines give the same tokenizer, bit for bit.

        Args:
            lines: text, in any number; what is kept of it grows with the distinct words only.
            config: the kind and size. Where the text supplies fewer pieces than that, the
                vocabulary is smaller: `size` tells the truth.
            mask: whether it is for an encoder, and has the mask token.
        """
        control = [*CONTROL_TOKENS, MASK_TOKEN] if mask else list(CONTROL_TOKENS)
        if config.kind == "bpe":
            library = _train_bpe(lines, config.size, control)
        elif config.kind == "unigram":
            library = _train_unigram(lines, config.size, control)
        elif config.kind == "char":
            library = _train_characters(lines, config.size, control)
        else:
            raise ModelError('a vocabulary of kind = "foreign" comes with a checkpoint')
        document = json.loads(library.to_str())
        # Registered tokens are looked for in the text itself: a typed "</s>" would become one.
        document["added_tokens"] = []
        return cls.from_bytes(json.dumps(document, ensure_ascii=False, indent=1).encode("utf-8"))

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str = "tokenizer") -> "Tokenizer":
        """Read what `to_bytes` wrote.

        Raises:
            ModelError: it is not a tokenizer, or not one that regard made.
        """
        try:
            library = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
            document = json.loads(library.to_str())
            control = tuple(library.id_to_token(token) for token in range(len(CONTROL_TOKENS)))
            needed = _BYTE_TOKENS if _kind(document["model"]) == "char" else BYTE_OF
            made_here = (
                control == CONTROL_TOKENS
                and not document["added_tokens"]
                and document["normalizer"] is None
                and document["model"]["type"] in {"BPE", "Unigram"}
                and library.get_vocab().keys() >= needed.keys()
            )
        except Exception as error:
            raise ModelError(f"not a readable tokenizer: {error}", where=name) from None
        if not made_here:
            raise ModelError(
                "wanted a byte-level tokenizer made by regard, found another kind", where=name
            )
        return cls(library)

    def to_bytes(self) -> bytes:
        """Return the whole tokenizer as JSON, in the format of the tokenizers library."""
        return json.dumps(self._document, ensure_ascii=False, indent=1).encode("utf-8")

    def save(self, path: str | Path) -> None:
        """Write the tokenizer to a file.

        Raises:
            DataError: it can't be written.
        """
        with writing(path_of(path, "path")):
            Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read a tokenizer from a file.

        Raises:
            ModelError: the file is missing or holds no tokenizer made by regard.
        """
        try:
            data = path_of(path, "path").read_bytes()
        except OSError as error:
            raise ModelError(f"cannot be read: {error.strerror}", where=str(path)) from None
        return cls.from_bytes(data, name=str(path))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without control tokens; an empty text has none."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text; long lists are shared among the processor's cores."""
        return self._encoded(texts, self._space)

    def encode_more(self, text: str) -> list[int]:
        """Return the ids of a text that goes on where another ended: no space is put before it."""
        return self._encoded([text], "")[0]

    def _encoded(self, texts: Sequence[str], space: str) -> list[list[int]]:
        for place, text in enumerate(items_of(texts, "texts", "a list of strings")):
            require(text, str, f"texts[{place}]", "a string")
        try:
            encoded = self._library.encode_batch_fast(
                [space + text for text in texts if text], add_special_tokens=False
            )
        except (TypeError, UnicodeEncodeError):
            raise half_character() from None
        ids = iter(encoded)
        return [next(ids).ids if text else [] for text in texts]

    def encode_with_dropout(
        self, text: str, dropout: float, generator: np.random.Generator
    ) -> list[int]:
        """Return ids of a text in which each merge was skipped with chance `dropout`.

        Source: Provilkov et al. 2020, arXiv:1910.13267, algorithm 1.

        Raises:
            ModelError: the tokenizer is not BPE.
        """
        if self.kind != "bpe":
            raise ModelError(f"BPE-dropout needs a BPE vocabulary, and this one is {self.kind}")
        if not text:
            return []
        if self._dropout is None:
            self._dropout = BpeDropout(self._library.get_vocab(), self._document["model"]["merges"])
        words = [word for word, _ in self._library.pre_tokenizer.pre_tokenize_str(" " + text)]
        return self._dropout.encode(words, dropout, generator)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; the inverse of `encode` for every string.

        Control ids are passed over, and bytes that are not UTF-8 become U+FFFD.
        """
        data = b"".join(self.pieces(ids))
        return data.removeprefix(self._space.encode()).decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return the bytes of each token; a text's come to its UTF-8, with the space put before."""
        return [self._pieces[token] for token in self._known(ids)]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return each token for a person to read: a space as "▁", half a character as "\\xe2"."""
        return [
            self._control[token]
            if token < len(self._control)
            else self._pieces[token].decode("utf-8", errors="backslashreplace").replace(" ", "▁")
            for token in self._known(ids)
        ]

    def _known(self, ids: Sequence[int]) -> list[int]:
        """The ids, all of them of this vocabulary."""
        most = self.size - 1
        return [
            token
            if type(token) is int and 0 <= token <= most
            else whole_number(token, f"ids[{place}]", least=0, most=most)
            for place, token in enumerate(items_of(ids, "ids", "a list of ids"))
        ]


def _kind(model: dict[str, Any]) -> Literal["bpe", "unigram", "char"]:
    if model["type"] == "Unigram":
        return "unigram"
    return "char" if model.get("byte_fallback") else "bpe"


def _spell_bytes(piece: str) -> bytes:
    return bytes(BYTE_OF[letter] for letter in piece)


def _spell_character(piece: str) -> bytes:
    byte = _BYTE_TOKENS.get(piece)
    return piece.encode("utf-8") if byte is None else bytes([byte])


def _train_bpe(lines: Iterator[str], size: int, control: list[str]) -> tokenizers.Tokenizer:
    spaced = (" " + line for line in lines if line)
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = _pre_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=control,
        initial_alphabet=sorted(BYTE_OF),
        show_progress=False,
    )
    # The library is deaf to signals, and trains for minutes.
    in_background(lambda going: library.train_from_iterator(going(spaced), trainer))
    return library


def _train_unigram(lines: Iterator[str], size: int, control: list[str]) -> tokenizers.Tokenizer:
    splitter = _pre_tokenizer()
    spaced = (" " + line for line in lines if line)
    words = (word for line in spaced for word, _ in splitter.pre_tokenize_str(line))
    scored = train_unigram(words, size - len(control), sorted(BYTE_OF))
    # A control token is scored below anything a segmentation could ever prefer.
    scored = [(token, -1e9) for token in control] + scored
    library = tokenizers.Tokenizer(models.Unigram(scored, None, False))
    library.pre_tokenizer = splitter
    return library


def _train_characters(lines: Iterator[str], size: int, control: list[str]) -> tokenizers.Tokenizer:
    counts = Counter(chain.from_iterable(lines))
    entries = [*control, *_BYTE_TOKENS]
    common = sorted(counts, key=lambda character: (-counts[character], character))
    entries += common[: max(0, size - len(entries))]
    vocabulary = {entry: index for index, entry in enumerate(entries)}
    return tokenizers.Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
