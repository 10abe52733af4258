import dataclasses
import math

import pytest
import torch
from training.digits import make_batch

from regard.decoding.config import DecodingConfig
from regard.decoding.score import score_pairs
from regard.decoding.translate import translate
from regard.errors import DataError
from regard.evaluation.metrics import bleu, chrf
from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.text.config import VocabularyConfig
from regard.text.corpus import Tokenizers
from regard.text.tokenizer import Tokenizer
from regard.training.losses import translation_loss
from regard.training.parts import split_batch
from regard.training.validation import TranslationValidator, Validation

SOURCES = ["turn on the light", "", "open the door", "close the window now", "the end"]
TARGETS = ["das Licht an", "", "die Tür auf", "das Fenster jetzt zu", "das Ende"]
DECODING = DecodingConfig(beam=2, max_extra_tokens=3)


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    joint = Tokenizer.train(iter(SOURCES + TARGETS), VocabularyConfig(size=270))
    return Tokenizers(joint, joint)


@pytest.fixture
def model(tokenizers: Tokenizers) -> Transformer:
    config = TransformerConfig(
        d_model=16, num_heads=2, d_ff=32, encoder_layers=1, decoder_layers=1, dropout=0.5
    )
    size = tokenizers.source.size
    return build_model(config, source_vocabulary=size, target_vocabulary=size, seed=1)


def validator(tokenizers: Tokenizers, **changes: int) -> TranslationValidator:
    settings = {"trained_length": 50, "sample_lines": 2} | changes
    return TranslationValidator(SOURCES, TARGETS, tokenizers, DECODING, **settings)


def without_seconds(validation: Validation) -> Validation:
    return dataclasses.replace(validation, seconds=0.0)


def test_the_figures_are_those_of_translating_and_scoring_the_same_lines(
    model: Transformer, tokenizers: Tokenizers
) -> None:
    found = validator(tokenizers).run(model)
    both = [tokenizers.source], tokenizers.target
    translations = translate([model], *both, SOURCES, DECODING, trained_length=50)
    texts = [translation.text for translation in translations]
    scores = score_pairs([model], *both, list(zip(SOURCES, TARGETS, strict=True)))
    loss = -sum(score.log_prob for score in scores) / sum(score.tokens for score in scores)
    assert found.figures["loss"] == pytest.approx(loss, rel=1e-12)
    assert found.figures["perplexity"] == pytest.approx(math.exp(loss), rel=1e-12)
    expected = bleu(texts, TARGETS), chrf(texts, TARGETS)
    assert (found.figures["bleu"], found.signatures["bleu_signature"]) == (
        expected[0].value,
        expected[0].signature,
    )
    assert (found.figures["chrf"], found.signatures["chrf_signature"]) == (
        expected[1].value,
        expected[1].signature,
    )
    assert found.seconds > 0


def test_the_loss_is_that_of_training_without_smoothing_and_dropout(
    model: Transformer, tokenizers: Tokenizers
) -> None:
    ids = [tokenizers.source.encode_batch(lines) for lines in (SOURCES, TARGETS)]
    (part,) = split_batch(make_batch(*ids, list(range(len(SOURCES)))), 1)
    with torch.no_grad():
        sums = translation_loss(model.eval(), part, 0.3)
    found = validator(tokenizers).run(model.train())
    assert found.figures["loss"] == pytest.approx(float(sums.nll) / len(part.targets_n), rel=1e-5)


def test_a_model_in_training_is_measured_without_dropout_and_stays_in_training(
    model: Transformer, tokenizers: Tokenizers
) -> None:
    evaluated = validator(tokenizers).run(model.eval())
    model.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = validator(tokenizers).run(model)
    assert model.training
    assert without_seconds(found) == without_seconds(evaluated)


def test_the_same_few_lines_are_shown_and_none_is_blank(
    model: Transformer, tokenizers: Tokenizers
) -> None:
    shown = validator(tokenizers).run(model).samples
    assert [(sample.source, sample.reference) for sample in shown] == [
        (SOURCES[2], TARGETS[2]),
        (SOURCES[4], TARGETS[4]),
    ]
    assert validator(tokenizers, sample_lines=0).run(model).samples == ()
    assert len(validator(tokenizers, sample_lines=99).run(model).samples) == 4


def test_a_pair_longer_than_in_training_has_no_part_in_the_loss_but_is_translated(
    model: Transformer, tokenizers: Tokenizers
) -> None:
    lengths = [
        max(len(tokenizers.source.encode(source)), len(tokenizers.target.encode(target)))
        for source, target in zip(SOURCES, TARGETS, strict=True)
    ]
    limit = max(lengths) - 1
    short = [
        pair
        for pair, length in zip(zip(SOURCES, TARGETS, strict=True), lengths, strict=True)
        if length <= limit
    ]
    assert len(short) < len(SOURCES)
    found = validator(tokenizers, trained_length=limit, sample_lines=99).run(model)
    scores = score_pairs([model], [tokenizers.source], tokenizers.target, short)
    tokens = sum(score.tokens for score in scores)
    assert found.figures["loss"] == pytest.approx(-sum(score.log_prob for score in scores) / tokens)
    assert len(found.samples) == 4


def test_text_whose_every_pair_is_too_long_is_refused(tokenizers: Tokenizers) -> None:
    with pytest.raises(DataError) as refused:
        TranslationValidator(SOURCES[:1], TARGETS[:1], tokenizers, DECODING, trained_length=1)
    assert str(refused.value) == (
        "every pair of the validation text has a side of more than 1 token"
    )
