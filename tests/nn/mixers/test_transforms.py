"""What `torch.func` and forward-mode differentiation make of layers that have faster forms."""

import pytest
import torch
from torch.func import functional_call, grad, jvp

from regard.nn.attention import HeadShape
from regard.nn.mixers.build import build_mixer
from regard.nn.mixers.config import (
    BigBirdConfig,
    ConvolutionConfig,
    FullConfig,
    LinearConfig,
    MixerConfig,
    PerformerConfig,
    WindowConfig,
)
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions

LAYERS: list[MixerConfig] = [
    FullConfig(),
    WindowConfig(window=9, global_tokens=1),
    BigBirdConfig(block=8),
    PerformerConfig(features=12),
    LinearConfig(),
    ConvolutionConfig(),
]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("config", LAYERS, ids=lambda config: config.kind)
def test_gradients_and_slopes_along_a_direction_are_autograds(
    config: MixerConfig, padded: bool
) -> None:
    torch.manual_seed(3)
    shape = HeadShape(d_model=16, num_heads=2, d_k=8, d_v=8, num_kv_heads=2)
    layer = build_mixer(config, shape, causal=False)
    x, along = torch.randn(2, 2, 70, 16)
    mask = torch.arange(70) < torch.tensor([[70], [61]]) if padded else None
    weights = dict(layer.named_parameters())

    def loss(x: torch.Tensor) -> torch.Tensor:
        span = Span.whole(Positions(), x, causal=False, mask_bq=mask)
        out: torch.Tensor = functional_call(layer, weights, (x, span))
        return (out if mask is None else out[mask]).square().sum()

    asked = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(asked), asked)
    torch.testing.assert_close(grad(loss)(x), wanted, rtol=1e-4, atol=1e-4)
    _, slope = jvp(loss, (x,), (along,))
    torch.testing.assert_close(slope, (wanted * along).sum(), rtol=1e-3, atol=1e-3)
