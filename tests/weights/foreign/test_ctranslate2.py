"""Models of ours in CTranslate2: the same probabilities, the same text."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import tokenizers
import torch
from torch import nn

import regard
from regard.errors import CheckpointError, ModelError
from regard.models.build import build_language_model, build_model
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.nn.config import (
    AlibiConfig,
    LayerNormConfig,
    LearnedConfig,
    LinearScalingConfig,
    NoPositionsConfig,
    NTKScalingConfig,
    RelativeConfig,
    RMSNormConfig,
    RotaryConfig,
    SinusoidalConfig,
    YarnScalingConfig,
)
from regard.text.config import VocabularyConfig
from regard.text.foreign import sentencepiece_vocabulary
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from regard.text.vocabulary import Vocabulary, never_generated, read_vocabulary
from regard.weights.foreign.ctranslate2 import export
from regard.weights.foreign.ctranslate2_vocabulary import vocabulary_tokens
from regard.weights.foreign.model import OwnModel

RUN = Path(__file__).parents[2] / "golden" / "run"
PAIRS = RUN.parent / "pairs.tsv"
TINY = {"d_model": 16, "num_heads": 4, "d_ff": 24}
CLOSE = 1e-4  # of log-probabilities down to -30, in float32


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("ctranslate2", reason="the package ctranslate2 is not installed")


@pytest.fixture(scope="module")
def vocabulary() -> Tokenizer:
    return Tokenizer.load(RUN / "tokenizer.json")


def shuffled(model: Any, *, std: float = 0.5) -> Any:
    """All parameters random, norms and biases too, lest a swapped pair go unseen."""
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=std)
        if "norm" in name and name.endswith("weight"):
            parameter.data += 1
    return model.eval()


def ids(vocabulary: Tokenizer, *sizes: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(3, vocabulary.size, (n,), generator=generator).tolist() for n in sizes]


def own(
    config: Any, model: nn.Module | None, source: Vocabulary, target: Vocabulary | None = None
) -> OwnModel[Any]:
    weights = {} if model is None else model.state_dict()
    target = source if target is None else target
    return OwnModel(config=config, weights=weights, source=source, target=target, max_tokens=64)


def seq2seq(**settings: Any) -> TransformerConfig:
    return TransformerConfig(**(TINY | {"encoder_layers": 2, "decoder_layers": 2} | settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm_position": "pre"},
        {"norm": LayerNormConfig(eps=1e-2), "encoder_layers": 3, "decoder_layers": 1},
        {"norm": RMSNormConfig(eps=1e-3), "norm_position": "pre"},
        {"norm": RMSNormConfig()},
        {"positions": SinusoidalConfig(layout="halves", wavelengths="full")},
        {"positions": NoPositionsConfig()},
        {"positions": LearnedConfig(max_positions=64)},
        {"positions": RotaryConfig()},
        {"positions": RotaryConfig(layout="interleaved", dim=2)},
        {"positions": RotaryConfig(scaling=LinearScalingConfig(factor=3.0)), "num_kv_heads": 2},
        {"positions": RotaryConfig(scaling=NTKScalingConfig(factor=3.0)), "d_k": 8, "d_v": 8},
        {"positions": RelativeConfig(buckets=8, max_distance=10), "norm_position": "pre"},
        {"feed_forward": "gelu"},
        {"feed_forward": "gelu_tanh"},
        {"feed_forward": "swish", "feed_forward_bias": False},
        {"feed_forward": "swiglu"},
        {"feed_forward": "geglu", "feed_forward_bias": True},
        {"feed_forward": "geglu_tanh"},
        {"attention_bias": False},
        {"attention_bias": False, "attention_output_bias": True, "attention_scale": 1.0},
        {"attention_output_bias": False, "num_kv_heads": 1},
        {"tying": "two_way"},
        {"tying": "none", "output_bias": True},
        {"embedding_scale": False, "embedding_norm": True, "output_scale": True},
        {"d_k": 6, "d_v": 6, "num_kv_heads": 2},
    ],
    ids=str,
)
@torch.no_grad()
def test_every_kind_of_translator_gives_the_same_probabilities(
    library: Any, vocabulary: Tokenizer, tmp_path: Path, settings: dict[str, Any]
) -> None:
    config, size = seq2seq(**settings), vocabulary.size
    model = shuffled(build_model(config, source_vocabulary=size, target_vocabulary=size, seed=1))
    export(own(config, model, vocabulary), tmp_path / "out")
    peer = library.Translator(str(tmp_path / "out"), compute_type="float32", intra_threads=1)
    names = vocabulary_tokens(vocabulary)
    sources, targets = ids(vocabulary, 3, 9, 20), ids(vocabulary, 5, 2, 17)
    scored = peer.score_batch(
        *([[names[token] for token in row] for row in rows] for rows in (sources, targets))
    )
    for source, target, found in zip(sources, targets, scored, strict=True):
        logits_tv = model(torch.tensor([[*source, EOS_ID]]), torch.tensor([[BOS_ID, *target]]))[0]
        logits_tv[:, [PAD_ID, BOS_ID]] = -torch.inf
        wanted = logits_tv.log_softmax(-1).gather(1, torch.tensor([*target, EOS_ID])[:, None])
        assert torch.allclose(torch.tensor(found.log_probs), wanted[:, 0], rtol=0, atol=CLOSE)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm_position": "post", "tied": False, "output_bias": True},
        {"positions": SinusoidalConfig(), "embedding_norm": True, "embedding_scale": True},
        {"positions": AlibiConfig()},
        {
            "norm": RMSNormConfig(),
            "feed_forward": "swiglu",
            "positions": RotaryConfig(),
            "num_kv_heads": 2,
            "attention_bias": False,
            "tied": False,
        },
    ],
    ids=str,
)
@torch.no_grad()
def test_a_language_model_gives_the_same_logits(
    library: Any, vocabulary: Tokenizer, tmp_path: Path, settings: dict[str, Any]
) -> None:
    config = DecoderConfig(**(TINY | {"num_layers": 2} | settings))
    model = shuffled(build_language_model(config, vocabulary=vocabulary.size, seed=1))
    export(own(config, model, vocabulary), tmp_path / "out")
    peer = library.Generator(str(tmp_path / "out"), compute_type="float32", intra_threads=1)
    names = vocabulary_tokens(vocabulary)
    for row in ids(vocabulary, 3, 9, 40):
        found = peer.forward_batch([[names[token] for token in [BOS_ID, *row]]])
        found_tv = torch.tensor(numpy.array(found))[0]
        wanted_tv = model(torch.tensor([[BOS_ID, *row]]))[0]
        assert torch.allclose(found_tv[:, EOS_ID:], wanted_tv[:, EOS_ID:], rtol=1e-5, atol=CLOSE)
        assert float(found_tv[:, [PAD_ID, BOS_ID]].max()) < -1000


def test_a_trained_run_translates_every_sentence_the_same(library: Any, tmp_path: Path) -> None:
    ours = regard.load(RUN, device="cpu")
    out = tmp_path / "out"
    vocabulary = ours.tokenizers.source
    export(own(ours.model.config, ours.model, vocabulary), out)
    peer = library.Translator(str(out), compute_type="float32", intra_threads=1)
    lines = [line.split("\t")[0] for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    lines += [f"{line} {lines[-1 - number]}" for number, line in enumerate(lines[:20])]
    # As a user would: with the file that came out, and the tokenizers library.
    file = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    cut = [file.encode(" " + line, add_special_tokens=False).tokens for line in lines]
    found = peer.translate_batch(cut, beam_size=1, max_decoding_length=60)
    texts = [
        vocabulary.decode([file.token_to_id(token) for token in each.hypotheses[0]])
        for each in found
    ]
    assert len(lines) == 80
    assert texts == ours.translate(lines, beam=1)


@torch.no_grad()
def test_a_random_model_with_norms_before_picks_the_same_tokens(
    library: Any, vocabulary: Tokenizer, tmp_path: Path
) -> None:
    config, size = seq2seq(norm_position="pre", tying="none"), vocabulary.size
    model = shuffled(build_model(config, source_vocabulary=size, target_vocabulary=size, seed=1))
    export(own(config, model, vocabulary), tmp_path / "out")
    peer = library.Translator(str(tmp_path / "out"), compute_type="float32", intra_threads=1)
    names = vocabulary_tokens(vocabulary)
    sources = ids(vocabulary, *range(1, 51))
    found = peer.translate_batch(
        [[names[token] for token in row] for row in sources], beam_size=1, max_decoding_length=20
    )
    for source, each in zip(sources, found, strict=True):
        cache = model.start(model.encode(torch.tensor([[*source, EOS_ID]])))
        picked = [BOS_ID]
        while len(picked) <= 20 and picked[-1] != EOS_ID:
            hidden, _ = model.step(torch.tensor([[picked[-1]]]), cache)
            logits = model.project(hidden)[0, 0]
            logits[[PAD_ID, BOS_ID]] = -torch.inf
            picked.append(int(logits.argmax()))
        assert each.hypotheses[0] == [names[token] for token in picked[1:] if token != EOS_ID]


@torch.no_grad()
def test_a_vocabulary_from_elsewhere_comes_along(library: Any, tmp_path: Path) -> None:
    pieces = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    pieces.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "o gato dorme no tapete"] * 4),
        model_prefix=str(tmp_path / "vocab"),
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    spm = (tmp_path / "vocab.model").read_bytes()
    vocabulary = read_vocabulary(
        sentencepiece_vocabulary(spm, pad=40, start=40, eos=2, prefix=(1,), size=41)
    )
    config = seq2seq()
    model = shuffled(build_model(config, source_vocabulary=41, target_vocabulary=41, seed=1))
    export(own(config, model, vocabulary), tmp_path / "out")
    assert (tmp_path / "out" / "sentencepiece.model").read_bytes() == spm
    told = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert (told["bos_token"], told["eos_token"], told["unk_token"]) == ("<s>", "</s>", "<unk>")
    assert told["decoder_start_token"] == "#40"
    peer = library.Translator(str(tmp_path / "out"), compute_type="float32", intra_threads=1)
    cut = pieces.SentencePieceProcessor(model_proto=spm).encode("the cat sat 猫", out_type=str)
    target = ["▁", "o", "猫"]
    found = peer.score_batch([cut], [target])[0].log_probs
    (source,) = vocabulary.encode_batch(["the cat sat 猫"])
    ids = [vocabulary.names(range(41)).index(token) for token in target[:2]]
    ids += [0, vocabulary.eos_id]
    logits_tv = model(torch.tensor([[1, *source, 2]]), torch.tensor([[40, *ids[:-1]]]))[0]
    logits_tv[:, [*never_generated(vocabulary)]] = -torch.inf
    wanted = logits_tv.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])
    assert torch.allclose(torch.tensor(found), wanted[:, 0], rtol=0, atol=CLOSE)


def test_two_vocabularies(library: Any, tmp_path: Path) -> None:
    source, target = (
        Tokenizer.train(iter([text]), VocabularyConfig(size=size))
        for text, size in (("ein Haus, ein Haus", 262), ("a house, a house </s> <pad>", 270))
    )
    config = seq2seq(tying="two_way")
    model = build_model(
        config, source_vocabulary=source.size, target_vocabulary=target.size, seed=1
    )
    export(own(config, model, source, target), tmp_path / "out")
    for side, vocabulary in (("source", source), ("target", target)):
        kept = (tmp_path / "out" / f"{side}_vocabulary.json").read_text(encoding="utf-8")
        tokens = json.loads(kept)
        assert len(tokens) == len(set(tokens)) == vocabulary.size
        assert all(token.isprintable() for token in tokens)
        assert (tokens[PAD_ID], tokens[BOS_ID], tokens[EOS_ID]) == ("<pad>", "<s>", "</s>")
        assert (tmp_path / "out" / f"tokenizer.{side}.json").exists()
    assert library.Translator(str(tmp_path / "out")).translate_batch([["a"]])


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (seq2seq(decoder_mixer="ssru"), 'model.decoder_mixer = "ssru"'),
        (
            seq2seq(positions=AlibiConfig(), d_v=3),
            'model.d_v = 3 beside d_k = 4, model.positions.kind = "alibi"',
        ),
        (
            seq2seq(positions=RotaryConfig(scaling=YarnScalingConfig())),
            'model.positions.scaling.kind = "yarn"',
        ),
        (
            DecoderConfig(**TINY, window=8, positions=RelativeConfig()),
            'model.positions.kind = "relative", model.window = 8',
        ),
    ],
)
def test_what_it_cannot_express_is_named(
    vocabulary: Tokenizer, tmp_path: Path, config: Any, named: str
) -> None:
    with pytest.raises(ModelError) as caught:
        export(own(config, None, vocabulary), tmp_path / "out")
    assert str(caught.value) == f"CTranslate2 can't express {named}"
    assert list(tmp_path.iterdir()) == []


def test_every_file_is_synced_before_the_folder_has_its_name(
    vocabulary: Tokenizer, tmp_path: Path, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, synced = tmp_path / "out", []
    config = DecoderConfig(**TINY, num_layers=1)
    model = shuffled(build_language_model(config, vocabulary=vocabulary.size, seed=1))
    sync = os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        if not out.exists():
            synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    export(own(config, model, vocabulary), out)
    assert {path.stat().st_ino for path in (out, *out.iterdir())} <= {*synced}


def test_encoders_are_refused(vocabulary: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        export(own(EncoderConfig(), None, vocabulary), tmp_path / "out")
    assert str(caught.value) == (
        "for CTranslate2 regard writes translators and language models, and this is an encoder\n"
        "  Use --format huggingface."
    )


def test_without_the_package(
    vocabulary: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(CheckpointError) as caught:
        export(own(seq2seq(), None, vocabulary), tmp_path / "out")
    assert str(caught.value) == (
        "writing a model for CTranslate2 needs the package ctranslate2\n"
        "  python -m pip install ctranslate2"
    )


def test_nothing_is_overwritten(library: Any, vocabulary: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is something of that name"):
        export(own(seq2seq(), None, vocabulary), tmp_path)
