"""BERT, RoBERTa and DistilBERT of transformers and ours: the same vectors, logits and classes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as elsewhere
from safetensors.torch import load_file, save_file
from weights.foreign.elsewhere import carried, close, saved, shuffled

from regard.errors import CheckpointError
from regard.weights.foreign.families import read

IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 12, 13, 4, 0, 0]])
MASK = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
TYPES = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]])
SHAPE = {
    "vocab_size": 31,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
SMALL = {"vocab_size": 31, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12}
SMALL |= {"max_position_embeddings": 16}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def bert(kind: str = "Model", **settings: Any) -> Any:
    return shuffled(getattr(elsewhere, f"Bert{kind}")(elsewhere.BertConfig(**SHAPE | settings)))


def roberta(kind: str = "Model", **settings: Any) -> Any:
    config = elsewhere.RobertaConfig(**SHAPE | {"pad_token_id": 1, "type_vocab_size": 1} | settings)
    return shuffled(getattr(elsewhere, f"Roberta{kind}")(config))


def distilbert(kind: str = "Model", **settings: Any) -> Any:
    config = elsewhere.DistilBertConfig(**SMALL | settings)
    return shuffled(getattr(elsewhere, f"DistilBert{kind}")(config))


@DTYPES
@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new", "silu"])
def test_bert_gives_the_vectors_of_transformers(
    activation: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    theirs = bert(hidden_act=activation, layer_norm_eps=1e-6)
    found, model = carried(theirs, tmp_path)
    theirs, model = theirs.to(dtype), model.to(dtype)
    wanted = theirs(IDS, attention_mask=MASK.long(), token_type_ids=TYPES)
    hidden = model(IDS, MASK, TYPES)
    close(hidden[MASK], wanted.last_hidden_state[MASK])
    close(torch.tanh(model.pooler(hidden[:, 0])), wanted.pooler_output)
    assert not found.config.prediction_head


@DTYPES
@pytest.mark.parametrize("make", [bert, roberta, distilbert])
def test_masked_tokens_are_filled_as_transformers_fills_them(
    make: Any, dtype: torch.dtype, tmp_path: Path
) -> None:
    theirs = make("ForMaskedLM")
    _, model = carried(theirs, tmp_path)
    theirs, model = theirs.to(dtype), model.to(dtype)
    ids = IDS.masked_fill(~MASK, theirs.config.pad_token_id)
    wanted = theirs(input_ids=ids, attention_mask=MASK.long()).logits
    close(model.predict(model(ids, MASK))[MASK], wanted[MASK])


@DTYPES
@pytest.mark.parametrize("make", [bert, roberta])
def test_classes_are_told_as_transformers_tells_them(
    make: Any, dtype: torch.dtype, tmp_path: Path
) -> None:
    names = {0: "ham", 1: "spam", 2: "both"}
    theirs = make("ForSequenceClassification", num_labels=3, id2label=names)
    found, model = carried(theirs, tmp_path)
    theirs, model = theirs.to(dtype), model.to(dtype)
    ids = IDS.masked_fill(~MASK, theirs.config.pad_token_id)
    wanted = theirs(input_ids=ids, attention_mask=MASK.long()).logits
    close(model.classify(model(ids, MASK), MASK), wanted)
    assert found.labels == ("ham", "spam", "both")


@pytest.mark.parametrize("make", [bert, roberta])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"problem_type": "multi_label_classification"}, 'problem_type = "multi_label_class'),
        ({"problem_type": "regression"}, 'problem_type = "regression" can\'t be honoured'),
        ({"id2label": {"0": "ham", "1": "ham"}}, "id2label = "),
        ({"id2label": {"0": "1"}}, "wanted a name for each of 0 to 1, its classifier's rows"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "wanted a name for each of 0 to 1"),
        ({"id2label": {"0": "a", "01": "b"}}, "wanted a name for each of 0 to 1"),
        ({"id2label": {"0": "a", "1": " "}}, "wanted names that are not empty"),
        ({"id2label": {"0": "a", "1": "b\tc"}}, "without tabs and line breaks"),
        ({"id2label": {"0": "a", "1": "b\nc"}}, "without tabs and line breaks"),
        ({"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1, "b": 0}}, "label2id = {"),
        ({"id2label": {"0": "a", "1": "b"}, "label2id": {"c": 1}}, "label2id = {"),
        ({"id2label": 3}, "id2label = 3 can't be honoured, wanted a table"),
    ],
)
def test_what_tells_no_class_or_two_of_one_name_is_refused(
    make: Any, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = saved(make("ForSequenceClassification"), tmp_path)
    values = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(values | changes))
    with pytest.raises(CheckpointError) as refused:
        read(path)
    assert said in refused.value.problem


@pytest.mark.parametrize("make", [bert, roberta])
def test_a_classifier_of_one_output_is_refused(make: Any, tmp_path: Path) -> None:
    path = saved(make("ForSequenceClassification", num_labels=1), tmp_path)
    with pytest.raises(CheckpointError, match="its classifier has one output, which is a number"):
        read(path)


def test_robertas_positions_begin_after_its_padding(tmp_path: Path) -> None:
    found, _ = carried(roberta(), tmp_path)
    assert found.config.longest == 14


def test_a_classifier_that_is_another_here_is_left_out_with_a_word(tmp_path: Path) -> None:
    theirs = distilbert("ForSequenceClassification")
    found, model = carried(theirs, tmp_path)
    wanted = theirs.distilbert(IDS, attention_mask=MASK.long()).last_hidden_state
    close(model(IDS, MASK)[MASK], wanted[MASK])
    assert found.notes[0].startswith("left out: its classifier, which has a ReLU")


def test_the_first_berts_names_of_norms_and_their_second_head_are_known(tmp_path: Path) -> None:
    theirs = bert("ForPreTraining")
    path = saved(theirs, tmp_path)
    weights = load_file(path / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): weight
        for name, weight in weights.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(16)[None]
    old["cls.predictions.decoder.weight"] = weights[
        "bert.embeddings.word_embeddings.weight"
    ].clone()
    save_file(old, path / "model.safetensors")
    found = read(path)
    assert found.config.prediction_head
    assert found.config.pooler
    assert found.notes == ("left out: the head that tells whether one sentence follows another",)


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (bert, {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        (bert, {"is_decoder": True}, "is_decoder = true can't be honoured, wanted false"),
        (bert, {"hidden_act": "relu"}, 'hidden_act = "relu" can\'t be honoured, wanted gelu'),
        (distilbert, {"activation": "relu"}, 'activation = "relu" can\'t be honoured, wanted gelu'),
    ],
)
def test_what_no_encoder_here_can_honour_is_refused(
    make: Any, settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = saved(make("ForMaskedLM", **settings), tmp_path)
    with pytest.raises(CheckpointError) as refused:
        read(path)
    assert said in refused.value.problem


def test_heads_for_other_tasks_are_refused_by_name(tmp_path: Path) -> None:
    path = saved(bert("ForQuestionAnswering"), tmp_path)
    values = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(values | {"architectures": None}))
    with pytest.raises(
        CheckpointError, match=r"qa_outputs\.bias is unknown; qa_outputs\.weight is"
    ):
        read(path)


@pytest.mark.parametrize(
    ("make", "task"),
    [
        (bert, "ForTokenClassification"),
        (bert, "ForMultipleChoice"),
        (bert, "ForQuestionAnswering"),
        (bert, "ForNextSentencePrediction"),
        (roberta, "ForTokenClassification"),
        (roberta, "ForMultipleChoice"),
        (distilbert, "ForTokenClassification"),
        (distilbert, "ForMultipleChoice"),
    ],
)
def test_a_model_for_another_task_is_refused_by_its_class(
    make: Any, task: str, tmp_path: Path
) -> None:
    theirs = make(task)
    with pytest.raises(CheckpointError) as refused:
        read(saved(theirs, tmp_path))
    problem = refused.value.problem
    assert problem.startswith(f'architectures = ["{type(theirs).__name__}"] can\'t be honoured')
    assert refused.value.where == str(tmp_path / "config.json")


@pytest.mark.parametrize("told", [{"ham": 0, "spam": 1}, {"LABEL_0": 0, "LABEL_1": 1}, {"ham": 0}])
def test_numbers_of_labels_that_agree_are_let_be(told: dict[str, int], tmp_path: Path) -> None:
    path = saved(bert("ForSequenceClassification"), tmp_path)
    values = json.loads((path / "config.json").read_text())
    values |= {"id2label": {"0": "ham", "1": "spam"}, "label2id": told}
    (path / "config.json").write_text(json.dumps(values))
    assert read(path).labels == ("ham", "spam")


def test_a_bad_setting_is_named_as_the_file_names_it(tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_attention_heads": 0}))
    with pytest.raises(CheckpointError) as refused:
        read(tmp_path)
    assert str(refused.value) == (
        f"{path}: num_attention_heads = 0 can't be honoured, wanted a number that is at least 1"
    )
