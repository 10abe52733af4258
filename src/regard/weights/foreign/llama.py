"""LLaMA, Mistral and Qwen2 as transformers keeps them: one form, with switches."""

from typing import Any, Final, cast

from regard.models.config import DecoderConfig
from regard.nn.config import RMSNormConfig, RotaryConfig
from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.keys import Keys
from regard.weights.foreign.llama_rotary import read_rotary, rope_parameters
from regard.weights.foreign.model import Family, ForeignModel, OwnModel, Written
from regard.weights.foreign.parts import (
    ACTIVATION_NAMES,
    GATED_ACTIVATIONS,
    attention_sizes,
    ends,
    left_out,
    require,
    wanted_weights,
)
from regard.weights.foreign.table import Row, bring, kinds, same, send, stacked
from regard.weights.foreign.vocabulary import decoder_vocabulary

EXPORTS: Final = "LLaMA"
_NAMES: Final = {"llama": "LLaMA", "mistral": "Mistral", "qwen2": "Qwen2"}
_CLASSES: Final = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}
_VOCABULARIES: Final = {"llama": 32000, "mistral": 32000, "qwen2": 151936}
_POSITIONS: Final = {"llama": 2048, "mistral": 131072, "qwen2": 32768}
_USUAL_WINDOW: Final = 4096
_FULL: Final = "full_attention"
_SLIDING: Final = "sliding_attention"


