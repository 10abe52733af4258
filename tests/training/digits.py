"""A tiny task of digits and a tiny model for it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy
import torch

from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.text.batches import Batch
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID
from regard.training.config import InverseSquareRootSchedule, TrainingConfig
from regard.training.validation import Validation

DIGITS = 10
VOCABULARY = 3 + DIGITS


def padded(rows: list[list[int]]) -> torch.Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])


def make_batch(sources: list[list[int]], targets: list[list[int]], pairs: list[int]) -> Batch:
    return Batch(
        source_bs=padded([[*row, EOS_ID] for row in sources]),
        source_lengths_b=torch.tensor([len(row) + 1 for row in sources]),
        target_in_bt=padded([[BOS_ID, *row] for row in targets]),
        target_out_bt=padded([[*row, EOS_ID] for row in targets]),
        target_lengths_b=torch.tensor([len(row) + 1 for row in targets]),
        pairs_b=torch.tensor(pairs),
    )


@dataclass
class DigitBatches:
    """Random digits and what is to be made of them; a pure function of epoch and position."""

    rows: int = 8
    per_epoch: int = 5
    longest: int = 6
    make: Callable[[list[int]], list[int]] = list

    def batch(self, epoch: int, position: int) -> Batch:
        generator = numpy.random.default_rng([epoch, position])
        sources = [
            (
                3 + generator.integers(0, DIGITS, size=generator.integers(1, self.longest + 1))
            ).tolist()
            for _ in range(self.rows)
        ]
        targets = [self.make(row) for row in sources]
        first = position * self.rows
        return make_batch(sources, targets, list(range(first, first + self.rows)))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for position in range(start, self.per_epoch):
            yield self.batch(epoch, position)


def tiny_model(dropout: float = 0.0, d_model: int = 16, seed: int = 1) -> Transformer:
    config = TransformerConfig(
        d_model=d_model,
        num_heads=2,
        d_ff=2 * d_model,
        encoder_layers=1,
        decoder_layers=1,
        dropout=dropout,
        attention_dropout=dropout,
    )
    return build_model(
        config, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, seed=seed
    )


def settings(**changes: object) -> TrainingConfig:
    values: dict[str, object] = {
        "max_steps": 8,
        "device": "cpu",
        "precision": "float32",
        "schedule": InverseSquareRootSchedule(learning_rate=1e-2, warmup_steps=2),
        "checkpoint_every": 4,
        "log_every": 2,
    }
    return TrainingConfig(**(values | changes))


def measured(bleu: float = 3.0) -> Validation:
    """A validation that found this BLEU."""
    return Validation({"loss": 1.0, "perplexity": 2.0, "bleu": bleu, "chrf": 4.0}, seconds=0.0)
