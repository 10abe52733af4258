import io
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.errors import DataError, ModelError
from regard.text.foreign import sentencepiece_vocabulary, tokenizers_vocabulary
from regard.text.vocabulary import Vocabulary, never_generated, read_vocabulary

TEXT = [
    "The lights in the kitchen are on, and the kitchen door is open.",
    "Turn the kitchen lights off at 10:45, please!",
    "Die Lichter in der Küche sind an.",
] * 9
SPECIAL = ["<pad>", "<s>", "</s>", "<mask>", "<unk>"]
CONTROL: dict[str, Any] = {"pad": 0, "start": 1, "eos": 2, "mask": 3}
KINDS = ["gpt2", "gpt2-spaced", "llama", "bert", "unigram", "wordlevel"]
HARD = [
    "",
    " ",
    "the kitchen",
    " two  spaces \n\n and\tmore ",
    "naïve Küche 漢字 👩‍👩‍👧 \0",
    "kitchen ▁door Ġlight ##ing",
]
ANY_TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="<"),
        st.sampled_from("kitchen ▁"),
    )
)


def _trained(kind: str) -> tokenizers.Tokenizer:
    special = SPECIAL
    if kind.startswith("gpt2"):
        library = tokenizers.Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=kind == "gpt2-spaced")
        library.decoder = decoders.ByteLevel()
        library.post_processor = processors.ByteLevel(trim_offsets=True)
        trainer: Any = trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    elif kind == "llama":
        library = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
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
        trainer = trainers.BpeTrainer(
            vocab_size=360,
            special_tokens=[*special, *(f"<0x{byte:02X}>" for byte in range(256))],
            show_progress=False,
        )
    elif kind == "bert":
        library = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
        library.normalizer = normalizers.BertNormalizer()
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        library.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(
            vocab_size=150, special_tokens=special, show_progress=False
        )
    elif kind == "unigram":
        library = tokenizers.Tokenizer(models.Unigram())
        library.normalizer = normalizers.NFKC()
        library.pre_tokenizer = pre_tokenizers.Metaspace()
        library.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=90, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    else:
        library = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.WordLevelTrainer(special_tokens=special, show_progress=False)
    library.train_from_iterator(TEXT, trainer)
    library.enable_truncation(4)
    library.enable_padding(length=4)
    return library


@cache
def content(kind: str) -> bytes:
    document = json.loads(_trained(kind).to_str())
    if kind == "llama":
        # The bytes are pieces like any other there, not special tokens.
        document["added_tokens"] = document["added_tokens"][: len(SPECIAL)]
    return json.dumps(document).encode()


@cache
def made(kind: str) -> Vocabulary:
    return read_vocabulary(tokenizers_vocabulary(content(kind), **CONTROL))


