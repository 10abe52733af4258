"""Rotary phases against transformers', and what turning queries and keys is to mean."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from regard.nn.config import (
    LinearScalingConfig,
    Llama3ScalingConfig,
    NoScalingConfig,
    NTKScalingConfig,
    RotaryConfig,
    RotaryScalingConfig,
    YarnScalingConfig,
)
from regard.nn.rotary import Phases, rotary_rates, rotate

SCALINGS: list[tuple[RotaryScalingConfig, dict[str, object]]] = [
    (NoScalingConfig(), {"rope_type": "default"}),
    (LinearScalingConfig(factor=3.0), {"rope_type": "linear", "factor": 3.0}),
    (
        YarnScalingConfig(factor=4.0, original_positions=64),
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    ),
    (
        YarnScalingConfig(factor=4.0, original_positions=64, truncate=False, beta_fast=8),
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "truncate": False,
            "beta_fast": 8,
        },
    ),
    (
        Llama3ScalingConfig(factor=8.0, original_positions=64),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
]


@pytest.mark.parametrize(("scaling", "theirs"), SCALINGS, ids=lambda value: str(value)[:20])
def test_phases_are_those_of_llama_to_the_bit(
    scaling: RotaryScalingConfig, theirs: dict[str, object]
) -> None:
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": 500.0, **theirs},
    )
    oracle = LlamaRotaryEmbedding(config)
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 2, 10, 32).double()
    positions = torch.arange(300, 310)[None].expand(3, -1)
    cos, sin = oracle(query, positions)
    expected, _ = apply_rotary_pos_emb(query, key, cos, sin)
    rotation = Phases(RotaryConfig(theta=500.0, scaling=scaling), 32).at(positions)
    assert torch.equal(rotate(query, rotation), expected)


def test_ntk_scaling_leaves_the_fastest_phase_and_divides_the_slowest_by_the_factor() -> None:
    plain = rotary_rates(RotaryConfig(), 64)
    scaled = rotary_rates(RotaryConfig(scaling=NTKScalingConfig(factor=4.0)), 64)
    assert scaled[0] == plain[0]
    torch.testing.assert_close(scaled[-1], plain[-1] / 4)


@given(
    shift=st.integers(0, 1000),
    layout=st.sampled_from(["halves", "interleaved"]),
    dim=st.sampled_from([None, 4]),
)
def test_scores_hang_on_the_distance_alone(shift: int, layout: str, dim: int | None) -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 5, 8).double()
    phases = Phases(RotaryConfig(layout=layout, dim=dim, theta=100.0), 8)

    def scores(first: int) -> torch.Tensor:
        rotation = phases.at(torch.arange(first, first + 5)[None])
        return rotate(query, rotation) @ rotate(key, rotation).transpose(-2, -1)

    # Phases are float32: their rounding grows with the position.
    torch.testing.assert_close(scores(shift), scores(0), rtol=0, atol=1e-3)


def test_the_layouts_are_one_another_with_the_dimensions_in_another_order() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 5, 8)
    positions = torch.arange(5)[None]
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    halves = rotate(x[..., order], Phases(RotaryConfig(), 8).at(positions))
    interleaved = rotate(x, Phases(RotaryConfig(layout="interleaved"), 8).at(positions))
    assert torch.equal(halves, interleaved[..., order])


def test_phases_stay_float32_whatever_the_type_of_queries() -> None:
    rotation = Phases(RotaryConfig(), 8).at(torch.arange(5)[None])
    assert rotation.cos_bqr.dtype == rotation.sin_bqr.dtype == torch.float32
    x = torch.randn(1, 2, 5, 8)
    narrow = rotate(x.bfloat16(), rotation)
    assert narrow.dtype == torch.bfloat16
    assert torch.equal(narrow, rotate(x.bfloat16().float(), rotation).bfloat16())
    assert rotate(x.double(), rotation).dtype == torch.float64
