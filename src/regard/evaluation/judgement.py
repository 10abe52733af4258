"""What comes of measuring a model on text with references, whoever translates and scores it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.decoding.scored import PairScore
from regard.decoding.translation import Translation
from regard.evaluation.metrics import Score, bleu, chrf, perplexity
from regard.text.vocabulary import Vocabulary

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Judgement:
    """The translations of a text, and the scores of the model on it.

    `log_prob` is the sum of the natural logarithms of the references' probabilities over `tokens`
    target tokens, the end tokens counted. As in training, pairs with a side of more tokens than
    the model was trained on have no part in it; `left_out` says how many.
    """

    translations: list[Translation]
    bleu: Score
    chrf: Score
    log_prob: float
    tokens: int
    left_out: int

    @property
    def loss(self) -> float:
        """Nats a target token; NaN if every pair was left out."""
        return -self.log_prob / self.tokens if self.tokens else math.nan

    @property
    def perplexity(self) -> float:
        """The perplexity per target token; NaN if every pair was left out."""
        return perplexity(self.log_prob, self.tokens) if self.tokens else math.nan

    @property
    def cut(self) -> int:
        """How many translations were cut before they came to an end."""
        return sum(not translation.finished for translation in self.translations)

    def scores(self) -> dict[str, Any]:
        """The scores as a record of metrics.jsonl holds them."""
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bleu": self.bleu.value,
            "chrf": self.chrf.value,
            "bleu_signature": self.bleu.signature,
            "chrf_signature": self.chrf.signature,
        }


def judge_by(
    translate: Callable[[Sequence[str]], list[Translation]],
    score: Callable[[Pairs], Sequence[PairScore]],
    source_tokenizers: Sequence[Vocabulary],
    target_tokenizer: Vocabulary,
    pairs: Pairs,
    *,
    trained_length: int,
) -> Judgement:
    """Translate the sources and compare with the targets; score the targets.

    Args:
        translate: gives the translation of each line.
        score: gives the score of each pair.
        source_tokenizers: one for each model.
        pairs: a source and its reference each.
        trained_length: the most tokens of a side in training (`data.max_tokens`).

    Raises:
        DataError: there are no pairs.
    """
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    translations = translate(sources)
    texts = [translation.text for translation in translations]
    lengths = [
        [len(ids) for ids in tokenizer.encode_batch(lines)]
        for tokenizer, lines in (
            *((tokenizer, sources) for tokenizer in source_tokenizers),
            (target_tokenizer, references),
        )
    ]
    longest = [max(each) for each in zip(*lengths, strict=True)]
    scored = [pair for pair, tokens in zip(pairs, longest, strict=True) if tokens <= trained_length]
    scores = score(scored)
    return Judgement(
        translations,
        bleu(texts, references),
        chrf(texts, references),
        math.fsum(score.log_prob for score in scores),
        sum(score.tokens for score in scores),
        len(pairs) - len(scored),
    )
