"""Chains of operations that can be counted by hand, and those of the layers."""

import pytest
import torch

from regard.compare.graph import depth_of, sequential_operations
from regard.compare.layers import SUBJECTS
from regard.shapes import Tensor

BY_NAME = {subject.name: subject for subject in SUBJECTS}
LENGTHS = (64, 128, 256, 512)


def chain(x: Tensor) -> Tensor:
    state = x[:, 0]
    for place in range(1, x.shape[1]):
        state = state.tanh() + x[:, place]
    return state


def in_place(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for place in range(x.shape[1]):
        out[:, place] = x[:, place].exp()
    return out


def test_a_chain_is_as_long_as_the_operations_that_wait_for_each_other() -> None:
    x = torch.rand(1, 10, 4)
    assert depth_of(lambda x: x.exp().sin(), x) == 2
    assert depth_of(lambda x: x.exp() + x.sin() + x, x) == 3
    assert depth_of(chain, x) == 18
    assert depth_of(lambda x: torch.stack([part.exp() for part in x.unbind(1)]), x) == 2


def test_views_cost_nothing_and_running_sums_the_logarithm_of_their_length() -> None:
    x = torch.rand(1, 10, 4)
    assert depth_of(lambda x: x.transpose(1, 2)[:, 1:].unsqueeze(0).exp(), x) == 1
    assert depth_of(lambda x: x.cumsum(1), x) == 4
    assert depth_of(lambda x: x.cumsum(-1), x) == 2


def test_parts_written_in_place_do_not_wait_for_each_other() -> None:
    x = torch.rand(1, 10, 4)
    assert depth_of(in_place, x) == 2
    assert depth_of(lambda x: in_place(x)[:, 3] * 2, x) == 3


def test_what_is_computed_outside_of_torch_is_not_counted_but_refused() -> None:
    with pytest.raises(ValueError, match="nothing that PyTorch computed"):
        depth_of(lambda x: torch.ones(3), torch.rand(1, 10, 4))


@pytest.mark.parametrize("name", ["plain", "sdpa", "window", "bigbird", "linformer", "convolution"])
def test_layers_without_a_state_take_as_many_operations_at_any_length(name: str) -> None:
    assert sequential_operations(BY_NAME[name], seed=1, lengths=LENGTHS).growth == "1"


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_recurrent_networks_take_more_operations_with_every_place(name: str) -> None:
    found = sequential_operations(BY_NAME[name], seed=1, lengths=LENGTHS)
    assert found.growth == "n"
    assert found.exponent == pytest.approx(1.0, abs=0.02)
    assert all(count.value >= count.n for count in found.counts)


@pytest.mark.parametrize("name", ["linear", "performer", "mamba"])
def test_sums_over_the_past_take_at_most_an_operation_or_two_a_chunk(name: str) -> None:
    first, *_, last = sequential_operations(BY_NAME[name], seed=1, lengths=LENGTHS).counts
    assert last.value - first.value <= 2 * (last.n - first.n) / 64 + 8
