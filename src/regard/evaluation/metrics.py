"""BLEU and chrF of translations, as sacreBLEU computes them, and perplexity."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from regard.counts import counted
from regard.errors import DataError


@dataclass(frozen=True)
class Score:
    """A figure from 0 to 100, and the signature that says exactly how it was computed."""

    value: float
    signature: str


def bleu(translations: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus BLEU of plain (detokenised) text against one reference a line.

    Args:
        translations: what the model said, a line each.
        references: what a person wrote, a line each.

    Raises:
        DataError: there are no lines, or not as many of one as of the other.

    Source: Papineni et al. 2002; Post 2018, arXiv:1804.08771.
    """
    _require_pairs(translations, references)
    # `force` only silences a warning about text that looks tokenised; the figure is the same.
    metric = BLEU(force=True)
    score = metric.corpus_score(list(translations), [list(references)])
    return Score(float(score.score), str(metric.get_signature()))


def chrf(translations: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2 of plain text against one reference a line.

    Raises:
        DataError: there are no lines, or not as many of one as of the other.

    Source: Popović 2015, https://aclanthology.org/W15-3049.
    """
    _require_pairs(translations, references)
    metric = CHRF()
    score = metric.corpus_score(list(translations), [list(references)])
    return Score(float(score.score), str(metric.get_signature()))


def perplexity(log_prob: float, tokens: int) -> float:
    """The perplexity per token; infinite where it passes the largest float.

    Args:
        log_prob: the sum over all target tokens, each line's end included, of the natural
            logarithm of the token's probability, without label smoothing.
        tokens: how many tokens that is.

    Raises:
        DataError: there are no tokens.
    """
    if tokens < 1:
        raise DataError("there are no tokens, so there is no perplexity")
    try:
        return math.exp(-log_prob / tokens)
    except OverflowError:
        return math.inf


def _require_pairs(translations: Sequence[str], references: Sequence[str]) -> None:
    if len(translations) != len(references):
        raise DataError(
            f"got {counted(len(translations), 'translation')} and "
            f"{counted(len(references), 'reference')}",
            hint="Each line needs the reference that belongs to it.",
        )
    if not translations:
        raise DataError("there are no lines to score")
