"""Causal sums of products in chunks: each within itself at once, the past as one matrix."""

import math

import torch
from torch.nn import functional

from regard.shapes import Float, Tensor

CHUNK = 64


def causal_sums(
    query: Float[Tensor, "n h l e"],
    key: Float[Tensor, "n h l e"],
    value: Float[Tensor, "n h l w"],
    state: Float[Tensor, "n h e w"] | None = None,
    *,
    log_decay: Float[Tensor, "n h l"] | None = None,
    chunk: int | None = None,
) -> tuple[Float[Tensor, "n h l w"], Float[Tensor, "n h e w"]]:
    """`y_i = sum over j <= i of a_(j+1) ... a_i (q_i . k_j) v_j`, and the state after the last.

    The same as the recurrence `S_i = a_i S_(i-1) + k_i v_i^T`, `y_i = q_i S_i`, from `state` on
    (or from 0), with `a_i = exp(log_decay_i)`, or 1. Time and memory are linear in the length. A
    key or value that is not finite spoils its place and those after it, and none before.

    Source: Katharopoulos et al. 2020, arXiv:2006.16236, section 3.3; with decay: Dao and Gu
    2024, arXiv:2405.21060, section 6.
    """
    n, heads, length, _ = key.shape
    width = value.shape[-1]
    bad_nhl = ~(key.isfinite().all(-1) & value.isfinite().all(-1))
    spoilt_nhl1 = bad_nhl.cummax(-1).values[..., None] if bool(bad_nhl.any()) else None
    if spoilt_nhl1 is not None:
        key, value = (x.masked_fill(bad_nhl[..., None], 0.0) for x in (key, value))
    size = min(chunk or CHUNK, length)
    over = -length % size
    query, key, value = (
        functional.pad(x, (0, 0, 0, over)).view(n, heads, -1, size, x.shape[-1])
        for x in (query, key, value)
    )
    earlier_cc = torch.ones(size, size, dtype=torch.bool, device=key.device).tril()
    scores_nhmcc = (query @ key.transpose(-1, -2)).masked_fill(~earlier_cc, 0.0)
    whole_nhm = None
    if log_decay is not None:
        sums_nhmc = functional.pad(log_decay, (0, over)).view(n, heads, -1, size).cumsum(-1)
        between = sums_nhmc[..., :, None] - sums_nhmc[..., None, :]
        scores_nhmcc = scores_nhmcc * between.masked_fill(~earlier_cc, -math.inf).exp()
        key = key * (sums_nhmc[..., -1:] - sums_nhmc).exp()[..., None]
        query = query * sums_nhmc.exp()[..., None]
        whole_nhm = sums_nhmc[..., -1].exp()
    added_nhmew = key.transpose(-1, -2) @ value
    before_nhmew, state = _carried(added_nhmew, whole_nhm, state)
    out = (scores_nhmcc @ value + query @ before_nhmew).view(n, heads, -1, width)[:, :, :length]
    if spoilt_nhl1 is not None:
        out = out.masked_fill(spoilt_nhl1, math.nan)
        state = state.masked_fill(spoilt_nhl1[:, :, -1:], math.nan)
    return out, state


def _carried(
    added_nhmew: Tensor, whole_nhm: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The state before each chunk, and after the last."""
    if state is None:
        state = torch.zeros_like(added_nhmew[:, :, 0])
    decays = [None] * added_nhmew.shape[2] if whole_nhm is None else whole_nhm.unbind(2)
    before = []
    for added, decay in zip(added_nhmew.unbind(2), decays, strict=True):
        before.append(state)
        state = added + (state if decay is None else state * decay[..., None, None])
    return torch.stack(before, 2), state


def quadratic_sums(
    query: Float[Tensor, "n h l e"],
    key: Float[Tensor, "n h l e"],
    value: Float[Tensor, "n h l w"],
    log_decay: Float[Tensor, "n h l"] | None = None,
) -> Float[Tensor, "n h l w"]:
    """What `causal_sums` gives, as one masked matrix of scores: its dual form.

    Source: Dao and Gu 2024, arXiv:2405.21060, section 3.
    """
    scores_nhll = query @ key.transpose(-1, -2)
    later_ll = torch.ones_like(scores_nhll, dtype=torch.bool).triu(1)
    if log_decay is not None:
        sums_nhl = log_decay.cumsum(-1)
        between = sums_nhl[..., :, None] - sums_nhl[..., None, :]
        scores_nhll = scores_nhll * between.masked_fill(later_ll, -math.inf).exp()
    return scores_nhll.masked_fill(later_ll, 0.0) @ value
