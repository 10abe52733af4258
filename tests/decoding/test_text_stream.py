"""Text out of tokens: whole characters, and stop strings wherever tokens begin and end."""

import json
from functools import cache
from typing import Any

import pytest
import tokenizers
from decoding.tiny import LINES, tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.decoding.text_stream import TextStream
from regard.text.foreign import tokenizers_vocabulary
from regard.text.vocabulary import Vocabulary, read_vocabulary


def spelled(text: str) -> list[int]:
    """Tokens of single bytes."""
    vocabulary = tokenizer()
    bytes_of = {piece: token for token, piece in enumerate(vocabulary.pieces(range(260)))}
    return [bytes_of[bytes([byte])] for byte in text.encode()]


def pieces(
    ids: list[int],
    prompt: str = "",
    stop: tuple[str, ...] = (),
    vocabulary: Vocabulary | None = None,
) -> tuple[list[str], TextStream]:
    vocabulary = vocabulary or tokenizer()
    stream = TextStream(vocabulary, prompt, vocabulary.encode(prompt), stop)
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
    given_out, stream = pieces(spelled(more), prompt)
    whole = tokenizer().decode([*before, *spelled(more)])
    assert "".join(given_out) == stream.text
    assert prompt + stream.text == whole


@given(st.lists(st.integers(3, 300), max_size=12), st.sampled_from(["", *LINES]))
def test_any_tokens_come_out_as_they_decode(ids: list[int], prompt: str) -> None:
    before = tokenizer().encode(prompt)
    _, stream = pieces(ids, prompt)
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
    assert pieces(ids, "open")[1].text == " the door"


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
    for ids, prompt in ((spelled(text), "x"), (tokenizer().encode(text), "")):
        given_out, stream = pieces(ids, prompt, tuple(stops))
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


@cache
def foreign(kind: str) -> Vocabulary:
    """A vocabulary as GPT-2's, of bytes, or as LLaMA's, of characters and bytes for the rest."""
    special = ["<pad>", "<s>", "</s>"]
    library = tokenizers.Tokenizer(models.BPE(byte_fallback=kind == "llama"))
    if kind == "llama":
        library.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        library.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
        alphabet = [f"<0x{byte:02X}>" for byte in range(256)]
        trainer: Any = trainers.BpeTrainer(
            vocab_size=340, special_tokens=[*special, *alphabet], show_progress=False
        )
    else:
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=330,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    library.train_from_iterator(LINES * 9, trainer)
    document = json.loads(library.to_str())
    document["added_tokens"] = document["added_tokens"][: len(special)]
    content = json.dumps(document).encode()
    return read_vocabulary(tokenizers_vocabulary(content, pad=0, start=1, eos=2))


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@given(prompt=st.sampled_from(["", "the door ", "a", " b", *LINES]), more=TEXT)
def test_a_vocabulary_from_elsewhere_reads_on_from_its_prompt(
    kind: str, prompt: str, more: str
) -> None:
    vocabulary = foreign(kind)
    ids = vocabulary.encode_more(more)
    given_out, stream = pieces(ids, prompt, vocabulary=vocabulary)
    whole = vocabulary.decode([*vocabulary.encode(prompt), *ids])
    assert prompt + stream.text == whole
    assert "".join(given_out) == stream.text


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_no_half_character_comes_of_a_vocabulary_from_elsewhere(kind: str) -> None:
    vocabulary = foreign(kind)
    given_out, _ = pieces(vocabulary.encode_more("aé🙂b"), "the", vocabulary=vocabulary)
    assert [piece for piece in given_out if piece] == ["a", "é", "🙂", "b"]
