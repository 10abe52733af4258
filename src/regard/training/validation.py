"""How good the model is now, on text that it is not trained on."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from torch import nn

from regard.decoding.config import DecodingConfig
from regard.errors import DataError
from regard.evaluation.judge import judge
from regard.models.transformer import Transformer
from regard.text.corpus import Tokenizers
from regard.training.config import Metric


@dataclass(frozen=True, slots=True)
class Sample:
    """A line of the validation text and what the model makes of it."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True, slots=True)
class Validation:
    """The figures of one validation.

    `loss` is the unsmoothed negative log-likelihood in nats a target token, the end token
    counted, and `perplexity` is its exponential; `bleu` and `chrf` are sacreBLEU's on
    detokenised text; `seconds` is what it took.
    """

    loss: float
    perplexity: float
    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    samples: tuple[Sample, ...]
    seconds: float

    def value(self, metric: Metric) -> float:
        """The figure that a recipe names."""
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bleu": self.bleu,
            "chrf": self.chrf,
        }[metric]

    def record(self, step: int, seconds: float) -> dict[str, Any]:
        """The line of metrics.jsonl; `seconds` is the training's wall time until now."""
        figures = asdict(self)
        taken = figures.pop("seconds")
        return {
            "event": "valid",
            "step": step,
            **figures,
            "seconds": seconds,
            "validation_seconds": taken,
        }


class Validator:
    """Translates and scores the validation text, the way `regard evaluate` does.

    Always in float32, and in eval mode, which decoding sees to. Line N of `target_lines`
    translates line N of `source_lines`. Pairs with a side of more than `trained_length` tokens
    have no part in the loss, as in training; they are translated like all others.

    Args:
        source_lines: what is translated.
        target_lines: the references.
        tokenizers: of the two sides.
        decoding: how to search.
        trained_length: the most tokens of a side in training (`data.max_tokens`).
        sample_lines: how many lines to show, evenly spread over the text.

    Raises:
        DataError: every pair is too long.
    """

    def __init__(
        self,
        source_lines: Sequence[str],
        target_lines: Sequence[str],
        tokenizers: Tokenizers,
        decoding: DecodingConfig,
        *,
        trained_length: int,
        sample_lines: int = 4,
    ) -> None:
        self._sources = list(source_lines)
        self._targets = list(target_lines)
        self._tokenizers = tokenizers
        self._decoding = decoding
        self._trained_length = trained_length
        lengths = zip(
            tokenizers.source.encode_batch(self._sources),
            tokenizers.target.encode_batch(self._targets),
            strict=True,
        )
        if all(max(len(source), len(target)) > trained_length for source, target in lengths):
            raise DataError(
                f"every pair of the validation text has a side of more than {trained_length} tokens"
            )
        self._shown = _spread(self._sources, sample_lines)

    def run(self, model: nn.Module) -> Validation:
        """Measure a model; takes as long as translating all lines and scoring all pairs."""
        started = time.perf_counter()
        found = judge(
            [cast(Transformer, model)],
            [self._tokenizers.source],
            self._tokenizers.target,
            list(zip(self._sources, self._targets, strict=True)),
            self._decoding,
            trained_length=self._trained_length,
        )
        return Validation(
            **found.scores(),
            samples=tuple(
                Sample(self._sources[place], self._targets[place], found.translations[place].text)
                for place in self._shown
            ),
            seconds=time.perf_counter() - started,
        )


def _spread(lines: Sequence[str], count: int) -> list[int]:
    """The places of up to `count` lines that aren't blank, evenly spread."""
    filled = [place for place, line in enumerate(lines) if line.strip()]
    count = min(count, len(filled))
    return [filled[(2 * index + 1) * len(filled) // (2 * count)] for index in range(count)]
