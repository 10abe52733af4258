"""A begin token opens a prompt where the checkpoint's own tokenizer puts one, and only there."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from serving.test_generation_oracle import PROMPTS, ids_of_transformers, made, tokenizer
from weights.foreign.elsewhere import saved, shuffled

import regard
from regard.decoding.generate import prompt_ids
from regard.recipes.bring import export_run, import_checkpoint
from regard.text.vocabulary import Vocabulary, read_vocabulary
from regard.weights.foreign.families import read


def qwen2(**settings: Any) -> Any:
    config = transformers.Qwen2Config(
        vocab_size=320, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2,
        **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **settings},
    )  # fmt: skip
    return shuffled(transformers.Qwen2ForCausalLM(config), std=0.5)


def change(path: Path, **changes: Any) -> None:
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(values))


def vocabulary(path: Path) -> Vocabulary:
    vocabularies = read(path).vocabularies
    assert vocabularies is not None
    return read_vocabulary(vocabularies[0])


@pytest.mark.parametrize(
    ("family", "begins"), [("qwen2", False), ("qwen2", True), ("llama", True), ("llama", False)]
)
def test_greedy_text_opens_as_with_the_tokenizer_of_the_checkpoint(
    family: str, begins: bool, tmp_path: Path
) -> None:
    theirs = qwen2() if family == "qwen2" else made("llama")
    words = tokenizer(begins=begins)
    path = saved(theirs, tmp_path / "theirs")
    words.save_pretrained(path)
    words = transformers.AutoTokenizer.from_pretrained(path)
    import_checkpoint(path, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out", "huggingface")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    generator = regard.load_language_model(tmp_path / "run", device="cpu")
    found = generator.continuations(PROMPTS, temperature=0.0, max_tokens=15)
    for prompt, samples in zip(PROMPTS, found, strict=True):
        ids = words(prompt)["input_ids"]
        assert (ids[0] == 1) is begins
        assert again(prompt)["input_ids"] == ids
        wanted = ids_of_transformers(theirs, ids)
        end = wanted.index(2) if 2 in wanted else len(wanted)
        assert samples[0].tokens == tuple(wanted[:end])


TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    ],
    "pair": [],
    "special_tokens": {
        "<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
        "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]},
    },
}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize(
    ("family", "processor", "settings", "opens"),
    [
        ("qwen2", None, {}, []),
        ("qwen2", BYTES, {}, []),
        ("qwen2", TEMPLATE, {}, [1]),
        ("qwen2", None, {"add_bos_token": True}, [1]),
        ("qwen2", None, {"add_bos_token": True, "bos_token": {"content": "</s>"}}, [2]),
        ("qwen2", None, {"add_bos_token": False}, []),
        ("qwen2", None, {"tokenizer_class": "LlamaTokenizer"}, [1]),
        ("llama", None, {}, [1]),
        ("llama", BYTES, {}, [1]),
        ("llama", TEMPLATE, {"add_bos_token": False}, []),
        ("llama", {"type": "Sequence", "processors": [BYTES, TEMPLATE]}, {}, [1]),
        ("llama", {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1],
                   "trim_offsets": True, "add_prefix_space": True}, {}, [1]),
        ("llama", None, {"add_bos_token": False}, []),
        ("llama", None, {"tokenizer_class": "Qwen2Tokenizer"}, []),
        ("gpt2", None, {}, []),
        ("gpt2", None, {"add_bos_token": True}, [2]),
    ],
)  # fmt: skip
def test_what_opens_a_prompt_is_what_the_tokenizer_says(
    family: str, processor: Any, settings: dict[str, Any], opens: list[int], tmp_path: Path
) -> None:
    path = saved(qwen2() if family == "qwen2" else made(family), tmp_path / "theirs")
    tokenizer().save_pretrained(path)
    change(path / "tokenizer.json", post_processor=processor)
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = vocabulary(path)
    assert prompt_ids(ours, ["the light"]) == [[*opens, *ours.encode("the light")]]
    assert prompt_ids(ours, [""]) == [opens or [2]]
    import_checkpoint(path, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out", "huggingface")
    again = vocabulary(tmp_path / "out")
    assert prompt_ids(again, ["the light"]) == prompt_ids(ours, ["the light"])


def test_a_begin_token_that_is_any_end_token_starts_nothing(tmp_path: Path) -> None:
    path = saved(qwen2(bos_token_id=1, eos_token_id=[2, 1]), tmp_path)
    tokenizer().save_pretrained(path)
    ours = vocabulary(path)
    assert (ours.start_id, ours.eos_id, ours.end_ids, ours.prefix) == (2, 2, {1, 2}, ())
    tokenizer(begins=True).save_pretrained(path)
    ours = vocabulary(path)
    assert (ours.start_id, ours.prefix) == (2, (1,))
