"""BERT and RoBERTa as transformers keeps them, with heads to fill in tokens and to classify."""

from typing import Any, Final

from regard.models.config import EncoderConfig
from regard.nn.config import LayerNormConfig, LearnedConfig
from regard.shapes import Tensor
from regard.weights.foreign.folder import ForeignFolder, ForeignWeights
from regard.weights.foreign.keys import Keys, labels, token
from regard.weights.foreign.model import ForeignModel, OwnModel, Written
from regard.weights.foreign.parts import (
    ACTIVATION_NAMES,
    ACTIVATIONS,
    attention_sizes,
    require,
    wanted_weights,
)
from regard.weights.foreign.sentence import embedding_settings, longest_text
from regard.weights.foreign.table import (
    Copied,
    Row,
    WithoutFirst,
    bring,
    kinds,
    same,
    send,
    stacked,
)
from regard.weights.foreign.vocabulary import (
    BERT_NAMES,
    ROBERTA_NAMES,
    Names,
    encoder_vocabulary,
)

BERT: Final = ("bert",)
ROBERTA: Final = ("roberta", "xlm-roberta", "camembert")
MODEL_TYPES: Final = (*BERT, *ROBERTA)
EXPORTS: Final = "BERT"

WORDS: Final = "embeddings.word_embeddings.weight"
_TYPES: Final = "embeddings.token_type_embeddings.weight"
_SETTLED_ACTIVATION: Final = "gelu, which the head that fills in tokens has here"


def table(config: EncoderConfig, *, offset: int = 0) -> list[Row]:
    """The encoder: their names and ours; positions start after `offset` rows of their table."""
    positions = WithoutFirst(offset) if offset else Copied()
    rows = [
        *same("embeddings.word_embeddings", "embedding", kinds(False)),
        *same("embeddings.position_embeddings", "positions", kinds(False), positions),
        *same("embeddings.LayerNorm", "embedding_norm"),
    ]
    if config.token_types:
        rows += same("embeddings.token_type_embeddings", "type_embedding", kinds(False))
    for i in range(config.num_layers):
        theirs, ours = f"encoder.layer.{i}", f"layers.{i}"
        attention = f"{theirs}.attention.self"
        rows += [
            *stacked(
                [f"{attention}.query", f"{attention}.key", f"{attention}.value"],
                f"{ours}.self_attention.input",
                attention_sizes(config),
            ),
            *same(f"{theirs}.attention.output.dense", f"{ours}.self_attention.output"),
            *same(f"{theirs}.attention.output.LayerNorm", f"{ours}.self_attention_norm"),
            *same(f"{theirs}.intermediate.dense", f"{ours}.feed_forward.input"),
            *same(f"{theirs}.output.dense", f"{ours}.feed_forward.output"),
            *same(f"{theirs}.output.LayerNorm", f"{ours}.feed_forward_norm"),
        ]
    return rows


def bert_heads(config: EncoderConfig, classes: int) -> list[Row]:
    """BERT's heads: their names and ours."""
    rows: list[Row] = []
    if config.prediction_head:
        rows += [
            *same("cls.predictions.transform.dense", "prediction.dense"),
            *same("cls.predictions.transform.LayerNorm", "prediction.norm"),
            Row(("cls.predictions.bias",), "prediction.bias"),
        ]
    if config.pooler:
        rows += same("pooler.dense", "pooler")
    return rows + (same("classifier", "classifier") if classes else [])


def roberta_heads(config: EncoderConfig, classes: int) -> list[Row]:
    """RoBERTa's: a classifier's first layer is the pooler here."""
    rows: list[Row] = []
    if config.prediction_head:
        rows += [
            *same("lm_head.dense", "prediction.dense"),
            *same("lm_head.layer_norm", "prediction.norm"),
            Row(("lm_head.bias",), "prediction.bias"),
        ]
    if classes:
        return rows + same("classifier.dense", "pooler") + same("classifier.out_proj", "classifier")
    return rows + (same("pooler.dense", "pooler") if config.pooler else [])


