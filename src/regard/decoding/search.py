"""Searches for the best continuation of a batch of sentences, by the method of a config."""

from collections.abc import Sequence

import torch

from regard.decoding.beam import beam_search
from regard.decoding.chain import Choice, follow, most_likely
from regard.decoding.config import DecodingConfig
from regard.decoding.constraints import Constraints
from regard.decoding.dice import sample_keys
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.rows import Rows
from regard.decoding.sample import Sampler, chain_keys
from regard.decoding.step import Step
from regard.shapes import Bool, Int, Tensor


@torch.inference_mode()
def search(
    step: Step,
    *,
    batch: int,
    bos: int,
    eos: int,
    max_tokens_b: Int[Tensor, " b"],
    config: DecodingConfig,
    pad: int | None = None,
    control: Sequence[int] = (),
    prefix: Sequence[Sequence[int]] | None = None,
    source_bs: Bool[Tensor, "b s"] | None = None,
    attention: bool = False,
    seeds: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Search every sentence of a batch: its hypotheses, at least one, at most `config.n_best`.

    They come the best first; samples come in the order in which they were drawn, so that the
    first does not depend on how many there are.

    Args:
        step: a step at its start, with one row a sentence.
        max_tokens_b: the most tokens of each sentence, the end token not counted; a hypothesis
            that would go on beyond them is cut and so marked. A longer prefix raises it.
        pad: a token that, like `bos`, is never generated.
        control: more tokens that are never generated; the end always may be.
        prefix: the tokens that each sentence must begin with.
        source_bs: True at the source's tokens; needed for coverage and attention.
        attention: keep where every token looked; needs a step that gives attention.
        seeds: the seed of each sentence's samples; left out, `config.seed` and its place.

    Raises:
        ModelError: a log-probability is NaN, or a prefix holds a control token.
    """
    device = max_tokens_b.device
    if batch == 0:
        return []
    constraints = Constraints.of_prefix(
        prefix,
        eos=eos,
        control=sorted({bos, *control, *(() if pad is None else (pad,))} - {eos}),
        min_tokens=config.min_tokens,
        no_repeat_ngram=config.no_repeat_ngram,
        device=device,
    )
    if prefix is not None:
        prefix_lengths = torch.tensor([len(tokens) for tokens in prefix], device=device)
        max_tokens_b = torch.maximum(max_tokens_b, prefix_lengths)
    sampled = config.method == "sample"
    chains = config.n_best if sampled else 1
    sentence_r = torch.arange(batch, device=device).repeat_interleave(chains)
    rows = Rows(
        sentence_r,
        source_bs=source_bs,
        alpha=0.0 if sampled else config.alpha,
        coverage=config.coverage,
        attention=attention,
    )
    if not sampled and config.beam > 1:
        return beam_search(
            step,
            rows,
            beam=config.beam,
            n_best=config.n_best,
            alpha=config.alpha,
            bos=bos,
            eos=eos,
            max_tokens_b=max_tokens_b,
            min_tokens=config.min_tokens,
            constraints=constraints,
        )
    choose: Choice = most_likely
    if sampled:
        if seeds is None:
            seeds = [config.seed + place for place in range(batch)]
        choose = Sampler(
            chain_keys(sample_keys(seeds, chains)).to(device),
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            min_p=config.min_p,
        )
        if chains > 1:
            step.select(sentence_r)
    found = follow(
        step, rows, choose, bos=bos, eos=eos, max_tokens_b=max_tokens_b, constraints=constraints
    )
    return [found[first : first + chains] for first in range(0, len(found), chains)]
