"""What the engine can compute, and the names by which it refuses what it can't."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engine import native
from regard.engine.native import EngineError
from regard.engine.positions import (
    alibi_slopes,
    relative_limits,
    rotary_amplitude,
    rotary_rates,
)
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    LayerConfig,
    ModelConfig,
    TransformerConfig,
    experts_in_words,
    mixers_in_words,
)
from regard.nn.config import AlibiConfig, RelativeConfig, RotaryConfig, SinusoidalConfig
from regard.nn.mixers.config import (
    FullConfig,
    MixerConfig,
    SSRUConfig,
    StackConfig,
    WindowConfig,
)

# What the C++ side reads; see csrc/config.h.
NativeConfig = dict[str, int | float | bool | str | list[float] | list[int]]

_LAYERS = ("d_model", "num_heads", "d_ff", "attention_bias", "norm_position", "feed_forward")
_EMBEDDINGS = ("embedding_scale", "embedding_norm")
# What a family has not.
_NONE: NativeConfig = {
    "encoder_layers": 0,
    "decoder_layers": 0,
    "tying": "two_way",
    "output_scale": False,
    "output_bias": False,
    "windows": [],
    "recurrent": [],
    "token_types": 0,
    "classes": 0,
    "prediction_head": False,
    "pooler": False,
}


def require(config: ModelConfig) -> None:
    """Refuse where there is no engine, or it does not support the model.

    Raises:
        EngineError: says why.
    """
    if problem := native.absence():
        raise EngineError(f"there is no engine: {problem}")
    if problem := refusal(config):
        raise EngineError(f"the engine does not support {problem}")


def as_float32(weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """Weights as the C++ side reads them, in float32 and row after row; copied if they are not."""
    return {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()}


def kept_sections(weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Weights if they are packed sections, which are used where they are; else none."""
    packed = any(array.dtype == np.uint8 for array in weights.values())
    return dict(weights) if packed else {}


def refusal(config: ModelConfig) -> str:
    """What of a model the engine does not support, as the recipe says it; "" if nothing."""
    if experts := experts_in_words(config):
        return experts
    if isinstance(config, EncoderConfig):
        return mixers_in_words(config)
    for mixer in _decoder_mixers(config):
        if isinstance(mixer, WindowConfig):
            for key, plain in (("dilation", 1), ("global_tokens", 0)):
                if (value := getattr(mixer, key)) != plain:
                    return f"model.decoder.mixer.{key} = {value}"
        if not isinstance(mixer, FullConfig | WindowConfig | SSRUConfig):
            return mixers_in_words(config)
    return mixers_in_words(config.model_copy(update={"decoder": StackConfig()}))


def _decoder_mixers(config: TransformerConfig | DecoderConfig) -> Sequence[MixerConfig]:
    """What each layer of the decoder looks back with."""
    return config.mixers if isinstance(config, DecoderConfig) else config.decoder_mixers


def _look_back(mixers: Sequence[MixerConfig]) -> NativeConfig:
    windows = [mixer.window if isinstance(mixer, WindowConfig) else 0 for mixer in mixers]
    recurrent = [int(isinstance(mixer, SSRUConfig)) for mixer in mixers]
    return {"windows": windows, "recurrent": recurrent}


def native_config(
    config: TransformerConfig, *, source_vocabulary: int, target_vocabulary: int
) -> NativeConfig:
    """A supported config in the words of the C++ side, with everything left out written out."""
    names = (*_EMBEDDINGS, "encoder_layers", "decoder_layers", "tying")
    return _common(config, (*names, "output_scale", "output_bias")) | {
        "family": "translation",
        "source_vocabulary": source_vocabulary,
        "target_vocabulary": target_vocabulary,
        **_look_back(config.decoder_mixers),
    }


def language_config(config: DecoderConfig, *, vocabulary: int) -> NativeConfig:
    """A supported language model in the words of the C++ side."""
    return _common(config, (*_EMBEDDINGS, "output_bias")) | {
        "family": "language",
        "source_vocabulary": vocabulary,
        "target_vocabulary": vocabulary,
        "decoder_layers": config.num_layers,
        "tying": "two_way" if config.tied else "none",
        **_look_back(config.mixers),
    }


def encoder_config(config: EncoderConfig, *, vocabulary: int, classes: int) -> NativeConfig:
    """A supported encoder in the words of the C++ side."""
    return _common(config, (*_EMBEDDINGS, "token_types", "prediction_head", "pooler")) | {
        "family": "encoding",
        "source_vocabulary": vocabulary,
        "target_vocabulary": vocabulary,
        "encoder_layers": config.num_layers,
        "classes": classes,
    }


def _common(config: LayerConfig, names: Sequence[str]) -> NativeConfig:
    """What layers are made of, and the keys of these names; the others are as good as none."""
    settings: NativeConfig = {name: getattr(config, name) for name in (*_LAYERS, *names)}
    return {
        **_NONE,
        **settings,
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
