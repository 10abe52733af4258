"""Lines to what is searched at once, and what was found back to lines; any searcher will do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from regard.counts import counted
from regard.decoding.config import DecodingConfig
from regard.decoding.dice import seed_of
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.pieces import split_source
from regard.decoding.translation import Translation, assemble, blank
from regard.errors import DataError
from regard.models.config import TransformerConfig
from regard.nn.config import LearnedConfig
from regard.text.vocabulary import Vocabulary, framed

_NO_LIMIT = 2**31


@dataclass(frozen=True)
class Piece:
    """What is searched at once: a line, or a part of one that is too long.

    `start` and `end` are its bounds in the line, in characters; `sources` its tokens by each
    model's tokenizer, without control tokens.
    """

    line: int
    start: int
    end: int
    sources: tuple[list[int], ...]
    prefix: list[int]


@runtime_checkable
class Searcher(Protocol):
    """What may search in the place of PyTorch and a model: the engine."""

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        *,
        max_tokens: Sequence[int],
        prefixes: Sequence[Sequence[int]],
        config: DecodingConfig,
        seeds: Sequence[int] = (),
        attention: bool = False,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, which holds all ids that an encoder reads.

        `seeds` has one for each source's samples. With `attention` the first of each says where
        its tokens looked.
        """
        ...


def translate_by(
    searcher: Searcher,
    source_tokenizer: Vocabulary,
    target_tokenizer: Vocabulary,
    lines: Sequence[str],
    config: DecodingConfig,
    *,
    trained_length: int,
    positions: int,
    prefixes: Sequence[str] | None = None,
    alignments: bool = False,
    attention: bool = False,
    first_line: int = 1,
    warn: Callable[[str], None] | None = None,
) -> list[Translation]:
    """As `regard.decoding.translate.translate`, by a searcher of one model, without PyTorch.

    Args:
        positions: what `most_positions` says of the model.

    Raises:
        As the searcher; and ValueError if there is not one prefix for each line.
    """
    pieces = cut_lines(
        [source_tokenizer],
        target_tokenizer,
        lines,
        trained_length=trained_length,
        positions=positions,
        prefixes=prefixes,
        first_line=first_line,
        warn=warn,
    )
    found = searcher(
        [framed(source_tokenizer, piece.sources[0]) for piece in pieces],
        max_tokens=[most_target_tokens(piece, config, positions) for piece in pieces],
        prefixes=[piece.prefix for piece in pieces],
        config=config,
        seeds=piece_seeds(pieces, config),
        attention=alignments or attention,
    )
    return join_lines(
        lines,
        pieces,
        found,
        source_tokenizer,
        target_tokenizer,
        alignments=alignments,
        attention=attention,
    )


def piece_seeds(pieces: Sequence[Piece], config: DecodingConfig) -> list[int]:
    """The seed of each piece's samples, the same wherever it stands."""
    return [seed_of(config.seed, piece.sources[0], piece.prefix) for piece in pieces]


def most_positions(configs: Sequence[TransformerConfig]) -> int:
    """The most tokens, control tokens included, that models have positions for."""
    tables = [
        config.positions.max_positions
        for config in configs
        if isinstance(config.positions, LearnedConfig)
    ]
    return min(tables, default=_NO_LIMIT)


def most_target_tokens(piece: Piece, config: DecodingConfig, positions: int) -> int:
    """The most tokens of a piece's translation, without the end."""
    most = max(len(ids) for ids in piece.sources) + config.max_extra_tokens
    if config.max_tokens:
        most = min(most, config.max_tokens)
    return min(max(most, config.min_tokens), positions - 1)


def cut_lines(
    source_tokenizers: Sequence[Vocabulary],
    target_tokenizer: Vocabulary,
    lines: Sequence[str],
    *,
    trained_length: int,
    positions: int,
    prefixes: Sequence[str] | None,
    first_line: int,
    warn: Callable[[str], None] | None,
) -> list[Piece]:
    """Everything to be searched: each line that is not blank, in pieces where it is too long.

    Raises:
        ValueError: there is not one prefix for each line.
        DataError: a prefix is longer than what the model was trained on.
    """
    if prefixes is not None and len(prefixes) != len(lines):
        given = counted(len(prefixes), "prefix")
        raise ValueError(f"{given} for {counted(len(lines), 'line')}")
    # Positions are also taken by what is put around the source.
    framing = max(len(framed(tokenizer, [])) for tokenizer in source_tokenizers)
    limit = max(1, min(trained_length, positions - framing))

    def count(texts: Sequence[str]) -> list[int]:
        each = [tokenizer.encode_batch(texts) for tokenizer in source_tokenizers]
        return [max(len(ids) for ids in versions) for versions in zip(*each, strict=True)]

    bounds: list[tuple[int, int, int]] = []
    full = [number for number, line in enumerate(lines) if line.strip()]
    for number, tokens in zip(full, count([lines[number] for number in full]), strict=True):
        line = lines[number]
        parts = [(0, len(line))] if tokens <= limit else split_source(line, limit, count)
        if tokens > limit and warn is not None:
            warn(
                f"line {first_line + number}: {tokens} tokens is more than the {limit} that the "
                f"model was trained on; translated in {len(parts)} "
                f"{'piece' if len(parts) == 1 else 'pieces'}"
            )
        bounds += [(number, start, end) for start, end in parts]
    texts = [lines[number][start:end] for number, start, end in bounds]
    sources = [tokenizer.encode_batch(texts) for tokenizer in source_tokenizers]
    prefix_ids = target_tokenizer.encode_batch(prefixes) if prefixes is not None else None
    for number, prefix in enumerate(prefix_ids or []):
        if len(prefix) > trained_length:
            raise DataError(
                f"{len(prefix):,} tokens is more than the {trained_length:,} that the model was "
                "trained on",
                where=f"prefix of line {first_line + number}",
                hint="Give a shorter one.",
            )
    pieces = []
    for place, (number, start, end) in enumerate(bounds):
        opens_line = place == 0 or bounds[place - 1][0] != number
        prefix = prefix_ids[number] if prefix_ids is not None and opens_line else []
        ids = tuple(versions[place] for versions in sources)
        pieces.append(Piece(number, start, end, ids, prefix))
    return pieces


def join_lines(
    lines: Sequence[str],
    pieces: Sequence[Piece],
    found: Sequence[Sequence[Hypothesis]],
    source_tokenizer: Vocabulary,
    target_tokenizer: Vocabulary,
    *,
    alignments: bool = False,
    attention: bool = False,
) -> list[Translation]:
    """The translation of each line, of what was found for its pieces."""
    by_line: dict[int, list[int]] = {}
    for place, piece in enumerate(pieces):
        by_line.setdefault(piece.line, []).append(place)
    return [
        assemble(
            line,
            [(pieces[place].start, pieces[place].end) for place in by_line[number]],
            [pieces[place].sources[0] for place in by_line[number]],
            [found[place] for place in by_line[number]],
            source_tokenizer,
            target_tokenizer,
            alignments=alignments,
            attention=attention,
        )
        if number in by_line
        else blank(alignments=alignments)
        for number, line in enumerate(lines)
    ]
