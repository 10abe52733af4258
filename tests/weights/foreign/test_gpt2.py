"""GPT-2 of transformers and ours: the same logits, the same greedy ids."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from weights.foreign.elsewhere import carried, close, greedy_matches, shuffled

from regard.errors import CheckpointError
from regard.weights.foreign.families import read

IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 12, 13, 4, 2, 2]])
MASK = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])


def gpt2(**settings: Any) -> Any:
    shape = {"vocab_size": 31, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 32}
    special = {"bos_token_id": 1, "eos_token_id": 1}
    config = transformers.GPT2Config(**{**shape, **special, **settings})
    return shuffled(transformers.GPT2LMHeadModel(config))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation_function": "gelu", "n_inner": 12, "layer_norm_epsilon": 1e-3},
        {"activation_function": "relu", "tie_word_embeddings": False},
        {"activation_function": "silu", "scale_attn_weights": False},
    ],
)
def test_gpt2_gives_the_logits_of_transformers(
    settings: dict[str, Any], dtype: torch.dtype, tmp_path: Path
) -> None:
    theirs = gpt2(**settings)
    found, model = carried(theirs, tmp_path)
    theirs, model = theirs.to(dtype), model.to(dtype)
    wanted = theirs(input_ids=IDS, attention_mask=MASK.long()).logits
    close(model(IDS, MASK)[MASK], wanted[MASK])
    assert found.config.tied is theirs.config.tie_word_embeddings


def test_gpt2_goes_on_greedily_as_transformers_does(tmp_path: Path) -> None:
    theirs = gpt2()
    _, model = carried(theirs, tmp_path)
    greedy_matches(theirs, model, IDS[:1])


def test_a_bare_gpt2_and_its_masks_are_read(tmp_path: Path) -> None:
    theirs = gpt2()
    weights = theirs.transformer.state_dict() | {
        "h.0.attn.bias": torch.ones(1, 1, 32, 32, dtype=torch.bool),
        "h.0.attn.masked_bias": torch.tensor(-1e4),
    }
    theirs.transformer.save_pretrained(tmp_path, state_dict=weights)
    _, model = carried(theirs, tmp_path / "whole")
    bare = read(tmp_path)
    assert all(torch.equal(bare.weights[n], w) for n, w in model.state_dict().items())


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("n_head", 0, "n_head = 0 can't be honoured, wanted a number that is at least 1"),
        ("n_positions", 0, "n_positions = 0 can't be honoured, wanted a number that is at least 1"),
        (
            "resid_pdrop",
            2,
            "resid_pdrop = 2.0 can't be honoured, wanted a number that is less than 1",
        ),
        (
            "layer_norm_epsilon",
            -1,
            "layer_norm_epsilon = -1.0 can't be honoured, wanted a number that is more than 0",
        ),
        (
            "n_head",
            5,
            "n_embd = 8 and n_head = 5 can't go together: d_model = 8 is not divisible by "
            "num_heads = 5; set d_k and d_v, or choose a num_heads that divides d_model",
        ),
    ],
)
def test_a_bad_setting_is_named_as_the_file_names_it(
    key: str, value: float, problem: str, tmp_path: Path
) -> None:
    gpt2().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(CheckpointError) as refused:
        read(tmp_path)
    assert str(refused.value) == f"{path}: {problem}"
