"""What articles say of attention, recurrence and positions, as claims that can fail."""

import math

import pytest
import torch
from mixing import D_MODEL, Case, make

from regard.nn.attention import HeadShape
from regard.nn.mixers.build import build_mixer
from regard.nn.mixers.config import FullConfig, LSTMConfig, MixerConfig, RNNConfig
from regard.nn.mixers.span import Span
from regard.nn.positions import PositionalEncoding, Positions, sinusoids

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
ORDER = torch.tensor([4, 2, 0, 1, 3, 8, 6, 5, 7])


@pytest.mark.parametrize("name", ["full", "linear", "performer"])
def test_attention_without_positions_moves_its_outputs_as_its_inputs_are_moved(name: str) -> None:
    case, x = make(name, causal=False), torch.randn(2, 9, D_MODEL).double()
    torch.testing.assert_close(case(x[:, ORDER]), case(x)[:, ORDER], **CLOSE)


def with_sinusoids(case: Case, x: torch.Tensor) -> torch.Tensor:
    return case(x + sinusoids(x.shape[1], D_MODEL, "interleaved"))


@pytest.mark.parametrize("name", ["full", "linear", "performer"])
def test_with_positions_it_does_not(name: str) -> None:
    case, x = make(name, causal=False), torch.randn(2, 9, D_MODEL).double()
    assert not torch.allclose(
        with_sinusoids(case, x[:, ORDER]), with_sinusoids(case, x)[:, ORDER], atol=1e-3
    )


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "convolution", "window"])
def test_recurrence_convolution_and_windows_tell_the_order_without_positions(name: str) -> None:
    case, x = make(name, causal=False), torch.randn(2, 9, D_MODEL).double()
    assert not torch.allclose(case(x[:, ORDER]), case(x)[:, ORDER], atol=1e-3)


@pytest.mark.parametrize("offset", [1, 7, 100])
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_the_sinusoids_of_a_position_and_an_offset_are_one_linear_map_of_the_positions(
    offset: int, layout: str
) -> None:
    """Vaswani et al. 2017, section 3.5: the map is fitted on some positions, tried on others."""
    table = PositionalEncoding(8, layout, size=4000).double().table  # type: ignore[arg-type]
    here, there = table[:3000], table[offset : 3000 + offset]
    fitted = torch.linalg.lstsq(here[:2000], there[:2000]).solution
    torch.testing.assert_close(here[2000:] @ fitted, there[2000:], rtol=0, atol=1e-9)
    turns = fitted @ fitted.T  # each pair of dimensions is turned, so that lengths stay
    torch.testing.assert_close(turns, torch.eye(8).double(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("d_k", [4, 64, 512])
def test_the_variance_of_a_score_is_d_k_and_1_after_scaling(d_k: int) -> None:
    """Vaswani et al. 2017, footnote 4: q and k with components of mean 0 and variance 1."""
    generator = torch.Generator().manual_seed(1)
    query, key = torch.randn(2, 40_000, d_k, generator=generator)
    scores = (query * key).sum(1)
    assert float(scores.var()) == pytest.approx(d_k, rel=0.05)
    assert float((scores / math.sqrt(d_k)).var()) == pytest.approx(1, rel=0.05)


def from_first(config: MixerConfig, steps: int) -> float:
    """The norm of the gradient that the output after so many steps sends to the first token."""
    shape = HeadShape(d_model=32, num_heads=4, d_k=8, d_v=8, num_kv_heads=4)
    torch.manual_seed(1)
    layer = build_mixer(config, shape, causal=True).double()
    x = torch.randn(1, steps + 1, 32).double().requires_grad_()
    y = layer(x, Span.whole(Positions(), x, causal=True))
    (gradient,) = torch.autograd.grad(y[0, -1].sum(), x)
    return float(gradient[0, 0].norm())


def test_through_100_steps_a_recurrence_loses_its_gradient_and_attention_does_not() -> None:
    """The vanishing gradient; attention's falls only as its weights do, as 1 / n."""
    figures = {
        config.kind: from_first(config, 100) / from_first(config, 1)
        for config in (FullConfig(), RNNConfig(), LSTMConfig())
    }
    assert figures["full"] > 1e-3
    assert figures["rnn"] < 1e-10
    assert figures["lstm"] < 1e-10
