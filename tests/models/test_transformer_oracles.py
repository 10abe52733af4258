"""The whole model against torch's and a Marian model of transformers, weights carried over."""

from typing import Literal

import pytest
import torch
from torch import nn

from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.nn.config import FeedForwardKind, SinusoidalConfig
from regard.nn.masks import causal_mask, padding_mask

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 12, 13, 0, 0, 0], [3, 4, 5, 6, 0, 0]])
SOURCE_MASK = padding_mask(torch.tensor([6, 3, 4]), 6)
TARGET = torch.tensor([[1, 5, 6, 7, 8], [1, 9, 0, 0, 0], [1, 2, 3, 4, 0]])
TARGET_MASK = padding_mask(torch.tensor([5, 2, 4]), 5)


def shuffled(module: nn.Module) -> nn.Module:
    """All parameters random, norms and biases too, lest a swapped pair go unseen."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.double().eval()


def carry(ours: nn.Module, theirs: nn.Module, table: dict[str, str | list[str]]) -> None:
    """Fill every parameter of `ours` by the table: our name to theirs; several are stacked."""
    state = theirs.state_dict()
    carried = {
        name: torch.cat([state[n] for n in source]) if isinstance(source, list) else state[source]
        for name, source in table.items()
    }
    ours.load_state_dict(carried, strict=True)


def both(ours: str, theirs: str) -> dict[str, str | list[str]]:
    return {f"{ours}.{kind}": f"{theirs}.{kind}" for kind in ("weight", "bias")}


def torch_table(layers: int, norm_position: str) -> dict[str, str | list[str]]:
    table: dict[str, str | list[str]] = {"source_embedding.weight": "embedding.weight"}
    for side, attentions in (
        ("encoder", {"self_attention": "self_attn"}),
        ("decoder", {"self_attention": "self_attn", "cross_attention": "multihead_attn"}),
    ):
        for i in range(layers):
            ours, theirs = f"{side}_layers.{i}", f"transformer.{side}.layers.{i}"
            for number, (attention, their_attention) in enumerate(attentions.items(), start=1):
                for kind in ("weight", "bias"):
                    name = f"{theirs}.{their_attention}.in_proj_{kind}"
                    table[f"{ours}.{attention}.input.{kind}"] = name
                table |= both(f"{ours}.{attention}.output", f"{theirs}.{their_attention}.out_proj")
                table |= both(f"{ours}.{attention}_norm", f"{theirs}.norm{number}")
            table |= both(f"{ours}.feed_forward.input", f"{theirs}.linear1")
            table |= both(f"{ours}.feed_forward.output", f"{theirs}.linear2")
            table |= both(f"{ours}.feed_forward_norm", f"{theirs}.norm{len(attentions) + 1}")
        if norm_position == "pre":
            table |= both(f"{side}_norm", f"transformer.{side}.norm")
    return table


def torch_transformer(norm_position: str, activation: str) -> nn.Module:
    shape = {"d_model": 8, "nhead": 2, "dim_feedforward": 12, "dropout": 0.0}
    shape |= {"activation": activation, "batch_first": True, "norm_first": norm_position == "pre"}
    norms = [nn.LayerNorm(8) if norm_position == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**shape), 2, norms[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shape), 2, norms[1])
    transformer = nn.Transformer(
        8, 2, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    )
    return nn.ModuleDict({"embedding": nn.Embedding(15, 8), "transformer": transformer})


@pytest.mark.parametrize("norm_position", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_model_equals_torchs_transformer(
    norm_position: Literal["post", "pre"], activation: FeedForwardKind
) -> None:
    theirs = shuffled(torch_transformer(norm_position, activation))
    config = TransformerConfig(
        d_model=8,
        num_heads=2,
        d_ff=12,
        encoder_layers=2,
        decoder_layers=2,
        feed_forward=activation,
        norm_position=norm_position,
    )
    ours = Transformer(config, source_vocabulary=15, target_vocabulary=15).double().eval()
    carry(ours, theirs, torch_table(2, norm_position))

    def embedded(ids: torch.Tensor) -> torch.Tensor:
        position = torch.arange(ids.shape[1]).double()[:, None]
        angles = position / 10000 ** (torch.arange(0, 8, 2).double() / 8)
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
        return theirs["embedding"](ids) * 8**0.5 + table

    transformer = theirs["transformer"]
    memory = transformer.encoder(embedded(SOURCE), src_key_padding_mask=~SOURCE_MASK)
    our_memory = ours.encode(SOURCE, SOURCE_MASK)
    torch.testing.assert_close(our_memory[SOURCE_MASK], memory[SOURCE_MASK], **CLOSE)

    hidden = transformer(
        embedded(SOURCE),
        embedded(TARGET),
        tgt_mask=~causal_mask(5, 5),
        src_key_padding_mask=~SOURCE_MASK,
        memory_key_padding_mask=~SOURCE_MASK,
        tgt_key_padding_mask=~TARGET_MASK,
    )
    our_hidden = ours.decode(TARGET, our_memory, SOURCE_MASK, TARGET_MASK)
    torch.testing.assert_close(our_hidden[TARGET_MASK], hidden[TARGET_MASK], **CLOSE)

    logits = hidden @ theirs["embedding"].weight.T
    our_logits = ours(SOURCE, TARGET, SOURCE_MASK)
    torch.testing.assert_close(our_logits[TARGET_MASK], logits[TARGET_MASK], **CLOSE)


def marian_table(layers: dict[str, int]) -> dict[str, str | list[str]]:
    table: dict[str, str | list[str]] = {"source_embedding.weight": "model.shared.weight"}
    names = {
        "encoder": {"self_attention": "self_attn"},
        "decoder": {"self_attention": "self_attn", "cross_attention": "encoder_attn"},
    }
    for side, attentions in names.items():
        for i in range(layers[side]):
            ours, theirs = f"{side}_layers.{i}", f"model.{side}.layers.{i}"
            for attention, their_attention in attentions.items():
                for kind in ("weight", "bias"):
                    table[f"{ours}.{attention}.input.{kind}"] = [
                        f"{theirs}.{their_attention}.{part}_proj.{kind}" for part in "qkv"
                    ]
                table |= both(f"{ours}.{attention}.output", f"{theirs}.{their_attention}.out_proj")
                table |= both(f"{ours}.{attention}_norm", f"{theirs}.{their_attention}_layer_norm")
            table |= both(f"{ours}.feed_forward.input", f"{theirs}.fc1")
            table |= both(f"{ours}.feed_forward.output", f"{theirs}.fc2")
            table |= both(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm")
    return table


def test_the_model_equals_a_marian_model() -> None:
    from transformers import MarianConfig, MarianMTModel

    from regard.nn.positions import sinusoids

    marian_config = MarianConfig(
        vocab_size=15,
        d_model=8,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=12,
        decoder_ffn_dim=12,
        activation_function="gelu",
        scale_embedding=True,
        max_position_embeddings=20,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    theirs = MarianMTModel(marian_config)
    given = theirs.model.encoder.embed_positions.weight.clone()
    shuffled(theirs)
    exact = sinusoids(20, 8, "halves")
    torch.testing.assert_close(given.double(), exact, rtol=0, atol=1e-6)
    for side in (theirs.model.encoder, theirs.model.decoder):
        side.embed_positions.weight.data.copy_(exact)  # theirs is rounded to float32

    config = TransformerConfig(
        d_model=8,
        num_heads=2,
        d_ff=12,
        encoder_layers=3,
        decoder_layers=2,
        feed_forward="gelu",
        positions=SinusoidalConfig(layout="halves"),
    )
    ours = Transformer(config, source_vocabulary=15, target_vocabulary=15).double().eval()
    carry(ours, theirs, marian_table({"encoder": 3, "decoder": 2}))

    expected = theirs(
        input_ids=SOURCE,
        attention_mask=SOURCE_MASK.long(),
        decoder_input_ids=TARGET,
        decoder_attention_mask=TARGET_MASK.long(),
        output_hidden_states=True,
        use_cache=False,
    )
    memory = ours.encode(SOURCE, SOURCE_MASK)
    expected_memory = expected.encoder_last_hidden_state
    torch.testing.assert_close(memory[SOURCE_MASK], expected_memory[SOURCE_MASK], **CLOSE)
    hidden = ours.decode(TARGET, memory, SOURCE_MASK, TARGET_MASK)
    expected_hidden = expected.decoder_hidden_states[-1]
    torch.testing.assert_close(hidden[TARGET_MASK], expected_hidden[TARGET_MASK], **CLOSE)
    logits = ours(SOURCE, TARGET, SOURCE_MASK)
    torch.testing.assert_close(logits[TARGET_MASK], expected.logits[TARGET_MASK], **CLOSE)
