"""Text out of tokens as they come: no half characters, and nothing of a stop string."""

from collections.abc import Sequence

from regard.text.vocabulary import Vocabulary

# What stands for bytes that are no whole character, or not yet.
_BROKEN = "\ufffd"


class TextStream:
    """The text that tokens add to a prompt, piece by piece.

    The pieces joined are the text. It ends just before the first of the stop strings to be
    complete, wherever tokens begin and end; of two that are complete with the same character,
    before the longer one. What may yet become a stop string is held back, and so is a character
    of which bytes are missing; `finish` gives both out.

    Args:
        vocabulary: of the tokens.
        prompt: what stands before, which is not part of the text.
        before: the tokens of the prompt.
        stop: the stop strings.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompt: str,
        before: Sequence[int],
        stop: Sequence[str] = (),
    ) -> None:
        self.stopped = False
        self._vocabulary = vocabulary
        self._prompt = prompt
        self._ids = list(before)
        self._given = len(before)
        # A token's text may depend on the one before it, so a window with both is decoded.
        self._window, self._read = 0, len(self._ids)
        self._stop = tuple(stop)
        self._pieces: list[str] = []
        self._held = ""

    @property
    def text(self) -> str:
        """What was given out so far."""
        return "".join(self._pieces)

    def push(self, token: int) -> str:
        """Take one token; give the text that is certain now, which may be empty."""
        self._ids.append(token)
        added = self._added()
        return "" if added.endswith(_BROKEN) else self._take(added)

    def finish(self) -> str:
        """Take the end; give what was held back."""
        piece = self._take(self._added())
        if self.stopped:
            return piece
        rest, self._held = self._held, ""
        self._pieces.append(rest)
        return piece + rest

    def _added(self) -> str:
        """The text of the tokens that are not read yet."""
        decoded = self._vocabulary.decode(self._ids[self._window :])
        # A vocabulary from elsewhere may drop what the prompt ends with, and say it later.
        if self._read == self._given and decoded.startswith(self._prompt):
            return decoded[len(self._prompt) :]
        former = self._vocabulary.decode(self._ids[self._window : self._read])
        return decoded[len(former) :]

    def _take(self, added: str) -> str:
        if self.stopped:
            return ""
        if added:
            self._window, self._read = self._read, len(self._ids)
        self._held += added
        found = [
            (start + len(stop), start)
            for stop in self._stop
            if (start := self._held.find(stop)) >= 0
        ]
        if found:
            self.stopped = True
            end = min(found)[1]
        else:
            end = len(self._held) - self._doubtful()
        piece, self._held = self._held[:end], self._held[end:]
        self._pieces.append(piece)
        return piece

    def _doubtful(self) -> int:
        """How many of the last characters may be the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stop), default=0)
        for size in range(min(longest - 1, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stop):
                return size
        return 0
