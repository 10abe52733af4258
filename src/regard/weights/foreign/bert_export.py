"""Encoders of ours as BERT, with the heads that they have."""

from typing import Any, Final

from regard.models.config import EncoderConfig
from regard.nn.config import LearnedConfig
from regard.shapes import Tensor
from regard.weights.foreign.bert import WORDS, bert_heads, table
from regard.weights.foreign.model import OwnModel, Written
from regard.weights.foreign.parts import ACTIVATION_NAMES, left_out, plain_layers, require
from regard.weights.foreign.table import send

EXPORTS: Final = "BERT"
_TYPES: Final = "embeddings.token_type_embeddings.weight"


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
    architecture = "BertModel"
    notes = [*left_out(activation_dropout=config.activation_dropout)]
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


def _expressible(config: EncoderConfig, classes: int) -> list[tuple[bool, str]]:
    positions = config.positions
    return [
        *plain_layers(config),
        (config.norm_position == "post", 'model.norm_position = "pre"'),
        (isinstance(positions, LearnedConfig), f'model.positions.kind = "{positions.kind}"'),
        (
            config.feed_forward == "gelu" or not config.prediction_head,
            f'model.feed_forward = "{config.feed_forward}" with model.prediction_head',
        ),
        (config.attention_scale is None, f"model.attention_scale = {config.attention_scale}"),
        (not config.embedding_scale, "model.embedding_scale = true"),
        (config.embedding_norm, "model.embedding_norm = false"),
        (config.pooler or not classes, "a classifier with model.pooler = false"),
        (
            config.classifier_pooling == "cls" or not classes,
            'a classifier with model.classifier_pooling = "mean"',
        ),
    ]
