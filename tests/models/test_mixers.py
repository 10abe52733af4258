"""Whole models of every kind of sequence layer: counted, trained a step, decoded step by step."""

import pytest
import torch
from torch import nn

from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.models.count import parameter_count
from regard.nn.config import SinusoidalConfig
from regard.nn.mixers.config import DEFAULTS, MixerKind, SSRUConfig, StackConfig, WindowConfig

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
PAST_ONLY: set[MixerKind] = {"ssru", "mamba"}
BOTH_SIDES_ONLY: set[MixerKind] = {"linformer"}
DECODERS = [kind for kind in DEFAULTS if kind not in BOTH_SIDES_ONLY]
ENCODERS = [kind for kind in DEFAULTS if kind not in PAST_ONLY]
SMALL = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_layers": 3}


def stack(kind: MixerKind) -> StackConfig:
    """That kind in the first layer and the third, full attention in the second."""
    return StackConfig(mixer=DEFAULTS[kind], pattern=(kind, "full"))


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("kind", DECODERS)
def test_a_language_model_learns_with_it_and_goes_on_step_by_step(kind: MixerKind) -> None:
    config = DecoderConfig(
        **SMALL, decoder=stack(kind), attention_dropout=0.0, dropout=0.0, tied=False
    )
    model = build_language_model(config, vocabulary=20, seed=1).double()
    assert size(model) == parameter_count(config, 20)
    ids = torch.randint(20, (3, 30), generator=torch.Generator().manual_seed(1))
    logits = model(ids)
    # Adding to all keys the same changes no weight of attention: such a bias has no gradient.
    names = {name: each for name, each in model.named_parameters() if "input.bias" not in name}
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
    for name, gradient in zip(names, torch.autograd.grad(loss, list(names.values())), strict=True):
        assert (gradient != 0).any(), name
    cache = model.start(3)
    steps = [model.step(part, cache) for part in ids.split([7, 1, 22], 1)]
    torch.testing.assert_close(model.project(torch.cat(steps, 1)), logits, **CLOSE)


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_has_as_many_parameters_as_counted_and_looks_to_both_sides(
    kind: MixerKind,
) -> None:
    config = EncoderConfig(**SMALL, encoder=stack(kind), positions=SinusoidalConfig())
    model = build_encoder(config, vocabulary=20, seed=1).double().eval()
    assert size(model) == parameter_count(config, 20)
    ids = torch.arange(3, 12)[None]
    for place in (0, 8):
        hidden = model(ids)
        (gradient,) = torch.autograd.grad(hidden[0, place].pow(3).sum(), model.embedding.weight)
        assert (gradient[ids[0]] != 0).any(-1).all()


@pytest.mark.parametrize("kind", DECODERS)
def test_an_encoder_decoder_decodes_with_it_step_by_step_as_all_at_once(kind: MixerKind) -> None:
    config = TransformerConfig(
        d_model=8,
        num_heads=2,
        d_ff=12,
        encoder_layers=2,
        decoder_layers=2,
        encoder=stack(kind) if kind in ENCODERS else StackConfig(),
        decoder=StackConfig(mixer=DEFAULTS[kind]),
    )
    model = build_model(config, source_vocabulary=20, target_vocabulary=20, seed=1)
    model = model.double().eval()
    assert size(model) == parameter_count(config, 20, 20)
    sources, targets = torch.arange(3, 15).view(2, 6), torch.arange(4, 18).view(2, 7)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    memory = model.encode(sources, mask)
    cache = model.start(memory, mask)
    steps = [model.step(part, cache)[0] for part in targets.split([1, 4, 2], 1)]
    expected = model.decode(targets, memory, mask)
    torch.testing.assert_close(torch.cat(steps, 1), expected, **CLOSE)


def test_the_older_words_mean_the_same_layers() -> None:
    old = TransformerConfig(decoder_mixer="ssru")
    assert old.decoder_mixers == [SSRUConfig()] * 6
    assert (
        old.decoder_mixers
        == TransformerConfig(decoder=StackConfig(mixer=SSRUConfig())).decoder_mixers
    )
    window = DecoderConfig(window=5, window_from=10)
    assert [mixer.kind for mixer in window.mixers] == ["full"] * 10 + ["window"] * 2
    assert window.mixers[-1] == WindowConfig(window=5)


def test_a_pattern_begins_again_after_its_end() -> None:
    mixer = WindowConfig(window=9)
    layers = StackConfig(mixer=mixer, pattern=("window", "window", "full")).layers(7)
    assert [layer.kind for layer in layers] == [*["window", "window", "full"] * 2, "window"]
    assert layers[0] == mixer