def settings(keys: Keys, *, offset: int, fills: bool, pooler: bool) -> tuple[EncoderConfig, int]:
    """Our config, and the size of the vocabulary."""
    keys.settled("position_embedding_type", "absolute")
    # Of training alone.
    keys.without_effect("classifier_dropout", "gradient_checkpointing")
    if fills:
        keys.settled("tie_word_embeddings", True)
    keys.without_effect("tie_word_embeddings")
    activation = keys.one_of("hidden_act", ACTIVATIONS, "gelu")
    if fills and activation != "gelu":
        keys.refuse("hidden_act", _SETTLED_ACTIVATION)
    longest = keys.whole("max_position_embeddings", 512)
    if longest <= offset:
        keys.refuse("max_position_embeddings", f"more than {offset}")
    config = EncoderConfig(
        d_model=keys.whole("hidden_size", 768),
        num_layers=keys.layers("num_hidden_layers", 12),
        num_heads=keys.whole("num_attention_heads", 12),
        d_ff=keys.whole("intermediate_size", 3072),
        dropout=keys.number("hidden_dropout_prob", 0.1),
        attention_dropout=keys.number("attention_probs_dropout_prob", 0.1),
        norm=LayerNormConfig(eps=keys.number("layer_norm_eps", 1e-12)),
        feed_forward=activation,
        positions=LearnedConfig(max_positions=longest - offset),
        token_types=keys.whole("type_vocab_size", 2),
        prediction_head=fills,
        pooler=pooler,
    )
    return config, keys.whole("vocab_size", 30522)


def read(folder: ForeignFolder) -> ForeignModel:
    """BERT or RoBERTa: the bare model, with a head for masked tokens, or a classifier.

    Raises:
        CheckpointError: it is damaged, or not what its settings say, or has settings that no
            model here can honour.
    """
    if folder.values.get("model_type") in ROBERTA:
        return _read_roberta(folder)
    weights, notes = _modern(folder.read().without_prefix("bert.")), []
    if weights.has("cls.seq_relationship."):
        notes.append("left out: the head that tells whether one sentence follows another")
        weights = weights.but("cls.seq_relationship.weight", "cls.seq_relationship.bias")
    keys = folder.keys()
    config, vocabulary = settings(
        keys,
        offset=0,
        fills=weights.has("cls.predictions."),
        pooler=weights.has("pooler."),
    )
    keys.close()
    classes = weights.rows("classifier.weight") if "classifier.weight" in weights else 0
    return _finish(
        folder,
        weights,
        config,
        [*table(config), *bert_heads(config, classes)],
        vocabulary,
        classes,
        name="BERT",
        copies={
            "cls.predictions.decoder.weight": WORDS,
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        names=BERT_NAMES,
        notes=notes,
    )


def _read_roberta(folder: ForeignFolder) -> ForeignModel:
    """The same with positions that begin after the padding's id, and other heads."""
    weights, notes = _modern(folder.read().without_prefix("roberta.")), []
    padding = token(folder.values, "pad_token_id")
    offset = 2 if padding is None else padding + 1
    classifies = "classifier.out_proj.weight" in weights
    if classifies and weights.has("pooler."):
        notes.append("left out: the pooler, which its classifier does not use")
        weights = weights.but("pooler.dense.weight", "pooler.dense.bias")
    keys = folder.keys()
    config, vocabulary = settings(
        keys,
        offset=offset,
        fills=weights.has("lm_head."),
        pooler=classifies or weights.has("pooler."),
    )
    keys.close()
    classes = weights.rows("classifier.out_proj.weight") if classifies else 0
    return _finish(
        folder,
        weights,
        config,
        [*table(config, offset=offset), *roberta_heads(config, classes)],
        vocabulary,
        classes,
        name="RoBERTa",
        copies={"lm_head.decoder.weight": WORDS, "lm_head.decoder.bias": "lm_head.bias"},
        names=ROBERTA_NAMES,
        notes=notes,
    )


def _finish(
    folder: ForeignFolder,
    weights: ForeignWeights,
    config: EncoderConfig,
    rows: list[Row],
    vocabulary: int,
    classes: int,
    *,
    name: str,
    copies: dict[str, str],
    names: Names,
    notes: list[str],
) -> ForeignModel:
    brought = bring(
        rows,
        weights,
        wanted_weights(config, vocabulary, classes=classes),
        copies=copies if config.prediction_head else {},
        skipped=["embeddings.position_ids", "embeddings.token_type_ids"],
        where=folder.where,
    )
    types = brought.get("type_embedding.weight")
    if types is not None and len(types) == 1 and not types.any():
        # One kind of segment that adds nothing: as good as none, and how one without is written.
        config = config.model_copy(update={"token_types": 0})
        del brought["type_embedding.weight"]
    return ForeignModel(
        family="encoder",
        config=config,
        weights=brought,
        vocabularies=encoder_vocabulary(folder, vocabulary, names),
        origin=f"{name} of {folder.where}",
        max_tokens=longest_text(folder, config.longest or 0),
        embedding=embedding_settings(folder),
        labels=labels(folder.values, classes),
        notes=(*notes, *weights.notes()),
    )


def write(model: OwnModel[EncoderConfig]) -> Written:
    """A model of ours as BERT with the heads that it has.

    Raises:
        ModelError: BERT has no place for one of its settings.
    """
    config, classes, control = model.config, len(model.labels), model.source
    require(EXPORTS, *_expressible(config, classes))
    sent = send(table(config), model.weights)
    heads = send(bert_heads(config, classes), model.weights)
    if not config.token_types:
        words: Tensor = sent[WORDS]
        sent[_TYPES] = words.new_zeros(1, config.d_model)
    architecture, notes = "BertModel", []
    if classes:
        architecture = "BertForSequenceClassification"
    elif config.prediction_head:
        architecture = "BertForMaskedLM"
    elif not config.pooler:
        notes.append("it has no pooler: transformers makes one up, and pooler_output means nothing")
    if classes and config.prediction_head:
        notes.append("the head that fills in tokens is in the file too, for BertForMaskedLM")
    prefix = "" if architecture == "BertModel" else "bert."
    values: dict[str, Any] = {
        "model_type": "bert",
        "architectures": [architecture],
        "vocab_size": control.size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.d_ff,
        "hidden_act": ACTIVATION_NAMES[config.feed_forward],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.longest,
        "type_vocab_size": max(config.token_types, 1),
        "layer_norm_eps": config.norm.eps,
        "pad_token_id": control.pad_id,
    }
    if classes:
        values["id2label"] = {str(i): label for i, label in enumerate(model.labels)}
        values["label2id"] = {label: i for i, label in enumerate(model.labels)}
    within = {name: w for name, w in heads.items() if name.startswith("pooler.")}
    outside = {name: w for name, w in heads.items() if name not in within}
    encoder = {prefix + name: weight for name, weight in {**sent, **within}.items()}
    return Written(values, {**encoder, **outside}, notes=tuple(notes))


def _modern(weights: ForeignWeights) -> ForeignWeights:
    """Norms under their names of today; the first checkpoints say gamma and beta."""
    return ForeignWeights(
        {
            name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
                "LayerNorm.beta", "LayerNorm.bias"
            ): weight
            for name, weight in weights.items()
        },
        weights.where,
    )


