"""Whole models with every sequence layer and every kind of positions that it can have."""

import pytest
import torch
from pydantic import ValidationError
from rows import padded

from regard.models.build import build_encoder, build_language_model
from regard.models.config import DecoderConfig, EncoderConfig
from regard.nn.config import LearnedConfig, RelativeConfig, RotaryConfig
from regard.nn.mixers.config import (
    DEFAULTS,
    BigBirdConfig,
    ConvolutionConfig,
    LinformerConfig,
    MambaConfig,
    PerformerConfig,
    StackConfig,
    WindowConfig,
)

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
SMALL = {
    **DEFAULTS,
    "window": WindowConfig(window=3, dilation=2, global_tokens=1),
    "bigbird": BigBirdConfig(block=2, window=2, random_blocks=1),
    "linformer": LinformerConfig(length=16, rank=3),
    "performer": PerformerConfig(features=6),
    "convolution": ConvolutionConfig(width=3, dilation=2),
    "mamba": MambaConfig(state=3),
}
ADDED, ON_SCORES = ("none", "sinusoidal", "learned"), ("rotary", "alibi", "relative")
SCHEMES = (*ADDED, *ON_SCORES)
SCORED = ("full", "window", "bigbird")
CONFIGS = {
    "learned": LearnedConfig(max_positions=16),
    "rotary": RotaryConfig(theta=100.0),
    "relative": RelativeConfig(buckets=4, max_distance=5),
}
SHAPE = {"d_model": 8, "num_heads": 2, "d_ff": 6, "num_layers": 2, "norm_position": "pre"}
TEXTS = [[3, 4, 5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15], [16]]


def allowed(kind: str, scheme: str, *, causal: bool) -> bool:
    """What docs/attention.md says."""
    side = kind != "linformer" if causal else kind not in ("ssru", "mamba")
    return side and (scheme in ADDED or kind in SCORED)


def pairs(*, causal: bool) -> list[tuple[str, str]]:
    return [
        (kind, scheme)
        for kind in SMALL
        for scheme in SCHEMES
        if allowed(kind, scheme, causal=causal)
    ]


def config_of(kind: str, scheme: str, *, causal: bool) -> DecoderConfig | EncoderConfig:
    stack = StackConfig(mixer=SMALL[kind])
    positions = CONFIGS.get(scheme, {"kind": scheme})
    if causal:
        return DecoderConfig(**SHAPE, positions=positions, decoder=stack)
    return EncoderConfig(**SHAPE, positions=positions, encoder=stack)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", SMALL)
def test_a_layer_goes_with_the_positions_that_the_page_says(
    kind: str, scheme: str, causal: bool
) -> None:
    if allowed(kind, scheme, causal=causal):
        config_of(kind, scheme, causal=causal)
    else:
        with pytest.raises(ValidationError):
            config_of(kind, scheme, causal=causal)


def off_start(model: torch.nn.Module) -> None:
    torch.manual_seed(2)
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    model.double().eval()


@pytest.mark.parametrize(("kind", "scheme"), pairs(causal=True))
def test_a_language_model_keeps_every_law(kind: str, scheme: str) -> None:
    model = build_language_model(config_of(kind, scheme, causal=True), vocabulary=20, seed=1)  # type: ignore[arg-type]
    off_start(model)
    alone = [model(torch.tensor([text]))[0] for text in TEXTS]
    for side in ("left", "right"):  # padding and batch
        ids, mask = padded(TEXTS, side, 1)
        logits = model(ids, mask)
        for row, expected in enumerate(alone):
            torch.testing.assert_close(logits[row][mask[row]], expected, **CLOSE)
    packed = torch.tensor([[token for text in TEXTS for token in text]])
    numbers = torch.tensor([[number for number, text in enumerate(TEXTS) for _ in text]])
    logits = model(packed, None, numbers)[0]
    torch.testing.assert_close(logits, torch.cat(alone), **CLOSE)
    for cuts in ([1] * 9, [4, 1, 4], [9]):  # step by step, in chunks, all at once
        cache = model.start(1)
        pieces = torch.tensor([TEXTS[0]]).split(cuts, 1)
        stepped = torch.cat([model.step(piece, cache) for piece in pieces], 1)
        torch.testing.assert_close(model.project(stepped)[0], alone[0], **CLOSE)
    changed = model(torch.tensor([[*TEXTS[0][:5], 17, 18, 19, 3]]))[0]  # nothing later is seen
    torch.testing.assert_close(changed[:5], alone[0][:5], **CLOSE)
    hidden = model.hidden(torch.tensor([TEXTS[0]]))
    (slope,) = torch.autograd.grad(hidden[0, 4].square().sum(), model.embedding.weight)
    reached = (slope[TEXTS[0]] != 0).any(1)
    assert reached[4]
    assert not reached[5:].any()


@pytest.mark.parametrize(("kind", "scheme"), pairs(causal=False))
def test_an_encoder_keeps_every_law(kind: str, scheme: str) -> None:
    model = build_encoder(config_of(kind, scheme, causal=False), vocabulary=20, seed=1)  # type: ignore[arg-type]
    off_start(model)
    alone = [model(torch.tensor([text]))[0] for text in TEXTS]
    for side in ("left", "right"):
        ids, mask = padded(TEXTS, side, 1)
        hidden = model(ids, mask)
        for row, expected in enumerate(alone):
            torch.testing.assert_close(hidden[row][mask[row]], expected, **CLOSE)
    packed = torch.tensor([[token for text in TEXTS for token in text]])
    numbers = torch.tensor([[number for number, text in enumerate(TEXTS) for _ in text]])
    hidden = model(packed, None, None, numbers)[0]
    torch.testing.assert_close(hidden, torch.cat(alone), **CLOSE)
    # Order is told by positions, or by a layer to which places are not alike.
    order = torch.tensor([3, 1, 0, 2, 8, 4, 6, 7, 5])
    moved = model(torch.tensor([TEXTS[0]])[:, order])[0]
    alike = scheme == "none" and kind in ("full", "linear", "performer")
    assert torch.allclose(moved, alone[0][order], **CLOSE) == alike
