"""Boolean masks that say which query may attend to which key: True = may attend, joined by `&`."""

import torch
from torch.nn import functional

from regard.kernels.attention import Sight
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


def token_stretches(
    mask_bt: Bool[Tensor, "b t"] | None, documents_bt: Int[Tensor, "b t"] | None, size: int
) -> tuple[Int[Tensor, "#b t"], Int[Tensor, "#b t"]] | None:
    """From which place up to which the tokens of each place's document are; of padding, none.

    None where those of a document do not follow each other without a gap.
    """
    given = mask_bt if documents_bt is None else documents_bt
    if given is None:
        return torch.zeros(1, size, dtype=torch.long), torch.full((1, size), size)
    place_1t = torch.arange(size, device=given.device)[None]
    held_bt = torch.ones_like(given, dtype=torch.bool) if mask_bt is None else mask_bt
    number_bt = torch.zeros_like(given, dtype=torch.long) if documents_bt is None else documents_bt
    number_bt = torch.where(held_bt, number_bt - number_bt.min(), -1)
    opens_bt = torch.ones_like(held_bt)
    opens_bt[:, 1:] = number_bt[:, 1:] != number_bt[:, :-1]
    highest_bt = functional.pad(number_bt.cummax(1).values[:, :-1], (1, 0), value=-1)
    if not bool((number_bt > highest_bt)[opens_bt & held_bt].all()):
        return None
    start_bt = torch.where(opens_bt, place_1t, 0).cummax(1).values
    next_bt = functional.pad(torch.where(opens_bt, place_1t, size)[:, 1:], (0, 1), value=size)
    end_bt = next_bt.flip(1).cummin(1).values.flip(1)
    return start_bt, torch.where(held_bt, end_bt, start_bt)


def memory_sight(mask_bk: Bool[Tensor, "b k"] | None, *, keys: int, queries: int) -> Sight | None:
    """What so many queries see of a memory: the tokens of its row; None where there is a gap."""
    if mask_bk is None:
        end_1q = torch.full((1, queries), keys)
        return Sight.of(torch.zeros_like(end_1q), end_1q)
    count_b1 = mask_bk.sum(-1, keepdim=True)
    place_k = torch.arange(1, keys + 1)
    end_b1 = (mask_bk * place_k).amax(-1, keepdim=True)
    start_b1 = keys - (mask_bk * place_k.flip(0)).amax(-1, keepdim=True)
    start_b1 = start_b1.minimum(end_b1)  # of a row without tokens
    if not bool((end_b1 - start_b1 == count_b1).all()):
        return None
    return Sight.of(start_b1.expand(-1, queries), end_b1.expand(-1, queries))


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
