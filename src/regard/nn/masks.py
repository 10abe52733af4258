"""Boolean masks that say which query may attend to which key: True = may attend, joined by `&`."""

import torch

from regard.shapes import Bool, Int, Tensor


def padding_mask(lengths_b: Int[Tensor, " b"], size: int) -> Bool[Tensor, "b k"]:
    """True at the first `lengths_b` of `size` places of every row (padding on the right)."""
    return torch.arange(size, device=lengths_b.device) < lengths_b[:, None]


def causal_mask(
    query_length: int, key_length: int, *, device: torch.device | None = None
) -> Bool[Tensor, "q k"]:
    """True where a query may look: at its own place and all before it.

    Aligned bottom-right: the last query sees every key, so the same mask serves a chunk of
    queries after `key_length - query_length` cached keys.
    """
    ones_qk = torch.ones(query_length, key_length, dtype=torch.bool, device=device)
    return ones_qk.tril(key_length - query_length)


def positions_from_mask(mask_bk: Bool[Tensor, "b k"]) -> Int[Tensor, "b k"]:
    """Each token's place among the tokens of its row, from 0; padding on either side counts not.

    A padded place gets some valid position; nothing attends to it.
    """
    return (mask_bk.long().cumsum(-1) - 1).clamp(min=0)
