"""The layout of JoeyNMT's Transformer, as its release 2 names the weights."""

from typing import Final

from regard.models.config import TransformerConfig
from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.layouts import read_layout
from regard.weights.foreign.model import Family, ForeignModel
from regard.weights.foreign.parts import attention_sizes
from regard.weights.foreign.table import Row, kinds, same, stacked

_PROJECTION: Final = "decoder.output_layer"


def table(config: TransformerConfig) -> list[Row]:
    """Their names and ours."""
    rows = same("src_embed.lut", "source_embedding", kinds(False))
    if config.tying != "three_way":
        rows += same("trg_embed.lut", "target_embedding", kinds(False))
    if config.tying == "none":
        rows += same(_PROJECTION, "projection", kinds(False))
    for i in range(config.encoder_layers):
        theirs, ours = f"encoder.layers.{i}", f"encoder_layers.{i}"
        rows += _attention(config, f"{theirs}.src_src_att", f"{ours}.self_attention")
        rows += same(f"{theirs}.layer_norm", f"{ours}.self_attention_norm")
        rows += _feed_forward(theirs, ours)
    for i in range(config.decoder_layers):
        theirs, ours = f"decoder.layers.{i}", f"decoder_layers.{i}"
        rows += _attention(config, f"{theirs}.trg_trg_att", f"{ours}.self_attention")
        rows += same(f"{theirs}.x_layer_norm", f"{ours}.self_attention_norm")
        rows += _attention(config, f"{theirs}.src_trg_att", f"{ours}.cross_attention")
        rows += same(f"{theirs}.dec_layer_norm", f"{ours}.cross_attention_norm")
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
        name="JoeyNMT",
        source="src_embed.lut.weight",
        target="trg_embed.lut.weight",
        projection=f"{_PROJECTION}.weight",
        inner="encoder.layers.0.feed_forward.pwff_layer.0.weight",
        stacks=("encoder.layers", "decoder.layers"),
        norm_position="pre",
        eps=1e-6,
        projection_bias=False,
        skipped=["encoder.pe.pe", "decoder.pe.pe"],
    )


def _attention(config: TransformerConfig, theirs: str, ours: str) -> list[Row]:
    parts = [f"{theirs}.{part}_layer" for part in ("q", "k", "v")]
    return [
        *stacked(parts, f"{ours}.input", attention_sizes(config)),
        *same(f"{theirs}.output_layer", f"{ours}.output"),
    ]


def _feed_forward(theirs: str, ours: str) -> list[Row]:
    return [
        *same(f"{theirs}.feed_forward.pwff_layer.0", f"{ours}.feed_forward.input"),
        *same(f"{theirs}.feed_forward.pwff_layer.3", f"{ours}.feed_forward.output"),
        *same(f"{theirs}.feed_forward.layer_norm", f"{ours}.feed_forward_norm"),
    ]


FAMILY: Final = Family(("joeynmt",), read)
