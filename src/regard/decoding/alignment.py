"""From attention over tokens to links between words."""

from collections.abc import Sequence

import numpy as np

from regard.decoding.hypothesis import Attention

NO_WORD = -1


def byte_words(data: bytes) -> list[int]:
    """For every byte of a text the number of its word, or -1 for the space between words.

    Words are what `str.split()` gives; bytes that are no UTF-8 belong to the word around them.
    """
    words: list[int] = []
    word, inside = -1, False
    for letter in data.decode("utf-8", errors="surrogateescape"):
        size = len(letter.encode("utf-8", errors="surrogateescape"))
        if letter.isspace():
            inside = False
            words += [NO_WORD] * size
        else:
            word += not inside
            inside = True
            words += [word] * size
    return words


def token_words(pieces: Sequence[bytes], words: Sequence[int]) -> list[int]:
    """For every token the number of the word that its first letter is in, or -1.

    Args:
        pieces: the bytes of each token.
        words: the word of each of these bytes, from `byte_words`.
    """
    found = []
    start = 0
    for piece in pieces:
        inside = (word for word in words[start : start + len(piece)] if word != NO_WORD)
        found.append(next(inside, NO_WORD))
        start += len(piece)
    return found


def word_links(
    attention_ts: Attention,
    source_words: Sequence[int],
    target_words: Sequence[int],
) -> list[tuple[int, int]]:
    """Link each target word to the source words that its tokens attended to most, in order.

    Every target token chooses one source token, among those that belong to a word.

    Args:
        source_words: the word of every source token, -1 for none (the end token, a space).
        target_words: the same for the target tokens.
    """
    outside_s = np.array([word == NO_WORD for word in source_words])
    if bool(outside_s.all()) or not len(attention_ts):
        return []
    chosen_t = np.where(outside_s, -1.0, attention_ts).argmax(-1).tolist()
    links = {
        (source_words[token], word)
        for token, word in zip(chosen_t, target_words, strict=True)
        if word != NO_WORD
    }
    return sorted(links)
