"""A trained encoder-decoder of the 2017 form, against its own authors' code, weights carried over.

The package annalog brings the checkpoint and the code.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.nn.config import LearnedConfig

TOKENS, D_MODEL, LAYERS, POSITIONS = 59, 256, 3, 102
PAD = 1


def package_folder() -> Path:
    spec = importlib.util.find_spec("annalog")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package annalog is not installed")
    return Path(spec.submodule_search_locations[0])


def load_module(folder: Path) -> ModuleType:
    """The file of the model alone: the package itself wants a chemistry library."""
    name = "annalog_model_files"
    spec = importlib.util.spec_from_file_location(name, folder / "model_files" / "__init__.py")
    assert spec is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    return importlib.import_module(f"{name}.seq2seq_attention")


@pytest.fixture(scope="module")
def theirs() -> nn.Module:
    folder = package_folder()
    module = load_module(folder)
    sides = [
        kind(TOKENS, D_MODEL, LAYERS, 8, 512, 0.1, "cpu", POSITIONS)
        for kind in (module.Encoder, module.Decoder)
    ]
    model: nn.Module = module.Seq2Seq(*sides, PAD, PAD, "cpu")
    state = torch.load(
        folder / "ckpt_and_vocab" / "Lev_extended.pt", map_location="cpu", weights_only=True
    )
    model.load_state_dict(state, strict=True)
    return model.eval()


def table() -> dict[str, list[str]]:
    """Our names to theirs; several are stacked."""
    names = {
        "projection.weight": ["decoder.fc_out.weight"],
        "output_bias": ["decoder.fc_out.bias"],
    }
    attentions = {
        "encoder": {"self_attention": ("self_attention", "self_attn")},
        "decoder": {
            "self_attention": ("self_attention", "self_attn"),
            "cross_attention": ("encoder_attention", "enc_attn"),
        },
    }
    for side, ours in (("encoder", "source"), ("decoder", "target")):
        names[f"{ours}_embedding.weight"] = [f"{side}.tok_embedding.weight"]
        names[f"{ours}_positions.weight"] = [f"{side}.pos_embedding.weight"]
        for layer in range(LAYERS):
            here, there = f"{side}_layers.{layer}", f"{side}.layers.{layer}"
            for kind in ("weight", "bias"):
                for attention, (their, norm) in attentions[side].items():
                    parts = [f"{there}.{their}.fc_{part}.{kind}" for part in "qkv"]
                    names[f"{here}.{attention}.input.{kind}"] = parts
                    names[f"{here}.{attention}.output.{kind}"] = [f"{there}.{their}.fc_o.{kind}"]
                    names[f"{here}.{attention}_norm.{kind}"] = [f"{there}.{norm}_layer_norm.{kind}"]
                inner = f"{there}.positionwise_feedforward"
                names[f"{here}.feed_forward.input.{kind}"] = [f"{inner}.fc_1.{kind}"]
                names[f"{here}.feed_forward.output.{kind}"] = [f"{inner}.fc_2.{kind}"]
                names[f"{here}.feed_forward_norm.{kind}"] = [f"{there}.ff_layer_norm.{kind}"]
    return names


def carried(theirs: nn.Module) -> Transformer:
    config = TransformerConfig(
        d_model=D_MODEL,
        num_heads=8,
        d_ff=512,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        positions=LearnedConfig(max_positions=POSITIONS),
        tying="none",
        output_bias=True,
    )
    model = build_model(config, source_vocabulary=TOKENS, target_vocabulary=TOKENS, seed=1)
    state, rows = theirs.state_dict(), table()
    used = [name for names in rows.values() for name in names]
    assert sorted(used) == sorted(state)
    model.load_state_dict(
        {ours: torch.cat([state[name] for name in names]) for ours, names in rows.items()}
    )
    return model.eval()


def batch() -> tuple[Tensor, Tensor]:
    """Rows of several lengths, padded on the right."""
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randint(4, TOKENS, (4, size), generator=generator) for size in (40, 33))
    for row, (source_length, target_length) in enumerate([(40, 33), (12, 20), (1, 1), (27, 3)]):
        source[row, source_length:] = PAD
        target[row, target_length:] = PAD
    return source, target


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
@torch.no_grad()
def test_logits_are_those_of_its_own_code(
    theirs: nn.Module, dtype: torch.dtype, close: float
) -> None:
    ours = carried(theirs).to(dtype)
    source, target = batch()
    theirs.to(dtype)
    for side in (theirs.encoder, theirs.decoder):  # plain tensors, which .to passes over
        side.scale = side.scale.to(dtype).fill_(D_MODEL).sqrt()
        for layer in side.layers:
            for name in ("self_attention", "encoder_attention"):
                if (attention := getattr(layer, name, None)) is not None:
                    attention.scale = attention.scale.to(dtype).fill_(32).sqrt()
    wanted, _ = theirs(source, target)
    held = target != PAD
    found = ours(source, target, source != PAD, held)
    error = (found - wanted)[held].abs().max()
    assert float(error) < close
    assert float(wanted[held].std()) > 1  # a trained model, far from the even guess
