import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.t5.modeling_t5 import T5Attention

from regard.errors import ModelError
from regard.nn.config import (
    AlibiConfig,
    LearnedConfig,
    NoPositionsConfig,
    RelativeConfig,
    SinusoidalConfig,
)
from regard.nn.positions import (
    Layout,
    PositionalEncoding,
    RelativePositions,
    alibi_slopes,
    build_positions,
    sinusoids,
)

LAYOUTS: list[Layout] = ["interleaved", "halves"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sinusoids_are_the_paper_s(layout: Layout) -> None:
    table = sinusoids(50, 8, layout)
    for position in (0, 1, 49):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            columns = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, 4 + i)
            values = table[position, list(columns)].tolist()
            assert values == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-14)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(shift=st.integers(0, 200))
def test_a_shift_of_position_is_one_fixed_linear_map(layout: Layout, shift: int) -> None:
    table = sinusoids(300, 16, layout).view(300, *((8, 2) if layout == "interleaved" else (2, 8)))
    sine, cosine = table.unbind(-1 if layout == "interleaved" else -2)
    turn = shift / 10000 ** (torch.arange(8).double() / 8)
    shifted_sine = sine * turn.cos() + cosine * turn.sin()
    shifted_cosine = cosine * turn.cos() - sine * turn.sin()
    close = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(shifted_sine[: 300 - shift], sine[shift:], **close)
    torch.testing.assert_close(shifted_cosine[: 300 - shift], cosine[shift:], **close)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_table_grows_when_a_longer_input_comes_and_is_not_saved(layout: Layout) -> None:
    module = PositionalEncoding(8, layout, size=4)
    positions = torch.arange(100)[None]
    torch.testing.assert_close(module.vectors(positions, 100)[0], sinusoids(100, 8, layout).float())
    assert module.state_dict() == {}


def test_the_table_is_as_exact_as_the_type_of_the_model() -> None:
    exact = sinusoids(256, 8, "interleaved")
    module = PositionalEncoding(8)
    assert torch.equal(module.double().table, exact)
    assert torch.equal(module.bfloat16().table, exact.bfloat16())
    assert torch.equal(copy.deepcopy(module).double().table, exact)


def test_a_model_made_on_the_meta_device_gets_its_table_when_it_is_filled() -> None:
    with torch.device("meta"):
        module = PositionalEncoding(8)
    assert module.table.is_meta
    module.to_empty(device="cpu")
    assert torch.equal(module.table, sinusoids(256, 8, "interleaved").float())


def test_learned_positions_are_rows_of_their_table() -> None:
    module = build_positions(
        LearnedConfig(max_positions=6), d_model=4, num_heads=2, head_dim=4, bidirectional=True
    )
    positions = torch.tensor([[0, 5], [2, 2]])
    assert torch.equal(module.vectors(positions, 6), module.weight[positions])


def test_a_position_past_a_learned_table_is_refused() -> None:
    module = build_positions(
        LearnedConfig(max_positions=6), d_model=4, num_heads=2, head_dim=4, bidirectional=True
    )
    with pytest.raises(ModelError) as caught:
        module.vectors(torch.arange(7)[None], 7)
    assert str(caught.value) == (
        "a sequence of 7 tokens is longer than the 6 learned positions of the model\n"
        "  split the text, or train with a larger model.positions.max_positions or with "
        "sinusoidal positions"
    )


def test_padding_past_a_learned_table_is_no_position() -> None:
    module = build_positions(
        LearnedConfig(max_positions=2), d_model=4, num_heads=2, head_dim=4, bidirectional=True
    )
    assert module.vectors(torch.tensor([[0, 1, 1]]), 3).shape == (1, 3, 4)


def test_the_config_names_the_layout() -> None:
    module = build_positions(
        SinusoidalConfig(layout="halves"), d_model=8, num_heads=2, head_dim=4, bidirectional=True
    )
    assert torch.equal(module.table, sinusoids(256, 8, "halves").float())


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (8, [2.0**-i for i in range(1, 9)]),
        (1, [2.0**-8]),
        (6, [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]),
    ],
)
def test_alibi_slopes_are_its_paper_s(heads: int, slopes: list[float]) -> None:
    torch.testing.assert_close(alibi_slopes(heads), torch.tensor(slopes))


def test_alibi_lowers_scores_in_proportion_to_the_distance() -> None:
    module = build_positions(AlibiConfig(), d_model=4, num_heads=2, head_dim=4, bidirectional=True)
    bias = module.bias(torch.tensor([[2]]), torch.arange(4)[None])
    assert bias.tolist() == [
        [[[-2 / 16, -1 / 16, 0, -1 / 16]], [[-2 / 256, -1 / 256, 0, -1 / 256]]]
    ]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (4, 5)])
def test_buckets_are_those_of_t5(bidirectional: bool, buckets: int, max_distance: int) -> None:
    config = RelativeConfig(buckets=buckets, max_distance=max_distance)
    module = RelativePositions(config, 2, bidirectional=bidirectional)
    query, key = torch.arange(300)[None], torch.arange(300)[None]
    ahead = key[:, None, :] - query[:, :, None]
    expected = T5Attention._relative_position_bucket(
        ahead, bidirectional=bidirectional, num_buckets=buckets, max_distance=max_distance
    )
    bias = module.bias(query, key)
    assert torch.equal(bias, module.weight[expected].permute(0, 3, 1, 2))


def test_without_positions_nothing_is_told() -> None:
    module = build_positions(
        NoPositionsConfig(), d_model=4, num_heads=2, head_dim=4, bidirectional=True
    )
    places = torch.arange(3)[None]
    assert module.vectors(places, 3) is module.rotation(places) is module.bias(places, places)
    assert module.bias(places, places) is None


def test_the_full_range_of_wavelengths_ends_at_20000_pi() -> None:
    table = sinusoids(2, 8, "halves", "full")
    rates = torch.arange(4).double() / 3
    expected = torch.cat([torch.sin(10000**-rates), torch.cos(10000**-rates)])
    torch.testing.assert_close(table[1], expected, rtol=0, atol=1e-15)
