"""BART as transformers keeps it: learned positions from the third row on, a norm on embeddings."""

from typing import Final

from regard.models.config import TransformerConfig
from regard.nn.config import LayerNormConfig, LearnedConfig
from regard.weights.foreign import transformers_seq2seq as common
from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.keys import Keys
from regard.weights.foreign.model import Family, ForeignModel
from regard.weights.foreign.parts import ACTIVATIONS, wanted_weights
from regard.weights.foreign.table import Row, WithoutFirst, bring, kinds, same
from regard.weights.foreign.vocabulary import notes_of_ends, seq2seq_vocabulary

_OFFSET: Final = 2


def table(config: TransformerConfig, source: str, target: str) -> list[Row]:
    """Their names and ours."""
    rows = [*common.embeddings(config, source, target), *common.layers(config)]
    for theirs, ours in (("encoder", "source"), ("decoder", "target")):
        rows += same(
            f"model.{theirs}.embed_positions",
            f"{ours}_positions",
            kinds(False),
            WithoutFirst(_OFFSET),
        )
        rows += same(f"model.{theirs}.layernorm_embedding", f"{ours}_embedding_norm")
    return rows


def settings(
    keys: Keys, tying: common.Tying, output_bias: bool
) -> tuple[TransformerConfig, int, int]:
    """Our config, the size of the vocabulary, and the most tokens of a text."""
    common.pass_over(keys)
    keys.settled("normalize_embedding", True)
    keys.settled("static_position_embeddings", False)
    keys.without_effect("tie_word_embeddings")
    longest = keys.whole("max_position_embeddings", 1024)
    config = TransformerConfig(
        d_model=keys.whole("d_model", 1024),
        num_heads=common.equal_sides(keys, "attention_heads", 16),
        d_ff=common.equal_sides(keys, "ffn_dim", 4096),
        encoder_layers=keys.layers("encoder_layers", 12),
        decoder_layers=keys.layers("decoder_layers", 12),
        dropout=keys.number("dropout", 0.1),
        attention_dropout=keys.number("attention_dropout", 0.0),
        activation_dropout=keys.number("activation_dropout", 0.0),
        norm=LayerNormConfig(eps=1e-5),
        feed_forward=keys.one_of("activation_function", ACTIVATIONS, "gelu"),
        positions=LearnedConfig(max_positions=longest),
        tying=tying,
        embedding_scale=keys.flag("scale_embedding", False),
        embedding_norm=True,
        output_bias=output_bias,
    )
    return config, keys.whole("vocab_size", 50265), longest


def read(folder: ForeignFolder) -> ForeignModel:
    """A BartForConditionalGeneration.

    Raises:
        CheckpointError: it is damaged, or not what its settings say, or has settings that no
            model here can honour.
    """
    keys, weights = folder.keys(), folder.read()
    tied = keys.flag("tie_word_embeddings", True)
    tying, source, target = common.tables(weights, True, tied)
    output_bias = common.has_bias(weights)
    config, vocabulary, longest = settings(keys, tying, output_bias)
    keys.close()
    brought = bring(
        table(config, source, target),
        weights,
        wanted_weights(config, vocabulary),
        copies=common.copies(weights, tying, source, target),
        skipped=[*([] if output_bias else [common.BIAS]), *common.unused(tying)],
        where=folder.where,
    )
    return ForeignModel(
        family="seq2seq",
        config=config,
        weights=brought,
        vocabularies=seq2seq_vocabulary(folder, vocabulary, begins=True),
        origin=f"BART of {folder.where}",
        max_tokens=longest - 2,
        decoding=folder.search(),
        notes=(*notes_of_ends(folder), *weights.notes()),
    )


FAMILY: Final = Family(
    ("bart",),
    read,
    ("BartForConditionalGeneration", "BartModel"),
)
