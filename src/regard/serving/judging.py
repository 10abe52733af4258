"""The figures of a model on text with references, as `regard score` and `evaluate` print them."""

import json as json_format
import math
from collections.abc import Callable, Sequence

from regard.decoding.score import PairScore, perplexity
from regard.evaluation.metrics import bleu, chrf
from regard.serving.outputs import LineWriter
from regard.serving.translator import Translator

_WINDOW = 1024

Pairs = Sequence[tuple[str, str]]


def score_and_write(
    translator: Translator,
    pairs: Pairs,
    writer: LineWriter,
    *,
    json: bool,
    say: Callable[[str], None],
) -> None:
    """Write each pair's log-probability and tokens as they are found; say the perplexity."""
    scores: list[PairScore] = []
    for start in range(0, len(pairs), _WINDOW):
        window = translator.score(pairs[start : start + _WINDOW])
        scores += window
        if not json:
            for each in window:
                writer.write(f"{each.log_prob:.6f}\t{each.tokens}")
            writer.flush()
    tokens = sum(each.tokens for each in scores)
    if json:
        figures = {
            "perplexity": _finite(perplexity(scores)),
            "log_prob": math.fsum(each.log_prob for each in scores),
            "tokens": tokens,
            "pairs": [{"log_prob": each.log_prob, "tokens": each.tokens} for each in scores],
        }
        writer.write(json_format.dumps(figures))
    else:
        say(
            f"perplexity {perplexity(scores):.4f} per target token "
            f"({len(pairs):,} lines, {tokens:,} tokens)"
        )


def evaluate_and_write(
    translator: Translator,
    pairs: Pairs,
    writer: LineWriter,
    *,
    json: bool,
    say: Callable[[str], None],
) -> None:
    """Write BLEU, chrF and perplexity of the translations of a test set."""
    references = [target for _, target in pairs]
    translations = translator.translations([source for source, _ in pairs])
    texts = [translation.text for translation in translations]
    cut = sum(not translation.finished for translation in translations)
    precision, overlap = bleu(texts, references), chrf(texts, references)
    scores = translator.score(_trained_on(translator, pairs))
    left_out = len(pairs) - len(scores)
    tokens = sum(each.tokens for each in scores)
    confusion = perplexity(scores) if scores else math.nan
    if json:
        figures = {
            "bleu": {"value": precision.value, "signature": precision.signature},
            "chrf": {"value": overlap.value, "signature": overlap.signature},
            "perplexity": _finite(confusion),
            "tokens": tokens,
            "lines": len(pairs),
            "cut": cut,
            "left_out": left_out,
        }
        writer.write(json_format.dumps(figures))
        return
    writer.write(f"BLEU        {precision.value:7.2f}  {precision.signature}")
    writer.write(f"chrF        {overlap.value:7.2f}  {overlap.signature}")
    writer.write(f"perplexity  {confusion:7.2f}  per target token, {tokens:,} tokens")
    if cut:
        say(f"warning: {cut:,} of {len(pairs):,} translations were cut before they came to an end")
    if left_out:
        say(
            f"warning: the perplexity leaves out {left_out:,} of {len(pairs):,} pairs, "
            f"with a side of more than {translator.trained_length} tokens, as training does"
        )


def _trained_on(translator: Translator, pairs: Pairs) -> list[tuple[str, str]]:
    """The pairs of which no side is longer than in training."""
    sources = translator.tokenizers.source.encode_batch([source for source, _ in pairs])
    targets = translator.tokenizers.target.encode_batch([target for _, target in pairs])
    return [
        pair
        for pair, source, target in zip(pairs, sources, targets, strict=True)
        if max(len(source), len(target)) <= translator.trained_length
    ]


def _finite(value: float) -> float | None:
    """The value, or None, as JSON has neither infinity nor NaN."""
    return value if math.isfinite(value) else None
