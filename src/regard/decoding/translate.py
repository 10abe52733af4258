"""Lines in, translations out: blank lines, long lines, batches and the order of the input."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch

from regard.decoding.config import DecodingConfig
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.lines import (
    Piece,
    cut_lines,
    join_lines,
    most_positions,
    most_target_tokens,
    piece_seeds,
)
from regard.decoding.padding import padded, token_batches
from regard.decoding.restricted import RestrictedStep
from regard.decoding.search import search
from regard.decoding.step import EnsembleStep, ModelStep, Step, evaluating
from regard.decoding.translation import Translation
from regard.models.transformer import Transformer
from regard.text.shortlist import Shortlist
from regard.text.vocabulary import Vocabulary, framed, never_generated

__all__ = ["Translation", "translate"]

# Log-probabilities that are in memory at once: many short lines times a large vocabulary.
_LOG_PROBS = 2**25


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
    shortlist: Shortlist | None = None,
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
        shortlist: what each piece may use of the target vocabulary, by the first model's tokens.

    Raises:
        ModelError: the model's output is NaN, or a prefix is longer than a table of learned
            positions.
        ValueError: there is not one prefix for each line.
    """
    pieces = cut_lines(
        source_tokenizers,
        target_tokenizer,
        lines,
        trained_length=trained_length,
        positions=_positions(models),
        prefixes=prefixes,
        first_line=first_line,
        warn=warn,
    )
    look = alignments or attention
    found = _search_all(
        models,
        source_tokenizers,
        target_tokenizer,
        pieces,
        config,
        look=look,
        shortlist=shortlist,
    )
    return join_lines(
        lines,
        pieces,
        found,
        source_tokenizers[0],
        target_tokenizer,
        alignments=alignments,
        attention=attention,
    )


def _positions(models: Sequence[Transformer]) -> int:
    return most_positions([model.config for model in models])


def _framed(tokenizers: Sequence[Vocabulary], piece: Piece) -> list[list[int]]:
    """What each model's encoder reads of a piece."""
    return [framed(each, ids) for each, ids in zip(tokenizers, piece.sources, strict=True)]


def _search_all(
    models: Sequence[Transformer],
    source_tokenizers: Sequence[Vocabulary],
    target_tokenizer: Vocabulary,
    pieces: Sequence[Piece],
    config: DecodingConfig,
    *,
    look: bool,
    shortlist: Shortlist | None,
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
                shortlist,
            )
            for place, hypotheses in zip(batch, results, strict=True):
                found[place] = hypotheses
    return found


def _search_batch(
    models: Sequence[Transformer],
    source_tokenizers: Sequence[Vocabulary],
    target: Vocabulary,
    pieces: Sequence[Piece],
    config: DecodingConfig,
    look: bool,
    shortlist: Shortlist | None,
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
    step: Step = steps[0] if len(steps) == 1 else EnsembleStep(steps)
    if shortlist is not None:
        first = source_tokenizers[0]
        step = RestrictedStep(
            step,
            [shortlist.allowed(framed(first, each.sources[0]), each.prefix) for each in pieces],
            vocabulary=models[0].target_vocabulary,
            device=device,
        )
    return search(
        step,
        batch=len(pieces),
        bos=target.start_id,
        eos=target.eos_id,
        control=never_generated(target),
        max_tokens_b=torch.tensor(
            [most_target_tokens(piece, config, _positions(models)) for piece in pieces],
            device=device,
        ),
        config=config,
        prefix=[piece.prefix for piece in pieces],
        source_bs=source_masks[0],
        attention=look,
        seeds=piece_seeds(pieces, config),
    )
