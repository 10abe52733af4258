"""How many parameters a model has, in closed form and without building it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from regard.errors import ModelError
from regard.models.config import TransformerConfig
from regard.nn.config import LayerNormConfig, LearnedConfig, RMSNormConfig, SinusoidalConfig


@dataclass(frozen=True, kw_only=True)
class Part:
    """One line of the table: `copies` parts of `each` parameters, from matrices of `shape`."""

    name: str
    shape: str
    each: int
    copies: int

    @property
    def parameters(self) -> int:
        """All copies together."""
        return self.each * self.copies


def check_vocabularies(
    config: TransformerConfig, source_vocabulary: int, target_vocabulary: int
) -> None:
    """Refuse one matrix for both vocabularies when they differ.

    Raises:
        ModelError: three-way tying with vocabularies of two sizes.
    """
    if config.tying == "three_way" and source_vocabulary != target_vocabulary:
        raise ModelError(
            'model.tying = "three_way" makes one matrix of both embeddings, and the vocabularies '
            f"differ: {source_vocabulary} source ids, {target_vocabulary} target ids",
            hint="use a joint vocabulary (vocabulary.joint = true), or set model.tying to "
            '"two_way" or "none"',
        )


def parameter_count(
    config: TransformerConfig, source_vocabulary: int, target_vocabulary: int
) -> int:
    """The parameters of the model, a tied matrix counted once.

    Raises:
        ModelError: three-way tying with vocabularies of two sizes.
    """
    return total_parameters(parameter_table(config, source_vocabulary, target_vocabulary))


def total_parameters(parts: Iterable[Part]) -> int:
    """The parameters of all parts of a table."""
    return sum(part.parameters for part in parts)


def parameter_table(
    config: TransformerConfig, source_vocabulary: int, target_vocabulary: int
) -> list[Part]:
    """The parts of the model in the order of the data, each with its shape and parameters.

    Raises:
        ModelError: three-way tying with vocabularies of two sizes.
    """
    check_vocabularies(config, source_vocabulary, target_vocabulary)
    return [
        *_embeddings(config, source_vocabulary, target_vocabulary),
        *_positions(config),
        *_stack(config, "encoder", config.encoder_layers, ["self-attention"]),
        *_stack(config, "decoder", config.decoder_layers, ["self-attention", "cross-attention"]),
    ]


def _embeddings(
    config: TransformerConfig, source_vocabulary: int, target_vocabulary: int
) -> list[Part]:
    match config.tying:
        case "three_way":
            tables = [("embedding (source, target) = projection", source_vocabulary)]
        case "two_way":
            tables = [
                ("source embedding", source_vocabulary),
                ("target embedding = projection", target_vocabulary),
            ]
        case "none":
            tables = [
                ("source embedding", source_vocabulary),
                ("target embedding", target_vocabulary),
                ("projection", target_vocabulary),
            ]
        case _ as never:
            assert_never(never)
    width = config.d_model
    return [
        Part(name=name, shape=f"{size} x {width}", each=size * width, copies=1)
        for name, size in tables
    ]


def _positions(config: TransformerConfig) -> list[Part]:
    match config.positions:
        case SinusoidalConfig():
            return []
        case LearnedConfig(max_positions=size):
            width = config.d_model
            shape = f"{size} x {width}"
            return [Part(name="positions", shape=shape, each=size * width, copies=2)]
        case _ as never:
            assert_never(never)


def _stack(config: TransformerConfig, stack: str, layers: int, attentions: list[str]) -> list[Part]:
    width = config.d_model
    projected = config.num_heads * (2 * config.key_dim + config.value_dim)
    joined = config.num_heads * config.value_dim
    attention = width * projected + joined * width
    if config.attention_bias:
        attention += projected + width
    shape = f"{projected} x {width}, {width} x {joined}"
    parts = [
        Part(name=f"{stack} {name}", shape=shape, each=attention, copies=layers)
        for name in attentions
    ]
    shape, each = _feed_forward(config)
    parts.append(Part(name=f"{stack} feed-forward", shape=shape, each=each, copies=layers))
    copies = layers * (len(attentions) + 1)
    if config.norm_position == "pre":
        copies += 1
    shape, each = _norm(config)
    parts.append(Part(name=f"{stack} norms", shape=shape, each=each, copies=copies))
    return parts


def _feed_forward(config: TransformerConfig) -> tuple[str, int]:
    """Two matrices with biases, or the three of the gated form without."""
    width, inner = config.d_model, config.d_ff
    match config.feed_forward:
        case "relu" | "gelu":
            return f"{inner} x {width}, {width} x {inner}", 2 * width * inner + inner + width
        case "swiglu":
            return f"{2 * inner} x {width}, {width} x {inner}", 3 * width * inner
        case _ as never:
            assert_never(never)


def _norm(config: TransformerConfig) -> tuple[str, int]:
    """Gain and bias, or gain only."""
    match config.norm:
        case LayerNormConfig():
            return f"2 x {config.d_model}", 2 * config.d_model
        case RMSNormConfig():
            return f"{config.d_model}", config.d_model
        case _ as never:
            assert_never(never)
