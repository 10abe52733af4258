"""How likely given translations are, by whatever scores them, without PyTorch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from regard.errors import DataError
from regard.models.config import TransformerConfig
from regard.nn.config import LearnedConfig
from regard.text.vocabulary import Vocabulary, framed

# Tokens of a side, where the model was not trained on longer ones: what a batch is made of. Time
# and memory of one pair grow with the square of its length.
MOST_SCORED: Final = 4096
_NAMED = 10


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


@dataclass(frozen=True)
class Limits:
    """The most tokens, control tokens not counted, that each side of a pair to score may have."""

    source: int
    target: int

    @classmethod
    def of(
        cls,
        configs: Sequence[TransformerConfig],
        source_tokenizers: Sequence[Vocabulary],
        *,
        trained_length: int,
    ) -> "Limits":
        """Those of models: what they have positions for, and no more than a pass may take.

        Args:
            configs: of each model.
            source_tokenizers: one for each.
            trained_length: the most tokens of a side in training (`data.max_tokens`).
        """
        source = target = max(MOST_SCORED, trained_length)
        for config, tokenizer in zip(configs, source_tokenizers, strict=True):
            if config.longest is not None:
                source = min(source, config.longest - len(framed(tokenizer, [])))
            if isinstance(config.positions, LearnedConfig):
                target = min(target, config.positions.max_positions - 1)  # the start token
        return cls(source, target)

    def check(
        self, lengths: Sequence[tuple[int, int]], name: Callable[[int, int], str] | None = None
    ) -> None:
        """Refuse pairs of which a side is longer.

        Args:
            lengths: the tokens of source and target of each pair.
            name: what an error calls a side (0 or 1) of a pair, by the pair's place; left out,
                as in a list of pairs in Python.

        Raises:
            DataError: names the first, and says which others.
        """
        most = (self.source, self.target)
        long = [
            (place, side)
            for place, pair in enumerate(lengths)
            for side in (0, 1)
            if pair[side] > most[side]
        ]
        if not long:
            return
        place, side = long[0]
        others = sorted({other for other, _ in long} - {place})
        said = ", ".join(f"{other + 1:,}" for other in others[:_NAMED])
        said += ", ..." if len(others) > _NAMED else ""
        too = f"; so long too: {len(others):,} of {len(lengths):,} pairs (number {said})"
        raise DataError(
            f"{lengths[place][side]:,} tokens is more than the {most[side]:,} that can be scored "
            f"at once{too if others else ''}",
            where=name(place, side) if name else f"pairs[{place}][{side}]",
            hint="Leave such pairs out, or score them sentence by sentence.",
        )


def score_by(
    scorer: Scorer,
    source_tokenizer: Vocabulary,
    target_tokenizer: Vocabulary,
    pairs: Sequence[tuple[str, str]],
    *,
    limits: Limits | None = None,
) -> list[PairScore]:
    """As `regard.decoding.score.score_pairs`, by a scorer of one model, without PyTorch.

    Raises:
        DataError: a pair is longer than the limits.
        As the scorer.
    """
    found = source_tokenizer.encode_batch([source for source, _ in pairs])
    targets = target_tokenizer.encode_batch([target for _, target in pairs])
    if limits is not None:
        limits.check([(len(ids), len(target)) for ids, target in zip(found, targets, strict=True)])
    sources = [framed(source_tokenizer, ids) for ids in found]
    return [
        PairScore(log_prob, len(target) + 1)
        for log_prob, target in zip(scorer(sources, targets), targets, strict=True)
    ]
