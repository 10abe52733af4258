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


def window_mask(
    query_bq: Int[Tensor, "b q"], key_bk: Int[Tensor, "b k"], window: int
) -> Bool[Tensor, "b 1 q k"]:
    """True where a key's position is one of the `window` last ones up to the query's own.

    Says nothing of keys after the query: join it with a causal mask.
    """
    return (query_bq[:, :, None] - key_bk[:, None, :] < window)[:, None]


def document_mask(documents_bt: Int[Tensor, "b t"]) -> Bool[Tensor, "b 1 t t"]:
    """True where query and key are of one document."""
    return (documents_bt[:, :, None] == documents_bt[:, None, :])[:, None]


def document_positions(
    documents_bt: Int[Tensor, "b t"], mask_bt: Bool[Tensor, "b t"] | None = None
) -> Int[Tensor, "b t"]:
    """Each token's place in its document, from 0; a document is a run of one number."""
    ones_bt = torch.ones_like(documents_bt, dtype=torch.bool) if mask_bt is None else mask_bt
    places_bt = positions_from_mask(ones_bt)
    opens_bt = torch.ones_like(ones_bt)
    opens_bt[:, 1:] = documents_bt[:, 1:] != documents_bt[:, :-1]
    return places_bt - torch.where(opens_bt, places_bt, 0).cummax(1).values


def positions_from_mask(mask_bk: Bool[Tensor, "b k"]) -> Int[Tensor, "b k"]:
    """Each token's place among the tokens of its row, from 0; padding on either side counts not.

    A padded place gets some valid position; nothing attends to it.
    """
    return (mask_bk.long().cumsum(-1) - 1).clamp(min=0)
