"""How likely a model finds tokens that are given, with few logits in memory at once."""

from collections.abc import Callable

import torch
from torch.nn import functional

from regard.decoding.step import full_precision
from regard.shapes import Bool, Float, Int, Tensor

# Logits that are in memory at once: a long text times a large vocabulary would not fit.
_LOGITS = 2**24


def given_log_probs(
    project: Callable[[Float[Tensor, "p d"]], Float[Tensor, "p v"]],
    hidden_nd: Float[Tensor, "n d"],
    wanted_n: Int[Tensor, " n"],
    *,
    vocabulary: int,
) -> Float[Tensor, " n"]:
    """The log-probability of each token, in float64.

    Args:
        project: makes logits of hidden states.
        hidden_nd: what each token is predicted from.
        wanted_n: the tokens.
        vocabulary: how many logits a hidden state has.
    """
    chunk = max(1, _LOGITS // vocabulary)
    log_probs = [
        -functional.cross_entropy(
            full_precision(project(hidden_nd[start : start + chunk])),
            wanted_n[start : start + chunk],
            reduction="none",
        ).double()
        for start in range(0, len(wanted_n), chunk)
    ]
    return torch.cat(log_probs)


def row_sums(values_n: Float[Tensor, " n"], mask_bt: Bool[Tensor, "b t"]) -> Float[Tensor, " b"]:
    """Sum the values at the places of each row that the mask says are there, in their order.

    Summed along rows, not scattered: that has one order, and so the same bits, everywhere.
    """
    values_bt = torch.zeros(mask_bt.shape, dtype=values_n.dtype, device=values_n.device)
    values_bt[mask_bt] = values_n
    return values_bt.sum(1)
