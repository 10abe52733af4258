"""Lists of ids to a padded tensor, and lengths to batches."""

from collections.abc import Iterator, Sequence

import torch

from regard.shapes import Bool, Int, Tensor


def padded(
    ids: Sequence[Sequence[int]], *, fill: int, device: torch.device, left: bool = False
) -> tuple[Int[Tensor, "b s"], Bool[Tensor, "b s"]]:
    """Fill the lists up on the right, or on the left; the mask is True at what was there before."""
    longest = max(len(row) for row in ids)
    fillings = [[fill] * (longest - len(row)) for row in ids]
    rows = [
        [*filling, *row] if left else [*row, *filling]
        for row, filling in zip(ids, fillings, strict=True)
    ]
    ids_bs = torch.tensor(rows)
    lengths_b1 = torch.tensor([[len(row)] for row in ids])
    mask_bs = torch.arange(longest) < lengths_b1
    if left:
        mask_bs = mask_bs.flip(1)
    return ids_bs.to(torch.int64).to(device), mask_bs.to(device)


def token_batches(
    lengths: Sequence[int], *, batch_tokens: int, batch_rows: int
) -> Iterator[list[int]]:
    """Cut the places 0, 1, ... into batches of like length, the longest first.

    The longest of a batch times its size is at most `batch_tokens`, and its size at most
    `batch_rows`, unless one alone is more.
    """
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    start = 0
    while start < len(order):
        size = max(1, min(batch_rows, batch_tokens // max(1, lengths[order[start]])))
        yield order[start : start + size]
        start += size
