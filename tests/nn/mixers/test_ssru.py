import torch
from mixing import over

from regard.nn.mixers.ssru import SSRU

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def test_it_is_the_equation_of_its_paper() -> None:
    torch.manual_seed(0)
    module = SSRU(4).double()
    torch.nn.init.normal_(module.forget.bias)
    x = torch.randn(3, 6, 4).double()
    state = torch.zeros(3, 4).double()
    for place, out in enumerate(over(module, x, causal=True).unbind(1)):
        forget = torch.sigmoid(x[:, place] @ module.forget.weight.T + module.forget.bias)
        state = forget * state + (1 - forget) * (x[:, place] @ module.value.weight.T)
        torch.testing.assert_close(out, state.clamp(min=0), **CLOSE)
