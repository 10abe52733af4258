import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.errors import DataError, ModelError
from regard.text.config import VocabularyConfig
from regard.text.tokenizer import BOS_ID, CONTROL_TOKENS, EOS_ID, PAD_ID, Tokenizer

TEXT = [
    "The lights in the kitchen are on.",
    "Die Lichter in der Küche sind an.",
    "Turn the kitchen lights off at 10:45, please!",
    "Schalte die Küchenlichter um 10:45 Uhr aus, bitte!",
    "The text </s> and <pad> and <s> is only text.",
    "kitchen kitchen lights lights <s> <s> </s> </s>",
] * 3
KINDS = ["bpe", "unigram"]


@cache
def trained(kind: str) -> Tokenizer:
    return Tokenizer.train(iter(TEXT), VocabularyConfig(kind=kind, size=420))


HARD = [
    "👩‍👩‍👧‍👦 family",
    "\u2581 \u2581\u2581a",
    "a\xa0b\xa0",
    "a\u2028b\x85c\x0cd\re",
    "\0a\0",
    "\u0301e\u0301\u0308",
    "Ame\u0301lie Amélie",
    "</s><pad><s> </s> x<s>y",
    " a  b ",
    " ",
    "\t\t x\n\n",
    "٣ 12345 ½ ⅷ",
    "\ufeff漢字かな",
    "Ġ Ċ",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", HARD)
def test_hard_texts_round_trip_without_a_control_id(kind: str, text: str) -> None:
    ids = trained(kind).encode(text)
    assert trained(kind).decode(ids) == text
    assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids)


ANY_TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("\u200d👩🏽\u2581\xa0\u2028\0\u0301é</s>pad 09'’\r\n\t"),
    )
)


