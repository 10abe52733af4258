"""Lines in, translations out: blank lines, long lines, batches and the order of the input."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from regard.decoding.config import DecodingConfig
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.padding import padded, token_batches
from regard.decoding.pieces import split_source
from regard.decoding.sample import seed_of
from regard.decoding.search import search
from regard.decoding.step import EnsembleStep, ModelStep, Step, evaluating
from regard.decoding.translation import Translation, assemble, blank
from regard.models.transformer import Transformer
from regard.nn.config import LearnedConfig
from regard.text.vocabulary import Vocabulary, framed, never_generated

__all__ = ["Translation", "translate"]

# Log-probabilities that are in memory at once: many short lines times a large vocabulary.
_LOG_PROBS = 2**25


@dataclass(frozen=True)
class _Piece:
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
    """What may search in the place of `search` and a model: the engine."""

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        *,
        max_tokens: Sequence[int],
        prefixes: Sequence[Sequence[int]],
        config: DecodingConfig,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, which holds all ids that an encoder reads."""
        ...


def translate(
    models: Sequence[Transformer],
    source_tokenizers: Sequence[Vocabulary],
    target_tokenizer: Vocabulary,
    lines: Sequence[str],
    config: DecodingConfig,
    *,
    trained_length: int,
    prefixes: Sequence[str] | None = None,
    alignments: bool = False,
    attention: bool = False,
    first_line: int = 1,
    warn: Callable[[str], None] | None = None,
    searcher: Searcher | None = None,
) -> list[Translation]:
    """Translate every line, in order; a blank line gives a blank translation.

    What a line becomes does not depend on the other lines. A line of more than `trained_length`
    tokens is cut into pieces (see `split_source`) that are translated one by one and joined
    with a space.

    Args:
        models: one, or an ensemble, whose probabilities are averaged. All have the same target
            vocabulary and are on the same device.
        source_tokenizers: one for each model.
        trained_length: the most source tokens that a model was trained on (`data.max_tokens`).
        prefixes: for each line, what its translation must begin with; "" leaves it free.
        alignments: link the words of the source and the translation.
        attention: keep the attention of every target token over the source tokens.
        first_line: the number of the first line, for warnings.
        warn: called with a sentence that names the line when one is cut into pieces.
        searcher: searches, in the place of the one model; it gives no attention.

    Raises:
        ModelError: the model's output is NaN, or a prefix is longer than a table of learned
            positions.
        ValueError: there is not one prefix for each line.
    """
    if prefixes is not None and len(prefixes) != len(lines):
        raise ValueError(f"{len(prefixes)} prefixes for {len(lines)} lines")
    pieces = _pieces(
        models,
        source_tokenizers,
        target_tokenizer,
        lines,
        trained_length=trained_length,
        prefixes=prefixes,
        first_line=first_line,
        warn=warn,
    )
    look = alignments or attention
    if searcher is None:
        found = _search_all(models, source_tokenizers, target_tokenizer, pieces, config, look=look)
    else:
        if look or len(models) > 1:
            raise ValueError("a searcher stands for one model and gives no attention")
        found = searcher(
            [_framed(source_tokenizers, piece)[0] for piece in pieces],
            max_tokens=[_most_target_tokens(piece, config, models) for piece in pieces],
            prefixes=[piece.prefix for piece in pieces],
            config=config,
        )
    by_line: dict[int, list[int]] = {}
    for place, piece in enumerate(pieces):
        by_line.setdefault(piece.line, []).append(place)
    return [
        assemble(
            line,
            [(pieces[place].start, pieces[place].end) for place in by_line[number]],
            [pieces[place].sources[0] for place in by_line[number]],
            [found[place] for place in by_line[number]],
            source_tokenizers[0],
            target_tokenizer,
            alignments=alignments,
            attention=attention,
        )
        if number in by_line
        else blank(alignments=alignments)
        for number, line in enumerate(lines)
    ]