def table(config: DecoderConfig) -> list[Row]:
    """Their names and ours."""
    matrix = kinds(False)
    rows = [
        *same("model.embed_tokens", "embedding", matrix),
        *same("model.norm", "norm", matrix),
    ]
    sizes, bias = attention_sizes(config), kinds(config.attention_bias)
    feed_forward = kinds(config.feed_forward_has_bias)
    for i in range(config.num_layers):
        theirs, ours = f"model.layers.{i}", f"layers.{i}"
        attention, mlp = f"{theirs}.self_attn", f"{theirs}.mlp"
        rows += [
            *same(f"{theirs}.input_layernorm", f"{ours}.self_attention_norm", matrix),
            *stacked(
                [f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj"],
                f"{ours}.self_attention.input",
                sizes,
                bias,
            ),
            *same(
                f"{attention}.o_proj",
                f"{ours}.self_attention.output",
                kinds(config.output_has_bias),
            ),
            *same(f"{theirs}.post_attention_layernorm", f"{ours}.feed_forward_norm", matrix),
            *stacked(
                [f"{mlp}.gate_proj", f"{mlp}.up_proj"],
                f"{ours}.feed_forward.input",
                [config.d_ff, config.d_ff],
                feed_forward,
            ),
            *same(f"{mlp}.down_proj", f"{ours}.feed_forward.output", feed_forward),
        ]
    if not config.tied:
        rows += same("lm_head", "projection", matrix)
    return rows


def settings(keys: Keys, kind: str) -> tuple[DecoderConfig, int, int]:
    """Our config, the size of the vocabulary, and the most tokens of a text."""
    heads, layers = keys.whole("num_attention_heads", 32), keys.layers("num_hidden_layers", 32)
    width, longest = (
        keys.whole("hidden_size", 4096),
        keys.whole("max_position_embeddings", _POSITIONS[kind]),
    )
    head_dim = keys.whole("head_dim", width // max(heads, 1))
    window, window_from = _window(keys, kind, layers)
    bias = {"llama": False, "mistral": False, "qwen2": True}[kind]
    feed_forward_bias = False
    if kind == "llama":
        bias = keys.flag("attention_bias", False)
        feed_forward_bias = keys.flag("mlp_bias", False)
    # How matrices were split among devices while it was trained.
    keys.without_effect("pretraining_tp")
    config = DecoderConfig(
        d_model=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=keys.whole("num_key_value_heads", heads),
        d_k=head_dim,
        d_v=head_dim,
        d_ff=keys.whole("intermediate_size", 11008),
        dropout=0.0,
        attention_dropout=keys.number("attention_dropout", 0.0),
        attention_bias=bias,
        attention_output_bias=bias and kind == "llama",
        norm=RMSNormConfig(eps=keys.number("rms_norm_eps", 1e-6)),
        feed_forward=keys.one_of("hidden_act", GATED_ACTIVATIONS, "silu"),
        feed_forward_bias=feed_forward_bias,
        positions=read_rotary(keys, longest),
        tied=keys.flag("tie_word_embeddings", False),
        window=window,
        window_from=window_from,
    )
    return config, keys.whole("vocab_size", _VOCABULARIES[kind]), longest


def read(folder: ForeignFolder) -> ForeignModel:
    """A LlamaForCausalLM, MistralForCausalLM or Qwen2ForCausalLM.

    Raises:
        CheckpointError: it is damaged, or not what its settings say, or has settings that no
            model here can honour.
    """
    keys = folder.keys()
    kind = folder.kind
    config, vocabulary, longest = settings(keys, kind)
    keys.close()
    weights = folder.read()
    if not weights.has("model."):
        weights = weights.with_prefix("model.", but=("lm_head.",))
    brought = bring(
        table(config),
        weights,
        wanted_weights(config, vocabulary),
        copies={"lm_head.weight": "model.embed_tokens.weight"} if config.tied else {},
        skipped=[  # phases, which are computed
            "model.rotary_emb.inv_freq",
            *(f"model.layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(config.num_layers)),
        ],
        where=folder.where,
    )
    return ForeignModel(
        family="decoder",
        config=config,
        weights=brought,
        vocabularies=decoder_vocabulary(folder, vocabulary),
        origin=f"{_NAMES[kind]} of {folder.where}",
        max_tokens=longest,
        notes=weights.notes(),
    )


def write(model: OwnModel[DecoderConfig]) -> Written:
    """A model of ours as a LlamaForCausalLM, or one of its kin where it needs their switches.

    Raises:
        ModelError: LLaMA has no place for one of its settings.
    """
    config, control = model.config, model.source
    kind = _kind(config)
    require(EXPORTS, *_expressible(config, kind))
    positions = cast(RotaryConfig, config.positions)  # as anything else was refused
    longest = max(model.max_tokens, 1)
    values: dict[str, Any] = {
        "model_type": kind,
        "architectures": [_CLASSES[kind]],
        "vocab_size": control.size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.key_dim,
        "intermediate_size": config.d_ff,
        "hidden_act": ACTIVATION_NAMES[config.feed_forward],
        "max_position_embeddings": longest,
        "rms_norm_eps": config.norm.eps,
        "attention_dropout": config.attention_dropout,
        "rope_parameters": rope_parameters(positions, config.key_dim),
        "tie_word_embeddings": config.tied,
        "bos_token_id": control.start_id,
        "eos_token_id": ends(control),
        "pad_token_id": control.pad_id,
    }
    match kind:
        case "llama":
            values["attention_bias"] = config.attention_bias
            values["mlp_bias"] = config.feed_forward_has_bias
        case "mistral":
            values["sliding_window"] = config.window
        case _:
            values |= _qwen_window(config)
    notes = left_out(dropout=config.dropout, activation_dropout=config.activation_dropout)
    return Written(values, send(table(config), model.weights), notes=notes)


def _window(keys: Keys, kind: str, layers: int) -> tuple[int, int]:
    """How far back a token looks (0: to the beginning), and from which layer on."""
    types = keys.texts("layer_types")
    match kind:
        case "mistral":
            if types:
                keys.refuse("layer_types", "null: Mistral's layers are all of one kind")
            return _width(keys), 0
        case "qwen2":
            window, used = _width(keys), keys.flag("use_sliding_window", False)
            first = keys.whole("max_window_layers", 28)
            if not used:
                window = 0
            if not types:
                types = [
                    _SLIDING if window and number >= first else _FULL for number in range(layers)
                ]
        case _:
            window, types = 0, types or [_FULL] * layers
    first = types.index(_SLIDING) if _SLIDING in types else layers
    if types != [_FULL] * first + [_SLIDING] * (layers - first):
        keys.refuse("layer_types", f"{layers} layers, the first {_FULL} and all others {_SLIDING}")
    if first < layers and not window:
        keys.refuse("layer_types", f"{_FULL} only, as there is no sliding window")
    return (window, first) if first < layers else (0, 0)


def _width(keys: Keys) -> int:
    """The window that is said; none where that is null, and the usual one where nothing is."""
    return keys.whole("sliding_window", 0 if keys.says("sliding_window") else _USUAL_WINDOW)


def _kind(config: DecoderConfig) -> str:
    """Which of the three has the switches that a model needs."""
    if config.attention_bias and not config.output_has_bias:
        return "qwen2"
    return "mistral" if config.window else "llama"


def _qwen_window(config: DecoderConfig) -> dict[str, Any]:
    if not config.window:
        return {"use_sliding_window": False}
    return {
        "use_sliding_window": True,
        "sliding_window": config.window,
        "max_window_layers": config.window_from,
    }


def _expressible(config: DecoderConfig, kind: str) -> list[tuple[bool, str]]:
    positions = config.positions
    rotary, dim, layout = isinstance(positions, RotaryConfig), config.key_dim, "halves"
    if isinstance(positions, RotaryConfig):
        layout = positions.layout
        dim = config.key_dim if positions.dim is None else positions.dim
    return [
        (isinstance(config.norm, RMSNormConfig), 'model.norm.kind = "layer"'),
        (config.norm_position == "pre", 'model.norm_position = "post"'),
        (rotary, f'model.positions.kind = "{positions.kind}"'),
        (dim == config.key_dim, f"model.positions.dim = {dim}"),
        (layout == "halves", 'model.positions.layout = "interleaved"'),
        (
            config.feed_forward in ("swiglu", "geglu", "geglu_tanh"),
            f'model.feed_forward = "{config.feed_forward}"',
        ),
        (kind == "llama" or not config.feed_forward_has_bias, "model.feed_forward_bias = true"),
        (
            config.attention_bias or not config.output_has_bias,
            "model.attention_output_bias = true without model.attention_bias",
        ),
        (
            kind != "mistral" or not (config.attention_bias or config.window_from),
            f"model.window = {config.window} with these biases or window_from",
        ),
        (config.value_dim == config.key_dim, f"model.d_v = {config.value_dim}"),
        (config.attention_scale is None, f"model.attention_scale = {config.attention_scale}"),
        (not config.embedding_scale, "model.embedding_scale = true"),
        (not config.embedding_norm, "model.embedding_norm = true"),
        (not config.output_bias, "model.output_bias = true"),
    ]


FAMILY: Final = Family(
    ("llama", "mistral", "qwen2"),
    read,
    (
        *_CLASSES.values(),
        "LLaMAForCausalLM",
        "LlamaModel",
        "MistralModel",
        "Qwen2Model",
    ),
)
