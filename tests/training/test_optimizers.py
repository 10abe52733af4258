import pytest
import torch
from torch import nn
from training.digits import tiny_model

from regard.training.config import AdamConfig, AdamWConfig
from regard.training.ema import MovingAverage
from regard.training.optimizers import build_optimizer, set_learning_rate


def test_adam_is_the_papers_formula() -> None:
    model = nn.Linear(2, 1, bias=False).double()
    optimizer = build_optimizer(model, AdamConfig())
    set_learning_rate(optimizer, 0.1)
    weight = model.weight.detach().clone()
    first, second = torch.zeros_like(weight), torch.zeros_like(weight)
    for step in (1, 2, 3):
        gradient = torch.tensor([[step * 0.5, -2.0]], dtype=torch.float64)
        model.weight.grad = gradient.clone()
        optimizer.step()
        first = 0.9 * first + 0.1 * gradient
        second = 0.98 * second + 0.02 * gradient**2
        corrected = (second / (1 - 0.98**step)).sqrt() + 1e-9
        weight = weight - 0.1 * first / (1 - 0.9**step) / corrected
    torch.testing.assert_close(model.weight.detach(), weight, rtol=1e-12, atol=1e-12)


def test_decay_shrinks_matrices_and_leaves_vectors_alone() -> None:
    model = tiny_model()
    optimizer = build_optimizer(model, AdamWConfig(weight_decay=0.5))
    set_learning_rate(optimizer, 0.1)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert {weight.ndim for weight in model.parameters()} == {1, 2}
    for name, weight in model.named_parameters():
        factor = 1 - 0.1 * 0.5 if weight.ndim == 2 else 1.0
        torch.testing.assert_close(weight.detach(), before[name] * factor)


def test_the_average_forgets_fast_at_first_and_by_its_decay_later() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    average = MovingAverage(model, 0.9)
    expected = 0.0
    for step in (1, 2, 3, 1000):
        nn.init.constant_(model.weight, float(step))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
        assert average.weights["weight"].item() == pytest.approx(expected)


def test_the_model_holds_the_average_inside_the_block_and_its_own_weights_after() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    average = MovingAverage(model, 0.5)
    nn.init.constant_(model.weight, 3.0)
    with pytest.raises(KeyError), average.applied():
        assert model.weight.item() == 1.0
        raise KeyError
    assert model.weight.item() == 3.0
    assert average.weights["weight"].item() == 1.0