@cache
def reference(kind: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    library = tokenizers.Tokenizer.from_str(content(kind).decode())
    return PreTrainedTokenizerFast(tokenizer_object=library)


def same(kind: str, text: str) -> None:
    ids = made(kind).encode(text)
    wanted = reference(kind)(text, add_special_tokens=False, truncation=False, padding=False)
    assert ids == wanted["input_ids"]
    assert made(kind).decode([1, *ids, 2]) == reference(kind).decode(
        [1, *ids, 2], skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", HARD)
def test_ids_and_text_are_those_of_transformers(kind: str, text: str) -> None:
    same(kind, text)


@pytest.mark.parametrize("kind", KINDS)
@given(ANY_TEXT)
def test_any_text_has_the_ids_of_transformers(kind: str, text: str) -> None:
    same(kind, text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("glue", ["", " ", "x"])
def test_a_control_token_that_is_typed_is_text(kind: str, glue: str) -> None:
    text = glue.join(["<s>", "</s>", "<pad>", "<mask>", "the"])
    vocabulary = made(kind)
    assert vocabulary.control_ids >= {0, 1, 2, 3}
    assert vocabulary.control_ids.isdisjoint(vocabulary.encode(text))
    assert vocabulary.control_ids.isdisjoint(vocabulary.encode_more(text))


@pytest.mark.parametrize("kind", ["gpt2", "gpt2-spaced", "llama"])
@given(ANY_TEXT, ANY_TEXT)
def test_pieces_are_the_text_and_a_second_part_gets_no_space(
    kind: str, first: str, second: str
) -> None:
    vocabulary = made(kind)
    ids = vocabulary.encode(first) + vocabulary.encode_more(second)
    joined = b"".join(vocabulary.pieces([1, *ids, 2])).decode()
    if kind == "llama":
        assert joined == ((" " + first if first else "") + second).replace("▁", " ")
    else:
        assert joined.removeprefix(" ") == (first + second).removeprefix(" ")


def test_pieces_of_words_have_a_space_before() -> None:
    vocabulary = made("bert")
    ids = vocabulary.encode("Kitchenlight, on")
    assert b"".join(vocabulary.pieces(ids)) == b" kitchenlight , on"
    assert vocabulary.tokens([1, *ids[:1], 3])[::2] == ["<s>", "<mask>"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_as_the_same_vocabulary(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    made(kind).save(path)
    again = read_vocabulary(path.read_bytes())
    assert isinstance(again, Vocabulary)
    assert again.to_bytes() == made(kind).to_bytes()
    assert again.encode_batch(TEXT) == made(kind).encode_batch(TEXT)
    assert json.loads(path.read_bytes())["library"] == json.loads(content(kind))


def test_one_token_may_start_and_end_a_text() -> None:
    data = tokenizers_vocabulary(content("gpt2"), pad=2, start=2, eos=2, size=512)
    vocabulary = read_vocabulary(data)
    assert (vocabulary.start_id, vocabulary.eos_id, vocabulary.size) == (2, 2, 512)
    assert vocabulary.mask_id is None
    # The model has more rows than the vocabulary has tokens.
    assert never_generated(vocabulary) == (0, 1, 3, 4, *range(326, 512))


def test_several_tokens_may_end_a_text_and_no_text_has_them() -> None:
    library = tokenizers.Tokenizer.from_str(content("gpt2").decode())
    library.add_tokens(["<|over|>"])  # special by what the model says alone
    end = library.get_vocab_size() - 1
    data = tokenizers_vocabulary(library.to_str().encode(), **CONTROL, ends=[end])
    vocabulary = read_vocabulary(data)
    assert (vocabulary.eos_id, vocabulary.end_ids) == (2, {2, end})
    assert end in vocabulary.control_ids
    assert not {2, end} & {*never_generated(vocabulary)}
    assert end not in vocabulary.encode("it is <|over|>")


def test_a_vocabulary_of_before_there_were_several_ends_is_read() -> None:
    document = json.loads(made("gpt2").to_bytes())
    del document["ends"]
    assert read_vocabulary(json.dumps(document).encode()).end_ids == {2}


def test_a_merge_to_a_control_token_is_never_made() -> None:
    document = json.loads(content("gpt2"))
    document["model"]["vocab"]["ee"] = size = len(document["model"]["vocab"])
    document["model"]["merges"].append(["e", "e"])
    data = tokenizers_vocabulary(json.dumps(document).encode(), pad=0, start=size, eos=2)
    vocabulary = read_vocabulary(data)
    assert size not in vocabulary.encode("see eee ee")
    assert vocabulary.decode(vocabulary.encode("see eee ee")) == "see eee ee"


@pytest.mark.parametrize("kind", KINDS)
def test_added_tokens_keep_their_ids_and_only_special_ones_are_control(kind: str) -> None:
    library = tokenizers.Tokenizer.from_str(content(kind).decode())
    size = library.get_vocab_size()
    library.add_special_tokens(["<|end|>"])
    library.add_tokens(["@@door@@"])
    data = tokenizers_vocabulary(library.to_str().encode(), pad=0, start=1, eos=size)
    vocabulary = read_vocabulary(data)
    assert vocabulary.size == size + 2
    assert size in vocabulary.control_ids
    assert size + 1 not in vocabulary.control_ids
    ids = vocabulary.encode("the <|end|> @@door@@")
    assert size not in ids
    assert ids[-1] == size + 1
    assert vocabulary.pieces(ids)[-1].decode().strip() == "@@door@@"
    assert vocabulary.tokens([size]) == ["<|end|>"]


def refused(data: bytes, **control: Any) -> str:
    with pytest.raises(ModelError) as caught:
        tokenizers_vocabulary(data, **{**CONTROL, **control})
    return str(caught.value)


def test_what_is_no_tokenizer_is_refused() -> None:
    assert refused(b"{}") == "tokenizer.json: not a readable tokenizer: it holds no model"
    assert refused(b"{").startswith("tokenizer.json: not a readable tokenizer: ")
    assert refused(b'{"model": {}}').startswith("tokenizer.json: not a readable vocabulary: ")
    assert refused(content("gpt2"), size=9) == (
        "tokenizer.json: the vocabulary has ids up to 325, but the model only 9"
    )
    data = made("gpt2").to_bytes().replace(b'"regard_vocabulary": 1', b'"regard_vocabulary": 2')
    with pytest.raises(ModelError) as caught:
        read_vocabulary(data, name="run")
    assert str(caught.value) == (
        "run: the vocabulary has format 2, and this regard reads 1\n  install a newer regard"
    )


def test_half_a_surrogate_pair_is_refused() -> None:
    for vocabulary in (made("gpt2"), marian()[0]):
        with pytest.raises(DataError) as caught:
            vocabulary.encode("\ud800")
        assert str(caught.value) == "the text holds half of a surrogate pair, which no UTF-8 can"


@cache
def pieces_model() -> bytes:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        vocab_size=44,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        minloglevel=2,
    )
    return model.getvalue()


@cache
def marian() -> tuple[Vocabulary, dict[str, int]]:
    from sentencepiece import SentencePieceProcessor

    library = SentencePieceProcessor(model_proto=pieces_model())
    pieces = [library.id_to_piece(token) for token in range(2, library.vocab_size())]
    # One piece is missing, so that it is unknown.
    ids = {
        piece: number
        for number, piece in enumerate(["</s>", "<unk>", ">>fr<<", *reversed(pieces[:-1]), "<pad>"])
    }
    pad = ids["<pad>"]
    data = sentencepiece_vocabulary(pieces_model(), pad=pad, start=pad, eos=0, ids=ids)
    return read_vocabulary(data), ids


@pytest.mark.parametrize("text", [*HARD, ">>fr<< the door", ">>xx the door"])
def test_pieces_with_a_table_have_the_ids_of_marian(text: str, tmp_path: Path) -> None:
    from transformers import MarianTokenizer

    vocabulary, ids = marian()
    (tmp_path / "source.spm").write_bytes(pieces_model())
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    spm = str(tmp_path / "source.spm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        marian_tokenizer = MarianTokenizer(spm, spm, str(tmp_path / "vocab.json"))
    wanted = marian_tokenizer(text, add_special_tokens=False)["input_ids"]
    assert vocabulary.encode(text) == wanted
    assert vocabulary.decode([*wanted, 0]) == marian_tokenizer.decode(
        [*wanted, 0], skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def test_pieces_without_a_table_have_sentencepiece_s_own_ids() -> None:
    from sentencepiece import SentencePieceProcessor

    library = SentencePieceProcessor(model_proto=pieces_model())
    size = library.vocab_size()
    data = sentencepiece_vocabulary(pieces_model(), pad=size, start=size, eos=0, size=size + 1)
    vocabulary = read_vocabulary(data)
    assert isinstance(vocabulary, Vocabulary)
    assert vocabulary.to_bytes() == data
    assert (vocabulary.size, vocabulary.suffix) == (size + 1, (0,))
    assert vocabulary.encode_batch(TEXT) == library.encode(TEXT)
    assert vocabulary.decode(vocabulary.encode(TEXT[0])) == TEXT[0]
    assert b"".join(vocabulary.pieces(vocabulary.encode(TEXT[0]))).decode() == " " + TEXT[0]
    assert vocabulary.tokens([0, *vocabulary.encode("the")[:1]])[0] == "</s>"
    assert vocabulary.encode_batch([]) == []
    assert not {0, size} & set(vocabulary.encode("</s> <pad>"))
    assert never_generated(vocabulary) == (size,)


@pytest.mark.parametrize("with_table", [False, True])
def test_a_control_piece_that_is_typed_is_text(with_table: bool) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        vocab_size=46,
        user_defined_symbols=["<mask>"],
        minloglevel=2,
    )
    library = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = map(library.id_to_piece, range(library.vocab_size()))
    mask = library.piece_to_id("<mask>")
    assert mask in library.encode("the <mask> door")
    vocabulary = read_vocabulary(
        sentencepiece_vocabulary(
            model.getvalue(),
            pad=1,
            start=1,
            eos=2,
            mask=mask,
            ids={piece: number for number, piece in enumerate(pieces)} if with_table else None,
        )
    )
    ids = vocabulary.encode("the <mask> door")
    assert not vocabulary.control_ids & {*ids}
    assert vocabulary.encode("the") == ids[: len(vocabulary.encode("the"))]


def test_sentencepiece_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = marian()[0].to_bytes()
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ModelError) as caught:
        read_vocabulary(data, name="run")
    assert str(caught.value) == (
        "run: this vocabulary needs the package sentencepiece\n"
        "  python -m pip install 'regard[sentencepiece]'"
    )
