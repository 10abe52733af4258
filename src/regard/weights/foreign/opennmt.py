"""The layout of OpenNMT-py's Transformer, as its releases 2 and 3 name the weights."""

from typing import Final

from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.layouts import Layout, read_layout
from regard.weights.foreign.model import Family, ForeignModel
from regard.weights.foreign.programs import Attention, Program

_TABLE: Final = "embeddings.make_embedding.emb_luts.0"
PROGRAM: Final = Program(
    embeddings=(f"encoder.{_TABLE}", f"decoder.{_TABLE}"),
    projection="generator.0",
    stacks=("encoder.transformer", "decoder.transformer_layers"),
    attentions=(
        (Attention("self_attn", "layer_norm", "self_attention"),),
        (
            Attention("self_attn", "layer_norm_1", "self_attention"),
            Attention("context_attn", "layer_norm_2", "cross_attention"),
        ),
    ),
    inputs=("linear_query", "linear_keys", "linear_values"),
    output="final_linear",
    feed_forward=("w_1", "w_2"),
)
table: Final = PROGRAM.table
_LAYOUT: Final = Layout(
    name="OpenNMT-py",
    table=table,
    source=f"encoder.{_TABLE}.weight",
    target=f"decoder.{_TABLE}.weight",
    projection=PROGRAM.projection,
    inner="encoder.transformer.0.feed_forward.w_1.weight",
    stacks=PROGRAM.stacks,
    norm_position="pre",
    eps=1e-6,
    skipped=(
        "encoder.embeddings.make_embedding.pe.pe",
        "decoder.embeddings.make_embedding.pe.pe",
    ),
)


def read(folder: ForeignFolder) -> ForeignModel:
    """A translator with sinusoidal positions.

    Raises:
        CheckpointError: it is damaged, or not what its settings say.
    """
    return read_layout(_LAYOUT, folder, folder.read())


FAMILY: Final = Family(("opennmt-py",), read)
