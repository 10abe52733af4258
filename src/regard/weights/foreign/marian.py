"""Marian and OPUS-MT models as transformers keeps them (MarianMTModel)."""

from itertools import product
from typing import Any, Final

import torch

from regard.models.config import TransformerConfig
from regard.nn.config import LayerNormConfig, SinusoidalConfig
from regard.shapes import Tensor
from regard.text.vocabulary import never_generated
from regard.weights.foreign import transformers_seq2seq as common
from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.keys import Keys
from regard.weights.foreign.model import Family, ForeignModel, OwnModel, Written
from regard.weights.foreign.parts import (
    ACTIVATION_NAMES,
    ACTIVATIONS,
    plain_layers,
    require,
    wanted_weights,
)
from regard.weights.foreign.table import Row, bring, send
from regard.weights.foreign.vocabulary import notes_of_ends, seq2seq_vocabulary, two_sides

EXPORTS: Final = "Marian"
_EPS: Final = 1e-5  # its norms have no setting for it


def table(config: TransformerConfig, source: str, target: str) -> list[Row]:
    """Their names and ours; `source` and `target` are the tables' names."""
    return [*common.embeddings(config, source, target), *common.layers(config)]


def settings(
    keys: Keys, tying: common.Tying, output_bias: bool
) -> tuple[TransformerConfig, int, int, int]:
    """Our config, the sizes of the vocabularies, and the most tokens of a text."""
    common.pass_over(keys)
    keys.settled("normalize_embedding", False)
    keys.settled("static_position_embeddings", True)
    keys.without_effect("share_encoder_decoder_embeddings", "tie_word_embeddings")
    source = keys.whole("vocab_size", 58101)
    target = keys.whole("decoder_vocab_size", source) if tying != "three_way" else source
    keys.without_effect("decoder_vocab_size")
    config = TransformerConfig(
        d_model=keys.whole("d_model", 1024),
        num_heads=common.equal_sides(keys, "attention_heads", 16),
        d_ff=common.equal_sides(keys, "ffn_dim", 4096),
        encoder_layers=keys.layers("encoder_layers", 12),
        decoder_layers=keys.layers("decoder_layers", 12),
        dropout=keys.number("dropout", 0.1),
        attention_dropout=keys.number("attention_dropout", 0.0),
        activation_dropout=keys.number("activation_dropout", 0.0),
        norm=LayerNormConfig(eps=_EPS),
        feed_forward=keys.one_of("activation_function", ACTIVATIONS, "gelu"),
        positions=SinusoidalConfig(layout="halves"),
        tying=tying,
        embedding_scale=keys.flag("scale_embedding", False),
        output_bias=output_bias,
    )
    return config, source, target, keys.whole("max_position_embeddings", 1024)


def read(folder: ForeignFolder) -> ForeignModel:
    """A MarianMTModel.

    Raises:
        CheckpointError: it is damaged, or not what its settings say, or has settings that no
            model here can honour.
    """
    keys, weights = folder.keys(), folder.read()
    shared = keys.flag("share_encoder_decoder_embeddings", True)
    tied = keys.flag("tie_word_embeddings", True)
    tying, source, target = common.tables(weights, shared, tied)
    output_bias = common.has_bias(weights)
    config, source_size, target_size, longest = settings(keys, tying, output_bias)
    keys.close()
    brought = bring(
        table(config, source, target),
        weights,
        wanted_weights(config, source_size, target_size),
        copies=common.copies(weights, tying, source, target),
        skipped=[  # sinusoids, which are computed; a bias of zeros; a table without a side
            "model.encoder.embed_positions.weight",
            "model.decoder.embed_positions.weight",
            *([] if output_bias else [common.BIAS]),
            *common.unused(tying),
        ],
        where=folder.where,
    )
    return ForeignModel(
        family="seq2seq",
        config=config,
        weights=brought,
        vocabularies=two_sides(folder, (source_size, target_size))
        or seq2seq_vocabulary(folder, source_size),
        origin=f"Marian of {folder.where}",
        max_tokens=longest - 1,
        decoding=folder.search(),
        notes=(*notes_of_ends(folder), *weights.notes()),
    )


