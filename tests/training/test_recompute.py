import pytest
import torch
from training.digits import DigitBatches, settings, tiny_model

from regard.training.feed import Feed
from regard.training.losses import translation_loss
from regard.training.state import Window
from regard.training.step import Stepper
from regard.training.tally import Tally

CPU = torch.device("cpu")


def two_steps(precision: str, *, recomputed: bool) -> tuple[dict[str, torch.Tensor], int]:
    """The weights after two steps with dropout, and the most bytes kept for a backward pass."""
    torch.manual_seed(3)
    model = tiny_model(dropout=0.3)
    config = settings(activation_checkpointing=recomputed)
    kept: list[int] = [0]

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[0] += tensor.numel() * tensor.element_size()
        return tensor

    stepper = Stepper(model, config, device=CPU, precision=precision, loss=translation_loss)
    with (
        Feed(DigitBatches(rows=16), epoch=0, start=0, parts=1, device=CPU) as feed,
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        for step, batch in zip((1, 2), feed, strict=False):
            stepper.take(batch, step, 1e-2, Tally(Window()))
    return model.state_dict(), kept[0]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_layers_that_are_computed_again_give_the_same_weights_and_keep_less(precision: str) -> None:
    plain, much = two_steps(precision, recomputed=False)
    again, little = two_steps(precision, recomputed=True)
    for name, weight in plain.items():
        assert torch.equal(weight, again[name]), name
    assert little < much / 2


def test_a_model_that_is_measured_computes_nothing_twice() -> None:
    model = tiny_model()
    Stepper(
        model, settings(activation_checkpointing=True), device=CPU, precision="float32",
        loss=translation_loss,
    )  # fmt: skip
    calls: list[int] = []
    model.encoder_layers[0].feed_forward.register_forward_hook(lambda *_: calls.append(1))
    model.eval()
    model.encode(torch.tensor([[4, 5, 2]]))
    assert calls == [1]
