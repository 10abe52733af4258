"""Models of transformers go on here with the very text that they go on with there."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from serving.tiny_runs import TEXT
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

import regard
from regard.recipes.bring import export_run, import_checkpoint

SPECIAL = ["<pad>", "<s>", "</s>"]
PROMPTS = ["the light", "turn off the light, please! Küche", "a", "das Licht ist an und"]

# Transformers may draw control tokens, and GPT-2's rows here that are no token.
NO_TEXT = [0, 1, *range(320, 330)]


def tokenizer(*, begins: bool = False) -> Any:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator(
        TEXT * 9,
        trainers.BpeTrainer(
            vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        ),
    )
    if begins:
        library.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
        )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=library, pad_token="<pad>")


def ids_of_transformers(theirs: Any, prompt: list[int], **settings: Any) -> list[int]:
    given = torch.tensor([prompt])
    out = theirs.generate(
        given,
        attention_mask=torch.ones_like(given),
        do_sample=False,
        max_new_tokens=15,
        suppress_tokens=NO_TEXT,
        **settings,
    )
    found: list[int] = out[0, len(prompt) :].tolist()
    return found


def made(family: str) -> Any:
    """GPT-2 has no start token of its own; LLaMA begins every text with one."""
    torch.manual_seed(3)
    if family == "gpt2":
        config: Any = transformers.GPT2Config(
            vocab_size=330, n_positions=64, n_embd=16, n_layer=2, n_head=2,
            bos_token_id=2, eos_token_id=2, pad_token_id=0,
        )  # fmt: skip
        model: Any = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=320, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2,
            bos_token_id=1, eos_token_id=2, pad_token_id=0,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_greedy_text_is_that_of_transformers(family: str, penalty: float, tmp_path: Path) -> None:
    theirs, words = made(family), tokenizer(begins=family == "llama")
    theirs.save_pretrained(tmp_path / family)
    words.save_pretrained(tmp_path / family)
    import_checkpoint(tmp_path / family, tmp_path / "run")
    generator = regard.load_language_model(tmp_path / "run", device="cpu")
    found = generator.continuations(
        PROMPTS, temperature=0.0, repetition_penalty=penalty, max_tokens=15
    )
    wanted = []
    for prompt in PROMPTS:
        ids = words(prompt)["input_ids"]
        out = ids_of_transformers(theirs, ids, repetition_penalty=penalty)
        wanted.append(tuple(out[: out.index(2)] if 2 in out else out))
    assert [samples[0].tokens for samples in found] == wanted
    assert [samples[0].text for samples in found] == [words.decode(ids) for ids in wanted]
    assert len({samples[0].text for samples in found}) > 2


def test_any_of_several_end_tokens_ends_a_text_as_it_does_there(tmp_path: Path) -> None:
    theirs, words = made("llama"), tokenizer(begins=True)
    prompts = [[1, *words(prompt, add_special_tokens=False)["input_ids"]] for prompt in PROMPTS]
    typed = {2, *(token for ids in prompts for token in ids)}
    free = ids_of_transformers(theirs, prompts[0])
    other = next(token for token in free[2:] if token not in typed)
    theirs.generation_config.eos_token_id = [2, other]
    theirs.save_pretrained(tmp_path / "llama")
    words.save_pretrained(tmp_path / "llama")
    import_checkpoint(tmp_path / "llama", tmp_path / "run")
    generator = regard.load_language_model(tmp_path / "run", device="cpu")
    found = generator.continuations(PROMPTS, temperature=0.0, max_tokens=15)
    for ids, samples in zip(prompts, found, strict=True):
        wanted = ids_of_transformers(theirs, ids)
        ended = wanted[-1] in (2, other)
        assert samples[0].tokens == tuple(wanted[:-1] if ended else wanted)
        assert samples[0].finish == ("end" if ended else "length")
    assert found[0][0].finish == "end"
    export_run(tmp_path / "run", tmp_path / "out", "huggingface")
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out")
    assert again.config.eos_token_id == [2, other]
