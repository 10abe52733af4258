import torch

from regard.nn.masks import causal_mask, padding_mask, positions_from_mask


def test_padding_mask_is_true_at_the_tokens() -> None:
    mask = padding_mask(torch.tensor([2, 0, 3]), 3)
    assert mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]


def test_causal_mask_is_aligned_bottom_right() -> None:
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True] * 4]
    assert causal_mask(1, 3).tolist() == [[True] * 3]
    assert causal_mask(2, 2).tolist() == [[True, False], [True, True]]


def test_positions_count_tokens_wherever_the_padding_stands() -> None:
    mask = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0]]).bool()
    positions = positions_from_mask(mask)
    assert positions[0, :2].tolist() == [0, 1]
    assert positions[1, 1:].tolist() == [0, 1]
    assert (positions >= 0).all()
