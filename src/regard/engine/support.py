"""What the engine can compute, and the names by which it refuses what it can't."""

from typing import Any

from regard.models.config import TransformerConfig
from regard.nn.config import LearnedConfig, NoPositionsConfig, SinusoidalConfig

# What the C++ side reads; see csrc/config.h.
NativeConfig = dict[str, int | float | bool | str]

_SAME_NAMES = (
    "d_model",
    "num_heads",
    "d_ff",
    "encoder_layers",
    "decoder_layers",
    "attention_bias",
    "norm_position",
    "feed_forward",
    "tying",
    "embedding_scale",
    "embedding_norm",
    "output_scale",
    "output_bias",
)


def refusal(config: TransformerConfig) -> str:
    """What of a model the engine does not support, as the recipe says it; "" if nothing."""
    if config.decoder_mixer != "attention":
        return f'model.decoder_mixer = "{config.decoder_mixer}"'
    if not isinstance(config.positions, NoPositionsConfig | SinusoidalConfig | LearnedConfig):
        return f'model.positions.kind = "{config.positions.kind}"'
    return ""


def native_config(
    config: TransformerConfig, *, source_vocabulary: int, target_vocabulary: int
) -> NativeConfig:
    """A supported config in the words of the C++ side, with everything left out written out."""
    settings: dict[str, Any] = {name: getattr(config, name) for name in _SAME_NAMES}
    positions = config.positions
    sinusoidal = positions if isinstance(positions, SinusoidalConfig) else SinusoidalConfig()
    return settings | {
        "source_vocabulary": source_vocabulary,
        "target_vocabulary": target_vocabulary,
        "num_kv_heads": config.kv_heads,
        "d_k": config.key_dim,
        "d_v": config.value_dim,
        "attention_output_bias": config.output_has_bias,
        "feed_forward_bias": config.feed_forward_has_bias,
        "attention_scale": config.attention_scale or 0.0,
        "norm": config.norm.kind,
        "norm_eps": config.norm.eps,
        "positions": positions.kind,
        "layout": sinusoidal.layout,
        "wavelengths": sinusoidal.wavelengths,
        "max_positions": config.longest or 0,
    }
