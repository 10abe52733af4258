"""DistilBERT as transformers keeps it: BERT without kinds of segments, under other names."""

from typing import Final

from regard.models.config import EncoderConfig
from regard.nn.config import LayerNormConfig, LearnedConfig
from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.keys import Keys
from regard.weights.foreign.model import Family, ForeignModel
from regard.weights.foreign.parts import ACTIVATIONS, attention_sizes, wanted_weights
from regard.weights.foreign.sentence import embedding_settings, longest_text
from regard.weights.foreign.table import Row, bring, kinds, same, stacked
from regard.weights.foreign.vocabulary import BERT_NAMES, encoder_vocabulary

# Its classifier has a ReLU where ours has a tanh.
_CLASSIFIER: Final = (
    "pre_classifier.weight",
    "pre_classifier.bias",
    "classifier.weight",
    "classifier.bias",
)


def table(config: EncoderConfig) -> list[Row]:
    """Their names and ours."""
    rows = [
        *same("embeddings.word_embeddings", "embedding", kinds(False)),
        *same("embeddings.position_embeddings", "positions", kinds(False)),
        *same("embeddings.LayerNorm", "embedding_norm"),
    ]
    for i in range(config.num_layers):
        theirs, ours = f"transformer.layer.{i}", f"layers.{i}"
        attention = f"{theirs}.attention"
        rows += [
            *stacked(
                [f"{attention}.q_lin", f"{attention}.k_lin", f"{attention}.v_lin"],
                f"{ours}.self_attention.input",
                attention_sizes(config),
            ),
            *same(f"{attention}.out_lin", f"{ours}.self_attention.output"),
            *same(f"{theirs}.sa_layer_norm", f"{ours}.self_attention_norm"),
            *same(f"{theirs}.ffn.lin1", f"{ours}.feed_forward.input"),
            *same(f"{theirs}.ffn.lin2", f"{ours}.feed_forward.output"),
            *same(f"{theirs}.output_layer_norm", f"{ours}.feed_forward_norm"),
        ]
    if config.prediction_head:
        rows += [
            *same("vocab_transform", "prediction.dense"),
            *same("vocab_layer_norm", "prediction.norm"),
            Row(("vocab_projector.bias",), "prediction.bias"),
        ]
    return rows


def settings(keys: Keys, *, fills: bool) -> tuple[EncoderConfig, int]:
    """Our config, and the size of the vocabulary."""
    # Of training, of other heads, and how a table that is in the file was begun.
    keys.without_effect("qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds")
    keys.without_effect("tie_weights_")
    if not fills:
        keys.without_effect("tie_word_embeddings")
    if fills:
        keys.settled("tie_word_embeddings", True)
    activation = keys.one_of("activation", ACTIVATIONS, "gelu")
    if fills and activation != "gelu":
        keys.refuse("activation", "gelu, which the head that fills in tokens has here")
    config = EncoderConfig(
        d_model=keys.whole("dim", 768),
        num_layers=keys.layers("n_layers", 6),
        num_heads=keys.whole("n_heads", 12),
        d_ff=keys.whole("hidden_dim", 3072),
        dropout=keys.number("dropout", 0.1),
        attention_dropout=keys.number("attention_dropout", 0.1),
        norm=LayerNormConfig(eps=1e-12),
        feed_forward=activation,
        positions=LearnedConfig(max_positions=keys.whole("max_position_embeddings", 512)),
        prediction_head=fills,
    )
    return config, keys.whole("vocab_size", 30522)


def read(folder: ForeignFolder) -> ForeignModel:
    """A DistilBertModel or DistilBertForMaskedLM, or another without its classifier.

    Raises:
        CheckpointError: it is damaged, or not what its settings say, or has settings that no
            model here can honour.
    """
    weights, notes = folder.read().without_prefix("distilbert."), []
    if weights.has("pre_classifier."):
        weights = weights.but(*_CLASSIFIER)
        notes.append(
            "left out: its classifier, which has a ReLU where regard's has a tanh; train one "
            "with regard finetune"
        )
    keys = folder.keys()
    config, vocabulary = settings(keys, fills=weights.has("vocab_transform."))
    keys.close()
    fills = config.prediction_head
    brought = bring(
        table(config),
        weights,
        wanted_weights(config, vocabulary),
        copies={"vocab_projector.weight": "embeddings.word_embeddings.weight"} if fills else {},
        skipped=["embeddings.position_ids"],
        where=folder.where,
    )
    return ForeignModel(
        family="encoder",
        config=config,
        weights=brought,
        vocabularies=encoder_vocabulary(folder, vocabulary, BERT_NAMES),
        origin=f"DistilBERT of {folder.where}",
        max_tokens=longest_text(folder, config.longest or 0),
        embedding=embedding_settings(folder),
        notes=(*notes, *weights.notes()),
    )


FAMILY: Final = Family(
    ("distilbert",),
    read,
    (
        "DistilBertModel",
        "DistilBertForMaskedLM",
        "DistilBertForSequenceClassification",
    ),
)
