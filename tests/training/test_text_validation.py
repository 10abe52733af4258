"""Validations of models of one side: the loss of training, and figures that can be counted."""

import math
from pathlib import Path

import pytest
import torch
from training.test_family_losses import LINES, SHAPE, prepared

from regard.decoding.generation import GenerationConfig
from regard.models.build import build_encoder, build_language_model
from regard.models.config import DecoderConfig, EncoderConfig
from regard.text.config import MaskingConfig
from regard.text.masking import MaskedBatches
from regard.text.windows import WindowBatches
from regard.training.losses import classification_loss, language_model_loss, masked_loss
from regard.training.parts import LabelPart, split_batch
from regard.training.text_validation import LabelValidator, LanguageValidator, MaskedValidator


def test_a_language_models_figures_are_those_of_its_loss(tmp_path: Path) -> None:
    data = prepared(tmp_path, mask=False)
    batches = WindowBatches(data.valid, data.vocabulary, max_tokens=20, batch_tokens=40, seed=1)
    parts = [part for batch in batches.fixed() for part in split_batch(batch, 1)]
    model = build_language_model(DecoderConfig(**SHAPE, dropout=0.5), vocabulary=262, seed=1)
    held_out = [line for line in LINES if line in texts_of(data.valid, data.vocabulary)]
    size = sum(len(line.encode()) for line in held_out)
    validator = LanguageValidator(
        lambda: parts,
        size,
        data.vocabulary,
        prompts=["a", "the"],
        generation=GenerationConfig(seed=3),
    )
    found = validator.run(model.train())
    assert model.training
    with torch.no_grad():
        nll = sum(float(language_model_loss(model.eval(), part, 0.0).nll) for part in parts)
    tokens = sum(len(part.targets_n) for part in parts)
    # Every token is predicted once, and the end of every text.
    assert tokens == sum(
        len(data.vocabulary.encode(line)) + 1 for line in texts_of(data.valid, data.vocabulary)
    )
    assert found.figures["loss"] == pytest.approx(nll / tokens)
    assert found.figures["perplexity"] == pytest.approx(math.exp(nll / tokens))
    assert found.figures["bits_per_byte"] == pytest.approx(nll / math.log(2) / size)
    assert [sample.prompt for sample in found.samples] == ["a", "the"]
    again = validator.run(model)
    assert (again.figures, again.samples) == (found.figures, found.samples)


def texts_of(corpus: object, vocabulary: object) -> list[str]:
    return [vocabulary.decode(corpus.text.ids(row).tolist()) for row in range(len(corpus))]


def test_a_masked_encoders_accuracy_is_counted_on_the_tokens_to_fill(tmp_path: Path) -> None:
    data = prepared(tmp_path, mask=True)
    batches = MaskedBatches(
        data.train, data.vocabulary, MaskingConfig(), max_tokens=60, batch_tokens=120, seed=1
    )
    parts = [part for batch in batches.fixed() for part in split_batch(batch, 1)]
    model = build_encoder(EncoderConfig(**SHAPE), vocabulary=262, seed=1)
    found = MaskedValidator(lambda: parts).run(model)
    model.eval()
    with torch.no_grad():
        nll = sum(float(masked_loss(model, part, 0.0).nll) for part in parts)
        right = 0
        for part in parts:
            logits_bsv = model.predict(model(part.ids_bt, part.mask_bt))
            said_n = logits_bsv.argmax(-1).flatten()[part.real_n]
            right += int((said_n == part.targets_n).sum())
    tokens = sum(len(part.targets_n) for part in parts)
    assert found.figures["loss"] == pytest.approx(nll / tokens, rel=1e-6)
    assert found.figures["accuracy"] == right / tokens


def test_a_classifiers_figures_are_those_of_its_labels() -> None:
    model = build_encoder(EncoderConfig(**SHAPE), vocabulary=262, seed=1, classes=3)
    generator = torch.Generator().manual_seed(1)
    parts = [
        LabelPart(
            torch.randint(4, 262, (rows, 7), generator=generator),
            None,
            torch.randint(0, 3, (rows,), generator=generator),
        )
        for rows in (3, 5)
    ]
    found = LabelValidator(lambda: parts, ["a", "b", "c"]).run(model.train())
    assert model.training
    model.eval()
    with torch.no_grad():
        nll = sum(float(classification_loss(model, part, 0.0).nll) for part in parts)
        right = sum(
            int((model.classify(model(part.ids_bs)).argmax(1) == part.labels_b).sum())
            for part in parts
        )
    assert found.figures["loss"] == pytest.approx(nll / 8, rel=1e-6)
    assert found.figures["accuracy"] == right / 8
    assert found.confusion is not None
    assert found.confusion.total == 8
    record = found.record(5, 1.0)
    assert record["labels"] == ["a", "b", "c"]
    assert sum(map(sum, record["confusion"])) == 8
