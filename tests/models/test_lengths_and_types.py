"""A position past a learned table is refused before all computation; phases keep their type."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from regard.errors import ModelError
from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.nn.config import AlibiConfig, LearnedConfig, PositionsConfig, RotaryConfig

SMALL = {"d_model": 8, "num_heads": 2, "d_ff": 16}


def seq2seq(positions: PositionsConfig) -> nn.Module:
    config = TransformerConfig(**SMALL, encoder_layers=1, decoder_layers=1, positions=positions)
    return build_model(config, source_vocabulary=20, target_vocabulary=20, seed=1).eval()


def decoder(positions: PositionsConfig) -> nn.Module:
    config = DecoderConfig(**SMALL, num_layers=1, positions=positions)
    return build_language_model(config, vocabulary=20, seed=1).eval()


def encoder(positions: PositionsConfig) -> nn.Module:
    config = EncoderConfig(**SMALL, num_layers=1, positions=positions)
    return build_encoder(config, vocabulary=20, seed=1).eval()


def short(rows: int = 1) -> torch.Tensor:
    return torch.full((rows, 4), 3)


LONG = torch.full((1, 7), 3)
CASES: list[tuple[Callable[[PositionsConfig], nn.Module], tuple[torch.Tensor, ...]]] = [
    (seq2seq, (LONG, short())),
    (seq2seq, (short(), LONG)),
    (decoder, (LONG,)),
    (encoder, (LONG,)),
]


@pytest.mark.parametrize(("make", "inputs"), CASES)
def test_a_position_past_a_learned_table_is_refused_before_any_layer_runs(
    make: Callable[[PositionsConfig], nn.Module], inputs: tuple[torch.Tensor, ...]
) -> None:
    model = make(LearnedConfig(max_positions=6))
    ran = []
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            module.register_forward_pre_hook(lambda module, _: ran.append(module))
    with pytest.raises(ModelError, match="a sequence of 7 tokens is longer than the 6 learned"):
        model(*inputs)
    assert not ran


def test_packed_documents_are_each_short_enough() -> None:
    model = decoder(LearnedConfig(max_positions=6))
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    assert model(LONG, documents_bt=documents).shape == (1, 7, 20)


def test_a_step_past_the_table_is_refused() -> None:
    model = decoder(LearnedConfig(max_positions=6))
    cache = model.start(1)
    model.step(short(), cache)
    with pytest.raises(ModelError, match="a sequence of 8 tokens"):
        model.step(short(), cache)


@pytest.mark.parametrize("positions", [RotaryConfig(), AlibiConfig()])
def test_a_model_made_bfloat16_keeps_phases_and_slopes_in_float32(
    positions: PositionsConfig,
) -> None:
    """At a far place, where a phase or a distance in bfloat16 would be off by whole units."""
    wide = decoder(positions)
    exact_places = torch.arange(1000, 1008)[None]
    expected = (
        wide.positions.rotation(exact_places),
        wide.positions.bias(exact_places, exact_places - 999),
    )
    narrow = wide.bfloat16()
    found = (
        narrow.positions.rotation(exact_places),
        narrow.positions.bias(exact_places, exact_places - 999),
    )
    for one, other in zip(expected, found, strict=True):
        if one is None:
            assert other is None
            continue
        for mine, theirs in zip(one, other, strict=True):
            if isinstance(mine, torch.Tensor):
                assert mine.dtype == theirs.dtype == torch.float32
                assert torch.equal(mine, theirs)
