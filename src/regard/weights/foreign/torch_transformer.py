"""A state dict of a model around torch.nn.Transformer, named as in PyTorch's own tutorial."""

from typing import Final

from regard.errors import CheckpointError
from regard.models.config import TransformerConfig
from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.layouts import Layout, read_layout
from regard.weights.foreign.model import Family, ForeignModel
from regard.weights.foreign.table import Row, kinds, same

_SOURCE: Final = "src_tok_emb.embedding"
_TARGET: Final = "tgt_tok_emb.embedding"
_PROJECTION: Final = "generator"


def table(config: TransformerConfig) -> list[Row]:
    """Their names and ours."""
    rows = same(_SOURCE, "source_embedding", kinds(False))
    if config.tying != "three_way":
        rows += same(_TARGET, "target_embedding", kinds(False))
    if config.tying == "none":
        rows += same(_PROJECTION, "projection", kinds(False))
    if config.output_bias:
        rows.append(Row((f"{_PROJECTION}.bias",), "output_bias"))
    for side, number in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        attentions = {"self_attn": "self_attention"}
        if side == "decoder":
            attentions["multihead_attn"] = "cross_attention"
        for i in range(number):
            theirs, ours = f"transformer.{side}.layers.{i}", f"{side}_layers.{i}"
            for place, (attention, our_attention) in enumerate(attentions.items(), 1):
                for kind in ("weight", "bias"):
                    name = f"{theirs}.{attention}.in_proj_{kind}"
                    rows.append(Row((name,), f"{ours}.{our_attention}.input.{kind}"))
                rows += same(f"{theirs}.{attention}.out_proj", f"{ours}.{our_attention}.output")
                rows += same(f"{theirs}.norm{place}", f"{ours}.{our_attention}_norm")
            rows += same(f"{theirs}.linear1", f"{ours}.feed_forward.input")
            rows += same(f"{theirs}.linear2", f"{ours}.feed_forward.output")
            rows += same(f"{theirs}.norm{len(attentions) + 1}", f"{ours}.feed_forward_norm")
        if config.norm_position == "pre":
            rows += same(f"transformer.{side}.norm", f"{side}_norm")
    return rows


_LAYOUT: Final = Layout(
    name="a torch.nn.Transformer",
    table=table,
    source=f"{_SOURCE}.weight",
    target=f"{_TARGET}.weight",
    projection=_PROJECTION,
    inner="transformer.encoder.layers.0.linear1.weight",
    stacks=("transformer.encoder.layers", "transformer.decoder.layers"),
    norm_position="post",
    eps=1e-5,
    skipped=("positional_encoding.pos_embedding",),
)


def read(folder: ForeignFolder) -> ForeignModel:
    """A translator around nn.Transformer, with sinusoidal positions.

    Raises:
        CheckpointError: it is damaged, or not what its settings say, or has norms that no model
            here has.
    """
    weights = folder.read()
    post = folder.values.get("norm_position", "post") == "post"
    if post and weights.has("transformer.encoder.norm."):
        raise CheckpointError(
            "it has transformer.encoder.norm after layers that end in a norm themselves, and no "
            "model here has both",
            where=folder.where,
            hint="If it was made with norm_first=True, say norm_position = pre in config.json.",
        )
    return read_layout(_LAYOUT, folder, weights)


FAMILY: Final = Family(("torch-transformer",), read)
