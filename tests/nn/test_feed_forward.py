import pytest
import torch

from regard.nn.feed_forward import build_feed_forward

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize("kind", ["relu", "gelu"])
def test_the_plain_network_is_equation_2_of_the_paper(kind: str) -> None:
    torch.manual_seed(0)
    module = build_feed_forward(kind, 6, 10, bias=True, dropout=0.0).double()
    torch.nn.init.normal_(module.input.bias)
    torch.nn.init.normal_(module.output.bias)
    x = torch.randn(2, 3, 6).double()
    inner = x @ module.input.weight.T + module.input.bias
    if kind == "relu":
        inner = inner.clamp(min=0)
    else:
        inner = inner * 0.5 * (1 + torch.erf(inner / 2**0.5))
    expected = inner @ module.output.weight.T + module.output.bias
    torch.testing.assert_close(module(x), expected, **CLOSE)


def test_swiglu_is_its_paper_s_equation_without_biases() -> None:
    torch.manual_seed(0)
    module = build_feed_forward("swiglu", 6, 10, bias=False, dropout=0.0).double()
    x = torch.randn(2, 3, 6).double()
    gate, linear = module.input.weight[:10], module.input.weight[10:]
    swish = (x @ gate.T) * torch.sigmoid(x @ gate.T)
    expected = (swish * (x @ linear.T)) @ module.output.weight.T
    torch.testing.assert_close(module(x), expected, **CLOSE)
    assert sum(p.numel() for p in module.parameters()) == 3 * 6 * 10


@pytest.mark.parametrize("kind", ["relu", "gelu", "swiglu"])
def test_activation_dropout_acts_on_the_inner_activations_in_training_only(kind: str) -> None:
    torch.manual_seed(0)
    module = build_feed_forward(kind, 6, 400, bias=True, dropout=0.5)
    x = torch.randn(1, 6)
    assert not torch.equal(module(x), module(x))
    seen = []
    module.output.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    module(x)
    dropped = (seen[0] == 0).float().mean().item()
    module.eval()
    assert torch.equal(module(x), module(x))
    undropped = (seen[1] == 0).float().mean().item()
    assert dropped > undropped + 0.1
    kept = seen[0] != 0
    torch.testing.assert_close(seen[0][kept], seen[1][kept] * 2)
