"""What `regard score` and `regard evaluate` do: the figures of a model on text with references."""

import json as json_format
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from regard.decoding.score import PairScore, perplexity
from regard.evaluation.metrics import bleu, chrf
from regard.recipes.load import load_recipe
from regard.serving.opening import folder_name
from regard.serving.outputs import open_output
from regard.serving.translator import Translator, load
from regard.text.inputs import PairFile

_WINDOW = 1024


def score(
    runs: Sequence[Path],
    *,
    source: Path,
    target: Path,
    threads: int | None = None,
    json: bool = False,
) -> None:
    """Print how likely each target line is, given its source line.

    To standard output goes a line for each pair: the natural logarithm of the probability, a
    tab, the number of tokens (the end token counted); the perplexity of all goes to standard
    error. With `json`, one object holds it all, and goes to standard output.

    Raises:
        DataError: a file is missing, empty or not UTF-8, or they differ in their line counts.
        RegardError: as `load`.
    """
    pairs = list(PairFile(str(source), str(target)).pairs())
    translator = load(list(runs), threads=threads)
    scores: list[PairScore] = []
    with open_output(None) as writer:
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
            return
    sys.stderr.write(
        f"perplexity {perplexity(scores):.4f} per target token "
        f"({len(pairs):,} lines, {tokens:,} tokens)\n"
    )


def evaluate(
    runs: Sequence[Path],
    *,
    source: Path,
    reference: Path,
    overrides: Sequence[str] = (),
    threads: int | None = None,
    json: bool = False,
) -> None:
    """Translate a test set as training's validation does, and print BLEU, chrF and perplexity.

    The perplexity is that of the references, per token, the end token counted; as in training,
    pairs with a side of more than `data.max_tokens` tokens have no part in it.

    Args:
        runs: a run folder, or several to average.
        source: the text to translate.
        reference: its translation, line by line.
        overrides: `decoding.key=value` changes to the first run's recipe.
        threads: CPU threads to use.
        json: print one JSON object.

    Raises:
        DataError: a file is missing, empty or not UTF-8, or they differ in their line counts.
        RegardError: as `load`.
    """
    decoding = load_recipe(folder_name(runs[0]), overrides, only=["decoding"]).decoding
    pairs = list(PairFile(str(source), str(reference)).pairs())
    references = [target for _, target in pairs]
    translator = load(list(runs), threads=threads)
    translator.decoding = decoding
    translations = translator.translations([text for text, _ in pairs])
    texts = [translation.text for translation in translations]
    cut = sum(not translation.finished for translation in translations)
    scores = translator.score(_trained_on(translator, pairs))
    tokens = sum(each.tokens for each in scores)
    confusion = perplexity(scores) if scores else math.nan
    precision, overlap = bleu(texts, references), chrf(texts, references)
    with open_output(None) as writer:
        if json:
            figures = {
                "bleu": {"score": precision.value, "signature": precision.signature},
                "chrf": {"score": overlap.value, "signature": overlap.signature},
                "perplexity": _finite(confusion),
                "tokens": tokens,
                "lines": len(pairs),
                "cut": cut,
                "left_out": len(pairs) - len(scores),
            }
            writer.write(json_format.dumps(figures))
            return
        writer.write(f"BLEU        {precision.value:6.2f}  {precision.signature}")
        writer.write(f"chrF        {overlap.value:6.2f}  {overlap.signature}")
        writer.write(f"perplexity  {confusion:6.2f}  per target token, {tokens:,} tokens")
    if cut:
        sys.stderr.write(f"warning: {cut:,} of {len(pairs):,} translations were cut\n")
    if len(scores) < len(pairs):
        sys.stderr.write(
            f"warning: {len(pairs) - len(scores):,} of {len(pairs):,} pairs are longer than what "
            "the model was trained on, and not in the perplexity\n"
        )


def _trained_on(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs of which no side is longer than in training."""
    sides = (
        translator.tokenizers.source.encode_batch([source for source, _ in pairs]),
        translator.tokenizers.target.encode_batch([target for _, target in pairs]),
    )
    return [
        pair
        for pair, source, target in zip(pairs, *sides, strict=True)
        if max(len(source), len(target)) <= translator.trained_length
    ]


def _finite(value: float) -> float | None:
    """The value, or None, as JSON has neither infinity nor NaN."""
    return value if math.isfinite(value) else None
