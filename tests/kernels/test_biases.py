import math

import pytest
import torch
from torch.nn import functional

from regard.kernels import biases
from regard.kernels.biases import linear_relu
from regard.kernels.products import Linear
from regard.nn.feed_forward import FeedForward

HALF = torch.bfloat16
SHAPES = [(1, 5, 3), (7, 16, 40), (2, 70, 32, 17), (300, 8, 100)]  # places, k and m


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few numbers are enough."""
    monkeypatch.setattr(biases, "_SMALL", 0)


def case(shape: tuple[int, ...]) -> list[torch.Tensor]:
    """x, weight, bias."""
    generator = torch.Generator().manual_seed(sum(shape))
    sizes = (shape[:-1], (shape[-1], shape[-2]), shape[-1:])
    return [torch.randn(size, generator=generator).requires_grad_() for size in sizes]


def mine(inputs: list[torch.Tensor]) -> torch.Tensor:
    with torch.autocast("cpu", dtype=HALF):
        out = linear_relu(*inputs)
    assert out is not None
    return out


def plain(inputs: list[torch.Tensor]) -> torch.Tensor:
    with torch.autocast("cpu", dtype=HALF):
        return functional.relu(functional.linear(*inputs))


@pytest.mark.parametrize("shape", SHAPES)
def test_all_but_the_biass_gradient_is_pytorchs_bit_for_bit(
    isa: str, shape: tuple[int, ...]
) -> None:
    inputs = case(shape)
    got, wanted = mine(inputs), plain(inputs)
    assert got.dtype == HALF and torch.equal(got, wanted)
    outer = torch.randn(got.shape).to(HALF)
    my_grads = torch.autograd.grad(got, inputs, outer)
    their_grads = torch.autograd.grad(wanted, inputs, outer)
    for my, their in zip(my_grads[:2], their_grads[:2], strict=True):
        assert torch.equal(my, their)
    slopes = (outer.double() * (wanted > 0)).flatten(0, -2)
    assert my_grads[2].dtype == torch.float32
    torch.testing.assert_close(my_grads[2].double(), slopes.sum(0), rtol=1e-6, atol=1e-4)
    torch.testing.assert_close(my_grads[2], their_grads[2], rtol=2**-7, atol=1e-4)


def test_any_number_of_threads_gives_the_same_bits(
    isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = case((700, 8, 50))
    outer = torch.randn(700, 50).to(HALF)

    def run() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(mine(inputs), inputs, outer)

    alone = run()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert all(torch.equal(*pair) for pair in zip(alone, run(), strict=True))


def test_what_is_not_a_number_goes_where_pytorch_lets_it(isa: str) -> None:
    inputs = case((40, 8, 24))
    with torch.no_grad():
        inputs[0][3] = math.nan
        inputs[0][5] = math.inf
    got, wanted = mine(inputs), plain(inputs)
    outer = torch.randn(40, 24).to(HALF)
    outer[7, 2] = math.nan
    for my, their in zip(
        (got, *torch.autograd.grad(got, inputs, outer)),
        (wanted, *torch.autograd.grad(wanted, inputs, outer)),
        strict=True,
    ):
        assert torch.equal(my.isnan(), their.isnan())
    assert got[3].isnan().all()


def test_no_rows_and_slopes_that_lie_otherwise_are_taken(isa: str) -> None:
    x, weight, bias = case((30, 8, 20))
    none = torch.autograd.grad(mine([x[:0], weight, bias]).sum(), bias)[0]
    assert none.shape == (20,) and not none.any()
    for slopes in (torch.ones((), dtype=HALF).expand(30, 20), torch.randn(20, 30).to(HALF).t()):
        got = [
            torch.autograd.grad(mine([x, weight, bias]), (x, weight, bias), outer)
            for outer in (slopes, slopes.contiguous())
        ]
        assert all(torch.equal(*pair) for pair in zip(*got, strict=True))


def test_gradients_of_gradients_are_those_of_pytorch(isa: str) -> None:
    inputs = case((30, 8, 20))

    def second(out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = torch.autograd.grad(out.float().square().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), inputs)

    for my, their in zip(second(mine(inputs)), second(plain(inputs)),
                         strict=True):  # fmt: skip
        scale = float(their.abs().max())
        torch.testing.assert_close(my, their, rtol=0.02, atol=0.02 * scale)


def test_what_is_not_for_the_kernel_is_left_to_pytorch(
    isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight, bias = case((30, 8, 20))
    assert linear_relu(x, weight, bias) is None
    with torch.autocast("cpu", dtype=torch.float16):
        assert linear_relu(x, weight, bias) is None
    with torch.autocast("cpu", dtype=HALF):
        assert linear_relu(x, weight, None) is None
        assert linear_relu(x, weight, bias.detach()) is None
        assert linear_relu(x.double(), weight, bias) is None
        with torch.no_grad():
            assert linear_relu(x, weight, bias) is None
        monkeypatch.setattr(biases, "_SMALL", 601)
        assert linear_relu(x, weight, bias) is None
        monkeypatch.setattr(biases, "_SMALL", 0)
        monkeypatch.setenv("REGARD_KERNELS", "off")
        assert linear_relu(x, weight, bias) is None


def test_a_feed_forward_network_uses_it_unless_its_first_layer_is_watched(
    isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = FeedForward(8, 20, activation="relu", dropout=0.0)
    x = torch.randn(2, 15, 8)
    calls = []
    plain_form = Linear.forward

    def forward(layer: Linear, given: torch.Tensor) -> torch.Tensor:
        calls.append(layer)
        return plain_form(layer, given)

    monkeypatch.setattr(Linear, "forward", forward)
    with torch.autocast("cpu", dtype=HALF):
        out = network(x)
        assert calls == [network.output]
        seen: list[torch.Tensor] = []
        network.input.register_forward_hook(lambda layer, given, made: seen.append(made))
        assert torch.equal(out, network(x))
        assert calls == [network.output, network.input, network.output]
        assert (seen[0] < 0).any()  # what it made is as it was, not what ReLU left of it
