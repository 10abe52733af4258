"""The losses of every family are those of the model's own logits, however a batch is cut."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional
from training.digits import DigitBatches, tiny_model

from regard.models.build import build_encoder, build_language_model
from regard.models.config import DecoderConfig, EncoderConfig
from regard.text.config import LabelsConfig, MaskingConfig, TextConfig, VocabularyConfig
from regard.text.documents import PreparedText, prepare_text
from regard.text.label_batches import LabelBatch, LabelBatches
from regard.text.labels import prepare_labels
from regard.text.masking import MaskedBatch, MaskedBatches
from regard.text.windows import TextBatch, WindowBatches
from regard.training.losses import (
    LossSums,
    classification_loss,
    language_model_loss,
    masked_loss,
    translation_loss,
)
from regard.training.parts import split_batch
from regard.training.step import Loss

LINES = [f"{word} {'and so on ' * (index % 4)}{word[::-1]}" for index, word in enumerate(
    ("light", "door", "fan", "lamp", "window", "a", "roof", "cellar", "wall", "garden")
)]  # fmt: skip
SHAPE = {"d_model": 16, "num_heads": 2, "d_ff": 24, "num_layers": 2}


def prepared(folder: Path, *, mask: bool) -> PreparedText:
    path = folder / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    config = TextConfig(text=(str(path),), documents="line", valid_share=0.2)
    size = VocabularyConfig(size=262)
    return prepare_text(config, size, folder / "data", mask=mask, log=lambda line: None)


@pytest.fixture
def text_batch(tmp_path: Path) -> TextBatch:
    data = prepared(tmp_path, mask=False)
    batches = WindowBatches(data.train, data.vocabulary, max_tokens=40, batch_tokens=160, seed=1)
    return next(iter(batches.epoch(0)))


@pytest.fixture
def masked_batch(tmp_path: Path) -> MaskedBatch:
    data = prepared(tmp_path, mask=True)
    batches = MaskedBatches(
        data.train, data.vocabulary, MaskingConfig(), max_tokens=60, batch_tokens=300, seed=1
    )
    return next(iter(batches.epoch(0)))


@pytest.fixture
def label_batch(tmp_path: Path) -> LabelBatch:
    path = tmp_path / "labels.tsv"
    path.write_text("".join(f"{'xy'[i % 2]}\t{line}\n" for i, line in enumerate(LINES)))
    data = prepare_labels(
        LabelsConfig(train=(str(path),), valid=str(path)),
        VocabularyConfig(size=262),
        tmp_path / "data",
        max_tokens=60,
        log=lambda line: None,
    )
    batches = LabelBatches(data.train, data.vocabulary, batch_tokens=300, seed=1)
    return next(iter(batches.epoch(0)))


def in_parts(model: torch.nn.Module, loss: Loss, batch: object, parts: int) -> tuple[float, list]:
    """The loss of a step in parts, and the gradients."""
    model.zero_grad()
    total = 0.0
    for part in split_batch(batch, parts):
        sums = loss(model, part, 0.1)
        (sums.smoothed / batch.target_tokens).backward()
        total += float(sums.nll)
    return total, [each.grad for each in model.parameters() if each.grad is not None]


def check_parts(model: torch.nn.Module, loss: Loss, batch: object) -> None:
    whole, gradients = in_parts(model, loss, batch, 1)
    for parts in (2, 3, 99):
        pieces, slopes = in_parts(model, loss, batch, parts)
        assert pieces == pytest.approx(whole, rel=1e-9)
        torch.testing.assert_close(slopes, gradients, rtol=1e-8, atol=1e-10)


def equal(sums: LossSums, logits_nv: torch.Tensor, targets_n: torch.Tensor) -> None:
    smoothed = functional.cross_entropy(logits_nv, targets_n, label_smoothing=0.1, reduction="sum")
    nll = functional.cross_entropy(logits_nv, targets_n, reduction="sum")
    torch.testing.assert_close([sums.smoothed, sums.nll], [smoothed, nll], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("own", [{}, {"output_bias": True, "tied": False}], ids=str)
def test_a_language_models_loss_is_that_of_its_logits(
    own: dict[str, object], text_batch: TextBatch
) -> None:
    config = DecoderConfig(**SHAPE, **own, dropout=0, attention_dropout=0)
    model = build_language_model(config, vocabulary=262, seed=1).double()
    assert text_batch.documents_bt is not None
    (part,) = split_batch(text_batch, 1)
    logits_btv = model(text_batch.ids_in_bt, text_batch.mask_bt, text_batch.documents_bt)
    mask_bt = text_batch.mask_bt
    equal(
        language_model_loss(model, part, 0.1),
        logits_btv[mask_bt],
        text_batch.ids_out_bt[mask_bt],
    )
    check_parts(model, language_model_loss, text_batch)


def test_a_masked_encoders_loss_is_that_of_its_predictions(masked_batch: MaskedBatch) -> None:
    config = EncoderConfig(**SHAPE, dropout=0, attention_dropout=0)
    model = build_encoder(config, vocabulary=262, seed=1).double()
    with torch.no_grad():
        model.output_bias.normal_()
    (part,) = split_batch(masked_batch, 1)
    hidden_bsd = model(part.ids_bt, part.mask_bt)
    logits_nv = model.predict(hidden_bsd).flatten(0, 1)[masked_batch.places_n]
    equal(masked_loss(model, part, 0.1), logits_nv, masked_batch.targets_n)
    check_parts(model, masked_loss, masked_batch)


def test_a_classifiers_loss_is_that_of_its_labels(label_batch: LabelBatch) -> None:
    config = EncoderConfig(**SHAPE, dropout=0, attention_dropout=0, pooler=True)
    model = build_encoder(config, vocabulary=262, seed=1, classes=2).double()
    (part,) = split_batch(label_batch, 1)
    logits_bc = model.classify(model(part.ids_bs, part.mask_bs), part.mask_bs)
    equal(classification_loss(model, part, 0.1), logits_bc, label_batch.labels_b)
    check_parts(model, classification_loss, label_batch)


@pytest.mark.parametrize("own", [{"output_scale": True}, {"output_bias": True}], ids=str)
def test_an_encoder_decoders_loss_is_that_of_its_logits(own: dict[str, object]) -> None:
    model = tiny_model()
    config = model.config.model_copy(update=own)
    model = type(model)(config, source_vocabulary=13, target_vocabulary=13).double()
    batch = DigitBatches().batch(0, 0)
    (part,) = split_batch(batch, 1)
    logits_btv = model(part.source_bs, part.target_in_bt, part.source_mask_bs)
    logits_nv = logits_btv.flatten(0, 1)[part.real_n]
    equal(translation_loss(model, part, 0.1), logits_nv, part.targets_n)
    check_parts(model, translation_loss, batch)
