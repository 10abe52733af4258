import math
from collections.abc import Callable

import pytest
import torch
from training.conftest import Trained
from training.digits import DigitBatches, measured, settings, tiny_model
from training.records import read_metrics

from regard.errors import DataError, DivergenceError, RegardError
from regard.nn.masks import padding_mask
from regard.training.devices import choose_device
from regard.training.feed import Feed
from regard.training.losses import translation_loss
from regard.training.parts import split_batch
from regard.training.state import Window
from regard.training.step import Stepper
from regard.training.tally import Tally
from regard.training.validation import Validation

CPU = torch.device("cpu")


def gradients(parts: int, smoothing: float) -> tuple[dict[str, torch.Tensor], Window]:
    model = tiny_model().double()
    config = settings(label_smoothing=smoothing)
    stepper = Stepper(model, config, device=CPU, precision="float32", loss=translation_loss)
    tally = Tally(Window())
    with Feed(DigitBatches(rows=7), epoch=0, start=0, parts=parts, device=CPU) as feed:
        stepper.take(next(iter(feed)), 1, 0.0, tally)
    tally.look()
    found = {name: weight.grad for name, weight in model.named_parameters()}
    return {
        name: gradient for name, gradient in found.items() if gradient is not None
    }, tally.window


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("parts", [2, 3, 7, 20])
def test_a_batch_in_parts_gives_the_loss_and_gradient_of_the_whole(
    parts: int, smoothing: float
) -> None:
    whole, whole_window = gradients(1, smoothing)
    cut, cut_window = gradients(parts, smoothing)
    assert cut_window.tokens == whole_window.tokens
    assert cut_window.smoothed == pytest.approx(whole_window.smoothed, rel=1e-12)
    assert cut_window.nll == pytest.approx(whole_window.nll, rel=1e-12)
    torch.testing.assert_close(cut, whole, rtol=1e-10, atol=1e-12)


def test_parts_hold_every_row_once_and_no_more_width_than_they_need() -> None:
    batch = DigitBatches(rows=7).batch(0, 0)
    parts = split_batch(batch, 3)
    assert [len(part.source_bs) for part in parts] == [3, 2, 2]
    assert sum(len(part.targets_n) for part in parts) == batch.target_tokens
    real_n = padding_mask(batch.target_lengths_b, batch.target_in_bt.shape[1]).flatten()
    joined_n = torch.cat([part.targets_n for part in parts])
    assert torch.equal(joined_n, batch.target_out_bt.flatten()[real_n])
    for part, lengths in zip(parts, batch.source_lengths_b.tensor_split(3), strict=True):
        assert part.source_bs.shape[1] == int(lengths.max())
        assert (part.source_mask_bs is None) == (len(set(lengths.tolist())) == 1)


def test_one_pair_trains(train: Callable[..., Trained]) -> None:
    run = train("run", batches=DigitBatches(rows=1, per_epoch=1), accumulate=4)
    assert run.result.step == 8
    assert run.result.reason == "max_steps"


def test_no_batch_at_all_is_refused(train: Callable[..., Trained]) -> None:
    with pytest.raises(DataError, match="an epoch of the training data has no batch"):
        train("run", batches=DigitBatches(per_epoch=0))


def test_every_batch_of_an_epoch_is_seen_once_and_in_order() -> None:
    feed = Feed(DigitBatches(per_epoch=3), epoch=2, start=1, parts=1, device=CPU, ahead=2)
    with feed:
        seen = [(batch.epoch, batch.next_batch) for batch, _ in zip(feed, range(6), strict=False)]
    assert seen == [(2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 1)]


def test_clipping_shortens_a_long_gradient_and_logs_its_own_length() -> None:
    model = tiny_model()
    stepper = Stepper(
        model, settings(clip_norm=0.25), device=CPU, precision="float32", loss=translation_loss
    )
    tally = Tally(Window())
    with Feed(DigitBatches(), epoch=0, start=0, parts=1, device=CPU) as feed:
        stepper.take(next(iter(feed)), 1, 0.0, tally)
    tally.look()
    total = math.sqrt(sum(float(weight.grad.square().sum()) for weight in model.parameters()))
    assert total == pytest.approx(0.25, rel=1e-4)
    assert tally.norm > 0.5


