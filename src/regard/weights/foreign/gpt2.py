"""GPT-2 as transformers keeps it: matrices transposed, the projection tied to the embedding."""

from typing import Any, Final

from regard.models.config import DecoderConfig
from regard.nn.config import LayerNormConfig, LearnedConfig
from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.keys import Keys
from regard.weights.foreign.model import Family, ForeignModel, OwnModel, Written
from regard.weights.foreign.parts import (
    ACTIVATION_NAMES,
    ACTIVATIONS,
    ends,
    left_out,
    plain_layers,
    require,
    wanted_weights,
)
from regard.weights.foreign.table import Row, bring, kinds, same, send, transposed
from regard.weights.foreign.vocabulary import decoder_vocabulary

EXPORTS: Final = "GPT-2"


def table(config: DecoderConfig) -> list[Row]:
    """Their names and ours."""
    rows = [
        *same("transformer.wte", "embedding", kinds(False)),
        *same("transformer.wpe", "positions", kinds(False)),
        *same("transformer.ln_f", "norm"),
    ]
    for i in range(config.num_layers):
        theirs, ours = f"transformer.h.{i}", f"layers.{i}"
        rows += [
            *same(f"{theirs}.ln_1", f"{ours}.self_attention_norm"),
            *transposed(f"{theirs}.attn.c_attn", f"{ours}.self_attention.input"),
            *transposed(f"{theirs}.attn.c_proj", f"{ours}.self_attention.output"),
            *same(f"{theirs}.ln_2", f"{ours}.feed_forward_norm"),
            *transposed(f"{theirs}.mlp.c_fc", f"{ours}.feed_forward.input"),
            *transposed(f"{theirs}.mlp.c_proj", f"{ours}.feed_forward.output"),
        ]
    if not config.tied:
        rows += same("lm_head", "projection", kinds(False))
    return rows


def settings(keys: Keys) -> tuple[DecoderConfig, int, tuple[str, ...]]:
    """Our config, the size of the vocabulary, and notes."""
    width = keys.whole("n_embd", 768)
    dropout, embedding_dropout = keys.number("resid_pdrop", 0.1), keys.number("embd_pdrop", 0.1)
    keys.settled("scale_attn_by_inverse_layer_idx", False)
    # Whether scores are computed in float32 changes nothing in float32; the rest is of a head
    # for summaries, or says again what n_positions says.
    keys.without_effect("reorder_and_upcast_attn", "n_ctx", "summary_activation")
    keys.without_effect("summary_first_dropout", "summary_proj_to_labels", "summary_type")
    keys.without_effect("summary_use_proj")
    config = DecoderConfig(
        d_model=width,
        num_layers=keys.layers("n_layer", 12),
        num_heads=keys.whole("n_head", 12),
        d_ff=keys.whole("n_inner", 4 * width),
        dropout=dropout,
        attention_dropout=keys.number("attn_pdrop", 0.1),
        attention_scale=None if keys.flag("scale_attn_weights", True) else 1.0,
        norm=LayerNormConfig(eps=keys.number("layer_norm_epsilon", 1e-5)),
        feed_forward=keys.one_of("activation_function", ACTIVATIONS, "gelu_new"),
        positions=LearnedConfig(max_positions=keys.whole("n_positions", 1024)),
        tied=keys.flag("tie_word_embeddings", True),
    )
    notes: tuple[str, ...] = ()
    if embedding_dropout != dropout:
        notes = (f"embd_pdrop = {embedding_dropout} is resid_pdrop = {dropout} here",)
    return config, keys.whole("vocab_size", 50257), notes


def read(folder: ForeignFolder) -> ForeignModel:
    """A GPT2LMHeadModel or GPT2Model.

    Raises:
        CheckpointError: it is damaged, or not what its settings say, or has settings that no
            model here can honour.
    """
    keys = folder.keys()
    config, vocabulary, notes = settings(keys)
    keys.close()
    weights = folder.read()
    if not weights.has("transformer."):
        weights = weights.with_prefix("transformer.", but=("lm_head.",))
    brought = bring(
        table(config),
        weights,
        wanted_weights(config, vocabulary),
        copies={"lm_head.weight": "transformer.wte.weight"} if config.tied else {},
        skipped=[  # masks
            f"transformer.h.{i}.attn.{name}"
            for i in range(config.num_layers)
            for name in ("bias", "masked_bias")
        ],
        where=folder.where,
    )
    found = decoder_vocabulary(folder, vocabulary)
    return ForeignModel(
        family="decoder",
        config=config,
        weights=brought,
        vocabularies=found,
        origin=f"GPT-2 of {folder.where}",
        max_tokens=config.longest or 0,
        notes=(*notes, *weights.notes()),
    )


def write(model: OwnModel[DecoderConfig]) -> Written:
    """A model of ours as a GPT2LMHeadModel.

    Raises:
        ModelError: GPT-2 has no place for one of its settings.
    """
    config = model.config
    require(EXPORTS, *_expressible(config))
    control = model.source
    values: dict[str, Any] = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": control.size,
        "n_embd": config.d_model,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.d_ff,
        "n_positions": config.longest,
        "activation_function": ACTIVATION_NAMES[config.feed_forward],
        "layer_norm_epsilon": config.norm.eps,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "scale_attn_weights": config.attention_scale is None,
        "tie_word_embeddings": config.tied,
        "bos_token_id": control.start_id,
        "eos_token_id": ends(control),
        "pad_token_id": control.pad_id,
    }
    notes = left_out(activation_dropout=config.activation_dropout)
    return Written(values, send(table(config), model.weights), notes=notes)


def _expressible(config: DecoderConfig) -> list[tuple[bool, str]]:
    return [
        *plain_layers(config),
        (config.norm_position == "pre", 'model.norm_position = "post"'),
        (
            isinstance(config.positions, LearnedConfig),
            f'model.positions.kind = "{config.positions.kind}"',
        ),
        (
            config.attention_scale in (None, 1.0),
            f"model.attention_scale = {config.attention_scale}",
        ),
        (not config.window, f"model.window = {config.window}"),
        (not config.embedding_scale, "model.embedding_scale = true"),
        (not config.embedding_norm, "model.embedding_norm = true"),
        (not config.output_bias, "model.output_bias = true"),
    ]


FAMILY: Final = Family(
    ("gpt2",),
    read,
    ("GPT2LMHeadModel", "GPT2Model"),
)
