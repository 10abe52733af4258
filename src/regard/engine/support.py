"""What the engine can compute, and the names by which it refuses what it can't."""

from typing import Any

from regard.engine.positions import (
    alibi_slopes,
    relative_limits,
    rotary_amplitude,
    rotary_rates,
)
from regard.models.config import LayerConfig, TransformerConfig, mixers_in_words
from regard.nn.config import AlibiConfig, RelativeConfig, RotaryConfig, SinusoidalConfig

# What the C++ side reads; see csrc/config.h.
NativeConfig = dict[str, int | float | bool | str | list[float] | list[int]]

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
    if mixers := mixers_in_words(config):
        return mixers
    return ""


def native_config(
    config: TransformerConfig, *, source_vocabulary: int, target_vocabulary: int
) -> NativeConfig:
    """A supported config in the words of the C++ side, with everything left out written out."""
    settings: dict[str, Any] = {name: getattr(config, name) for name in _SAME_NAMES}
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
        "max_positions": config.longest or 0,
        **_positions(config),
    }


def _positions(config: LayerConfig) -> NativeConfig:
    """What is said of positions; the keys of other kinds than the config's have no meaning."""
    settings: NativeConfig = {
        "positions": config.positions.kind,
        "layout": "interleaved",
        "wavelengths": "paper",
        "rotary_rates": [],
        "rotary_amplitude": 1.0,
        "alibi_slopes": [],
        "relative_buckets": 0,
        "encoder_limits": [],
        "decoder_limits": [],
    }
    match config.positions:
        case SinusoidalConfig(layout=layout, wavelengths=wavelengths):
            settings |= {"layout": layout, "wavelengths": wavelengths}
        case RotaryConfig() as rotary:
            settings |= {
                "layout": rotary.layout,
                "rotary_rates": rotary_rates(rotary, config.key_dim).tolist(),
                "rotary_amplitude": rotary_amplitude(rotary),
            }
        case AlibiConfig():
            settings |= {"alibi_slopes": alibi_slopes(config.num_heads).tolist()}
        case RelativeConfig() as relative:
            settings |= {
                "relative_buckets": relative.buckets,
                "encoder_limits": relative_limits(relative, bidirectional=True),
                "decoder_limits": relative_limits(relative, bidirectional=False),
            }
    return settings
