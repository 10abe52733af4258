import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.nn.cache import RecurrentState
from regard.nn.ssru import SSRU

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def make() -> SSRU:
    torch.manual_seed(0)
    module = SSRU(4).double()
    torch.nn.init.normal_(module.forget.bias)
    return module


def test_it_is_the_equation_of_its_paper() -> None:
    module, x = make(), torch.randn(3, 6, 4).double()
    state = torch.zeros(3, 4).double()
    for place, out in enumerate(module(x).unbind(1)):
        forget = torch.sigmoid(x[:, place] @ module.forget.weight.T + module.forget.bias)
        state = forget * state + (1 - forget) * (x[:, place] @ module.value.weight.T)
        torch.testing.assert_close(out, state.clamp(min=0), **CLOSE)


@given(cut=st.integers(1, 5))
def test_in_chunks_it_is_the_same_as_all_at_once(cut: int) -> None:
    module, x = make(), torch.randn(3, 6, 4).double()
    past = RecurrentState()
    parts = [module(x[:, :cut], past=past), module(x[:, cut:], past=past)]
    torch.testing.assert_close(torch.cat(parts, 1), module(x), **CLOSE)


def test_padding_changes_nothing_not_even_where_it_is_nan() -> None:
    module, x = make(), torch.randn(1, 4, 4).double()
    mask = torch.tensor([[False, True, True, False, True, False, True]])
    padded = torch.full((1, 7, 4), torch.nan).double()
    padded[mask] = x[0]
    torch.testing.assert_close(module(padded, mask)[mask], module(x)[0], **CLOSE)
