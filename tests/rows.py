"""Rows of ids of different lengths, padded into a batch."""

import torch

from regard.nn.masks import padding_mask


def padded(rows: list[list[int]], side: str, extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids padded with 0 to the longest and `extra` more, and the mask of the tokens."""
    size = max(map(len, rows)) + extra
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.tensor([row + [0] * (size - len(row)) for row in rows])
    mask = padding_mask(lengths, size)
    if side == "left":
        ids = torch.tensor([[0] * (size - len(row)) + row for row in rows])
        mask = mask.flip(1)
    return ids, mask
