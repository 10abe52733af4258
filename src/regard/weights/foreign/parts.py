"""What several families share: activations by their names elsewhere, and the shapes of a model."""

from collections.abc import Mapping
from typing import Final, assert_never

import torch

from regard.errors import CheckpointError, ModelError
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    LayerConfig,
    ModelConfig,
    TransformerConfig,
)
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
from regard.models.transformer import Transformer
from regard.nn.config import FeedForwardKind, LayerNormConfig
from regard.shapes import Tensor
from regard.text.vocabulary import Vocabulary

# A logit, or what is added to one, of a token that is never generated.
NEVER: Final = -1e4
# gelu_new and gelu_pytorch_tanh are the same formula; swish and silu too.
ACTIVATIONS: Final[Mapping[str, FeedForwardKind]] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
}
GATED_ACTIVATIONS: Final[Mapping[str, FeedForwardKind]] = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
}
# Which of several names transformers' own configs use.
ACTIVATION_NAMES: Final[Mapping[FeedForwardKind, str]] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "swish": "silu",
    "swiglu": "silu",
    "geglu": "gelu",
    "geglu_tanh": "gelu_pytorch_tanh",
}


def attention_sizes(config: LayerConfig) -> tuple[int, int, int]:
    """How many rows of an attention's input are queries, keys and values."""
    return (
        config.num_heads * config.key_dim,
        config.kv_heads * config.key_dim,
        config.kv_heads * config.value_dim,
    )


def wanted_weights(
    config: ModelConfig, vocabulary: int, target_vocabulary: int = 0, *, classes: int = 0
) -> dict[str, Tensor]:
    """The weights of a model by name, without memory: only their shapes count.

    Raises:
        CheckpointError: they are larger than any memory.
    """
    try:
        return _shapes(config, vocabulary, target_vocabulary, classes)
    except (RuntimeError, OverflowError) as error:
        raise CheckpointError(f"its sizes make no weights: {error}", where="config.json") from None


def _shapes(
    config: ModelConfig, vocabulary: int, target_vocabulary: int, classes: int
) -> dict[str, Tensor]:
    with torch.device("meta"):
        match config:
            case TransformerConfig():
                target = target_vocabulary or vocabulary
                return Transformer(
                    config, source_vocabulary=vocabulary, target_vocabulary=target
                ).state_dict()
            case DecoderConfig():
                return LanguageModel(config, vocabulary=vocabulary).state_dict()
            case EncoderConfig():
                return TextEncoder(config, vocabulary=vocabulary, classes=classes).state_dict()
            case _ as never:
                assert_never(never)


def plain_layers(config: LayerConfig) -> list[tuple[bool, str]]:
    """What layers must be for the formats that have no switches: settings for `require`."""
    return [
        (isinstance(config.norm, LayerNormConfig), 'model.norm.kind = "rms"'),
        (
            config.feed_forward in ACTIVATIONS.values(),
            f'model.feed_forward = "{config.feed_forward}"',
        ),
        (config.feed_forward_has_bias, "model.feed_forward_bias = false"),
        (config.attention_bias, "model.attention_bias = false"),
        (config.output_has_bias, "model.attention_output_bias = false"),
        (config.kv_heads == config.num_heads, f"model.num_kv_heads = {config.kv_heads}"),
        (config.key_dim * config.num_heads == config.d_model, f"model.d_k = {config.key_dim}"),
        (config.value_dim == config.key_dim, f"model.d_v = {config.value_dim}"),
    ]


def ends(vocabulary: Vocabulary) -> int | list[int]:
    """What ends a text, as transformers has it: an id, or several."""
    others = sorted(vocabulary.end_ids - {vocabulary.eos_id})
    return [vocabulary.eos_id, *others] if others else vocabulary.eos_id


def left_out(**settings: float) -> tuple[str, ...]:
    """What to say of the model's settings, by their names, that a format has no place for.

    They are of training alone; those of 0 are not there.
    """
    return tuple(
        f"left out: model.{name} = {value}, which only training uses"
        for name, value in settings.items()
        if value
    )


def require(format_name: str, *settings: tuple[bool, str]) -> None:
    """Refuse a model that a format has no place for.

    Args:
        format_name: what it is to be written as.
        settings: whether the format can express each, and what to say where it can't.

    Raises:
        ModelError: it can't express one; all are named.
    """
    if problems := [problem for expressed, problem in settings if not expressed]:
        raise ModelError(f"{format_name} can't express {', '.join(problems)}")
