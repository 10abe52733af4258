import pytest
import torch
from mixing import D_MODEL, make
from torch.nn import functional

from regard.nn.mixers.config import ConvolutionConfig
from regard.nn.mixers.convolution import Convolution
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("width", [1, 2, 3, 6])
@pytest.mark.parametrize("dilation", [1, 4, 40, 2000])
@pytest.mark.parametrize("causal", [True, False])
def test_it_is_torchs_convolution_with_a_gate(width: int, dilation: int, causal: bool) -> None:
    config = ConvolutionConfig(width=width, dilation=dilation)
    layer = Convolution(config, D_MODEL, causal=causal).double()
    x = torch.randn(2, 19, D_MODEL).double()
    back = (width - 1 if causal else width // 2) * dilation
    ahead = (width - 1) * dilation - back
    kernel = layer.input.weight.view(2 * D_MODEL, width, D_MODEL).transpose(1, 2)
    padded = functional.pad(x.transpose(1, 2), (back, ahead))
    inner = functional.conv1d(padded, kernel, layer.input.bias, dilation=dilation)
    wanted = layer.output(functional.glu(inner.transpose(1, 2), -1))
    y = layer(x, Span.whole(Positions(), x, causal=causal))
    torch.testing.assert_close(y, wanted, **CLOSE)


@pytest.mark.parametrize("causal", [True, False])
def test_two_layers_reach_as_far_as_the_receptive_field_says(causal: bool) -> None:
    layers = [
        Convolution(ConvolutionConfig(width=3, dilation=2), D_MODEL, causal=causal).double()
        for _ in range(2)
    ]
    x = torch.randn(1, 41, D_MODEL).double().requires_grad_()
    y = x
    for layer in layers:
        y = layer(y, Span.whole(Positions(), y, causal=causal))
    (gradient,) = torch.autograd.grad(y[0, 20].sum(), x)
    places = (gradient[0] != 0).any(-1).nonzero().flatten().tolist()
    reach = 2 * (3 - 1) * 2
    first = 20 - reach if causal else 20 - reach // 2
    assert (places[0], places[-1]) == (first, first + reach)


def test_its_state_is_as_large_as_documented() -> None:
    case = make("wide", causal=True)  # width 4, dilation 3
    cache = case.start(2)
    case.step(torch.randn(2, 30, D_MODEL).double(), cache)
    assert sum(tensor.numel() for tensor in cache.pasts[0].tensors) == 2 * 3 * 3 * D_MODEL