def _pieces(
    models: Sequence[Transformer],
    source_tokenizers: Sequence[Vocabulary],
    target_tokenizer: Vocabulary,
    lines: Sequence[str],
    *,
    trained_length: int,
    prefixes: Sequence[str] | None,
    first_line: int,
    warn: Callable[[str], None] | None,
) -> list[_Piece]:
    """Everything to be searched: each line that is not blank, in pieces where it is too long."""
    # Positions are also taken by what is put around the source.
    framing = max(len(framed(tokenizer, [])) for tokenizer in source_tokenizers)
    limit = max(1, min(trained_length, _most_positions(models) - framing))

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
    pieces = []
    for place, (number, start, end) in enumerate(bounds):
        opens_line = place == 0 or bounds[place - 1][0] != number
        prefix = prefix_ids[number] if prefix_ids is not None and opens_line else []
        ids = tuple(versions[place] for versions in sources)
        pieces.append(_Piece(number, start, end, ids, prefix))
    return pieces


def _framed(tokenizers: Sequence[Vocabulary], piece: _Piece) -> list[list[int]]:
    """What each model's encoder reads of a piece."""
    return [framed(each, ids) for each, ids in zip(tokenizers, piece.sources, strict=True)]


def _most_positions(models: Sequence[Transformer]) -> int:
    """The most tokens, control tokens included, that the models have positions for."""
    tables = [
        model.config.positions.max_positions
        for model in models
        if isinstance(model.config.positions, LearnedConfig)
    ]
    return min(tables, default=2**31)


def _search_all(
    models: Sequence[Transformer],
    source_tokenizers: Sequence[Vocabulary],
    target_tokenizer: Vocabulary,
    pieces: Sequence[_Piece],
    config: DecodingConfig,
    *,
    look: bool,
) -> list[list[Hypothesis]]:
    """The hypotheses of every piece, searched in batches of like lengths."""
    width = config.n_best if config.method == "sample" else config.beam
    found: list[list[Hypothesis]] = [[] for _ in pieces]
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(evaluating(model))
        for batch in token_batches(
            [max(map(len, _framed(source_tokenizers, piece)), default=0) for piece in pieces],
            batch_tokens=config.batch_tokens // width,
            batch_rows=_LOG_PROBS // (width * models[0].target_vocabulary),
        ):
            results = _search_batch(
                models,
                source_tokenizers,
                target_tokenizer,
                [pieces[place] for place in batch],
                config,
                look,
            )
            for place, hypotheses in zip(batch, results, strict=True):
                found[place] = hypotheses
    return found


def _search_batch(
    models: Sequence[Transformer],
    source_tokenizers: Sequence[Vocabulary],
    target: Vocabulary,
    pieces: Sequence[_Piece],
    config: DecodingConfig,
    look: bool,
) -> list[list[Hypothesis]]:
    device = models[0].output_weight.device
    needs_attention = look or config.coverage > 0
    steps: list[Step] = []
    source_masks = []
    for number, (model, tokenizer) in enumerate(zip(models, source_tokenizers, strict=True)):
        source_bs, mask_bs = padded(
            [framed(tokenizer, piece.sources[number]) for piece in pieces],
            fill=tokenizer.pad_id,
            device=device,
        )
        source_masks.append(mask_bs)
        with torch.inference_mode():
            steps.append(
                ModelStep(model, source_bs, mask_bs, attention=needs_attention and number == 0)
            )
    return search(
        steps[0] if len(steps) == 1 else EnsembleStep(steps),
        batch=len(pieces),
        bos=target.start_id,
        eos=target.eos_id,
        control=never_generated(target),
        max_tokens_b=torch.tensor(
            [_most_target_tokens(piece, config, models) for piece in pieces], device=device
        ),
        config=config,
        prefix=[piece.prefix for piece in pieces],
        source_bs=source_masks[0],
        attention=look,
        seeds=[seed_of(config.seed, piece.sources[0], piece.prefix) for piece in pieces],
    )


def _most_target_tokens(
    piece: _Piece, config: DecodingConfig, models: Sequence[Transformer]
) -> int:
    most = max(len(ids) for ids in piece.sources) + config.max_extra_tokens
    if config.max_tokens:
        most = min(most, config.max_tokens)
    return min(max(most, config.min_tokens), _most_positions(models) - 1)
