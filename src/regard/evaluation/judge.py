"""A model measured on text with references: one way, for validation and for a test set."""

from collections.abc import Sequence
from functools import partial

import torch

from regard.decoding.config import DecodingConfig
from regard.decoding.score import score_pairs
from regard.decoding.translate import translate
from regard.evaluation.judgement import Judgement, Pairs, judge_by
from regard.models.transformer import Transformer
from regard.text.vocabulary import Vocabulary


def judge(
    models: Sequence[Transformer],
    source_tokenizers: Sequence[Vocabulary],
    target_tokenizer: Vocabulary,
    pairs: Pairs,
    decoding: DecodingConfig,
    *,
    trained_length: int,
) -> Judgement:
    """As `judge_by`, by PyTorch and without autocast.

    Args:
        models: one, or an ensemble.
        source_tokenizers: one for each model.
        pairs: a source and its reference each.
        decoding: how to search.
        trained_length: the most tokens of a side in training (`data.max_tokens`).

    Raises:
        DataError: there are no pairs.
        ModelError: the model's output is NaN.
    """
    by = (models, source_tokenizers, target_tokenizer)
    with torch.autocast(models[0].output_weight.device.type, enabled=False):
        return judge_by(
            lambda lines: translate(*by, lines, decoding, trained_length=trained_length),
            partial(score_pairs, *by),
            source_tokenizers,
            target_tokenizer,
            pairs,
            trained_length=trained_length,
        )
