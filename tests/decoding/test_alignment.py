"""From attention over tokens to links between words."""

import numpy as np
from decoding.tiny import tokenizer
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.alignment import byte_words, token_words, word_links
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.translation import assemble
from regard.text.tokenizer import EOS_ID


@given(st.text())
def test_words_of_bytes_are_those_of_split(text: str) -> None:
    data = text.encode("utf-8")
    numbers = byte_words(data)
    assert len(numbers) == len(data)
    grouped: dict[int, bytes] = {}
    for number, byte in zip(numbers, data, strict=True):
        grouped[number] = grouped.get(number, b"") + bytes([byte])
    grouped.pop(-1, None)
    assert [grouped[number].decode() for number in range(len(grouped))] == text.split()


@given(st.binary(max_size=30))
def test_bytes_that_are_no_text_belong_to_words_too(data: bytes) -> None:
    numbers = byte_words(data)
    assert len(numbers) == len(data)
    assert max(numbers, default=-1) + 1 == len(data.decode("utf-8", errors="replace").split())


def test_a_token_belongs_to_the_word_of_its_first_letter() -> None:
    data = b" ab  cd"
    pieces = [b" a", b"b", b" ", b" cd", b""]
    assert token_words(pieces, byte_words(data)) == [0, 0, -1, 1, -1]


def test_each_target_token_links_its_word_to_the_word_it_looked_at_most() -> None:
    attention = np.array(
        [
            [0.1, 0.6, 0.1, 0.2],  # to the second half of word 0
            [0.1, 0.0, 0.2, 0.7],  # most to the end token, then to word 1
            [0.5, 0.1, 0.3, 0.1],  # to word 0
            [0.0, 0.0, 1.0, 0.0],  # a space: no word
        ]
    )
    assert word_links(attention, [0, 0, 1, -1], [0, 1, 1, -1]) == [(0, 0), (0, 1), (1, 1)]


def test_without_words_there_are_no_links() -> None:
    assert word_links(np.ones((2, 1)), [-1], [0, 1]) == []
    assert word_links(np.ones((0, 2)), [0, -1], []) == []


def _pieces(
    parts: list[tuple[str, str]],
) -> tuple[list[list[int]], list[list[Hypothesis]]]:
    """Hypotheses whose tokens look at the source token in the same place from the left."""
    sources, found = [], []
    for source, target in parts:
        ids, tokens = tokenizer().encode(source), tokenizer().encode(target)
        attention = np.zeros((len(tokens), len(ids) + 1))
        for place in range(len(tokens)):
            attention[place, min(place, len(ids) - 1)] = 1.0
        sources.append(ids)
        found.append([Hypothesis(tuple(tokens), -1.0, -2.0, True, attention)])
    return sources, found


def test_words_are_counted_in_the_whole_line_and_the_whole_text() -> None:
    # Cut between sentences and inside the word "window"; the last part says nothing.
    line = "the door.  Licht window a"
    bounds = [(0, 9), (11, 20), (20, 23), (24, 25)]
    parts = [line[start:end] for start, end in bounds]
    assert parts == ["the door.", "Licht win", "dow", "a"]
    sources, found = _pieces(
        [(parts[0], parts[0]), (parts[1], parts[1]), (parts[2], parts[2]), (parts[3], "")]
    )
    answer = assemble(
        line, bounds, sources, found, tokenizer(), tokenizer(), alignments=True, attention=True
    )
    assert answer.text == "the door. Licht win dow"
    assert answer.alignment == ((0, 0), (1, 1), (2, 2), (3, 3), (3, 4))
    assert answer.pharaoh == "0-0 1-1 2-2 3-3 3-4"
    assert answer.score == -4.0
    assert answer.log_prob == -8.0
    assert answer.attention_ts is not None
    assert answer.attention_ts.shape == (len(answer.tokens), sum(len(ids) + 1 for ids in sources))
    assert answer.source_tokens.count("</s>") == 4
    assert tokenizer().tokens([EOS_ID]) == ["</s>"]


def test_a_piece_with_fewer_hypotheses_repeats_its_last() -> None:
    sources, found = _pieces([("a", "a"), ("Licht", "Licht")])
    found[1].append(Hypothesis(tuple(tokenizer().encode("light")), -5.0, -6.0, False))
    answer = assemble(
        "a Licht",
        [(0, 1), (2, 7)],
        sources,
        found,
        tokenizer(),
        tokenizer(),
        alignments=False,
        attention=False,
    )
    assert [one.text for one in answer.hypotheses] == ["a Licht", "a light"]
    assert [one.finished for one in answer.hypotheses] == [True, False]
    assert [one.log_prob for one in answer.hypotheses] == [-4.0, -8.0]
    assert answer.finished
