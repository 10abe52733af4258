import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.nn.mixers.chunks import causal_sums, quadratic_sums

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def parts(length: int, decays: bool) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(2, 3, length, e, generator=generator).double() for e in (5, 5, 4)]
    decay = -torch.rand(2, 3, length, generator=generator).double() if decays else None
    return [*made, decay]


def recurrence(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, decay: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    state, out = torch.zeros(2, 3, 5, 4).double(), []
    for place in range(query.shape[2]):
        if decay is not None:
            state = state * decay[:, :, place, None, None].exp()
        state = state + key[:, :, place, :, None] * value[:, :, place, None]
        out.append((query[:, :, place, None] @ state)[:, :, 0])
    return torch.stack(out, 2), state


@given(
    length=st.integers(1, 40),
    chunk=st.integers(1, 45),
    cut=st.integers(0, 39),
    decays=st.booleans(),
)
def test_chunks_the_recurrence_and_the_quadratic_form_are_the_same(
    length: int, chunk: int, cut: int, decays: bool
) -> None:
    query, key, value, decay = parts(length, decays)
    wanted, state = recurrence(query, key, value, decay)
    out, after = causal_sums(query, key, value, log_decay=decay, chunk=chunk)
    torch.testing.assert_close(out, wanted, **CLOSE)
    torch.testing.assert_close(after, state, **CLOSE)
    torch.testing.assert_close(quadratic_sums(query, key, value, decay), wanted, **CLOSE)
    cut = min(cut, length - 1)
    if cut:
        first, second = (
            [x if x is None else x[:, :, part] for x in (query, key, value, decay)]
            for part in (slice(0, cut), slice(cut, None))
        )
        head, between = causal_sums(*first[:3], log_decay=first[3], chunk=chunk)
        tail, after = causal_sums(*second[:3], between, log_decay=second[3], chunk=chunk)
        torch.testing.assert_close(torch.cat([head, tail], 2), wanted, **CLOSE)
        torch.testing.assert_close(after, state, **CLOSE)


@pytest.mark.parametrize("decays", [True, False])
def test_gradients_are_those_of_the_recurrence(decays: bool) -> None:
    given_ = [x.requires_grad_() for x in parts(23, decays) if x is not None]
    query, key, value, decay = (*given_, None)[:4]
    direction = torch.randn(2, 3, 23, 4).double()
    mine = causal_sums(query, key, value, log_decay=decay, chunk=6)[0]
    theirs = recurrence(query, key, value, decay)[0]
    for one, other in zip(
        torch.autograd.grad(mine, given_, direction),
        torch.autograd.grad(theirs, given_, direction),
        strict=True,
    ):
        torch.testing.assert_close(one, other, **CLOSE)


def test_decays_that_leave_nothing_overflow_nowhere() -> None:
    query, key, value, _ = parts(20, False)
    decay = torch.full((2, 3, 20), -500.0).double().requires_grad_()
    out, _ = causal_sums(query, key, value, log_decay=decay, chunk=8)
    (gradient,) = torch.autograd.grad(out.sum(), decay)
    assert gradient.isfinite().all()
    alone = (query * key).sum(-1, keepdim=True) * value
    torch.testing.assert_close(out, alone, **CLOSE)


@pytest.mark.parametrize("special", [math.nan, math.inf])
def test_what_is_not_finite_spoils_its_place_and_those_after_it(special: float) -> None:
    query, key, value, _ = parts(20, False)
    wanted = causal_sums(query, key, value, chunk=8)[0]
    key[:, :, 11, 2] = special
    out, state = causal_sums(query, key, value, chunk=8)
    torch.testing.assert_close(out[:, :, :11], wanted[:, :, :11], **CLOSE)
    assert out[:, :, 11:].isnan().all()
    assert state.isnan().all()
