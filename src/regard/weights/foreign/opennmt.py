"""The layout of OpenNMT-py's Transformer, as its releases 2 and 3 name the weights."""

from typing import Final

from regard.models.config import TransformerConfig
from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.layouts import read_layout
from regard.weights.foreign.model import Family, ForeignModel
from regard.weights.foreign.parts import attention_sizes
from regard.weights.foreign.table import Row, kinds, same, stacked

_TABLE: Final = "embeddings.make_embedding.emb_luts.0"
_PROJECTION: Final = "generator.0"


def table(config: TransformerConfig) -> list[Row]:
    """Their names and ours; each norm stands before what it is named for here."""
    rows = same(f"encoder.{_TABLE}", "source_embedding", kinds(False))
    if config.tying != "three_way":
        rows += same(f"decoder.{_TABLE}", "target_embedding", kinds(False))
    if config.tying == "none":
        rows += same(_PROJECTION, "projection", kinds(False))
    if config.output_bias:
        rows.append(Row((f"{_PROJECTION}.bias",), "output_bias"))
    for i in range(config.encoder_layers):
        theirs, ours = f"encoder.transformer.{i}", f"encoder_layers.{i}"
        rows += _attention(config, f"{theirs}.self_attn", f"{ours}.self_attention")
        rows += same(f"{theirs}.layer_norm", f"{ours}.self_attention_norm")
        rows += _feed_forward(theirs, ours)
    for i in range(config.decoder_layers):
        theirs, ours = f"decoder.transformer_layers.{i}", f"decoder_layers.{i}"
        rows += _attention(config, f"{theirs}.self_attn", f"{ours}.self_attention")
        rows += same(f"{theirs}.layer_norm_1", f"{ours}.self_attention_norm")
        rows += _attention(config, f"{theirs}.context_attn", f"{ours}.cross_attention")
        rows += same(f"{theirs}.layer_norm_2", f"{ours}.cross_attention_norm")
        rows += _feed_forward(theirs, ours)
    if config.norm_position == "pre":
        rows += same("encoder.layer_norm", "encoder_norm")
        rows += same("decoder.layer_norm", "decoder_norm")
    return rows


def read(folder: ForeignFolder) -> ForeignModel:
    """A translator with sinusoidal positions.

    Raises:
        CheckpointError: it is damaged, or not what its settings say.
    """
    weights = folder.read()
    return read_layout(
        folder,
        weights,
        table,
        name="OpenNMT-py",
        source=f"encoder.{_TABLE}.weight",
        target=f"decoder.{_TABLE}.weight",
        projection=f"{_PROJECTION}.weight",
        inner="encoder.transformer.0.feed_forward.w_1.weight",
        stacks=("encoder.transformer", "decoder.transformer_layers"),
        norm_position="pre",
        eps=1e-6,
        projection_bias=f"{_PROJECTION}.bias" in weights,
        skipped=[f"{side}.embeddings.make_embedding.pe.pe" for side in ("encoder", "decoder")],
    )


def _attention(config: TransformerConfig, theirs: str, ours: str) -> list[Row]:
    parts = [f"{theirs}.linear_{part}" for part in ("query", "keys", "values")]
    return [
        *stacked(parts, f"{ours}.input", attention_sizes(config)),
        *same(f"{theirs}.final_linear", f"{ours}.output"),
    ]


def _feed_forward(theirs: str, ours: str) -> list[Row]:
    return [
        *same(f"{theirs}.feed_forward.w_1", f"{ours}.feed_forward.input"),
        *same(f"{theirs}.feed_forward.w_2", f"{ours}.feed_forward.output"),
        *same(f"{theirs}.feed_forward.layer_norm", f"{ours}.feed_forward_norm"),
    ]


FAMILY: Final = Family(("opennmt-py",), read)
