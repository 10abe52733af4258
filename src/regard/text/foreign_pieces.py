"""Text to ids by sentencepiece, with ids of its own or a table of others beside it."""

from collections.abc import Sequence

from regard.errors import ModelError
from regard.text.tokenizer import half_character

_SPACE = "▁"
# What is shown for a piece that the vocabulary lacks.
_UNKNOWN = "⁇"


class PieceText:
    """A sentencepiece model.

    With a table, a text may open with one of its language codes, such as `>>fr<<`.

    Args:
        model: the contents of its file.
        ids: the id of each piece; None for sentencepiece's own.
        control: ids that no text gives.
        name: what to call it in an error.

    Raises:
        ModelError: the package is missing, or the table has no id for what it lacks.
    """

    def __init__(
        self, model: bytes, ids: dict[str, int] | None, control: frozenset[int], *, name: str
    ) -> None:
        try:
            from sentencepiece import SentencePieceProcessor  # noqa: PLC0415 - optional
        except ImportError:
            raise ModelError(
                "this vocabulary needs the package sentencepiece",
                where=name,
                hint="python -m pip install 'regard[sentencepiece]'",
            ) from None
        self._library = SentencePieceProcessor(model_proto=model)
        self._ids = ids
        library = self._library
        self._pieces: dict[int, str]
        if ids is None:
            own = range(library.vocab_size())
            self._pieces = {token: library.id_to_piece(token) for token in own}
            self._unknown: int = library.unk_id()
            control |= {token for token in own if library.is_control(token)}
        else:
            self._pieces = {token: piece for piece, token in ids.items()}
            unknown = ids.get(library.id_to_piece(library.unk_id()), ids.get("<unk>"))
            if unknown is None:
                raise ModelError("the table of ids has no <unk>", where=name)
            self._unknown = unknown
        self.control_ids = control - {self._unknown}
        self.ids = frozenset(self._pieces)
        self.size = 1 + max(self.ids)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        codes, rest = zip(*map(self._code, texts), strict=True) if texts else ((), ())
        try:
            for text in rest:
                text.encode("utf-8")
        except UnicodeEncodeError:
            raise half_character() from None
        if self._ids is None:
            rows: list[list[int]] = self._library.encode(list(rest), out_type=int)
            return [[self._text_id(token) for token in row] for row in rows]
        return [
            [*code, *map(self._id, pieces)]
            for code, pieces in zip(
                codes, self._library.encode(list(rest), out_type=str), strict=True
            )
        ]

    def encode_more(self, text: str) -> list[int]:
        """Return the ids of a text; sentencepiece puts its space before any."""
        return self.encode([text])[0]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; what the vocabulary lacked is passed over."""
        pieces = [self._pieces.get(token, "") for token in ids if token != self._unknown]
        text: str = self._library.decode_pieces(pieces)
        return text.replace(_SPACE, " ").strip()

    def name(self, token: int) -> str:
        """Return what a token is called."""
        return self._pieces.get(token, "")

    def piece(self, token: int) -> bytes:
        """Return the bytes that a token stands for; none where the vocabulary has no such id."""
        if token == self._unknown:
            return _UNKNOWN.encode("utf-8")
        name = self._pieces.get(token, "")
        own = self._library.piece_to_id(name)
        if self._library.is_byte(own):
            return bytes([int(name[3:-1], 16)])
        return name.replace(_SPACE, " ").encode("utf-8")

    def _code(self, text: str) -> tuple[list[int], str]:
        """Return the id of the language code that a text opens with, and the rest."""
        end = text.find("<<")
        if self._ids is None or not text.startswith(">>") or end < 0:
            return [], text
        code = self._ids.get(text[: end + 2])
        return ([], text) if code is None else ([code], text[end + 2 :])

    def _id(self, piece: str) -> int:
        return self._text_id((self._ids or {}).get(piece, self._unknown))

    def _text_id(self, token: int) -> int:
        """What a text has for an id: a control id is none of its own, whatever is typed."""
        return self._unknown if token in self.control_ids else token
