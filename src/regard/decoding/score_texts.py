"""How likely a language model finds texts that are given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.decoding.given import given_log_probs, row_sums
from regard.decoding.padding import padded, token_batches
from regard.decoding.scored import MOST_SCORED
from regard.decoding.step import evaluating
from regard.errors import ModelError
from regard.models.decoder import LanguageModel
from regard.shapes import Float, Tensor
from regard.text.vocabulary import Vocabulary

_HINT = "Score it in parts."


@dataclass(frozen=True)
class TextScore:
    """How likely a text is.

    `log_prob` is the natural logarithm of the probability, the end token included; `tokens`
    counts the text's tokens and the end token.
    """

    log_prob: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """The perplexity per token; infinity where it is more than a number can be."""
        try:
            return math.exp(-self.log_prob / self.tokens)
        except OverflowError:
            return math.inf


@torch.inference_mode()
def score_texts(
    model: LanguageModel,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    *,
    most: int | None = None,
    batch_tokens: int = MOST_SCORED,
) -> list[TextScore]:
    """Score texts, each from its beginning to its end, in order; an empty one has its end only.

    Args:
        most: the most tokens of a text, what opens it counted; None leaves it to the model.
        batch_tokens: bounds the padded tokens of a batch.

    Raises:
        ModelError: a text has more tokens than the model has positions, or than `most`; nothing
            is computed.
    """
    opening = vocabulary.prefix or (vocabulary.start_id,)
    rows = [[*opening, *ids] for ids in vocabulary.encode_batch(texts)]
    longest = model.config.longest
    for number, row in enumerate(rows, start=1):
        if longest is not None and len(row) > longest:
            raise ModelError(
                f"the text has {len(row):,} tokens, the one before it counted, and the model has "
                f"{longest:,} positions",
                where=f"text {number}",
                hint=_HINT,
            )
        if most is not None and len(row) > most:
            raise ModelError(
                f"{len(row):,} tokens is more than the {most:,} that can be scored at once",
                where=f"text {number}",
                hint=_HINT,
            )
    scores: dict[int, TextScore] = {}
    with evaluating(model):
        for batch in token_batches(
            [len(row) for row in rows], batch_tokens=batch_tokens, batch_rows=len(rows)
        ):
            log_prob_b = _score_batch(
                model, [rows[place] for place in batch], len(opening), vocabulary.eos_id
            )
            for place, log_prob in zip(batch, log_prob_b.tolist(), strict=True):
                scores[place] = TextScore(log_prob, len(rows[place]) - len(opening) + 1)
    return [scores[place] for place in range(len(rows))]


def _score_batch(
    model: LanguageModel, rows: Sequence[Sequence[int]], opening: int, eos: int
) -> Float[Tensor, " b"]:
    device = model.output_weight.device
    ids_bt, mask_bt = padded(rows, fill=0, device=device)
    wanted_bt, _ = padded([[*row[1:], eos] for row in rows], fill=0, device=device)
    # What opens a text is given, not predicted.
    mask_bt[:, : opening - 1] = False
    hidden_nd, wanted_n = model.hidden(ids_bt)[mask_bt], wanted_bt[mask_bt]
    log_probs_n = given_log_probs(model.project, hidden_nd, wanted_n, vocabulary=model.vocabulary)
    return row_sums(log_probs_n, mask_bt)
