import torch

from regard.nn.masks import causal_mask, memory_sight, padding_mask, positions_from_mask


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


def test_a_memory_is_seen_from_its_first_token_to_its_last() -> None:
    mask = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]])
    sight = memory_sight(mask.bool(), keys=4, queries=2)
    assert sight is not None
    seen = sight.seen_nq3.tolist()
    assert all(first == second for first, second in seen)
    starts_and_ends = [row[0] for row in seen]
    assert starts_and_ends == [[0, 2, 0], [1, 4, 0], [0, 0, 0], [2, 3, 0], [0, 4, 0]]


def test_all_of_a_memory_without_a_mask_is_seen() -> None:
    sight = memory_sight(None, keys=5, queries=1)
    assert sight is not None
    assert sight.seen_nq3.tolist() == [[[0, 5, 0]]]


def test_a_memory_with_a_gap_between_its_tokens_is_no_stretch() -> None:
    assert memory_sight(torch.tensor([[1, 1, 1], [1, 0, 1]]).bool(), keys=3, queries=2) is None
