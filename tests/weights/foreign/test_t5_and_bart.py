"""T5 and BART of transformers and ours: the same logits, the same greedy ids."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from weights.foreign.elsewhere import (
    carried,
    close,
    greedy_translations_match,
    saved,
    shuffled,
    wide,
)

from regard.errors import CheckpointError
from regard.weights.foreign.families import read

SOURCE = torch.tensor([[5, 6, 7, 8, 2, 9, 4, 3, 22], [11, 12, 2, 7, 5, 1, 1, 1, 1]])
MASK = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
TARGET = torch.tensor([[0, 5, 6, 7, 2, 3], [0, 9, 3, 4, 8, 8]])
T5 = {"vocab_size": 30, "d_model": 8, "d_kv": 3, "d_ff": 12, "num_layers": 2, "num_heads": 2}
T5 |= {"num_decoder_layers": 3, "relative_attention_num_buckets": 8}
T5 |= {"relative_attention_max_distance": 6, "decoder_start_token_id": 0}
BART = {
    "vocab_size": 30,
    "d_model": 8,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "max_position_embeddings": 32,
    "forced_bos_token_id": None,
}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def t5(**settings: Any) -> Any:
    config = transformers.T5Config(**T5 | settings)
    return shuffled(transformers.T5ForConditionalGeneration(config))


def bart(**settings: Any) -> Any:
    config = transformers.BartConfig(**BART | settings)
    return shuffled(transformers.BartForConditionalGeneration(config))


def logits_match(theirs: Any, model: Any, dtype: torch.dtype) -> None:
    if dtype == torch.float64:
        theirs, model = wide(theirs), model.double()
    wanted = theirs(SOURCE, attention_mask=MASK.long(), decoder_input_ids=TARGET).logits
    close(model(SOURCE, TARGET, MASK), wanted)


@DTYPES
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {"feed_forward_proj": "gated-silu", "layer_norm_epsilon": 1e-3},
        {"feed_forward_proj": "gelu"},
    ],
)
def test_t5_gives_the_logits_of_transformers(
    settings: dict[str, Any], dtype: torch.dtype, tmp_path: Path
) -> None:
    theirs = t5(**settings)
    found, model = carried(theirs, tmp_path)
    logits_match(theirs, model, dtype)
    assert found.config.output_scale is (settings.get("tie_word_embeddings") is not False)


def test_a_projection_of_its_own_is_read(tmp_path: Path) -> None:
    theirs = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    theirs.lm_head.weight = torch.nn.Parameter(torch.randn(30, 8))
    found, model = carried(theirs, tmp_path)
    assert found.config.tying == "none"
    logits_match(theirs, model, torch.float64)


@pytest.mark.parametrize(("make", "start"), [(t5, 0), (bart, 2)])
def test_t5_and_bart_write_greedily_what_transformers_does(
    make: Any, start: int, tmp_path: Path
) -> None:
    theirs = make(num_decoder_layers=2) if make is t5 else make()
    _, model = carried(theirs, tmp_path)
    greedy_translations_match(theirs, model, SOURCE, MASK, start)


@DTYPES
@pytest.mark.parametrize(
    "settings",
    [{}, {"scale_embedding": True, "activation_function": "relu"}, {"tie_word_embeddings": False}],
)
def test_bart_gives_the_logits_of_transformers(
    settings: dict[str, Any], dtype: torch.dtype, tmp_path: Path
) -> None:
    theirs = bart(**settings)
    found, model = carried(theirs, tmp_path)
    logits_match(theirs, model, dtype)
    assert found.config.longest == 32


def test_a_begin_token_that_is_forced_elsewhere_is_told(tmp_path: Path) -> None:
    path = saved(bart(), tmp_path)
    (path / "generation_config.json").write_text('{"forced_bos_token_id": 0}')
    found = read(path)
    assert found.notes[0].startswith("forced_bos_token_id = 0 is not forced here")


def test_a_t5_with_another_gate_is_refused(tmp_path: Path) -> None:
    path = saved(t5(feed_forward_proj="gated-relu"), tmp_path)
    with pytest.raises(CheckpointError, match=r'feed_forward_proj = "gated-relu" can\'t be'):
        read(path)
