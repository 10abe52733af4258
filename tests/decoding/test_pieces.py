"""Cutting a long source: nothing lost, pieces that fit, cuts where they hurt least."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.pieces import split_source


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def letters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


def cut(text: str, limit: int, *, by_letters: bool = False) -> list[str]:
    bounds = split_source(text, limit, letters if by_letters else words)
    return [text[start:end] for start, end in bounds]


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        ("a b", 2, ["a b"]),
        ("One two. Three four! Five six?", 4, ["One two. Three four!", "Five six?"]),
        ("One two. Three four! Five six?", 2, ["One two.", "Three four!", "Five six?"]),
        ('"No." Then (so it is.) he left.', 4, ['"No."', "Then (so it is.)", "he left."]),
        ("v1.2 is out... and fine", 3, ["v1.2 is out...", "and fine"]),
        ("a b; c d: e f, g h", 4, ["a b; c d:", "e f, g h"]),
        ("a b, c d, e f g", 5, ["a b, c d,", "e f g"]),
        ("a b c d e f", 5, ["a b c", "d e f"]),
        ("  a b.  \t c d.  ", 2, ["a b.", "c d."]),
    ],
)
def test_cuts_are_made_where_they_hurt_least(text: str, limit: int, pieces: list[str]) -> None:
    assert cut(text, limit) == pieces


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("一二三。四五六!七八九？", ["一二三。", "四五六!七八九？"]),
        ("「一二。」三四五六七", ["「一二。」", "三四五六七"]),
        ("一二三；四五六七八", ["一二三；", "四五六七八"]),
        ("一二三、四五六七八", ["一二三、", "四五六七八"]),
        ("一二三四五六七八九十", ["一二三四五六七八", "九十"]),
    ],
)
def test_chinese_and_japanese_need_no_spaces(text: str, pieces: list[str]) -> None:
    assert cut(text, 8, by_letters=True) == pieces


@given(st.text(alphabet="ab .!?;,。　\n\u0301\u200d", max_size=60), st.integers(1, 9))
def test_every_piece_fits_and_nothing_but_space_is_lost(text: str, limit: int) -> None:
    pieces = cut(text, limit, by_letters=True)
    assert all(0 < len(piece) <= limit for piece in pieces)
    assert all(piece == piece.strip() for piece in pieces)
    assert re.sub(r"\s", "", "".join(pieces)) == re.sub(r"\s", "", text)


def test_a_letter_too_long_for_the_limit_is_a_piece_of_its_own() -> None:
    def octets(texts: Sequence[str]) -> list[int]:
        return [len(text.encode("utf-8")) for text in texts]

    text = "a😀b"
    bounds = split_source(text, 2, octets)
    assert [text[start:end] for start, end in bounds] == ["a", "😀", "b"]


def test_a_letter_keeps_its_marks_and_an_emoji_its_parts() -> None:
    assert cut("abcde\u0301f", 5, by_letters=True) == ["abcd", "e\u0301f"]
    family = "👨\u200d👩\u200d👧"
    assert cut("ab" + family, 5, by_letters=True) == ["ab", family]


def test_a_very_long_line_is_cut_in_a_time_that_grows_with_its_length() -> None:
    counted = 0

    def count(texts: Sequence[str]) -> list[int]:
        nonlocal counted
        counted += sum(map(len, texts))
        return [len(text) for text in texts]

    for text in ("x" * 50_000, "x " * 25_000, "xy. " * 12_500, "我" * 50_000):
        counted = 0
        assert all(end - start <= 100 for start, end in split_source(text, 100, count))
        assert counted < 15 * len(text)
