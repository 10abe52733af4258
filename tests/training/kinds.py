"""Tiny models of several kinds, with batches for them, whatever trains them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn
from training.digits import VOCABULARY, DigitBatches, tiny_model

from regard.models.build import build_language_model, build_model
from regard.models.config import DecoderConfig, TransformerConfig
from regard.nn.config import ExpertsConfig, LoraConfig
from regard.nn.lora import adapt
from regard.text.windows import TextBatch
from regard.training.feed import BatchSource
from regard.training.losses import language_model_loss, translation_loss
from regard.training.step import Loss

EXPERTS = ExpertsConfig(number=3, top=2, balance=0.5, z_loss=0.2)
SHAPE = {"d_model": 16, "num_heads": 2, "d_ff": 32}


@dataclass
class DigitTexts(DigitBatches):
    """Rows of digits, each a text of its own; some hold two."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[TextBatch]:  # type: ignore[override]
        for pairs in super().epoch(epoch, start):
            mask_bt = pairs.target_out_bt != 0
            second_bt = (pairs.pairs_b % 2)[:, None] * (torch.arange(mask_bt.shape[1]) >= 2)
            yield TextBatch(
                ids_in_bt=pairs.target_in_bt,
                ids_out_bt=pairs.target_out_bt,
                mask_bt=mask_bt,
                documents_bt=torch.where(mask_bt, second_bt, -1),
                pairs_b=pairs.pairs_b,
            )


@dataclass(frozen=True)
class Kind:
    """A kind of model, and what it is trained on."""

    model: Callable[[float], nn.Module]
    batches: Callable[..., BatchSource] = DigitBatches
    loss: Loss = translation_loss


def _translator(dropout: float) -> nn.Module:
    config = TransformerConfig(
        **SHAPE, encoder_layers=1, decoder_layers=1, dropout=dropout, experts=EXPERTS
    )
    return build_model(config, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, seed=1)


def _language_model(dropout: float, experts: ExpertsConfig | None = None) -> nn.Module:
    config = DecoderConfig(
        **SHAPE, num_layers=2, dropout=dropout, attention_dropout=dropout,
        experts=experts or ExpertsConfig(),
    )  # fmt: skip
    return build_language_model(config, vocabulary=VOCABULARY, seed=1)


def _adapted(model: nn.Module) -> nn.Module:
    adapt(model, LoraConfig(rank=2, targets="both"), seed=1)
    return model


KINDS = {
    "translator": Kind(tiny_model),
    "translator with experts": Kind(_translator),
    "adapted translator": Kind(lambda dropout: _adapted(tiny_model(dropout))),
    "language model": Kind(_language_model, DigitTexts, language_model_loss),
    "language model with experts": Kind(
        lambda dropout: _language_model(dropout, EXPERTS), DigitTexts, language_model_loss
    ),
    "adapted language model": Kind(
        lambda dropout: _adapted(_language_model(dropout)), DigitTexts, language_model_loss
    ),
}
