"""LLaMA, Mistral and Qwen2 of transformers and ours: the same logits, the same greedy ids."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from weights.foreign.elsewhere import carried, close, greedy_matches, saved, shuffled, wide

from regard.errors import CheckpointError
from regard.nn.config import YarnScalingConfig
from regard.weights.foreign.families import read

IDS = torch.randint(0, 31, (2, 24), generator=torch.Generator().manual_seed(1))
MASK = torch.arange(24) >= torch.tensor([[0], [7]])  # padding on the left
SHAPE = {
    "vocab_size": 31,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
KINDS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("llama", {}),
    "tied": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    "head_dim": ("llama", {"head_dim": 6, "num_key_value_heads": 1, "hidden_act": "gelu_new"}),
    "theta": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 123.0}}),
    "linear": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "llama3": ("llama", {"rope_parameters": LLAMA3}),
    "yarn": ("llama", {"rope_parameters": YARN | {"original_max_position_embeddings": 16}}),
    "yarn, all said": (
        "qwen2",
        {
            "rope_parameters": YARN
            | {"original_max_position_embeddings": 16, "attention_factor": 1.3}
            | {"beta_fast": 8.0, "beta_slow": 2.0, "truncate": False}
        },
    ),
    "yarn, mscale": (
        "llama",
        {
            "rope_parameters": YARN
            | {"original_max_position_embeddings": 16, "mscale": 0.7, "mscale_all_dim": 1.2}
        },
    ),
    "mistral": ("mistral", {"sliding_window": 5}),
    "mistral without a window": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen2 with a window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen2, windows unused": ("qwen2", {"sliding_window": 5, "max_window_layers": 1}),
}


def model_of(kind: str, **settings: Any) -> Any:
    config, model = KINDS[kind]
    return shuffled(model(config(**{**SHAPE, **settings}, attn_implementation="sdpa")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_llama_and_its_kin_give_the_logits_of_transformers(
    case: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    kind, settings = CASES[case]
    theirs = model_of(kind, **settings)
    _, model = carried(theirs, tmp_path)
    if dtype == torch.float64:
        theirs, model = wide(theirs), model.double()
    places = (MASK.long().cumsum(-1) - 1).clamp(min=0)
    wanted = theirs(input_ids=IDS, attention_mask=MASK.long(), position_ids=places).logits
    close(model(IDS, MASK)[MASK], wanted[MASK])


@pytest.mark.parametrize("case", ["plain", "mistral", "qwen2 with a window", "llama3"])
def test_llama_and_its_kin_go_on_greedily_as_transformers_does(case: str, tmp_path: Path) -> None:
    kind, settings = CASES[case]
    theirs = model_of(kind, **settings)
    _, model = carried(theirs, tmp_path)
    greedy_matches(theirs, model, IDS[:1, :6])


def rewrite(path: Path, **changes: Any) -> None:
    """Change keys of a saved config.json; None takes one out."""
    import json

    values = json.loads((path / "config.json").read_text()) | changes
    kept = {name: value for name, value in values.items() if value is not ...}
    (path / "config.json").write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("mistral", {}), ("qwen2", {"use_sliding_window": True, "max_window_layers": 1})],
)
def test_a_window_that_is_left_out_is_the_one_that_transformers_has(
    kind: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    path = saved(model_of(kind, **settings), tmp_path)
    rewrite(path, layer_types=...)
    wanted = transformers.AutoConfig.from_pretrained(path).sliding_window
    rewrite(path, sliding_window=...)
    assert transformers.AutoConfig.from_pretrained(path).sliding_window == wanted
    assert read(path).config.window == wanted  # type: ignore[union-attr]


def test_phases_are_read_as_older_files_say_them(tmp_path: Path) -> None:
    theirs = model_of("llama", rope_parameters=YARN | {"original_max_position_embeddings": 16})
    path = saved(theirs, tmp_path)
    wanted = read(path).config
    old = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    rewrite(path, rope_parameters=..., rope_theta=1e4, rope_scaling=old)
    assert read(path).config == wanted
    assert isinstance(wanted.positions.scaling, YarnScalingConfig)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
         'rope_parameters.rope_type = "dynamic" can\'t be honoured'),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
         "rope_parameters.partial_rotary_factor = 0.5 can't be honoured, wanted 1.0"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}},
         "rope_parameters.factor is missing, wanted a number"),
        ({"hidden_act": "relu6"}, 'hidden_act = "relu6" can\'t be honoured, wanted one of silu'),
        ({"quantization_config": {"bits": 4}}, "quantization_config = {"),
        ({"auto_map": {"AutoModel": "x.py"}}, "auto_map = {"),
        ({"qk_norm": True}, "regard does not know what this changes of the model: qk_norm = true"),
        ({"num_hidden_layers": 10**9}, "at most 1000 layers"),
        ({"num_attention_heads": "4"}, 'num_attention_heads = "4" can\'t be honoured'),
        ({"num_key_value_heads": 3}, "is not divisible by num_kv_heads = 3"),
        ({"model_type": "gemma"}, "config.json has model_type = gemma, wanted one of"),
    ],
)  # fmt: skip
def test_what_no_model_here_can_honour_is_refused_by_its_key(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = saved(model_of("llama"), tmp_path)
    rewrite(path, **changes)
    with pytest.raises(CheckpointError) as refused:
        read(path)
    assert said in refused.value.problem
    assert refused.value.where.startswith(str(path))


@pytest.mark.parametrize("types", [["sliding_attention", "full_attention", "full_attention"], []])
def test_windows_in_another_order_are_refused(types: list[str], tmp_path: Path) -> None:
    path = saved(model_of("qwen2", **CASES["qwen2 with a window"][1]), tmp_path)
    rewrite(path, layer_types=types or ["full_attention"])
    with pytest.raises(
        CheckpointError, match=r"layer_types = .* can't be honoured, wanted 3 layers"
    ):
        read(path)
