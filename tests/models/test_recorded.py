"""The weights of a model's attention, recorded beside a pass."""

import pytest
import torch

import regard
from regard.errors import ModelError
from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.models.transformer import Transformer
from regard.nn.mixers.config import StackConfig

SHAPE = {"d_model": 8, "num_heads": 4, "num_kv_heads": 2, "d_ff": 6}
SOURCE = torch.tensor([[3, 4, 5, 0], [6, 7, 8, 9]])
MASK = torch.tensor([[True, True, True, False], [True] * 4])
TARGET = torch.tensor([[3, 4, 5], [6, 7, 8]])


@pytest.fixture
def model() -> Transformer:
    config = TransformerConfig(**SHAPE, encoder_layers=2, decoder_layers=1)
    return build_model(config, source_vocabulary=20, target_vocabulary=20, seed=1).eval()


def test_every_attention_of_a_pass_is_recorded_and_the_pass_is_the_same(model: Transformer) -> None:
    expected = model(SOURCE, TARGET, MASK)
    with regard.recorded_attention(model) as found:
        logits = model(SOURCE, TARGET, MASK)
    assert torch.equal(logits, expected)
    assert {name: tuple(weights.shape) for name, weights in found.items()} == {
        "encoder_layers.0.self_attention": (2, 4, 4, 4),
        "encoder_layers.1.self_attention": (2, 4, 4, 4),
        "decoder_layers.0.self_attention": (2, 4, 3, 3),
        "decoder_layers.0.cross_attention": (2, 4, 3, 4),
    }
    for name, weights in found.items():
        assert not weights.requires_grad
        sums = weights[1].sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums))
        if "decoder" not in name or "cross" in name:
            assert (weights[0, :, :, 3] == 0).all()
    before = dict(found)
    model(SOURCE, TARGET, MASK)
    assert found == before  # nothing more after the block


def test_a_block_in_another_records_too_and_both_end_as_they_began(model: Transformer) -> None:
    with regard.recorded_attention(model) as outer:
        with regard.recorded_attention(model) as inner:
            model(SOURCE, TARGET, MASK)
        model(SOURCE, TARGET[:, :2], MASK)
    assert inner.keys() == outer.keys()
    name = "decoder_layers.0.cross_attention"
    assert (inner[name].shape[2], outer[name].shape[2]) == (3, 2)
    model(SOURCE, TARGET, MASK)
    assert outer[name].shape[2] == 2


def test_the_memory_s_weights_are_those_of_which_decoding_shows_the_mean(
    model: Transformer,
) -> None:
    memory = model.encode(SOURCE, MASK)
    _, shown = model.step(TARGET, model.start(memory, MASK), attention=True)
    with regard.recorded_attention(model) as found:
        model.decode(TARGET, memory, MASK)
    mean = found["decoder_layers.0.cross_attention"].mean(1)
    torch.testing.assert_close(mean, shown)


def test_rows_that_share_a_memory_have_weights_of_their_own(model: Transformer) -> None:
    memory = model.encode(SOURCE, MASK)
    layer = model.decoder_layers[0]
    seen, x = layer.keys_and_values(memory), torch.randn(6, 2, 8)
    found = layer.cross_attention.cross_weights(x, seen, MASK[:, None, None], [1])
    for row in range(6):
        one = layer.keys_and_values(memory[row // 3, None])
        mask = MASK[row // 3, None, None, None]
        alone = layer.cross_attention.cross_weights(x[row, None], one, mask, [1])
        torch.testing.assert_close(found[row], alone[0])


def test_chosen_layers_and_heads_only(model: Transformer) -> None:
    name = "encoder_layers.1.self_attention"
    with regard.recorded_attention(model) as whole:
        model(SOURCE, TARGET, MASK)
    with regard.recorded_attention(model, layers=[name], heads=[2, 1]) as found:
        model(SOURCE, TARGET, MASK)
    assert [*found] == [name]
    torch.testing.assert_close(found[name], whole[name][:, [2, 1]])


def test_models_of_one_side_and_mixtures_of_layers_record_what_has_weights() -> None:
    stack = StackConfig(pattern=("window", "lstm", "performer"))
    decoder = DecoderConfig(**SHAPE, num_layers=3, decoder=stack)
    language_model = build_language_model(decoder, vocabulary=20, seed=1).eval()
    with regard.recorded_attention(language_model) as found:
        language_model(SOURCE, MASK)
    assert [*found] == ["layers.0.self_attention", "layers.2.self_attention"]
    encoder = build_encoder(EncoderConfig(**SHAPE, num_layers=1), vocabulary=20, seed=1).eval()
    with regard.recorded_attention(encoder) as found:
        encoder(SOURCE, MASK)
    assert [*found] == ["layers.0.self_attention"]


def test_what_cannot_be_recorded_is_refused(model: Transformer) -> None:
    with (
        pytest.raises(ModelError, match=r"^layers: 'decoder_layers.9.x' has no weights of "
                      r"attention; these have: encoder_layers.0.self_attention, "),
        regard.recorded_attention(model, layers=["decoder_layers.9.x"]),
    ):  # fmt: skip
        pass
    with (
        pytest.raises(ModelError, match=r"heads = \[7\]: they have the numbers 0 to 3"),
        regard.recorded_attention(model, heads=[7]),
    ):
        pass
    memory = model.encode(SOURCE, MASK)
    with (
        regard.recorded_attention(model),
        pytest.raises(ModelError, match="is for whole passes, and this is a step"),
    ):
        model.step(TARGET, model.start(memory, MASK))