@pytest.mark.parametrize("kind", ["loss", "gradient norm"])
def test_a_figure_that_is_not_finite_names_step_lines_and_checkpoint(
    train: Callable[..., Trained], kind: str, tmp_path: object
) -> None:
    calls = []

    def loss(model: torch.nn.Module, part: object, smoothing: float) -> object:
        calls.append(part)
        sums = translation_loss(model, part, smoothing)
        if len(calls) == 6:
            weight = next(model.parameters())
            # An infinity whose own value is finite: sqrt has an infinite slope at 0.
            bad = (weight.sum() * math.nan) if kind == "loss" else (weight * 0).sum().sqrt()
            return type(sums)(sums.smoothed + bad, sums.nll)
        return sums

    with pytest.raises(DivergenceError) as stopped:
        train(
            "run",
            max_skipped=1,
            batches=DigitBatches(rows=12, per_epoch=100),
            options={"loss": loss, "line": lambda pair: ("train.en", pair + 1)},
        )
    shown = f"{', '.join(map(str, range(61, 71)))}; and 2 more, all named in metrics.jsonl"
    checkpoint = tmp_path / "run/checkpoints/step-00000004"
    assert str(stopped.value) == (
        f"training: the {kind} is nan at step 6\n"
        f"  Its batch holds these lines of train.en: {shown}.\n"
        f"  The last good checkpoint is {checkpoint}.\n"
        "  Try a lower learning rate, a longer warm-up, or training.clip_norm = 1."
    )
    last = read_metrics(tmp_path / "run/metrics.jsonl")[-1]
    assert (last["event"], last["reason"], last["step"]) == ("stop", "diverged", 6)
    assert last["lines"] == [f"train.en:{number}" for number in range(61, 73)]


@pytest.mark.parametrize(
    ("metric", "values", "stops"),
    [
        ("bleu", [1.0, 3.0, 2.0, 3.0, 9.0], 4),
        ("chrf", [1.0, 3.0, 4.0, 5.0, 9.0], 5),
        ("loss", [3.0, 1.0, 2.0, 1.0, 0.0], 4),
        ("perplexity", [3.0, math.nan, math.nan, 1.0, 0.0], 3),
    ],
)
def test_training_stops_early_by_any_metric_in_its_own_direction(
    train: Callable[..., Trained], metric: str, values: list[float], stops: int
) -> None:
    coming = iter(values)

    def validate(model: torch.nn.Module) -> Validation:
        figures = dict.fromkeys(("loss", "perplexity", "bleu", "chrf"), 5.0)
        figures[metric] = next(coming)
        return Validation(figures, seconds=0.0)

    run = train(
        "run",
        max_steps=5,
        validate_every=1,
        best_metric=metric,
        patience=2,
        options={"validate": validate},
    )
    assert run.result.step == stops
    assert run.result.reason == ("patience" if stops < 5 else "max_steps")


def test_the_log_holds_the_losses_of_all_tokens_since_the_last_line(
    train: Callable[..., Trained],
) -> None:
    run = train("run", max_steps=5, log_every=2, label_smoothing=0.0)
    records = read_metrics(run.path / "metrics.jsonl")
    trained = [record for record in records if record["event"] == "train"]
    assert [record["step"] for record in trained] == [2, 4, 5]
    batches = [DigitBatches().batch(0, position).target_tokens for position in range(5)]
    assert [record["target_tokens"] for record in trained] == [
        batches[0] + batches[1],
        batches[2] + batches[3],
        batches[4],
    ]
    for record in trained:
        assert record["loss"] == record["nll"]
        assert record["grad_norm"] > 0
        assert record["tokens_per_second"] > 0
    assert [record["event"] for record in records] == ["start", *["train"] * 3, "stop"]


def test_the_moving_average_is_what_validates_and_is_saved(train: Callable[..., Trained]) -> None:
    seen = []

    def validate(model: torch.nn.Module) -> Validation:
        seen.append({name: weight.clone() for name, weight in model.state_dict().items()})
        return measured()

    run = train("run", max_steps=4, ema_decay=0.9, options={"validate": validate})
    from regard.weights.tensors import read_tensors

    saved = read_tensors(run.path / "model.safetensors")
    assert all(torch.equal(saved[name], seen[-1][name]) for name in saved)
    assert not all(torch.equal(saved[name], run.weights[name]) for name in saved)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RegardError) as refused:
        choose_device("cuda")
    assert str(refused.value) == (
        'training.device: device = "cuda" needs a CUDA GPU, and torch sees none on this machine\n'
        '  Use device = "auto" or "cpu", or install a build of torch for this GPU.'
    )
