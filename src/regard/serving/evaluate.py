"""A model measured on a test set: what `regard evaluate` and the demo print."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.decoding.score import perplexity
from regard.errors import DataError
from regard.evaluation.metrics import Score, bleu, chrf
from regard.serving.translator import Translator


@dataclass(frozen=True)
class Evaluation:
    """The translations of a test set and their scores.

    `perplexity` is that of the references, per target token, the end token counted.
    """

    sources: list[str]
    references: list[str]
    translations: list[str]
    bleu: Score
    chrf: Score
    perplexity: float

    @property
    def exact(self) -> int:
        """How many translations are the reference to the letter."""
        pairs = zip(self.translations, self.references, strict=True)
        return sum(translation == reference for translation, reference in pairs)

    def record(self, event: str) -> dict[str, Any]:
        """The scores as a record of metrics.jsonl."""
        return {
            "event": event,
            "lines": len(self.sources),
            "perplexity": self.perplexity,
            "bleu": self.bleu.value,
            "chrf": self.chrf.value,
            "bleu_signature": self.bleu.signature,
            "chrf_signature": self.chrf.signature,
        }


def evaluate_lines(
    translator: Translator, sources: Sequence[str], references: Sequence[str]
) -> Evaluation:
    """Translate and compare; the same search and metrics as in a training's validations.

    Raises:
        DataError: there are no lines, or not as many of one as of the other.
    """
    if len(sources) != len(references):
        raise DataError(f"{len(sources):,} source lines and {len(references):,} reference lines")
    translations = translator.translate(list(sources))
    return Evaluation(
        list(sources),
        list(references),
        translations,
        bleu(translations, references),
        chrf(translations, references),
        perplexity(translator.score(list(zip(sources, references, strict=True)))),
    )
