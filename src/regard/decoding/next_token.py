"""From logits to the next token of every row: what is never drawn, and what is held already."""

from collections.abc import Sequence

import torch

from regard.decoding.chain import Choice
from regard.decoding.constraints import check_finite
from regard.decoding.step import full_precision
from regard.shapes import Bool, Float, Int, Tensor
from regard.text.vocabulary import Vocabulary, never_generated


class NextToken:
    """Chooses the next token of every row, out of logits, and knows which tokens there are.

    Args:
        choose: draws, or takes the likeliest.
        prompts: for every row the tokens that it holds at the start.
        blocked_v: True at tokens that are never chosen.
        penalty: lowers the logits of tokens that a row holds; 1 leaves them.
    """

    def __init__(
        self,
        choose: Choice,
        prompts: Sequence[Sequence[int]],
        blocked_v: Bool[Tensor, " v"],
        *,
        penalty: float,
    ) -> None:
        self._choose = choose
        self._length = 0
        self._chain_r = torch.arange(len(prompts), device=blocked_v.device)
        self._blocked_v = blocked_v
        self._penalty = penalty
        self._seen_rv: Tensor | None = None
        if penalty != 1:
            self._seen_rv = torch.zeros_like(blocked_v).repeat(len(prompts), 1)
            for row, ids in enumerate(prompts):
                self._seen_rv[row, list(ids)] = True

    def __call__(
        self, logits_rv: Float[Tensor, "r v"]
    ) -> tuple[Int[Tensor, " r"], Float[Tensor, " r"]]:
        """Give the tokens, and the log-probabilities that the model itself gives them."""
        logits_rv = full_precision(logits_rv)
        log_probs_rv = logits_rv.log_softmax(-1)
        tempted_rv = log_probs_rv
        if self._seen_rv is not None:
            tempted_rv = penalised(logits_rv, self._seen_rv, self._penalty).log_softmax(-1)
        tempted_rv = tempted_rv.masked_fill(self._blocked_v, -torch.inf)
        value_r, token_r = self._choose(tempted_rv, self._chain_r, self._length)
        check_finite(value_r)
        self._length += 1
        if self._seen_rv is not None:
            self._seen_rv.scatter_(1, token_r[:, None], True)
        return token_r, log_probs_rv.gather(1, token_r[:, None])[:, 0]

    def select(self, rows_r: Int[Tensor, " r"]) -> None:
        """Go on with these of the present rows, in this order."""
        self._chain_r = self._chain_r[rows_r]
        if self._seen_rv is not None:
            self._seen_rv = self._seen_rv[rows_r]


def penalised(
    logits_rv: Float[Tensor, "r v"], seen_rv: Bool[Tensor, "r v"], penalty: float
) -> Float[Tensor, "r v"]:
    """Lower the logits of tokens that occur already: divided by `penalty`, or times it below 0.

    Source: Keskar et al. 2019, arXiv:1909.05858, section 4.1, where all are divided, so that
    one below 0 would be raised.
    """
    lowered_rv = torch.where(logits_rv < 0, logits_rv * penalty, logits_rv / penalty)
    return torch.where(seen_rv, lowered_rv, logits_rv)


def blocked(vocabulary: Vocabulary, size: int) -> Bool[Tensor, " v"]:
    """Which of a model's `size` tokens are never drawn: control tokens, and rows of no token."""
    blocked_v = torch.arange(size) >= vocabulary.size
    blocked_v[list(never_generated(vocabulary))] = True
    return blocked_v
