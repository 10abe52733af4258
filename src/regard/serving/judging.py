"""The figures of a model on text with references, as `regard score` and `evaluate` print them."""

import json as json_format
import math
from collections.abc import Callable, Sequence

from regard.counts import counted
from regard.decoding.scored import PairScore
from regard.evaluation.classes import confusion
from regard.evaluation.figures import FIGURES
from regard.evaluation.metrics import perplexity as perplexity_of
from regard.serving.outputs import LineWriter
from regard.serving.translator import Translator

_WINDOW = 1024

Pairs = Sequence[tuple[str, str]]


def score_and_write(
    translator: Translator,
    pairs: Pairs,
    writer: LineWriter,
    *,
    names: tuple[str, str],
    json: bool,
    say: Callable[[str], None],
) -> None:
    """Write each pair's log-probability and tokens as they are found; say the perplexity.

    Args:
        names: what sources and targets are from, for errors.

    Raises:
        DataError: a pair is too long; nothing is written then.
    """
    lengths = translator.lengths(pairs)
    translator.score_limits.check(lengths, lambda place, side: f"{names[side]}, line {place + 1:,}")
    scores: list[PairScore] = []
    for start in range(0, len(pairs), _WINDOW):
        window = translator.score(pairs[start : start + _WINDOW])
        scores += window
        if not json:
            for each in window:
                writer.write(f"{each.log_prob:.6f}\t{each.tokens}")
            writer.flush()
    if longer := sum(max(both) > translator.trained_length for both in lengths):
        say(
            f"warning: {longer:,} of {counted(len(pairs), 'pair')} "
            f"{'has' if longer == 1 else 'have'} a side of more than the "
            f"{translator.trained_length} tokens that the model was trained on; such figures say "
            "little"
        )
    tokens = sum(each.tokens for each in scores)
    log_prob = math.fsum(each.log_prob for each in scores)
    perplexity = perplexity_of(log_prob, tokens)
    if json:
        figures = {
            "perplexity": _finite(perplexity),
            "log_prob": log_prob,
            "tokens": tokens,
            "pairs": [{"log_prob": each.log_prob, "tokens": each.tokens} for each in scores],
        }
        writer.write(json_format.dumps(figures))
    else:
        of = f"{counted(len(pairs), 'line')}, {counted(tokens, 'token')}"
        say(f"perplexity {perplexity:.4f} per target token ({of})")


def evaluate_and_write(
    translator: Translator,
    pairs: Pairs,
    writer: LineWriter,
    *,
    json: bool,
    say: Callable[[str], None],
) -> None:
    """Write BLEU, chrF and perplexity of the translations of a test set."""
    found = translator.judge(pairs)
    if json:
        figures = {
            "bleu": {"value": found.bleu.value, "signature": found.bleu.signature},
            "chrf": {"value": found.chrf.value, "signature": found.chrf.signature},
            "perplexity": _finite(found.perplexity),
            "tokens": found.tokens,
            "lines": len(pairs),
            "cut": found.cut,
            "left_out": found.left_out,
        }
        writer.write(json_format.dumps(figures))
        return
    writer.write(f"BLEU        {found.bleu.value:7.2f}  {found.bleu.signature}")
    writer.write(f"chrF        {found.chrf.value:7.2f}  {found.chrf.signature}")
    of = counted(found.tokens, "token")
    writer.write(f"perplexity  {found.perplexity:7.2f}  per target token, {of}")
    if found.cut:
        say(
            f"warning: {found.cut:,} of {counted(len(pairs), 'translation')} "
            f"{'was cut before it' if found.cut == 1 else 'were cut before they'} came to an end"
        )
    if found.left_out:
        say(
            f"warning: the perplexity leaves out {found.left_out:,} of "
            f"{counted(len(pairs), 'pair')}, with a side of more than "
            f"{counted(translator.trained_length, 'token')}, as training does"
        )


def write_confusion(
    names: Sequence[str],
    right: Sequence[int],
    given: Sequence[int],
    writer: LineWriter,
    *,
    json: bool,
) -> None:
    """Write accuracy, macro F1, and how often a text of each label was given each.

    Args:
        names: the labels.
        right: the number of each text's label among them.
        given: the number of the label that it was given.
    """
    found = confusion(names, right, given)
    if json:
        figures = {
            "accuracy": found.accuracy,
            "macro_f1": found.macro_f1,
            "texts": found.total,
            "labels": list(names),
            "confusion": [list(row) for row in found.counts],
        }
        writer.write(json_format.dumps(figures, ensure_ascii=False))
        return
    for key, value in (("accuracy", found.accuracy), ("f1", found.macro_f1)):
        figure = FIGURES[key]
        writer.write(f"{figure.name:10}  {figure.show(value):>7}  {figure.how}")
    writer.write("")
    writer.write(f"{counted(found.total, 'text')}; a line a right label, a column a label given")
    table = [["", *names]]
    table += [
        [name, *(f"{count:,}" for count in row)]
        for name, row in zip(names, found.counts, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, *cells in table:
        columns = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        writer.write("  ".join([name.ljust(widths[0]), *columns]).rstrip())


def _finite(value: float) -> float | None:
    """The value, or None, as JSON has neither infinity nor NaN."""
    return value if math.isfinite(value) else None
