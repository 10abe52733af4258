"""Text out of tokens: whole characters, and stop strings wherever tokens begin and end."""

import pytest
from decoding.tiny import LINES, tokenizer
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.text_stream import TextStream


def spelled(text: str) -> list[int]:
    """Tokens of single bytes."""
    vocabulary = tokenizer()
    bytes_of = {piece: token for token, piece in enumerate(vocabulary.pieces(range(260)))}
    return [bytes_of[bytes([byte])] for byte in text.encode()]


def pieces(
    ids: list[int], before: list[int] | None = None, stop: tuple[str, ...] = ()
) -> tuple[list[str], TextStream]:
    stream = TextStream(tokenizer(), before or [], stop)
    given = []
    for token in ids:
        given.append(stream.push(token))
        if stream.stopped:
            break
    given.append(stream.finish())
    return given, stream


TEXT = st.text(st.sampled_from("ab cé€🙂\n\ufffd"), max_size=12)


@given(TEXT, TEXT)
def test_pieces_are_the_text_that_goes_on_from_the_prompt(prompt: str, more: str) -> None:
    before = tokenizer().encode(prompt)
    given_out, stream = pieces(spelled(more), before)
    whole = tokenizer().decode([*before, *spelled(more)])
    assert "".join(given_out) == stream.text
    assert prompt + stream.text == whole


@given(st.lists(st.integers(3, 300), max_size=12), st.sampled_from(["", *LINES]))
def test_any_tokens_come_out_as_they_decode(ids: list[int], prompt: str) -> None:
    before = tokenizer().encode(prompt)
    _, stream = pieces(ids, before)
    assert prompt + stream.text == tokenizer().decode([*before, *ids])


def test_a_piece_holds_no_half_character() -> None:
    given_out, _ = pieces(spelled("aé€🙂b"))
    assert [piece for piece in given_out if piece] == ["a", "é", "€", "🙂", "b"]


def test_a_character_that_never_becomes_whole_is_given_out_at_the_end() -> None:
    given_out, stream = pieces(spelled("a€")[:-1])
    assert given_out == ["a", "", "", "\ufffd"]
    assert stream.text == "a\ufffd"


def test_the_space_before_a_text_is_no_part_of_it_and_one_inside_is() -> None:
    ids = tokenizer().encode("the door")
    assert pieces(ids)[1].text == "the door"
    assert pieces(ids, tokenizer().encode("open"))[1].text == " the door"


@given(TEXT, st.lists(st.text(st.sampled_from("ab cé€"), min_size=1, max_size=4), max_size=3))
def test_text_ends_before_the_first_stop_string_however_it_is_cut(
    text: str, stops: list[str]
) -> None:
    expected, ended = text, False
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            expected, ended = text[: end - max(map(len, found))], True
            break
    # One token a byte, and as few tokens as there are: what is put before is not in the text.
    for ids, before in ((spelled(text), spelled("x")), (tokenizer().encode(text), [])):
        given_out, stream = pieces(ids, before, tuple(stops))
        assert (stream.text, stream.stopped) == (expected, ended)
        assert "".join(given_out) == expected


def test_a_stop_string_is_found_inside_a_token_and_across_two() -> None:
    ids = tokenizer().encode("the window in the kitchen")
    for stop, text in (("ndo", "the wi"), ("w in", "the windo"), (" kitchen", "the window in the")):
        assert pieces(ids, stop=(stop,))[1].text == text


def test_what_may_become_a_stop_string_is_held_back_until_it_does_not() -> None:
    given_out, stream = pieces(spelled("aababac"), stop=("abac", "bad"))
    assert given_out == ["", "a", "", "", "ab", "", "", ""]
    assert (stream.text, stream.stopped) == ("aab", True)
    given_out, stream = pieces(spelled("aaba"), stop=("abac",))
    assert given_out == ["", "a", "", "", "aba"]
    assert not stream.stopped


@pytest.mark.parametrize("stops", [("abc", "b"), ("b", "abc")])
def test_the_stop_string_that_is_complete_first_counts(stops: tuple[str, ...]) -> None:
    assert pieces(spelled("xabc"), stop=stops)[1].text == "xa"
