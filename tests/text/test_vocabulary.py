from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, ModelError
from regard.text.config import VocabularyConfig
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import (
    Vocabulary,
    framed,
    load_vocabulary,
    never_generated,
    read_vocabulary,
)

TEXT = ["The lamp is on.", "Die Lampe ist aus.\n", "<mask> </s>", "\n\n naïve"] * 5
KINDS = ["bpe", "unigram", "char"]
ANY_TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("\u200d👩🏽\u2581\xa0\u2028\0\u0301é</s>mask<0xE2>\r\n\t "),
    )
)


@cache
def trained(kind: str, mask: bool = False) -> Tokenizer:
    return Tokenizer.train(iter(TEXT), VocabularyConfig(kind=kind, size=400), mask=mask)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@given(ANY_TEXT)
def test_every_text_round_trips_without_a_control_id(kind: str, mask: bool, text: str) -> None:
    vocabulary = trained(kind, mask)
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    assert vocabulary.control_ids.isdisjoint(ids)
    assert b"".join(vocabulary.pieces(ids)).decode().removeprefix(vocabulary._space) == text


@pytest.mark.parametrize("kind", KINDS)
@given(ANY_TEXT, ANY_TEXT)
def test_a_text_in_two_parts_is_the_text(kind: str, first: str, second: str) -> None:
    vocabulary = trained(kind)
    ids = vocabulary.encode(first or "x") + vocabulary.encode_more(second)
    assert vocabulary.decode(ids) == (first or "x") + second


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_as_the_same_vocabulary(kind: str, mask: bool) -> None:
    vocabulary = trained(kind, mask)
    again = read_vocabulary(vocabulary.to_bytes())
    assert isinstance(again, Tokenizer)
    assert isinstance(again, Vocabulary)
    assert again.kind == kind
    assert again.to_bytes() == vocabulary.to_bytes()
    assert again.encode_batch(TEXT) == vocabulary.encode_batch(TEXT)
    assert again.mask_id == (3 if mask else None)
    assert (again.prefix, again.suffix) == (((1,) if mask else ()), (2,))
    assert framed(again, [9, 8]) == ([1, 9, 8, 2] if mask else [9, 8, 2])
    assert never_generated(again) == ((0, 1, 3) if mask else (0, 1))


def test_every_character_is_a_piece_and_others_are_bytes() -> None:
    vocabulary = trained("char")
    assert vocabulary.size == 3 + 256 + len(set("".join(TEXT)))
    text = "Lamp\nnaïve"
    assert vocabulary.tokens(vocabulary.encode(text)) == list(text)
    assert vocabulary.tokens(vocabulary.encode("é x")) == ["\\xc3", "\\xa9", "▁", "x"]


def test_of_more_characters_than_fit_the_most_frequent_are_kept() -> None:
    config = VocabularyConfig(kind="char", size=261)
    vocabulary = Tokenizer.train(iter(["ccc", "bb", "aa", "d"]), config)
    assert vocabulary.size == 261
    assert vocabulary.encode("ca") == [259, 260]
    assert vocabulary.encode("bd") == [3 + ord("b"), 3 + ord("d")]


def test_no_space_is_put_before_characters() -> None:
    vocabulary = trained("char")
    assert vocabulary.pieces(vocabulary.encode(" on")) == [b" ", b"o", b"n"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_mask_is_read_as_text_where_it_is_typed(kind: str) -> None:
    vocabulary = trained(kind, mask=True)
    assert vocabulary.tokens([3]) == ["<mask>"]
    assert vocabulary.pieces([3]) == [b""]
    assert 3 not in vocabulary.encode("the <mask> sat <mask>")
    assert vocabulary.decode([1, *vocabulary.encode("a"), 3, 2]) == "a"


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_refused(kind: str) -> None:
    with pytest.raises(DataError) as caught:
        trained(kind).encode("\ud800")
    assert str(caught.value) == "the text holds half of a surrogate pair, which no UTF-8 can"


def test_what_is_no_vocabulary_is_refused(tmp_path: object) -> None:
    with pytest.raises(ModelError) as caught:
        read_vocabulary(b"{", name="run/tokenizer.json")
    assert str(caught.value).startswith("run/tokenizer.json: not a readable tokenizer: ")
    with pytest.raises(ModelError) as caught:
        load_vocabulary(f"{tmp_path}/none.json")
    assert str(caught.value) == f"{tmp_path}/none.json: cannot be read: No such file or directory"


def test_a_foreign_vocabulary_is_not_trained() -> None:
    with pytest.raises(ModelError) as caught:
        Tokenizer.train(iter(TEXT), VocabularyConfig(kind="foreign"))
    assert str(caught.value) == 'a vocabulary of kind = "foreign" comes with a checkpoint'
