"""Greedy search and sampling: every row follows one chain of tokens until it ends."""

from typing import Protocol, runtime_checkable

import torch

from regard.decoding.constraints import Constraints, check_finite
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.rows import Rows
from regard.decoding.step import Step
from regard.shapes import Bool, Float, Int, Tensor

# Ended rows stay until they are this share of all: taking them out copies the others' caches.
_ENDED_SHARE = 0.1


@runtime_checkable
class Choice(Protocol):
    """How the next token of every row is chosen."""

    def __call__(
        self, log_probs_rv: Float[Tensor, "r v"], chain_r: Int[Tensor, " r"], length: int
    ) -> tuple[Float[Tensor, " r"], Int[Tensor, " r"]]:
        """Give the chosen tokens' log-probabilities and the tokens.

        `chain_r` numbers the chains as they were at the start, and `length` is how many tokens
        they hold. A row where nothing may follow gets -inf, and NaN must be handed on.
        """
        ...


def most_likely(
    log_probs_rv: Float[Tensor, "r v"], chain_r: Int[Tensor, " r"], length: int
) -> tuple[Float[Tensor, " r"], Int[Tensor, " r"]]:
    """Choose greedily."""
    del chain_r, length
    values_r, tokens_r = log_probs_rv.max(-1)
    return values_r, tokens_r


def follow(
    step: Step,
    rows: Rows,
    choose: Choice,
    *,
    bos: int,
    eos: int,
    max_tokens_b: Int[Tensor, " b"],
    constraints: Constraints,
) -> list[Hypothesis]:
    """Follow one chain for each of the rows; one hypothesis a row, in their order.

    A row that holds the maximum of tokens may still end; if it would go on, it is cut.

    Raises:
        ModelError: a log-probability is NaN.
    """
    found: dict[int, Hypothesis] = {}
    chains = len(rows.sentence_r)
    max_tokens_r = max_tokens_b[rows.sentence_r]
    chain_r = torch.arange(chains, device=max_tokens_b.device)
    open_r = torch.ones_like(chain_r, dtype=torch.bool)
    last_r = torch.full_like(chain_r, bos)
    while len(found) < chains:
        output = step.advance(last_r)
        rows.look(output)
        constraints.apply(output.log_probs_rv, rows.tokens_rt, rows.sentence_r)
        value_r, last_r = choose(output.log_probs_rv, chain_r, rows.length)
        check_finite(value_r)
        stuck_r = value_r == -torch.inf
        ended_r = (last_r == eos) & ~stuck_r
        cut_r = (stuck_r | (max_tokens_r <= rows.length)) & ~ended_r
        log_prob_r = torch.where(cut_r, rows.log_prob_r, rows.log_prob_r + value_r)
        stopped_k = (open_r & (ended_r | cut_r)).nonzero()[:, 0]
        if len(stopped_k):
            _record(found, rows, chain_r, stopped_k, log_prob_r[stopped_k], ended_r[stopped_k])
            open_r[stopped_k] = False
        kept_r = None
        if 0 < chains - len(found) <= (1 - _ENDED_SHARE) * len(open_r):
            kept_r = open_r.nonzero()[:, 0]
            step.select(kept_r)
            chain_r, open_r, last_r = chain_r[kept_r], open_r[kept_r], last_r[kept_r]
            max_tokens_r, log_prob_r = max_tokens_r[kept_r], log_prob_r[kept_r]
        rows.go_on(kept_r, last_r, log_prob_r)
    return [found[chain] for chain in range(chains)]


def _record(
    found: dict[int, Hypothesis],
    rows: Rows,
    chain_r: Int[Tensor, " r"],
    stopped_k: Int[Tensor, " k"],
    log_prob_k: Float[Tensor, " k"],
    ended_k: Bool[Tensor, " k"],
) -> None:
    # The end token counts in the length; a cut row has none, and may be empty.
    score_k = torch.where(
        ended_k,
        rows.score(stopped_k, log_prob_k, rows.length + 1),
        rows.score(stopped_k, log_prob_k, max(rows.length, 1)),
    )
    results = rows.results(stopped_k, log_prob_k, score_k, ended_k)
    found.update(zip(chain_r[stopped_k].tolist(), results, strict=True))
