"""BERT and RoBERTa as transformers keeps them, with heads to fill in tokens and to classify."""

from typing import Final

from regard.models.config import EncoderConfig
from regard.nn.config import LayerNormConfig, LearnedConfig
from regard.weights.foreign.folder import ForeignFolder, ForeignWeights
from regard.weights.foreign.keys import Keys, labels
from regard.weights.foreign.model import Family, ForeignModel
from regard.weights.foreign.parts import (
    ACTIVATIONS,
    attention_sizes,
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
_TASKS: Final = ("Model", "ForMaskedLM", "ForSequenceClassification")
_ARCHITECTURES: Final = (
    "BertForPreTraining",
    *(name + task for name in ("Bert", "Roberta", "XLMRoberta", "Camembert") for task in _TASKS),
)

WORDS: Final = "embeddings.word_embeddings.weight"
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
    if folder.kind in ROBERTA:
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
    padding = folder.token("pad_token_id", folder.keys().whole("vocab_size", 30522), of_model=True)
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
        labels=labels(folder.keys(), classes) if classes else (),
        notes=(*notes, *weights.notes()),
    )


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


FAMILY: Final = Family(
    (*BERT, *ROBERTA),
    read,
    _ARCHITECTURES,
)
