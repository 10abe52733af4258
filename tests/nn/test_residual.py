from collections.abc import Callable

import pytest
import torch
from torch import nn

from regard.kernels import native
from regard.kernels import residual as kernel
from regard.kernels.residual import residual
from regard.nn import residual as layers
from regard.nn.attention import MultiHeadAttention
from regard.nn.config import ExpertsConfig
from regard.nn.dropout import Dropout
from regard.nn.experts import Experts
from regard.nn.feed_forward import FeedForward
from regard.nn.residual import add_and_norm, add_then_norm_for, norm_for

HALF = torch.bfloat16

pytestmark = pytest.mark.skipif(bool(native.absence()), reason="no native kernels")


def reader() -> FeedForward:
    return FeedForward(32, 48, activation="relu", dropout=0.0)


def vectors() -> torch.Tensor:
    return torch.randn(4, 9, 32, generator=torch.Generator().manual_seed(1))


def test_a_reader_by_products_alone_has_bfloat16_and_any_other_float32() -> None:
    x, norm, dropout = vectors().requires_grad_(), nn.LayerNorm(32), Dropout(0.1)
    attention = MultiHeadAttention(32, 2, d_k=16, d_v=16)
    experts = Experts(32, 48, ExpertsConfig(number=2), kind="relu", bias=True, dropout=0.0)
    for module, dtype in ((reader(), HALF), (attention, HALF), (experts, torch.float32)):
        with torch.autocast("cpu", dtype=HALF):
            made = [
                norm_for(x, norm, module),
                add_then_norm_for(x, x.to(HALF), dropout, norm, module),
                add_and_norm(x, x.to(HALF), dropout, norm, module),
            ]
        for beside, inner in made:
            assert beside.dtype == torch.float32 and inner.dtype == dtype
        assert norm_for(x, norm, module)[1].dtype == torch.float32


@pytest.mark.parametrize("watch", ["norm", "reader", "input"])
def test_whoever_looks_sees_float32(watch: str) -> None:
    norm, module = nn.LayerNorm(32), reader()
    watched = {"norm": norm, "reader": module, "input": module.input}[watch]
    seen: list[torch.Tensor] = []
    watched.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.autocast("cpu", dtype=HALF):
        module(norm_for(vectors(), norm, module)[1])
    assert [each.dtype for each in seen] == [torch.float32]


def test_without_gradients_and_in_eval_mode_the_norm_itself_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*given: object, **named: object) -> None:
        raise AssertionError("the kernel was asked")

    monkeypatch.setattr(layers, "native_norm", never)
    x, norm, module = vectors(), nn.LayerNorm(32), reader()
    with torch.autocast("cpu", dtype=HALF):
        with torch.no_grad():
            beside, inner = norm_for(x, norm, module)
        assert beside is x and torch.equal(inner, norm(x))
        beside, inner = norm_for(x.requires_grad_(), norm.eval(), module.eval())
        assert beside is x and torch.equal(inner, norm(x))


def test_other_norms_are_called() -> None:
    x, module = vectors().requires_grad_(), reader()
    for norm in (nn.RMSNorm(32), nn.LayerNorm(32, bias=False), nn.LayerNorm(32).double()):
        given = x.double() if next(norm.parameters()).dtype == torch.float64 else x
        beside, inner = norm_for(given, norm, module)
        assert beside is given and torch.equal(inner, norm(given))


def plain_first(x: torch.Tensor, y: torch.Tensor, norm: nn.Module) -> tuple[torch.Tensor, ...]:
    return x + y, norm(x + y)


def plain_last(x: torch.Tensor, y: torch.Tensor, norm: nn.Module) -> tuple[torch.Tensor, ...]:
    return norm(x + y), norm(x + y)


@pytest.mark.parametrize(
    ("form", "plain"), [(add_then_norm_for, plain_first), (add_and_norm, plain_last)]
)
def test_what_a_sublayer_reads_and_learns_is_what_the_plain_form_gives(
    form: Callable[..., tuple[torch.Tensor, ...]],
    plain: Callable[..., tuple[torch.Tensor, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "_seed", lambda: 77)
    module, norm = reader(), nn.LayerNorm(32)
    nn.init.normal_(norm.weight)
    x, y = vectors().requires_grad_(), vectors().flip(0).to(HALF).requires_grad_()
    factor = residual(torch.zeros(x.shape), torch.ones(x.shape), 26)
    assert factor is not None

    def learn(beside: torch.Tensor, inner: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = (beside.cos() + module(inner).float()).square().sum()
        return torch.autograd.grad(total, (x, y, norm.weight, norm.bias, module.input.weight))

    with torch.autocast("cpu", dtype=HALF):
        mine = form(x, y, Dropout(0.1), norm, module)
        theirs = plain(x, y.float() * factor, norm)
        torch.testing.assert_close(mine[0], theirs[0])
        # A number that lies between two of bfloat16 may go to either.
        torch.testing.assert_close(
            mine[1].float(), theirs[1].to(HALF).float(), rtol=2**-7, atol=1e-5
        )
        pairs = zip(learn(*mine), learn(*theirs), strict=True)
    for got, wanted in pairs:
        scale = float(wanted.abs().max())
        torch.testing.assert_close(got, wanted, rtol=0.01, atol=0.01 * scale)
