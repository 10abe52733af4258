"""The subword tokenizer: any string to ids and back without loss, and no text gives a control id.

Text is cut into words, numbers (digit by digit), runs of punctuation and of space, each with the
space before it, and these into pieces over the 256 bytes. A run of more than 256 characters,
which is no word of any language, is cut after each 256. One space is put before the text and
taken off again after, so that a word has the same pieces at the start of a line and inside it.
Nothing is normalised.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import tokenizers
from tokenizers import Regex, models, pre_tokenizers, trainers

from regard.errors import DataError, ModelError
from regard.text.background import in_background
from regard.text.bpe_dropout import BpeDropout
from regard.text.config import VocabularyConfig
from regard.text.unigram import train_unigram

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
CONTROL_TOKENS = ("<pad>", "<s>", "</s>")
FIRST_TEXT_ID = len(CONTROL_TOKENS)

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


_BYTE_OF = _byte_alphabet()


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


class Tokenizer:
    """Text to token ids and back; ids 0, 1, 2 are padding, begin and end, and never come of text.

    Make one with `train`, `load` or `from_bytes`.
    """

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self._library = library
        document = json.loads(library.to_str())
        self.kind: Literal["bpe", "unigram"] = (
            "bpe" if document["model"]["type"] == "BPE" else "unigram"
        )
        vocabulary = library.get_vocab()
        self.size: int = len(vocabulary)
        self._pieces: list[bytes] = [b""] * self.size
        for piece, token in vocabulary.items():
            if token >= FIRST_TEXT_ID:
                self._pieces[token] = bytes(_BYTE_OF[letter] for letter in piece)
        self._dropout: BpeDropout | None = None
        self._document = document

    @classmethod
    def train(cls, lines: Iterator[str], config: VocabularyConfig) -> "Tokenizer":
        """Make the vocabulary of these lines; the same lines give the same tokenizer, bit for bit.

        Args:
            lines: text, in any number; what is kept of it grows with the distinct words only.
            config: the kind and size. Where the text supplies fewer pieces than that, the
                vocabulary is smaller: `size` tells the truth.
        """
        spaced = (" " + line for line in lines if line)
        alphabet = sorted(_BYTE_OF)
        if config.kind == "bpe":
            library = tokenizers.Tokenizer(models.BPE())
            library.pre_tokenizer = _pre_tokenizer()
            trainer = trainers.BpeTrainer(
                vocab_size=config.size,
                special_tokens=list(CONTROL_TOKENS),
                initial_alphabet=alphabet,
                show_progress=False,
            )
            # The library is deaf to signals, and trains for minutes.
            in_background(lambda going: library.train_from_iterator(going(spaced), trainer))
        else:
            splitter = _pre_tokenizer()
            words = (word for line in spaced for word, _ in splitter.pre_tokenize_str(line))
            scored = train_unigram(words, config.size - FIRST_TEXT_ID, alphabet)
            # A control token is scored below anything a segmentation could ever prefer.
            control = [(token, -1e9) for token in CONTROL_TOKENS]
            library = tokenizers.Tokenizer(models.Unigram(control + scored, None, False))
            library.pre_tokenizer = _pre_tokenizer()
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
            control = tuple(library.id_to_token(token) for token in range(FIRST_TEXT_ID))
            made_here = (
                control == CONTROL_TOKENS
                and not document["added_tokens"]
                and document["normalizer"] is None
                and document["model"]["type"] in {"BPE", "Unigram"}
                and library.get_vocab().keys() >= _BYTE_OF.keys()
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
        """Write the tokenizer to a file."""
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read a tokenizer from a file.

        Raises:
            ModelError: the file is missing or holds no tokenizer made by regard.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise ModelError(f"cannot be read: {error.strerror}", where=str(path)) from None
        return cls.from_bytes(data, name=str(path))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without control tokens; an empty text has none."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text; long lists are shared among the processor's cores."""
        try:
            encoded = self._library.encode_batch_fast(
                [" " + text for text in texts if text], add_special_tokens=False
            )
        except (TypeError, UnicodeEncodeError):
            raise DataError("the text holds half of a surrogate pair, which no UTF-8 can") from None
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
            raise ModelError("BPE-dropout needs a BPE vocabulary, and this one is unigram")
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
        data = b"".join([self._pieces[token] for token in ids])
        return data.removeprefix(b" ").decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return the bytes of each token; a text's come to one space and its UTF-8."""
        return [self._pieces[token] for token in ids]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return each token for a person to read: a space as "▁", half a character as "\\xe2"."""
        return [
            CONTROL_TOKENS[token]
            if token < FIRST_TEXT_ID
            else self._pieces[token].decode("utf-8", errors="backslashreplace").replace(" ", "▁")
            for token in ids
        ]
