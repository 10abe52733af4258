import pytest
import torch

from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.nn.config import LayerNormConfig, RotaryConfig
from regard.weights.transfer import decoder_part, encoder_part

SHARED = {
    "d_model": 8,
    "num_heads": 2,
    "d_ff": 16,
    "feed_forward": "gelu",
    "norm": LayerNormConfig(eps=1e-6),
    "positions": RotaryConfig(),
    "embedding_scale": False,
}
IDS = torch.tensor([[3, 4, 5, 6]])


def random(model: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("token_types", [0, 2])
@pytest.mark.parametrize("scaled", [True, False])
def test_a_text_encoder_is_the_encoder_of_an_encoder_decoder(
    norm_position: str, token_types: int, scaled: bool
) -> None:
    shared = {
        **SHARED,
        "norm_position": norm_position,
        "embedding_norm": True,
        "embedding_scale": scaled,
    }
    encoder = random(
        build_encoder(
            EncoderConfig(**shared, num_layers=2, token_types=token_types, pooler=True),
            vocabulary=20,
            seed=1,
            classes=2,
        )
    )
    whole = random(
        build_model(
            TransformerConfig(**shared, encoder_layers=2, decoder_layers=1, tying="two_way"),
            source_vocabulary=20,
            target_vocabulary=30,
            seed=1,
        )
    )
    missing = whole.load_state_dict(
        encoder_part(encoder.state_dict(), scale=8**0.5 if scaled else 1.0), strict=False
    )
    assert not missing.unexpected_keys
    assert all(name.startswith(("decoder", "target")) for name in missing.missing_keys)
    torch.testing.assert_close(whole.encode(IDS), encoder(IDS), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("tied", "tying"), [(True, "two_way"), (True, "none"), (False, "none")])
def test_a_language_model_is_a_decoder_whose_attention_to_the_memory_is_new(
    tied: bool, tying: str
) -> None:
    shared = {**SHARED, "norm_position": "pre", "output_bias": True}
    model = random(
        build_language_model(
            DecoderConfig(**shared, num_layers=2, tied=tied), vocabulary=20, seed=1
        )
    )
    whole = random(
        build_model(
            TransformerConfig(
                **shared,
                encoder_layers=1,
                decoder_layers=2,
                tying=tying,
            ),
            source_vocabulary=30,
            target_vocabulary=20,
            seed=1,
        )
    )
    missing = whole.load_state_dict(
        decoder_part(model.state_dict(), tied=tying != "none"), strict=False
    )
    assert not missing.unexpected_keys
    assert all(
        name.startswith(("encoder", "source")) or "cross_attention" in name
        for name in missing.missing_keys
    )
    for layer in whole.decoder_layers:  # one that adds nothing leaves the language model
        torch.nn.init.zeros_(layer.cross_attention.output.weight)
        torch.nn.init.zeros_(layer.cross_attention.output.bias)
    torch.testing.assert_close(whole(IDS, IDS), model(IDS), rtol=1e-12, atol=1e-12)
