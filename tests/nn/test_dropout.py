import pytest
import torch

from regard.nn.dropout import Dropout, dropout


@pytest.mark.parametrize("probability", [0.001, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_dropout_keeps_the_mean_exactly_right_for_the_rounded_probability(
    probability: float,
) -> None:
    torch.manual_seed(0)
    of_256 = min(max(round(probability * 256), 1), 255)
    out = dropout(torch.ones(1 << 20, dtype=torch.float64), probability)
    values = set(out.unique().tolist())
    assert values == {0.0, 256 / (256 - of_256)}
    rate = of_256 / 256
    spread = (rate * (1 - rate) / (1 << 20)) ** 0.5
    assert abs((out == 0).double().mean().item() - rate) < 5 * spread


def test_every_byte_of_the_random_words_is_fair() -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(1 << 18, 8), 0.5) == 0
    rates = dropped.double().mean(0)
    assert ((rates - 0.5).abs() < 5 * 0.5 / (1 << 9)).all()
    together = (dropped[:, :-1] & dropped[:, 1:]).double().mean(0)
    assert ((together - 0.25).abs() < 0.005).all()


def test_the_global_seed_and_its_state_govern_the_mask() -> None:
    x = torch.ones(100)
    torch.manual_seed(7)
    first = dropout(x, 0.5)
    state = torch.get_rng_state()
    second = dropout(x, 0.5)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.5), second)
    torch.manual_seed(7)
    assert torch.equal(dropout(x, 0.5), first)


def test_the_gradient_is_the_mask() -> None:
    x = torch.ones(3, 5, requires_grad=True)
    out = dropout(x, 0.5)
    out.sum().backward()
    assert torch.equal(x.grad, out)


def test_in_eval_mode_or_with_zero_probability_nothing_happens() -> None:
    x = torch.ones(10)
    assert dropout(x, 0.0) is x
    module = Dropout(0.9).eval()
    assert module(x) is x
    assert not torch.equal(module.train()(x), x)


@pytest.mark.parametrize("shape", [(0,), (), (3,), (2, 0, 4), (3, 5, 7)])
def test_any_shape_works(shape: tuple[int, ...]) -> None:
    assert dropout(torch.ones(shape), 0.5).shape == shape