@given(ANY_TEXT, st.sampled_from(KINDS))
@example("<pad>", "unigram")
@settings(max_examples=300, deadline=None)
def test_every_text_round_trips_without_a_control_id(text: str, kind: str) -> None:
    ids = trained(kind).encode(text)
    assert trained(kind).decode(ids) == text
    assert min(ids, default=EOS_ID + 1) > EOS_ID


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(ANY_TEXT, max_size=5))
@settings(max_examples=50, deadline=None)
def test_a_batch_of_texts_is_encoded_as_each_alone(kind: str, texts: list[str]) -> None:
    assert trained(kind).encode_batch(texts) == [trained(kind).encode(text) for text in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_all_256_bytes_and_the_control_tokens_are_in_the_vocabulary(kind: str) -> None:
    tokenizer = trained(kind)
    assert tokenizer.tokens([PAD_ID, BOS_ID, EOS_ID]) == list(CONTROL_TOKENS)
    single = {data for data in tokenizer._pieces if len(data) == 1}
    assert single == {bytes([byte]) for byte in range(256)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_control_token_typed_in_the_training_text_never_becomes_a_piece(kind: str) -> None:
    text = ["<s> </s> <pad>"] * 50
    tokenizer = Tokenizer.train(iter(text), VocabularyConfig(kind=kind, size=600))
    for token in CONTROL_TOKENS:
        assert tokenizer.decode(tokenizer.encode(token)) == token
        assert len(tokenizer.encode(token)) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_has_the_same_pieces_at_the_start_and_inside(kind: str) -> None:
    tokenizer = trained(kind)
    word = tokenizer.encode("kitchen")
    assert tokenizer.encode("lights kitchen") == tokenizer.encode("lights") + word


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_cut_digit_by_digit(kind: str) -> None:
    many = [f"{number} items" for number in [2024] * 99]
    tokenizer = Tokenizer.train(iter(many), VocabularyConfig(kind=kind, size=400))
    tokens = tokenizer.tokens(tokenizer.encode("x 2024"))
    assert "".join(tokens).endswith("2024")
    assert [
        token for token in tokens if token.strip("▁").isdigit() and len(token.strip("▁")) > 1
    ] == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_trained_on_is_shorter_than_its_bytes(kind: str) -> None:
    tokenizer = trained(kind)
    assert len(tokenizer.encode(TEXT[0])) < len(TEXT[0]) / 2


def test_control_ids_and_broken_bytes_decode_to_readable_text() -> None:
    tokenizer = trained("bpe")
    ids = tokenizer.encode("ü")
    first_byte = tokenizer._pieces.index("ü".encode()[:1])
    assert tokenizer.decode([BOS_ID, *ids, EOS_ID, PAD_ID]) == "ü"
    assert tokenizer.decode([first_byte]) == "\ufffd"
    assert tokenizer.tokens([first_byte]) == ["\\xc3"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_size_that_the_text_cannot_supply_gives_a_smaller_vocabulary(kind: str) -> None:
    tokenizer = Tokenizer.train(iter(["ab ab"]), VocabularyConfig(kind=kind, size=5000))
    assert 259 < tokenizer.size < 270
    assert max(tokenizer.encode("".join(map(chr, range(500))))) < tokenizer.size


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_asked_for_is_the_size_given(kind: str) -> None:
    assert Tokenizer.train(iter(TEXT), VocabularyConfig(kind=kind, size=300)).size == 300


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_text_gives_the_same_tokenizer_in_another_process(kind: str) -> None:
    code = (
        "import json, sys, hashlib\n"
        "from regard.text.config import VocabularyConfig\n"
        "from regard.text.tokenizer import Tokenizer\n"
        f"config = VocabularyConfig(kind={kind!r}, size=420)\n"
        "made = Tokenizer.train(iter(json.load(sys.stdin)), config).to_bytes()\n"
        "print(hashlib.sha256(made).hexdigest())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        input=json.dumps(TEXT),
        capture_output=True,
        text=True,
    )
    assert result.stdout.strip() == hashlib.sha256(trained(kind).to_bytes()).hexdigest()


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same_when_read(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.to_bytes() == tokenizer.to_bytes()
    assert again.encode_batch(HARD) == tokenizer.encode_batch(HARD)


def test_a_foreign_or_broken_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a readable tokenizer"):
        Tokenizer.from_bytes(b"{}", name="t.json")
    foreign = tokenizers.Tokenizer(tokenizers.models.BPE()).to_str().encode()
    with pytest.raises(ModelError) as caught:
        Tokenizer.from_bytes(foreign, name="t.json")
    assert str(caught.value) == (
        "t.json: wanted a byte-level tokenizer made by regard, found another kind"
    )
    with pytest.raises(ModelError) as caught:
        Tokenizer.load(tmp_path / "none.json")
    assert (
        str(caught.value) == f"{tmp_path / 'none.json'}: cannot be read: No such file or directory"
    )


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(DataError, match="half of a surrogate pair"):
        trained("bpe").encode("a\ud800b")


@given(ANY_TEXT, st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_dropout_changes_the_cut_but_never_the_text(text: str, dropout: float, seed: int) -> None:
    tokenizer = trained("bpe")
    ids = tokenizer.encode_with_dropout(text, dropout, np.random.default_rng(seed))
    assert tokenizer.decode(ids) == text
    assert ids == tokenizer.encode_with_dropout(text, dropout, np.random.default_rng(seed))
    if dropout == 0.0:
        assert ids == tokenizer.encode(text)
    if dropout == 1.0 and text:
        assert len(ids) == len(text.encode()) + 1


def test_dropout_gives_many_cuts_and_longer_ones_where_it_is_stronger() -> None:
    generator = np.random.default_rng(0)
    tokenizer = trained("bpe")
    cuts = {tuple(tokenizer.encode_with_dropout(TEXT[0], 0.2, generator)) for _ in range(50)}
    assert len(cuts) > 40
    lengths = [
        np.mean([len(tokenizer.encode_with_dropout(TEXT[0], rate, generator)) for _ in range(30)])
        for rate in (0.0, 0.1, 0.3, 0.6)
    ]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1] / 1.5


def test_dropout_of_a_unigram_vocabulary_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        trained("unigram").encode_with_dropout("a", 0.1, np.random.default_rng(0))
    assert str(caught.value) == "BPE-dropout needs a BPE vocabulary, and this one is unigram"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("letters", ["x", "ab", "!", " ", "\u0301", "漢字", "x\u0301"])
def test_a_line_without_end_comes_back_whole(kind: str, letters: str) -> None:
    draw = random.Random(1)
    length = 300_000 if kind == "bpe" else 30_000
    endless = "".join(draw.choice(letters) for _ in range(length))
    tokenizer = Tokenizer.train(iter([*TEXT, endless]), VocabularyConfig(kind=kind, size=300))
    assert tokenizer.decode(tokenizer.encode(endless)) == endless


@pytest.mark.parametrize("letter", ["x", "é", "漢", "!", " "])
def test_only_a_run_of_more_than_256_characters_is_cut(letter: str) -> None:
    """So that ordinary text is cut as it was before there was a bound."""
    library = tokenizers.Tokenizer.from_str(trained("bpe").to_bytes().decode())
    for length, pieces in ((256, 1), (257, 2)):
        assert len(library.pre_tokenizer.pre_tokenize_str(letter * length)) == pieces


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_training_of_a_vocabulary_at_once(number: signal.Signals) -> None:
    code = """
import random, sys
from regard.exits import run_guarded
from regard.text.config import VocabularyConfig
from regard.text.tokenizer import Tokenizer

def lines():
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrst"
    for _ in range(100):
        yield " ".join("".join(draw.choices(letters, k=200)) for _ in range(100))
    print("read", flush=True)

config = VocabularyConfig(size=1_000_000)
sys.exit(run_guarded(lambda: Tokenizer.train(lines(), config)))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "read\n"
        time.sleep(0.5)
        assert child.poll() is None
        child.send_signal(number)
        try:
            _, said = child.communicate(timeout=5)
        finally:
            child.kill()
    assert (child.returncode, said) == (130, "interrupted\n")


def test_a_fault_in_the_text_is_raised_by_the_training() -> None:
    def lines() -> Iterator[str]:
        yield "a b"
        raise DataError("expected UTF-8 text")

    with pytest.raises(DataError, match="expected UTF-8 text"):
        Tokenizer.train(lines(), VocabularyConfig(size=300))
