"""How many parameters a model has, in closed form and without building it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from regard.errors import ModelError
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    LayerConfig,
    ModelConfig,
    TransformerConfig,
)
from regard.nn.config import (
    GATED,
    AlibiConfig,
    ExpertsConfig,
    LayerNormConfig,
    LearnedConfig,
    NoPositionsConfig,
    RelativeConfig,
    RMSNormConfig,
    RotaryConfig,
    SinusoidalConfig,
)
from regard.nn.mixers.config import (
    BigBirdConfig,
    ConvolutionConfig,
    FullConfig,
    GRUConfig,
    LinearConfig,
    LinformerConfig,
    LSTMConfig,
    MambaConfig,
    MixerConfig,
    PerformerConfig,
    RNNConfig,
    SSRUConfig,
    WindowConfig,
)


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


def parameter_count(config: ModelConfig, *vocabularies: int, classes: int = 0) -> int:
    """The parameters of the model, a tied matrix counted once; arguments as `parameter_table`.

    Raises:
        ModelError: three-way tying with vocabularies of two sizes.
    """
    return total_parameters(parameter_table(config, *vocabularies, classes=classes))


def idle_parameters(config: ModelConfig) -> int:
    """The parameters that a token does not use: those of the experts that it is not given to."""
    experts = config.experts
    if not experts.number:
        return 0
    if isinstance(config, TransformerConfig):
        layers = config.encoder_layers + config.decoder_layers
    else:
        layers = config.num_layers
    one = _feed_forward(config.model_copy(update={"experts": ExpertsConfig()})).each
    return layers * (experts.number - experts.top) * one


def total_parameters(parts: Iterable[Part]) -> int:
    """The parameters of all parts of a table."""
    return sum(part.parameters for part in parts)


def parameter_table(config: ModelConfig, *vocabularies: int, classes: int = 0) -> list[Part]:
    """The parts of the model in the order of the data, each with its shape and parameters.

    Args:
        config: the model.
        vocabularies: how many ids: of source and target for an encoder-decoder, else one number.
        classes: how many classes an encoder tells.

    Raises:
        ModelError: three-way tying with vocabularies of two sizes.
    """
    match config:
        case TransformerConfig():
            return _encoder_decoder(config, *vocabularies)
        case DecoderConfig():
            return _decoder(config, *vocabularies)
        case EncoderConfig():
            return _encoder(config, *vocabularies, classes=classes)
        case _ as never:
            assert_never(never)


def _encoder_decoder(
    config: TransformerConfig, source_vocabulary: int, target_vocabulary: int
) -> list[Part]:
    check_vocabularies(config, source_vocabulary, target_vocabulary)
    return [
        *_embeddings(config, source_vocabulary, target_vocabulary),
        *_positions(config, copies=2),
        *([_norms(config, "embedding norms", 2)] if config.embedding_norm else []),
        *_stack(config, "encoder", config.encoder_mixers),
        *_stack(config, "decoder", config.decoder_mixers, cross=True),
        *([_vector("output bias", target_vocabulary)] if config.output_bias else []),
    ]


def _decoder(config: DecoderConfig, vocabulary: int) -> list[Part]:
    width = config.d_model
    tied, untied = ["embedding = projection"], ["embedding", "projection"]
    return [
        *(_matrix(name, vocabulary, width) for name in (tied if config.tied else untied)),
        *_positions(config, copies=1),
        *([_norms(config, "embedding norm", 1)] if config.embedding_norm else []),
        *_stack(config, "", config.mixers),
        *([_vector("output bias", vocabulary)] if config.output_bias else []),
    ]


def _encoder(config: EncoderConfig, vocabulary: int, *, classes: int) -> list[Part]:
    width = config.d_model
    parts = [_matrix("embedding = prediction", vocabulary, width)]
    if not config.prediction_head:
        parts = [_matrix("embedding", vocabulary, width)]
    if config.token_types:
        parts.append(_matrix("type embedding", config.token_types, width))
    parts += _positions(config, copies=1)
    if config.embedding_norm:
        parts.append(_norms(config, "embedding norm", 1))
    parts += _stack(config, "", config.mixers)
    if config.prediction_head:
        parts.append(_matrix("prediction dense", width, width, bias=True))
        parts.append(_norms(config, "prediction norm", 1))
        parts.append(_vector("prediction bias", vocabulary))
    if config.pooler:
        parts.append(_matrix("pooler", width, width, bias=True))
    if classes:
        parts.append(_matrix("classifier", classes, width, bias=True))
    return parts


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
    return [_matrix(name, size, config.d_model) for name, size in tables]


def _positions(config: LayerConfig, *, copies: int) -> list[Part]:
    match config.positions:
        case NoPositionsConfig() | SinusoidalConfig() | RotaryConfig() | AlibiConfig():
            return []
        case LearnedConfig(max_positions=rows):
            return [_matrix("positions", rows, config.d_model, copies=copies)]
        case RelativeConfig(buckets=rows):
            return [_matrix("positions", rows, config.num_heads, copies=copies)]
        case _ as never:
            assert_never(never)


def _stack(
    config: LayerConfig, stack: str, mixers: Sequence[MixerConfig], *, cross: bool = False
) -> list[Part]:
    """The parts of a stack of layers, each with one of the mixers."""
    layers = len(mixers)
    causal = stack != "encoder" and not isinstance(config, EncoderConfig)
    own = [_mixer(config, mixer, causal=causal) for mixer in mixers]
    parts = [replace(part, copies=own.count(part)) for part in dict.fromkeys(own)]
    each = [_attention(config, "cross-attention")] if cross else []
    each.append(_feed_forward(config))
    parts += [replace(part, copies=layers) for part in each]
    norms = layers * (1 + len(each)) + (config.norm_position == "pre")
    parts.append(_norms(config, "norms", norms))
    return [replace(part, name=f"{stack} {part.name}".strip()) for part in parts]


def _mixer(config: LayerConfig, mixer: MixerConfig, *, causal: bool) -> Part:
    match mixer:
        case FullConfig() | WindowConfig() | BigBirdConfig() | LinearConfig() | PerformerConfig():
            return _attention(config, "self-attention")
        case LinformerConfig():
            return _linformer(config, mixer)
        case RNNConfig(kind=cell) | LSTMConfig(kind=cell) | GRUConfig(kind=cell):
            gates = {"rnn": 1, "gru": 3, "lstm": 4}[cell]
            return _recurrence(config, cell.upper(), gates, directions=1 if causal else 2)
        case ConvolutionConfig(width=width):
            return _convolution(config, width)
        case MambaConfig():
            return _mamba(config, mixer)
        case SSRUConfig():
            return _ssru(config)
        case _ as never:
            assert_never(never)


def _linformer(config: LayerConfig, mixer: LinformerConfig) -> Part:
    part = _attention(config, "self-attention")
    shape = f"{part.shape}, 2 x ({mixer.rank} x {mixer.length})"
    return replace(part, shape=shape, each=part.each + 2 * mixer.rank * mixer.length)


def _recurrence(config: LayerConfig, name: str, gates: int, *, directions: int) -> Part:
    """For each direction two matrices and two biases, then a projection of all."""
    width = config.d_model
    rows = gates * width
    each = directions * (2 * rows * width + 2 * rows) + directions * width * width + width
    shape = f"{2 * directions} x ({rows} x {width}), {width} x {directions * width}"
    return Part(name=name, shape=shape, each=each, copies=1)


def _convolution(config: LayerConfig, places: int) -> Part:
    width = config.d_model
    each = 2 * width * places * width + 2 * width + width * width + width
    shape = f"{2 * width} x {places * width}, {width} x {width}"
    return Part(name="convolution", shape=shape, each=each, copies=1)


def _mamba(config: LayerConfig, mixer: MambaConfig) -> Part:
    """Projections in and out, the convolution, three numbers a head, a gain."""
    width, inner = config.d_model, mixer.expand * config.d_model
    mixed = inner + 2 * mixer.state
    rows = inner + mixed + config.num_heads
    each = rows * width + mixed * mixer.width + mixed + 3 * config.num_heads
    each += inner + width * inner
    shape = f"{rows} x {width}, {mixed} x {mixer.width}, {width} x {inner}"
    return Part(name="Mamba", shape=shape, each=each, copies=1)


def _attention(config: LayerConfig, name: str) -> Part:
    width = config.d_model
    projected = config.num_heads * config.key_dim
    projected += config.kv_heads * (config.key_dim + config.value_dim)
    joined = config.num_heads * config.value_dim
    each = width * projected + joined * width
    if config.attention_bias:
        each += projected
    if config.output_has_bias:
        each += width
    return Part(name=name, shape=f"{projected} x {width}, {width} x {joined}", each=each, copies=1)


def _ssru(config: LayerConfig) -> Part:
    width = config.d_model
    return Part(
        name="SSRU", shape=f"2 x ({width} x {width})", each=2 * width * width + width, copies=1
    )


def _feed_forward(config: LayerConfig) -> Part:
    """Two matrices, of which the first is double in the gated forms, and biases if any."""
    width, inner = config.d_model, config.d_ff
    rows = 2 * inner if config.feed_forward in GATED else inner
    each = rows * width + width * inner
    if config.feed_forward_has_bias:
        each += rows + width
    shape = f"{rows} x {width}, {width} x {inner}"
    if number := config.experts.number:
        each = number * each + number * width
        shape = f"{number} x ({shape}), {number} x {width}"
    return Part(name="experts" if number else "feed-forward", shape=shape, each=each, copies=1)


def _norms(config: LayerConfig, name: str, copies: int) -> Part:
    """Gain and bias, or gain only."""
    width = config.d_model
    match config.norm:
        case LayerNormConfig():
            return Part(name=name, shape=f"2 x {width}", each=2 * width, copies=copies)
        case RMSNormConfig():
            return Part(name=name, shape=f"{width}", each=width, copies=copies)
        case _ as never:
            assert_never(never)


def _matrix(name: str, rows: int, columns: int, *, bias: bool = False, copies: int = 1) -> Part:
    each = rows * columns + (rows if bias else 0)
    return Part(name=name, shape=f"{rows} x {columns}", each=each, copies=copies)


def _vector(name: str, size: int) -> Part:
    return Part(name=name, shape=f"{size}", each=size, copies=1)
