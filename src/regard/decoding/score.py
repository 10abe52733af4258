"""Force decoding: how likely a model finds translations that are given."""

import math
from collections.abc import Sequence
from contextlib import ExitStack

import torch

from regard.decoding.given import given_log_probs, row_sums
from regard.decoding.padding import padded, token_batches
from regard.decoding.scored import MOST_SCORED, Limits, PairScore
from regard.decoding.step import evaluating
from regard.models.transformer import Transformer
from regard.shapes import Float, Tensor
from regard.text.vocabulary import Vocabulary, framed


@torch.inference_mode()
def score_pairs(
    models: Sequence[Transformer],
    source_tokenizers: Sequence[Vocabulary],
    target_tokenizer: Vocabulary,
    pairs: Sequence[tuple[str, str]],
    *,
    limits: Limits | None = None,
    batch_tokens: int = MOST_SCORED,
) -> list[PairScore]:
    """Score pairs of a source and a target line, in their order; empty lines are scored too.

    Args:
        models: one, or an ensemble, whose probabilities are averaged.
        source_tokenizers: one for each model.
        limits: how long the sides may be.
        batch_tokens: bounds the padded tokens of a batch, on the longer side.

    Raises:
        DataError: a pair is longer than the limits; nothing is computed.
        ModelError: without limits, a line is longer than a table of learned positions.
    """
    found = [
        tokenizer.encode_batch([source for source, _ in pairs]) for tokenizer in source_tokenizers
    ]
    targets = target_tokenizer.encode_batch([target for _, target in pairs])
    if limits is not None:
        longest = [max(map(len, each)) for each in zip(*found, strict=True)]
        limits.check(list(zip(longest, map(len, targets), strict=True)))
    sources = [
        [framed(tokenizer, ids) for ids in each]
        for tokenizer, each in zip(source_tokenizers, found, strict=True)
    ]
    lengths = [
        max(len(target) + 1, *(len(ids[place]) for ids in sources))
        for place, target in enumerate(targets)
    ]
    scores: dict[int, PairScore] = {}
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(evaluating(model))
        for batch in token_batches(lengths, batch_tokens=batch_tokens, batch_rows=len(pairs)):
            log_prob_b = _score_batch(
                models,
                source_tokenizers,
                target_tokenizer,
                [[ids[place] for place in batch] for ids in sources],
                [targets[place] for place in batch],
            )
            for place, log_prob in zip(batch, log_prob_b.tolist(), strict=True):
                scores[place] = PairScore(log_prob, len(targets[place]) + 1)
    return [scores[place] for place in range(len(pairs))]


def _score_batch(
    models: Sequence[Transformer],
    source_tokenizers: Sequence[Vocabulary],
    target_tokenizer: Vocabulary,
    sources: Sequence[Sequence[Sequence[int]]],
    targets: Sequence[Sequence[int]],
) -> Float[Tensor, " b"]:
    device = models[0].output_weight.device
    start, end, pad = target_tokenizer.start_id, target_tokenizer.eos_id, target_tokenizer.pad_id
    target_in_bt, mask_bt = padded([[start, *ids] for ids in targets], fill=pad, device=device)
    target_out_bt, _ = padded([[*ids, end] for ids in targets], fill=pad, device=device)
    # Only the real target places are projected: n of them, over all rows.
    hidden = []
    for model, tokenizer, ids in zip(models, source_tokenizers, sources, strict=True):
        source_bs, source_mask_bs = padded(ids, fill=tokenizer.pad_id, device=device)
        memory_bsd = model.encode(source_bs, source_mask_bs)
        hidden.append(model.decode(target_in_bt, memory_bsd, source_mask_bs)[mask_bt])
    wanted_n = target_out_bt[mask_bt]
    each = [
        given_log_probs(model.project, hidden_nd, wanted_n, vocabulary=model.target_vocabulary)
        for model, hidden_nd in zip(models, hidden, strict=True)
    ]
    return row_sums(torch.stack(each).logsumexp(0) - math.log(len(each)), mask_bt)
