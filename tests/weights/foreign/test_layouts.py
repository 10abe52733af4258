"""Layouts without settings of their own: there and back, and nn.Transformer's own logits."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from weights.foreign.elsewhere import close, ours, shuffled

from regard.errors import CheckpointError
from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.nn.config import LayerNormConfig
from regard.nn.masks import causal_mask
from regard.nn.positions import sinusoids
from regard.weights.foreign import joeynmt, opennmt, torch_transformer
from regard.weights.foreign.families import read
from regard.weights.foreign.table import send

SHAPE: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 12, "decoder_layers": 1}
SHAPE |= {"encoder_layers": 2, "dropout": 0.1}
SOURCE = torch.tensor([[5, 6, 7, 8, 9], [11, 12, 3, 0, 0]])
MASK = SOURCE != 0
TARGET = torch.tensor([[1, 5, 6, 7], [1, 9, 3, 4]])


def told(path: Path, kind: str, **settings: Any) -> Path:
    path.mkdir(exist_ok=True)
    values = {"model_type": kind, "num_heads": 2, **settings}
    (path / "config.json").write_text(json.dumps(values))
    return path


@pytest.mark.parametrize("tying", ["three_way", "two_way", "none"])
@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("layout", [torch_transformer, opennmt, joeynmt])
def test_weights_come_back_from_a_layout_to_the_bit(
    layout: ModuleType, norm_position: Literal["pre", "post"], tying: Any, tmp_path: Path
) -> None:
    config = TransformerConfig(
        **SHAPE, norm_position=norm_position, tying=tying, norm=LayerNormConfig(eps=1e-4)
    )
    model = shuffled_ours(config)
    path = told(
        tmp_path,
        layout.FAMILY.types[0],
        norm_position=norm_position,
        norm_eps=1e-4,
    )
    save_file(send(layout.table(config), model.state_dict()), path / "model.safetensors")
    found = read(path)
    assert found.config == config
    assert all(torch.equal(found.weights[n], w) for n, w in model.state_dict().items())


def layout_folder(path: Path, kind: str) -> Path:
    """Weights in one of the layouts, and the settings that they need."""
    layouts = {one.FAMILY.types[0]: one for one in (torch_transformer, opennmt, joeynmt)}
    config = TransformerConfig(**SHAPE, norm_position="pre")
    weights = send(layouts[kind].table(config), shuffled_ours(config).state_dict())
    save_file(weights, told(path, kind, norm_position="pre") / "model.safetensors")
    return path


OPENNMT = """
encoder.embeddings.make_embedding.emb_luts.0.weight decoder.embeddings.make_embedding.emb_luts.0.weight
encoder.transformer.0.self_attn.linear_keys.weight encoder.transformer.0.self_attn.linear_keys.bias
encoder.transformer.0.self_attn.linear_values.weight encoder.transformer.0.self_attn.linear_values.bias
encoder.transformer.0.self_attn.linear_query.weight encoder.transformer.0.self_attn.linear_query.bias
encoder.transformer.0.self_attn.final_linear.weight encoder.transformer.0.self_attn.final_linear.bias
encoder.transformer.0.feed_forward.w_1.weight encoder.transformer.0.feed_forward.w_1.bias
encoder.transformer.0.feed_forward.w_2.weight encoder.transformer.0.feed_forward.w_2.bias
encoder.transformer.0.feed_forward.layer_norm.weight encoder.transformer.0.feed_forward.layer_norm.bias
encoder.transformer.0.layer_norm.weight encoder.transformer.0.layer_norm.bias
encoder.layer_norm.weight encoder.layer_norm.bias
decoder.layer_norm.weight decoder.layer_norm.bias
decoder.transformer_layers.0.self_attn.linear_keys.weight decoder.transformer_layers.0.self_attn.linear_keys.bias
decoder.transformer_layers.0.self_attn.linear_values.weight decoder.transformer_layers.0.self_attn.linear_values.bias
decoder.transformer_layers.0.self_attn.linear_query.weight decoder.transformer_layers.0.self_attn.linear_query.bias
decoder.transformer_layers.0.self_attn.final_linear.weight decoder.transformer_layers.0.self_attn.final_linear.bias
decoder.transformer_layers.0.feed_forward.w_1.weight decoder.transformer_layers.0.feed_forward.w_1.bias
decoder.transformer_layers.0.feed_forward.w_2.weight decoder.transformer_layers.0.feed_forward.w_2.bias
decoder.transformer_layers.0.feed_forward.layer_norm.weight decoder.transformer_layers.0.feed_forward.layer_norm.bias
decoder.transformer_layers.0.layer_norm_1.weight decoder.transformer_layers.0.layer_norm_1.bias
decoder.transformer_layers.0.context_attn.linear_keys.weight decoder.transformer_layers.0.context_attn.linear_keys.bias
decoder.transformer_layers.0.context_attn.linear_values.weight decoder.transformer_layers.0.context_attn.linear_values.bias
decoder.transformer_layers.0.context_attn.linear_query.weight decoder.transformer_layers.0.context_attn.linear_query.bias
decoder.transformer_layers.0.context_attn.final_linear.weight decoder.transformer_layers.0.context_attn.final_linear.bias
decoder.transformer_layers.0.layer_norm_2.weight decoder.transformer_layers.0.layer_norm_2.bias
generator.0.weight generator.0.bias
"""  # noqa: E501
JOEYNMT = """
src_embed.lut.weight trg_embed.lut.weight
encoder.layers.0.layer_norm.weight encoder.layers.0.layer_norm.bias
encoder.layers.0.src_src_att.k_layer.weight encoder.layers.0.src_src_att.k_layer.bias
encoder.layers.0.src_src_att.v_layer.weight encoder.layers.0.src_src_att.v_layer.bias
encoder.layers.0.src_src_att.q_layer.weight encoder.layers.0.src_src_att.q_layer.bias
encoder.layers.0.src_src_att.output_layer.weight encoder.layers.0.src_src_att.output_layer.bias
encoder.layers.0.feed_forward.layer_norm.weight encoder.layers.0.feed_forward.layer_norm.bias
encoder.layers.0.feed_forward.pwff_layer.0.weight encoder.layers.0.feed_forward.pwff_layer.0.bias
encoder.layers.0.feed_forward.pwff_layer.3.weight encoder.layers.0.feed_forward.pwff_layer.3.bias
encoder.layer_norm.weight encoder.layer_norm.bias
decoder.layers.0.trg_trg_att.k_layer.weight decoder.layers.0.trg_trg_att.k_layer.bias
decoder.layers.0.trg_trg_att.v_layer.weight decoder.layers.0.trg_trg_att.v_layer.bias
decoder.layers.0.trg_trg_att.q_layer.weight decoder.layers.0.trg_trg_att.q_layer.bias
decoder.layers.0.trg_trg_att.output_layer.weight decoder.layers.0.trg_trg_att.output_layer.bias
decoder.layers.0.src_trg_att.k_layer.weight decoder.layers.0.src_trg_att.k_layer.bias
decoder.layers.0.src_trg_att.v_layer.weight decoder.layers.0.src_trg_att.v_layer.bias
decoder.layers.0.src_trg_att.q_layer.weight decoder.layers.0.src_trg_att.q_layer.bias
decoder.layers.0.src_trg_att.output_layer.weight decoder.layers.0.src_trg_att.output_layer.bias
decoder.layers.0.feed_forward.layer_norm.weight decoder.layers.0.feed_forward.layer_norm.bias
decoder.layers.0.feed_forward.pwff_layer.0.weight decoder.layers.0.feed_forward.pwff_layer.0.bias
decoder.layers.0.feed_forward.pwff_layer.3.weight decoder.layers.0.feed_forward.pwff_layer.3.bias
decoder.layers.0.x_layer_norm.weight decoder.layers.0.x_layer_norm.bias
decoder.layers.0.dec_layer_norm.weight decoder.layers.0.dec_layer_norm.bias
decoder.layer_norm.weight decoder.layer_norm.bias
decoder.output_layer.weight
"""


@pytest.mark.parametrize(
    ("layout", "names", "bias"), [(opennmt, OPENNMT, True), (joeynmt, JOEYNMT, False)]
)
def test_the_names_are_those_that_the_program_writes(
    layout: ModuleType, names: str, bias: bool
) -> None:
    config = TransformerConfig(
        **SHAPE | {"encoder_layers": 1}, norm_position="pre", tying="none", output_bias=bias
    )
    assert sorted(send(layout.table(config), shuffled_ours(config).state_dict())) == sorted(
        names.split()
    )


def shuffled_ours(config: TransformerConfig) -> nn.Module:
    model = build_model(config, source_vocabulary=15, target_vocabulary=15, seed=1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


class Tutorial(nn.Module):
    """A translator as PyTorch's tutorial names its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.src_tok_emb = nn.ModuleDict({"embedding": nn.Embedding(15, 8)})
        self.tgt_tok_emb = nn.ModuleDict({"embedding": nn.Embedding(15, 8)})
        self.transformer = nn.Transformer(
            8, 2, 2, 1, 12, dropout=0.0, norm_first=True, batch_first=True, activation="gelu"
        )
        self.generator = nn.Linear(8, 15)

    def tie_weights(self) -> None:
        """Nothing is tied."""

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        def embedded(table: Any, ids: torch.Tensor) -> torch.Tensor:
            vectors: torch.Tensor = table["embedding"](ids) * 8**0.5
            return vectors + sinusoids(ids.shape[1], 8, "interleaved").to(vectors)

        hidden = self.transformer(
            embedded(self.src_tok_emb, source),
            embedded(self.tgt_tok_emb, target),
            tgt_mask=~causal_mask(4, 4),
            src_key_padding_mask=~MASK,
            memory_key_padding_mask=~MASK,
        )
        logits: torch.Tensor = self.generator(hidden)
        return logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_translator_of_pytorchs_tutorial_gives_its_logits(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    theirs = shuffled(Tutorial())
    path = told(tmp_path, "torch-transformer", norm_position="pre", activation="gelu")
    torch.save({"state_dict": theirs.state_dict()}, path / "last.pt")
    model = ours(read(path, allow_pickle=True)).to(dtype)
    close(model(SOURCE, TARGET, MASK), theirs.to(dtype)(SOURCE, TARGET))


def test_a_second_norm_at_the_end_is_refused(tmp_path: Path) -> None:
    path = told(tmp_path, "torch-transformer")
    save_file(shuffled(Tutorial()).state_dict(), path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"it has transformer\.encoder\.norm after layers"):
        read(path)


def test_opennmts_generator_is_found_apart(tmp_path: Path) -> None:
    config = TransformerConfig(**SHAPE, norm_position="pre", tying="none", output_bias=True)
    model = shuffled_ours(config)
    weights = send(opennmt.table(config), model.state_dict())
    head = {n.removeprefix("generator."): w for n, w in weights.items() if n.startswith("gen")}
    body = {n: w for n, w in weights.items() if not n.startswith("gen")}
    path = told(tmp_path, "opennmt-py")
    torch.save({"model": body, "generator": head}, path / "step_100.pt")
    found = read(path, allow_pickle=True).weights
    assert all(torch.equal(found[n], w) for n, w in model.state_dict().items())


def test_heads_must_be_told(tmp_path: Path) -> None:
    path = told(tmp_path, "joeynmt", num_heads=None)
    config = TransformerConfig(**SHAPE, norm_position="pre")
    weights = send(joeynmt.table(config), shuffled_ours(config).state_dict())
    save_file(weights, path / "model.safetensors")
    with pytest.raises(CheckpointError, match="num_heads = null can't be honoured, wanted a whole"):
        read(path)
