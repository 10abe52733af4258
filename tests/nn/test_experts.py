"""A mixture of experts is the dense sum over all of them, with the gates that it says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.nn.config import ExpertsConfig
from regard.nn.experts import Experts, Routing, balance_losses, z_losses
from regard.nn.feed_forward import build_feed_forward


def made(kind: str = "relu", *, number: int = 5, top: int = 2, bias: bool = True) -> Experts:
    torch.manual_seed(0)
    config = ExpertsConfig(number=number, top=top)
    experts = Experts(6, 10, config, kind=kind, bias=bias, dropout=0.0)
    for parameter in experts.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return experts


def dense(experts: Experts, x: torch.Tensor, kind: str, *, bias: bool) -> torch.Tensor:
    """Every expert of every vector, by modules of the plain kind, and most gates 0."""
    p = (x @ experts.router.weight.T).softmax(-1)
    kept = p >= p.sort(-1, descending=True).values[..., experts.top - 1, None]
    gates = p * kept
    if experts.top > 1:
        gates = gates / gates.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for number in range(experts.number):
        module = build_feed_forward(kind, 6, 10, bias=bias, dropout=0.0).to(x.dtype)
        weights = {
            "input.weight": experts.input_weight[number],
            "output.weight": experts.output_weight[number],
        }
        if bias:
            weights["input.bias"] = experts.input_bias.view(experts.number, -1)[number]
            weights["output.bias"] = experts.output_bias.view(experts.number, -1)[number]
        out = out + gates[..., number, None] * torch.func.functional_call(module, weights, (x,))
    return out


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("kind", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("top", [1, 2, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_the_dense_sum(
    dtype: torch.dtype, close: float, kind: str, top: int, bias: bool
) -> None:
    experts = made(kind, top=top, bias=bias).to(dtype)
    x = torch.randn(3, 7, 6, dtype=dtype, requires_grad=True)
    wanted = torch.randn(3, 7, 6, dtype=dtype)
    found, expected = experts(x), dense(experts, x, kind, bias=bias)
    torch.testing.assert_close(found, expected, rtol=close, atol=close)
    tensors = [x, *experts.parameters()]
    ours = torch.autograd.grad((found * wanted).sum(), tensors)
    theirs = torch.autograd.grad((expected * wanted).sum(), tensors)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=close, atol=close)


def test_an_expert_that_nobody_chose_has_a_gradient_of_zeros() -> None:
    experts = made(number=8)
    experts(torch.randn(1, 1, 6)).sum().backward()
    for parameter in experts.parameters():
        assert parameter.grad is not None
    used = experts.input_weight.grad.flatten(1).any(1)
    assert int(used.sum()) == 2


@settings(max_examples=20)
@given(
    rows=st.integers(1, 4),
    places=st.integers(1, 9),
    top=st.integers(1, 4),
    number=st.integers(4, 9),
)
def test_a_token_alone_is_the_same_in_a_batch(
    rows: int, places: int, top: int, number: int
) -> None:
    experts = made(number=number, top=top).double()
    x = torch.randn(rows, places, 6, dtype=torch.float64)
    together = experts(x)
    for row in range(rows):
        for place in range(places):
            alone = experts(x[row, place])
            torch.testing.assert_close(together[row, place], alone, rtol=1e-10, atol=1e-10)


def test_a_nan_in_one_place_leaks_into_no_other() -> None:
    experts = made().double()
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    expected = experts(x)
    x[1, 2] = torch.nan
    found = experts(x)
    assert found[1, 2].isnan().all()
    rest = torch.ones(2, 4, dtype=torch.bool)
    rest[1, 2] = False
    torch.testing.assert_close(found[rest], expected[rest], rtol=1e-12, atol=1e-12)


def test_no_vectors_give_none() -> None:
    assert made()(torch.randn(0, 6)).shape == (0, 6)


def test_the_router_is_float32_where_the_rest_is_not() -> None:
    experts = made()
    experts.record = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = experts(torch.randn(2, 6))
    assert experts.record[0].logits.dtype == torch.float32
    assert out.dtype == torch.bfloat16


def test_dropout_acts_inside_of_experts_in_training_only() -> None:
    config = ExpertsConfig(number=3)
    experts = Experts(6, 400, config, kind="relu", bias=True, dropout=0.5)
    x = torch.randn(4, 6)
    assert not torch.equal(experts(x), experts(x))
    experts.eval()
    assert torch.equal(experts(x), experts(x))


def routing(logits: torch.Tensor, top: int = 1) -> Routing:
    return Routing(logits, logits.topk(top).indices)


def test_the_balance_loss_is_equation_4_of_its_paper() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 9, 4, dtype=torch.float64)
    found = balance_losses(routing(logits))
    for row in range(2):
        p = logits[row].softmax(-1)
        f = [(p.argmax(-1) == expert).double().mean() for expert in range(4)]
        expected = 4 * sum(f[expert] * p[:, expert].mean() for expert in range(4))
        torch.testing.assert_close(found[row], expected)


@pytest.mark.parametrize("top", [1, 2])
def test_the_balance_loss_is_1_when_all_are_used_alike_and_grows_to_their_number(top: int) -> None:
    even = torch.eye(4).repeat(3, 1)[None]
    if top == 2:
        even = even + torch.eye(4).roll(1, 0).repeat(3, 1)[None] * 0.5
    torch.testing.assert_close(balance_losses(routing(even, top)), torch.ones(1))
    one = torch.zeros(1, 12, 4)
    one[..., 2] = 60.0
    torch.testing.assert_close(balance_losses(routing(one)), torch.tensor([4.0]))


def test_padding_counts_for_neither_loss() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 5, 4)
    padded = torch.cat([logits, torch.full((1, 3, 4), 70.0).cumsum(-1)], 1)
    mask = torch.arange(8)[None] < 5
    for loss in (balance_losses, z_losses):
        torch.testing.assert_close(loss(routing(padded), mask), loss(routing(logits)))
    nothing = torch.zeros(1, 8, dtype=torch.bool)
    assert balance_losses(routing(padded), nothing).tolist() == [0.0]


def test_the_z_loss_is_the_mean_square_of_the_log_of_the_normaliser() -> None:
    logits = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]])
    two = torch.tensor(2.0).log()
    expected = (two.square() + (1 + two).square()) / 2
    torch.testing.assert_close(z_losses(routing(logits))[0], expected)


def test_minimising_the_balance_loss_spreads_the_tokens() -> None:
    torch.manual_seed(0)
    experts = made(number=4, top=1)
    x = torch.randn(1, 200, 6)
    x[..., 0] = 2.0
    experts.router.weight.data[0, 0] = 4.0  # at first nearly all go to one
    optimizer = torch.optim.Adam([experts.router.weight], lr=0.05)

    def busiest() -> float:
        chosen = experts.choose(experts.route(x[0]))[1].flatten()
        return float(chosen.bincount(minlength=4).max()) / 200

    before = busiest()
    for _ in range(60):
        optimizer.zero_grad()
        balance_losses(routing(experts.route(x[0])[None])).sum().backward()
        optimizer.step()
    assert before > 0.8
    assert busiest() < 0.5
