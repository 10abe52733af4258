"""A pretrained encoder or decoder as the encoder or the decoder of an encoder-decoder."""

from collections.abc import Mapping

from regard.shapes import Tensor

_ENCODER = {
    "embedding.": "source_embedding.",
    "embedding_norm.": "source_embedding_norm.",
    "positions.": "source_positions.",
    "layers.": "encoder_layers.",
    "norm.": "encoder_norm.",
}
_DECODER = {
    "embedding.": "target_embedding.",
    "embedding_norm.": "target_embedding_norm.",
    "positions.": "target_positions.",
    "layers.": "decoder_layers.",
    "norm.": "decoder_norm.",
    "projection.": "projection.",
    "output_bias": "output_bias",
}
# What an encoder-decoder has no use for.
_HEADS = ("prediction.", "pooler.", "classifier.")
_TYPES = "type_embedding.weight"


def encoder_part(weights: Mapping[str, Tensor], *, scale: float = 1.0) -> dict[str, Tensor]:
    """The weights of a `TextEncoder` by the names that a `Transformer` has for them.

    A text is one segment there, so the vector of the first token type is added to each token's;
    `scale` is what a token's vector, but not that, is multiplied by in the model. Heads are left
    out.
    """
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(_HEADS)}
    types = kept.pop(_TYPES, None)
    if types is not None:
        kept["embedding.weight"] = kept["embedding.weight"] + types[0] / scale
    return _renamed(kept, _ENCODER)


def decoder_part(weights: Mapping[str, Tensor], *, tied: bool) -> dict[str, Tensor]:
    """The weights of a `LanguageModel` by the names that a `Transformer` has for them.

    It has no attention to a memory, so what it gives is not all of a decoder. Where the
    `Transformer`'s projection is not `tied` to the embedding and the model's own is, the
    projection starts as the embedding.
    """
    given = dict(weights)
    if not tied:
        given.setdefault("projection.weight", given["embedding.weight"])
    return _renamed(given, _DECODER)


def _renamed(weights: Mapping[str, Tensor], table: Mapping[str, str]) -> dict[str, Tensor]:
    renamed = {}
    for name, tensor in weights.items():
        (theirs,) = (start for start in table if name.startswith(start))
        renamed[table[theirs] + name.removeprefix(theirs)] = tensor
    return renamed
