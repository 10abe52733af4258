"""How much of the source a search has looked at, as a part of its score."""

import torch

from regard.shapes import Bool, Float, Tensor

# The attention that a source token is taken to have had at least: a logarithm needs one.
_ATTENTION_FLOOR = 1e-6


def coverage_penalty(
    attention_rs: Float[Tensor, "r s"], source_rs: Bool[Tensor, "r s"]
) -> Float[Tensor, " r"]:
    """The sum over source tokens of log(min(attention received, 1)): 0 at best, else negative.

    `attention_rs` is summed over target positions; `source_rs` is False at padding.

    Source: Wu et al. 2016, arXiv:1609.08144, equation 14.
    """
    logs_rs = attention_rs.double().clamp(_ATTENTION_FLOOR, 1.0).log()
    return torch.where(source_rs, logs_rs, 0.0).sum(-1)