def _expressible(config: EncoderConfig, classes: int) -> list[tuple[bool, str]]:
    positions = config.positions
    return [
        (isinstance(config.norm, LayerNormConfig), 'model.norm.kind = "rms"'),
        (config.norm_position == "post", 'model.norm_position = "pre"'),
        (isinstance(positions, LearnedConfig), f'model.positions.kind = "{positions.kind}"'),
        (
            config.feed_forward in ACTIVATIONS.values(),
            f'model.feed_forward = "{config.feed_forward}"',
        ),
        (
            config.feed_forward == "gelu" or not config.prediction_head,
            f'model.feed_forward = "{config.feed_forward}" with model.prediction_head',
        ),
        (config.feed_forward_has_bias, "model.feed_forward_bias = false"),
        (config.attention_bias, "model.attention_bias = false"),
        (config.output_has_bias, "model.attention_output_bias = false"),
        (config.kv_heads == config.num_heads, f"model.num_kv_heads = {config.kv_heads}"),
        (config.key_dim * config.num_heads == config.d_model, f"model.d_k = {config.key_dim}"),
        (config.value_dim == config.key_dim, f"model.d_v = {config.value_dim}"),
        (config.attention_scale is None, f"model.attention_scale = {config.attention_scale}"),
        (not config.embedding_scale, "model.embedding_scale = true"),
        (config.embedding_norm, "model.embedding_norm = false"),
        (config.pooler or not classes, "a classifier with model.pooler = false"),
    ]
