"""The format that is named is the one that is read, whatever config.json leaves out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from weights.foreign.elsewhere import saved
from weights.foreign.test_bert import bert, distilbert, roberta
from weights.foreign.test_gpt2 import gpt2
from weights.foreign.test_layouts import layout_folder
from weights.foreign.test_llama import model_of
from weights.foreign.test_marian import marian
from weights.foreign.test_t5_and_bart import bart, t5

from regard.errors import CheckpointError
from regard.weights.foreign.families import FORMATS, read


def model_folder(make: Callable[[], Any]) -> Callable[[Path], Path]:
    return lambda path: saved(make(), path)


FOLDERS: dict[str, Callable[[Path], Path]] = {
    "marian": model_folder(marian),
    "gpt2": model_folder(gpt2),
    "llama": model_folder(lambda: model_of("llama")),
    "mistral": model_folder(lambda: model_of("mistral", sliding_window=5)),
    "qwen2": model_folder(lambda: model_of("qwen2")),
    "bert": model_folder(lambda: bert("ForMaskedLM")),
    "roberta": model_folder(lambda: roberta("ForMaskedLM")),
    "xlm-roberta": model_folder(lambda: roberta("ForMaskedLM")),
    "camembert": model_folder(lambda: roberta("ForMaskedLM")),
    "distilbert": model_folder(lambda: distilbert("ForMaskedLM")),
    "t5": model_folder(t5),
    "mt5": model_folder(t5),
    "bart": model_folder(bart),
    "torch-transformer": lambda path: layout_folder(path, "torch-transformer"),
    "opennmt-py": lambda path: layout_folder(path, "opennmt-py"),
    "joeynmt": lambda path: layout_folder(path, "joeynmt"),
}


def change(path: Path, **changes: Any) -> None:
    """Change keys of a config.json; ... takes one out."""
    values = json.loads((path / "config.json").read_text()) | changes
    kept = {name: value for name, value in values.items() if value is not ...}
    (path / "config.json").write_text(json.dumps(kept))


def test_every_format_of_a_folder_is_tried_here() -> None:
    assert {*FOLDERS} == {*FORMATS} - {"marian-binary"}


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("said", ["nothing", "another"])
def test_the_named_format_is_read_whatever_the_folder_says(
    kind: str, said: str, tmp_path: Path
) -> None:
    path = FOLDERS[kind](tmp_path / "model")
    change(path, model_type=kind)
    wanted = read(path)
    change(path, model_type=... if said == "nothing" else "gpt2" if kind == "bert" else "bert")
    found = read(path, source_format=kind)
    assert found.config == wanted.config
    assert (found.origin, found.vocabularies) == (wanted.origin, wanted.vocabularies)
    assert all(torch.equal(found.weights[name], w) for name, w in wanted.weights.items())


def test_barts_begin_token_is_put_before_a_text_when_only_the_format_says_that_it_is_one(
    tmp_path: Path,
) -> None:
    from serving.test_generation_oracle import tokenizer

    path = saved(bart(vocab_size=400, bos_token_id=1, eos_token_id=2, pad_token_id=0), tmp_path)
    tokenizer().save_pretrained(path)
    change(path, model_type=...)
    vocabularies = read(path, source_format="bart").vocabularies
    assert vocabularies is not None
    assert json.loads(vocabularies[0])["prefix"] == [1]


def test_a_format_that_there_is_not_is_blamed_on_the_command(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as refused:
        read(saved(gpt2(), tmp_path), source_format="gpt3")
    assert str(refused.value).startswith("--from: there is no format 'gpt3', wanted one of bart, ")


def test_a_folder_that_does_not_say_what_it_is_is_asked_for_the_format(tmp_path: Path) -> None:
    path = saved(gpt2(), tmp_path)
    change(path, model_type=...)
    with pytest.raises(CheckpointError) as refused:
        read(path)
    assert refused.value.problem.startswith("config.json has no model_type, wanted one of bart,")
    assert refused.value.hint == "Say which it is with --from."


@pytest.mark.parametrize("make", [bart, t5, marian])
@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_the_width_of_the_search_is_taken_over_or_refused(
    make: Callable[[], Any], file: str, tmp_path: Path
) -> None:
    path = saved(make(), tmp_path)
    (path / "generation_config.json").unlink(missing_ok=True)
    change(path, num_beams=...)
    values = json.loads((path / "config.json").read_text()) if file == "config.json" else {}

    def said(beams: Any) -> None:
        (path / file).write_text(json.dumps({**values, "num_beams": beams}))

    assert read(path).decoding == {}
    said(3)
    assert read(path).decoding == {"beam": 3}
    for bad in (0, True, -1, "4"):
        said(bad)
        with pytest.raises(CheckpointError) as refused:
            read(path)
        assert refused.value.problem.startswith(f"num_beams = {json.dumps(bad)} can't be honoured")
        assert refused.value.where == str(path / file)


@pytest.mark.parametrize("make", [bart, t5, marian])
def test_a_second_end_token_of_a_translator_is_told(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    path = saved(make(), tmp_path)
    (path / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    said = "eos_token_id = 2 ends a text here, and [7] are never generated"
    assert said in read(path).notes
