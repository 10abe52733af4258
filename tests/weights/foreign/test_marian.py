"""Marian of transformers and ours: the same logits, the same greedy ids."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from weights.foreign.elsewhere import carried, close, greedy_translations_match, saved, shuffled

from regard.errors import CheckpointError
from regard.nn.positions import sinusoids
from regard.weights.foreign.families import read

SOURCE = torch.tensor([[5, 6, 7, 8, 0], [11, 12, 0, 29, 29]])
MASK = SOURCE != 29
TARGET = torch.tensor([[29, 5, 6, 7], [29, 9, 3, 4]])
SHAPE = {
    "vocab_size": 30,
    "d_model": 8,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "max_position_embeddings": 32,
    "pad_token_id": 29,
    "decoder_start_token_id": 29,
    "eos_token_id": 0,
}


def marian(**settings: Any) -> Any:
    return shuffled(transformers.MarianMTModel(transformers.MarianConfig(**SHAPE | settings)))


def exact(model: Any) -> Any:
    """In float64, with sinusoids that were not rounded to float32 before."""
    model = model.double()
    for side in (model.model.encoder, model.model.decoder):
        table = sinusoids(32, 8, "halves")
        side.embed_positions.weight = nn.Parameter(table, requires_grad=False)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("settings", "tying"),
    [
        ({"scale_embedding": True, "activation_function": "swish"}, "three_way"),
        ({"activation_function": "relu"}, "three_way"),
        ({"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 30}, "two_way"),
        ({"tie_word_embeddings": False}, "none"),
        ({"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False}, "none"),
    ],
)
def test_marian_gives_the_logits_of_transformers(
    settings: dict[str, Any], tying: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    theirs = marian(**settings)
    found, model = carried(theirs, tmp_path)
    if dtype == torch.float64:
        theirs, model = exact(theirs), model.double()
    wanted = theirs(SOURCE, attention_mask=MASK.long(), decoder_input_ids=TARGET).logits
    close(model(SOURCE, TARGET, MASK), wanted)
    assert found.config.tying == tying
    assert found.config.output_bias


def test_vocabularies_of_two_sizes_stay_apart(tmp_path: Path) -> None:
    theirs = marian(
        share_encoder_decoder_embeddings=False,
        vocab_size=34,
        decoder_vocab_size=30,
    )
    found, model = carried(theirs, tmp_path)
    wanted = theirs(SOURCE, attention_mask=MASK.long(), decoder_input_ids=TARGET).logits
    close(model(SOURCE, TARGET, MASK), wanted)
    assert len(found.weights["source_embedding.weight"]) == 34


def test_marian_translates_greedily_as_transformers_does(tmp_path: Path) -> None:
    theirs = marian(scale_embedding=True)
    with torch.no_grad():
        theirs.final_logits_bias[0, 29] = -torch.inf
    _, model = carried(theirs, tmp_path)
    greedy_translations_match(theirs, model, SOURCE, MASK, 29)


def test_a_table_under_every_name_and_stored_sinusoids_are_known(tmp_path: Path) -> None:
    path = saved(marian(), tmp_path)
    wanted = read(path).weights
    weights = load_file(path / "model.safetensors")
    shared = weights["model.shared.weight"]
    for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        weights[f"{name}.weight"] = shared.clone()
    weights["model.encoder.embed_positions.weight"] = torch.zeros(32, 8)
    save_file(weights, path / "model.safetensors")
    found = read(path).weights
    assert all(torch.equal(found[name], weight) for name, weight in wanted.items())
    weights["lm_head.weight"][0, 0] += 1
    save_file(weights, path / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"lm_head\.weight differs from model\.shared\.weight"
    ):
        read(path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"decoder_ffn_dim": 16}, "decoder_ffn_dim = 16 can't be honoured, wanted 12, as"),
        ({"normalize_before": True}, "normalize_before = true can't be honoured, wanted false"),
        ({"static_position_embeddings": False}, "static_position_embeddings = false"),
        ({"activation_function": "tanh"}, 'activation_function = "tanh" can\'t be honoured'),
    ],
)  # fmt: skip
def test_what_no_model_here_can_honour_is_refused(
    settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = saved(marian(**settings), tmp_path)
    with pytest.raises(CheckpointError) as refused:
        read(path)
    assert said in refused.value.problem
