"""The loss that balances experts, in training: the same however a step's batch is cut."""

from typing import Any

import pytest
import torch
from training.digits import VOCABULARY, DigitBatches, settings
from training.processes import together

from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.models.transformer import Transformer
from regard.nn.config import ExpertsConfig
from regard.nn.experts import Experts, balance_losses
from regard.training.feed import Feed
from regard.training.losses import (
    classification_loss,
    language_model_loss,
    masked_loss,
    translation_loss,
)
from regard.training.parts import LabelPart, TextPart
from regard.training.processes import ALONE, Processes
from regard.training.routing import Routers
from regard.training.state import Window
from regard.training.step import Stepper
from regard.training.tally import Tally

CPU = torch.device("cpu")
EXPERTS = ExpertsConfig(number=5, top=2, balance=0.5, z_loss=0.2)
SHAPE = {"d_model": 16, "num_heads": 2, "d_ff": 8, "dropout": 0.0, "attention_dropout": 0.0}


def model_of(experts: ExpertsConfig = EXPERTS) -> Transformer:
    config = TransformerConfig(**SHAPE, encoder_layers=2, decoder_layers=1, experts=experts)
    return build_model(config, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, seed=1)


def first_step(
    processes: Processes = ALONE,
    *,
    rows: int = 9,
    accumulate: int = 1,
    recomputed: bool = False,
    experts: ExpertsConfig = EXPERTS,
) -> dict[str, Any]:
    """Loss, load and gradients of a step."""
    config = settings(accumulate=accumulate, activation_checkpointing=recomputed)
    model = model_of(experts)
    stepper = Stepper(
        model, config, device=CPU, precision="float32", loss=translation_loss, processes=processes
    )
    feed = Feed(
        DigitBatches(rows=rows, longest=9), epoch=0, start=0, parts=accumulate, device=CPU,
        rank=processes.rank, count=processes.count,
    )  # fmt: skip
    tally = Tally(Window())
    with feed:
        stepper.take(next(iter(feed)), 1, 1e-2, tally)
    tally.look()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    return {
        "loss": tally.window.smoothed / tally.window.tokens,
        "load": dict(stepper.routers.told(tally.load)),
        "gradients": gradients,
    }


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)
    assert one["load"] == pytest.approx(other["load"], rel=1e-6)
    torch.testing.assert_close(one["gradients"], other["gradients"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("accumulate", [2, 3, 9])
def test_a_step_in_parts_has_the_gradients_of_one_batch(accumulate: int) -> None:
    assert_same(first_step(accumulate=accumulate), first_step())


@pytest.mark.parametrize(("count", "rows", "accumulate"), [(2, 9, 1), (3, 9, 2), (3, 2, 1)])
def test_processes_have_the_gradients_of_one(count: int, rows: int, accumulate: int) -> None:
    alone = first_step(rows=rows)
    for found in together(count, lambda one: first_step(one, rows=rows, accumulate=accumulate)):
        assert isinstance(found, dict), found
        assert_same(found, alone)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_layers_that_are_computed_again_count_once(accumulate: int) -> None:
    again = first_step(recomputed=True, accumulate=accumulate)
    assert_same(again, first_step(accumulate=accumulate))


def test_without_weights_the_losses_change_no_gradient_and_the_load_is_told_all_the_same() -> None:
    none = ExpertsConfig(number=5, top=2, balance=0.0)
    found = first_step(experts=none)
    model = model_of(none)
    with Feed(DigitBatches(rows=9, longest=9), epoch=0, start=0, parts=1, device=CPU) as feed:
        batch = next(iter(feed))
    (translation_loss(model, batch.parts[0], 0.1).smoothed / batch.targets).backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(found["gradients"][name], weight.grad, rtol=0, atol=1e-6)
    assert 1 / 5 <= found["load"]["busiest_expert"] <= 1
    assert found["load"]["balance"] > 0.9


def test_the_added_loss_is_that_of_each_row_weighed_by_its_targets() -> None:
    model = model_of()
    routers = Routers(model)
    with Feed(DigitBatches(rows=5, longest=9), epoch=0, start=0, parts=1, device=CPU) as feed:
        part = next(iter(feed)).parts[0]
    with routers.watched():
        translation_loss(model, part, 0.0)
    added, _ = routers.take(part)
    expected = torch.zeros(())
    widths = part.target_in_bt.shape[1]
    for row in range(5):
        size = int(((part.real_n // widths) == row).sum())
        held = slice(None) if part.source_mask_bs is None else part.source_mask_bs[row]
        source, target = (
            part.source_bs[row : row + 1, held],
            part.target_in_bt[row : row + 1, :size],
        )
        records: list[Any] = []
        for module in model.modules():
            if isinstance(module, Experts):
                module.record = records
        model(source, target)
        for one in records:
            z = one.logits.logsumexp(-1).square().mean()
            expected = expected + size * (0.5 * balance_losses(one)[0] + 0.2 * z)
    torch.testing.assert_close(added, expected, rtol=1e-5, atol=1e-5)


def test_nothing_is_recorded_outside_of_a_step() -> None:
    model = model_of()
    model(torch.tensor([[4, 5]]), torch.tensor([[6]]))
    assert all(m.record is None for m in model.modules() if isinstance(m, Experts))


IDS = torch.tensor([[4, 5, 6, 7], [8, 9, 10, 3]])
MASK = torch.tensor([[True] * 4, [True, True, True, False]])
REAL = MASK.flatten().nonzero().squeeze(1)


@pytest.mark.parametrize("family", ["decoder", "encoder", "classifier"])
def test_models_of_one_side_add_the_loss_too(family: str) -> None:
    if family == "decoder":
        config = DecoderConfig(**SHAPE, num_layers=2, experts=EXPERTS)
        model = build_language_model(config, vocabulary=20, seed=1)
        loss, part = language_model_loss, TextPart(IDS, MASK, None, REAL, IDS.flatten()[REAL])
    else:
        config = EncoderConfig(**SHAPE, num_layers=2, experts=EXPERTS)
        model = build_encoder(config, vocabulary=20, seed=1, classes=3)
        loss, part = masked_loss, TextPart(IDS, MASK, None, REAL[:3], IDS.flatten()[REAL[:3]])
        if family == "classifier":
            loss, part = classification_loss, LabelPart(IDS, MASK, torch.tensor([0, 2]))
    routers = Routers(model)
    with routers.watched():
        loss(model, part, 0.0)
    added, figures = routers.take(part)
    assert added is not None and figures is not None
    targets = {"decoder": 7, "encoder": 3, "classifier": 2}[family]
    assert figures[1] == 2 * targets
    assert figures[2:].view(2, 5).sum(1).tolist() == [2 * 7, 2 * 7]  # top 2 of 7 tokens a layer
    gradients = torch.autograd.grad(added, model.layers[0].feed_forward.router.weight)
    assert gradients[0].any()