def write(model: OwnModel[TransformerConfig]) -> Written:
    """A model of ours as a MarianMTModel.

    Marian has all sines before all cosines. A model that has them side by side is written with
    its width in another order, which changes no logit.

    Raises:
        ModelError: Marian has no place for one of its settings.
    """
    config, source, target = model.config, model.source, model.target
    require(EXPORTS, *_expressible(config))
    weights = dict(model.weights)
    if isinstance(config.positions, SinusoidalConfig) and config.positions.layout != "halves":
        weights = _sines_first(weights, config)
    shared = config.tying == "three_way"
    names = (common.SHARED, "") if shared else (common.SOURCE, common.TARGET)
    sent = send(table(config, *names), weights)
    if not config.output_bias:
        sent[common.BIAS] = sent[names[0]].new_zeros(1, target.size)
    values: dict[str, Any] = {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": config.tying != "none",
        "d_model": config.d_model,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "activation_function": ACTIVATION_NAMES[config.feed_forward],
        "scale_embedding": config.embedding_scale,
        "max_position_embeddings": model.max_tokens + 1,
        "is_encoder_decoder": True,
        "pad_token_id": target.pad_id,
        "eos_token_id": target.eos_id,
        "bos_token_id": None,
        "decoder_start_token_id": target.start_id,
        "forced_eos_token_id": target.eos_id,
    }
    generation = {
        "pad_token_id": target.pad_id,
        "eos_token_id": target.eos_id,
        "decoder_start_token_id": target.start_id,
        "forced_eos_token_id": target.eos_id,
        "bad_words_ids": [[number] for number in never_generated(target)],
        "num_beams": model.beam,
        "max_length": model.max_tokens + 1,
    }
    return Written(values, sent, generation)


def _sines_first(weights: dict[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """The same model with the even dimensions of its width before the odd ones."""
    width = config.d_model
    order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
    axes = _along_width(config)
    return {
        name: weight.index_select(axes[name], order) if name in axes else weight
        for name, weight in weights.items()
    }


def _along_width(config: TransformerConfig) -> dict[str, int]:
    """The axis that runs along the model's width, of all weights that have one."""
    axes = {f"{name}.weight": 1 for name in ("source_embedding", "target_embedding", "projection")}
    for side, number in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        parts = ["self_attention", "feed_forward"] + ["cross_attention"] * (side == "decoder")
        for i, part in product(range(number), parts):
            name = f"{side}_layers.{i}.{part}"
            axes[f"{name}.input.weight"] = 1
            for end in (".output.weight", ".output.bias", "_norm.weight", "_norm.bias"):
                axes[name + end] = 0
    return axes


def _expressible(config: TransformerConfig) -> list[tuple[bool, str]]:
    positions = config.positions
    sinusoidal = isinstance(positions, SinusoidalConfig)
    full = isinstance(positions, SinusoidalConfig) and positions.wavelengths != "paper"
    return [
        (config.norm_position == "post", 'model.norm_position = "pre"'),
        *plain_layers(config),
        (config.norm.eps == _EPS, f"model.norm.eps = {config.norm.eps}"),
        (sinusoidal, f'model.positions.kind = "{positions.kind}"'),
        (not full, 'model.positions.wavelengths = "full"'),
        (config.attention_scale is None, f"model.attention_scale = {config.attention_scale}"),
        (not config.embedding_norm, "model.embedding_norm = true"),
        (not config.output_scale, "model.output_scale = true"),
        (config.decoder_mixer == "attention", f'model.decoder_mixer = "{config.decoder_mixer}"'),
    ]


FAMILY: Final = Family(
    ("marian",),
    read,
    ("MarianMTModel", "MarianModel"),
)
