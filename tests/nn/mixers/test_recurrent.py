import pytest
import torch
from mixing import D_MODEL, make

from regard.nn.mixers.recurrent import Recurrence

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def written_out(name: str, weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The network by its equations, one place after the other."""
    inner, outer, inner_bias, outer_bias = weights
    hidden = cell = torch.zeros(len(x), D_MODEL).double()
    out = []
    for place in x.unbind(1):
        now, before = place @ inner.T + inner_bias, hidden @ outer.T + outer_bias
        if name == "rnn":
            hidden = torch.tanh(now + before)
        elif name == "lstm":
            into, forget, new, shown = (now + before).chunk(4, -1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(new)
            hidden = torch.sigmoid(shown) * torch.tanh(cell)
        else:
            reset, update, _ = torch.sigmoid(now + before).chunk(3, -1)
            new = torch.tanh(now.chunk(3, -1)[2] + reset * before.chunk(3, -1)[2])
            hidden = (1 - update) * new + update * hidden
        out.append(hidden)
    return torch.stack(out, 1)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("causal", [True, False])
def test_it_is_its_equations_in_each_direction_and_a_projection(name: str, causal: bool) -> None:
    case, x = make(name, causal=causal), torch.randn(2, 9, D_MODEL).double()
    layer = case.layer
    assert isinstance(layer, Recurrence)
    weights = list(layer.cell.parameters())
    hidden = written_out(name, weights[:4], x)
    if not causal:
        back = written_out(name, weights[4:], x.flip(1)).flip(1)
        hidden = torch.cat([hidden, back], -1)
    torch.testing.assert_close(case(x), layer.output(hidden), **CLOSE)


@pytest.mark.parametrize(("name", "vectors"), [("rnn", 1), ("lstm", 2), ("gru", 1)])
def test_its_state_is_as_large_as_documented(name: str, vectors: int) -> None:
    case = make(name, causal=True)
    cache = case.start(3)
    case.step(torch.randn(3, 50, D_MODEL).double(), cache)
    assert sum(tensor.numel() for tensor in cache.pasts[0].tensors) == 3 * vectors * D_MODEL
