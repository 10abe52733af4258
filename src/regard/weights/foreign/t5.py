"""T5, v1.0 and v1.1, as transformers keeps it: relative positions, RMS norms, no biases."""

from typing import Final

import torch

from regard.models.config import TransformerConfig
from regard.nn.config import FeedForwardKind, RelativeConfig, RMSNormConfig
from regard.weights.foreign.folder import ForeignFolder, ForeignWeights
from regard.weights.foreign.keys import Keys
from regard.weights.foreign.model import Family, ForeignModel
from regard.weights.foreign.parts import attention_sizes, wanted_weights
from regard.weights.foreign.table import Row, bring, kinds, same, stacked
from regard.weights.foreign.vocabulary import notes_of_ends, seq2seq_vocabulary

_FEED_FORWARDS: Final[dict[str, FeedForwardKind]] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "swish",
    "gated-gelu": "geglu_tanh",
    "gated-silu": "swiglu",
}
_SHARED: Final = "shared.weight"
_PROJECTION: Final = "lm_head.weight"
# Its positions set no end; it was trained on so many tokens.
_MAX_TOKENS: Final = 512
_MATRIX: Final = kinds(False)


def table(config: TransformerConfig) -> list[Row]:
    """Their names and ours."""
    rows = [Row((_SHARED,), "source_embedding.weight")]
    if config.tying == "none":
        rows += [
            Row((_SHARED,), "target_embedding.weight"),
            Row((_PROJECTION,), "projection.weight"),
        ]
    for side, ours, number in (
        ("encoder", "source", config.encoder_layers),
        ("decoder", "target", config.decoder_layers),
    ):
        rows += same(f"{side}.final_layer_norm", f"{side}_norm", _MATRIX)
        # The first layer keeps the table that all use.
        rows += same(
            f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
            f"{ours}_positions",
            _MATRIX,
        )
        for i in range(number):
            rows += _layer(config, side, i)
    return rows


def _layer(config: TransformerConfig, side: str, number: int) -> list[Row]:
    theirs, ours = f"{side}.block.{number}.layer", f"{side}_layers.{number}"
    parts = [("SelfAttention", "self_attention")]
    if side == "decoder":
        parts.append(("EncDecAttention", "cross_attention"))
    rows: list[Row] = []
    for place, (attention, our_attention) in enumerate(parts):
        part = f"{theirs}.{place}.{attention}"
        rows += [
            *stacked(
                [f"{part}.q", f"{part}.k", f"{part}.v"],
                f"{ours}.{our_attention}.input",
                attention_sizes(config),
                _MATRIX,
            ),
            *same(f"{part}.o", f"{ours}.{our_attention}.output", _MATRIX),
            *same(f"{theirs}.{place}.layer_norm", f"{ours}.{our_attention}_norm", _MATRIX),
        ]
    last = f"{theirs}.{len(parts)}"
    dense = f"{last}.DenseReluDense"
    if config.feed_forward in ("geglu_tanh", "swiglu"):
        rows += stacked(
            [f"{dense}.wi_0", f"{dense}.wi_1"],
            f"{ours}.feed_forward.input",
            [config.d_ff, config.d_ff],
            _MATRIX,
        )
    else:
        rows += same(f"{dense}.wi", f"{ours}.feed_forward.input", _MATRIX)
    rows += same(f"{dense}.wo", f"{ours}.feed_forward.output", _MATRIX)
    return rows + same(f"{last}.layer_norm", f"{ours}.feed_forward_norm", _MATRIX)


def settings(keys: Keys, weights: ForeignWeights) -> tuple[TransformerConfig, int]:
    """Our config, and the size of the vocabulary."""
    keys.without_effect("classifier_dropout", "n_positions", "output_past")
    # What feed_forward_proj says again.
    keys.without_effect("dense_act_fn", "is_gated_act")
    keys.settled("is_encoder_decoder", True)
    tied = keys.flag("tie_word_embeddings", True)
    projection = weights.get(_PROJECTION)
    own = projection is not None and not (
        _SHARED in weights and torch.equal(projection, weights[_SHARED])
    )
    layers, dropout = keys.layers("num_layers", 6), keys.number("dropout_rate", 0.1)
    head_dim = keys.whole("d_kv", 64)
    config = TransformerConfig(
        d_model=keys.whole("d_model", 512),
        num_heads=keys.whole("num_heads", 8),
        d_k=head_dim,
        d_v=head_dim,
        d_ff=keys.whole("d_ff", 2048),
        encoder_layers=layers,
        decoder_layers=keys.layers("num_decoder_layers", layers),
        dropout=dropout,
        attention_dropout=dropout,
        activation_dropout=dropout,
        attention_bias=False,
        attention_scale=1.0,
        norm=RMSNormConfig(eps=keys.number("layer_norm_epsilon", 1e-6)),
        norm_position="pre",
        feed_forward=keys.one_of("feed_forward_proj", _FEED_FORWARDS, "relu"),
        feed_forward_bias=False,
        positions=RelativeConfig(
            buckets=keys.whole("relative_attention_num_buckets", 32),
            max_distance=keys.whole("relative_attention_max_distance", 128),
        ),
        tying="none" if own else "three_way",
        embedding_scale=False,
        output_scale=keys.flag("scale_decoder_outputs", tied),
    )
    return config, keys.whole("vocab_size", 32128)


def read(folder: ForeignFolder) -> ForeignModel:
    """A T5ForConditionalGeneration.

    Raises:
        CheckpointError: it is damaged, or not what its settings say, or has settings that no
            model here can honour.
    """
    keys, weights = folder.keys(), folder.read()
    config, vocabulary = settings(keys, weights)
    keys.close()
    copies: dict[str, str] = {
        f"{side}.embed_tokens.weight": _SHARED for side in ("encoder", "decoder")
    }
    if config.tying != "none":
        copies[_PROJECTION] = _SHARED
    brought = bring(
        table(config),
        weights,
        wanted_weights(config, vocabulary),
        copies=copies,
        skipped=[  # of the first files, and of no use in any
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        ],
        where=folder.where,
    )
    return ForeignModel(
        family="seq2seq",
        config=config,
        weights=brought,
        vocabularies=seq2seq_vocabulary(folder, vocabulary),
        origin=f"T5 of {folder.where}",
        max_tokens=_MAX_TOKENS,
        decoding=folder.search(),
        notes=(*notes_of_ends(folder), *weights.notes()),
    )


FAMILY: Final = Family(
    ("t5", "mt5"),
    read,
    (
        "T5ForConditionalGeneration",
        "T5WithLMHeadModel",
        "MT5ForConditionalGeneration",
    ),
)
