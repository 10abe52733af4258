"""How good the model is now, on text that it is not trained on."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

from torch import nn

from regard.counts import counted
from regard.decoding.config import DecodingConfig
from regard.errors import DataError
from regard.evaluation.classes import Confusion
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
class Continued:
    """The beginning of a text and how the model goes on with it."""

    prompt: str
    text: str


@dataclass(frozen=True, slots=True)
class Validation:
    """The figures of one validation, by name.

    `loss` is the unsmoothed negative log-likelihood in nats a target (a token, the end token
    counted, or a label), and `perplexity` is its exponential; `bleu` and `chrf` are sacreBLEU's
    on detokenised text, and `signatures` say how they were computed; `accuracy` and `f1` are
    shares. `confusion` is what a classifier took for what; `seconds` is what it all took.
    """

    figures: Mapping[str, float]
    seconds: float
    samples: tuple[Sample | Continued, ...] = ()
    signatures: Mapping[str, str] = field(default_factory=dict)
    confusion: Confusion | None = None

    def value(self, metric: Metric) -> float:
        """The figure that a recipe names."""
        return self.figures[metric]

    def record(self, step: int, seconds: float) -> dict[str, Any]:
        """The line of metrics.jsonl; `seconds` is the training's wall time until now."""
        record: dict[str, Any] = {
            "event": "valid",
            "step": step,
            **self.figures,
            **self.signatures,
            "samples": [asdict(sample) for sample in self.samples],
            "seconds": seconds,
            "validation_seconds": self.seconds,
        }
        if self.confusion is not None:
            record["labels"] = list(self.confusion.names)
            record["confusion"] = [list(row) for row in self.confusion.counts]
        return record


@runtime_checkable
class Validator(Protocol):
    """Measures a model on the validation text."""

    def run(self, model: nn.Module) -> Validation:
        """Measure the model, in eval mode and without a trace in it."""


class TranslationValidator:
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
                "every pair of the validation text has a side of more than "
                f"{counted(trained_length, 'token')}"
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
        scores = found.scores()
        return Validation(
            figures={name: value for name, value in scores.items() if isinstance(value, float)},
            signatures={name: value for name, value in scores.items() if isinstance(value, str)},
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
