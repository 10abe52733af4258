"""The layout of JoeyNMT's Transformer, as its release 2 names the weights."""

from typing import Final

from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.layouts import Layout, read_layout
from regard.weights.foreign.model import Family, ForeignModel
from regard.weights.foreign.programs import Attention, Program

PROGRAM: Final = Program(
    embeddings=("src_embed.lut", "trg_embed.lut"),
    projection="decoder.output_layer",
    stacks=("encoder.layers", "decoder.layers"),
    attentions=(
        (Attention("src_src_att", "layer_norm", "self_attention"),),
        (
            Attention("trg_trg_att", "x_layer_norm", "self_attention"),
            Attention("src_trg_att", "dec_layer_norm", "cross_attention"),
        ),
    ),
    inputs=("q_layer", "k_layer", "v_layer"),
    output="output_layer",
    feed_forward=("pwff_layer.0", "pwff_layer.3"),
)
table: Final = PROGRAM.table
_LAYOUT: Final = Layout(
    name="JoeyNMT",
    table=table,
    source="src_embed.lut.weight",
    target="trg_embed.lut.weight",
    projection=PROGRAM.projection,
    inner="encoder.layers.0.feed_forward.pwff_layer.0.weight",
    stacks=PROGRAM.stacks,
    norm_position="pre",
    eps=1e-6,
    has_bias=False,
    skipped=("encoder.pe.pe", "decoder.pe.pe"),
)


def read(folder: ForeignFolder) -> ForeignModel:
    """A translator with sinusoidal positions.

    Raises:
        CheckpointError: it is damaged, or not what its settings say.
    """
    return read_layout(_LAYOUT, folder, folder.read())


FAMILY: Final = Family(("joeynmt",), read)
