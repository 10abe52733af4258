"""CTranslate2's names of weights and ours, for a translator and for a language model."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.models.config import DecoderConfig, LayerConfig, TransformerConfig
from regard.nn.config import GATED, LearnedConfig, RelativeConfig, RMSNormConfig
from regard.shapes import Tensor
from regard.weights.foreign.table import Row, Stacked

Config = TransformerConfig | DecoderConfig


@dataclass(frozen=True)
class _Repeated:
    """One of ours that has several places there."""

    places: int

    def bring(self, parts: Sequence[Tensor]) -> Tensor:
        """The first of them."""
        return parts[0]

    def send(self, whole: Tensor) -> list[Tensor]:
        """The same everywhere."""
        return [whole] * self.places


def table(config: Config) -> list[Row]:
    """CTranslate2's names and ours."""
    if isinstance(config, DecoderConfig):
        return _decoder_table(config)
    source, target = ("source", "encoder", "embeddings_0"), ("target", "decoder", "embeddings")
    rows = []
    ends = [f"{side}/{name}/weight" for _, side, name in (source, target)]
    ends.append("decoder/projection/weight")
    match config.tying:
        case "three_way":
            rows.append(Row(tuple(ends), "source_embedding.weight", _Repeated(3)))
        case "two_way":
            rows.append(Row((ends[0],), "source_embedding.weight"))
            rows.append(Row(tuple(ends[1:]), "target_embedding.weight", _Repeated(2)))
        case "none":
            names = ("source_embedding", "target_embedding", "projection")
            rows += [Row((end,), f"{n}.weight") for end, n in zip(ends, names, strict=True)]
    depths = (config.encoder_layers, config.decoder_layers)
    for (ours, side, _), layers in zip((source, target), depths, strict=True):
        rows += _stack(config, side, f"{ours}_", layers, f"{side}_layers", f"{side}_norm")
    return rows + _output_bias(config)


def _decoder_table(config: DecoderConfig) -> list[Row]:
    ends = ("decoder/embeddings/weight", "decoder/projection/weight")
    if config.tied:
        rows = [Row(ends, "embedding.weight", _Repeated(2))]
    else:
        rows = [Row((ends[0],), "embedding.weight"), Row((ends[1],), "projection.weight")]
    rows += _stack(config, "decoder", "", config.num_layers, "layers", "norm")
    return rows + _output_bias(config)


def _output_bias(config: Config) -> list[Row]:
    return [Row(("decoder/projection/bias",), "output_bias")] if config.output_bias else []


def _stack(
    config: Config, side: str, prefix: str, layers: int, ours: str, final_norm: str
) -> list[Row]:
    """The layers of one side and what stands around them."""
    rows = []
    if isinstance(config.positions, LearnedConfig):
        table = f"{side}/position_encodings/encodings"
        rows.append(Row((table,), f"{prefix}positions.weight"))
    if isinstance(config.positions, RelativeConfig):
        places = [f"{side}/layer_{i}/self_attention/relative_attention_bias" for i in range(layers)]
        rows.append(Row(tuple(places), f"{prefix}positions.weight", _Repeated(layers)))
    if config.embedding_norm:
        rows += _norm(config, f"{side}/layernorm_embedding", f"{prefix}embedding_norm")
    if config.norm_position == "pre":
        rows += _norm(config, f"{side}/layer_norm", final_norm)
    for i in range(layers):
        theirs, layer = f"{side}/layer_{i}", f"{ours}.{i}"
        rows += _attention(
            config, f"{theirs}/self_attention", f"{layer}.self_attention", cross=False
        )
        if isinstance(config, TransformerConfig) and side == "decoder":
            rows += _attention(
                config, f"{theirs}/attention", f"{layer}.cross_attention", cross=True
            )
        rows += _feed_forward(config, f"{theirs}/ffn", f"{layer}.feed_forward")
    return rows


def _attention(config: LayerConfig, theirs: str, ours: str, *, cross: bool) -> list[Row]:
    rows = _norm(config, f"{theirs}/layer_norm", f"{ours}_norm")
    queries = config.num_heads * config.key_dim
    keys_values = config.kv_heads * (config.key_dim + config.value_dim)
    for kind in _kinds(config.attention_bias):
        if cross:
            parts = tuple(f"{theirs}/linear_{part}/{kind}" for part in (0, 1))
            rows.append(Row(parts, f"{ours}.input.{kind}", Stacked((queries, keys_values))))
        else:
            rows.append(Row((f"{theirs}/linear_0/{kind}",), f"{ours}.input.{kind}"))
    last = 2 if cross else 1
    for kind in _kinds(config.output_has_bias):
        rows.append(Row((f"{theirs}/linear_{last}/{kind}",), f"{ours}.output.{kind}"))
    return rows


def _feed_forward(config: LayerConfig, theirs: str, ours: str) -> list[Row]:
    rows = _norm(config, f"{theirs}/layer_norm", f"{ours}_norm")
    for kind in _kinds(config.feed_forward_has_bias):
        if config.feed_forward in GATED:
            parts = (f"{theirs}/linear_0/{kind}", f"{theirs}/linear_0_noact/{kind}")
            rows.append(Row(parts, f"{ours}.input.{kind}", Stacked((config.d_ff,) * 2)))
        else:
            rows.append(Row((f"{theirs}/linear_0/{kind}",), f"{ours}.input.{kind}"))
        rows.append(Row((f"{theirs}/linear_1/{kind}",), f"{ours}.output.{kind}"))
    return rows


def _norm(config: LayerConfig, theirs: str, ours: str) -> list[Row]:
    rows = [Row((f"{theirs}/gamma",), f"{ours}.weight")]
    if not isinstance(config.norm, RMSNormConfig):
        rows.append(Row((f"{theirs}/beta",), f"{ours}.bias"))
    return rows


def _kinds(bias: bool) -> tuple[str, ...]:
    return ("weight", "bias") if bias else ("weight",)
