"""How likely given translations are, by whatever scores them, without PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from regard.text.vocabulary import Vocabulary, framed


@dataclass(frozen=True)
class PairScore:
    """How likely a target is, given its source.

    `log_prob` is the natural logarithm of the probability, the end token included; `tokens`
    counts the target tokens and the end token.
    """

    log_prob: float
    tokens: int


@runtime_checkable
class Scorer(Protocol):
    """What may score in the place of a model: the engine."""

    def __call__(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> Sequence[float]:
        """The log-probability of each target, its end token included.

        Sources hold all ids that an encoder reads, targets no control tokens.
        """
        ...


def score_by(
    scorer: Scorer,
    source_tokenizer: Vocabulary,
    target_tokenizer: Vocabulary,
    pairs: Sequence[tuple[str, str]],
) -> list[PairScore]:
    """As `regard.decoding.score.score_pairs`, by a scorer of one model, without PyTorch.

    Raises:
        As the scorer.
    """
    sources = [
        framed(source_tokenizer, ids)
        for ids in source_tokenizer.encode_batch([source for source, _ in pairs])
    ]
    targets = target_tokenizer.encode_batch([target for _, target in pairs])
    return [
        PairScore(log_prob, len(target) + 1)
        for log_prob, target in zip(scorer(sources, targets), targets, strict=True)
    ]
