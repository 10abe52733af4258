"""Which position reaches which, and over how many layers."""

import pytest
import torch

from regard.compare.layers import SUBJECTS
from regard.compare.paths import connectivity, layers_needed, path_lengths

BY_NAME = {subject.name: subject for subject in SUBJECTS}


def test_known_links_need_the_layers_that_they_must() -> None:
    size = 9
    full = torch.ones(size, size, dtype=torch.bool)
    near = full.tril(2) & full.triu(-2)
    assert layers_needed(full, causal=False) == 1
    assert layers_needed(full.tril(), causal=True) == 1
    assert layers_needed(full.tril(), causal=False) is None
    assert layers_needed(near, causal=False) == 4
    assert layers_needed(near.tril(), causal=True) == 4
    assert layers_needed(torch.eye(size, dtype=torch.bool), causal=True) is None
    hub = torch.eye(size, dtype=torch.bool)
    hub[0] = hub[:, 0] = True
    assert layers_needed(hub, causal=False) == 2
    assert layers_needed(torch.ones(1, 1, dtype=torch.bool), causal=True) == 0


@pytest.mark.parametrize("name", ["window", "bigbird"])
def test_a_gradient_reaches_what_the_pattern_of_a_layer_says(name: str) -> None:
    torch.manual_seed(1)
    pattern = BY_NAME[name].build(8, 2, 40, small=True).pattern(40)
    assert torch.equal(connectivity(BY_NAME[name], 40, seed=1), pattern)


@pytest.mark.parametrize("name", ["plain", "sdpa", "linear", "performer", "linformer"])
def test_attention_to_all_needs_one_layer(name: str) -> None:
    found = path_lengths(BY_NAME[name], seed=1, lengths=(8, 16, 32))
    assert ([count.value for count in found.counts], found.growth) == ([1, 1, 1], "1")


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "ssru", "mamba"])
def test_a_state_carries_over_all_positions_within_one_layer(name: str) -> None:
    found = path_lengths(BY_NAME[name], seed=1, lengths=(16, 64))
    assert [count.value for count in found.counts] == [1, 1]


def test_windows_and_convolutions_need_layers_in_proportion_to_the_length() -> None:
    for name, reach in (("window", 4), ("convolution", 2)):
        found = path_lengths(BY_NAME[name], seed=1, lengths=(10, 20, 41, 80))
        assert [count.value for count in found.counts] == [
            -(-(count.n - 1) // reach) for count in found.counts
        ]
        assert found.growth == "n"


def test_random_blocks_shorten_the_way_of_a_window() -> None:
    found = path_lengths(BY_NAME["bigbird"], seed=1, lengths=(32, 64, 128))
    assert found.growth == "log n"
    assert found.counts[-1].value < 10
