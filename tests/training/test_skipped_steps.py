"""A loss or gradient that is not finite: the step changes nothing; too many end the training."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from training.conftest import Trained
from training.digits import DigitBatches, measured, settings, tiny_model
from training.records import read_metrics

from regard.errors import DivergenceError, ModelError, NotFiniteError
from regard.training.feed import Feed
from regard.training.losses import LossSums, translation_loss
from regard.training.progress import SilentReporter
from regard.training.state import Window
from regard.training.step import Stepper
from regard.training.tally import Tally
from regard.training.validation import Validation
from regard.weights.checkpoints import checkpoint_steps

CPU = torch.device("cpu")
BAD = {
    "loss": lambda weight: weight.sum() * math.nan,
    "infinite loss": lambda weight: weight.sum() * math.inf,
    # Its own value is finite: sqrt has an infinite slope at 0.
    "gradient": lambda weight: (weight * 0).sum().sqrt(),
}


def broken_loss(kind: str, *steps: int) -> Callable[..., LossSums]:
    """The loss, with a figure that is not finite at these calls."""
    calls: list[int] = []

    def loss(model: torch.nn.Module, part: object, smoothing: float) -> LossSums:
        calls.append(1)
        sums = translation_loss(model, part, smoothing)
        if len(calls) not in steps:
            return sums
        return LossSums(sums.smoothed + BAD[kind](next(model.parameters())), sums.nll)

    return loss


class Said(SilentReporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_a_step_that_is_not_finite_changes_neither_weights_nor_optimizer(
    kind: str, clip: float
) -> None:
    model = tiny_model()
    stepper = Stepper(
        model, settings(clip_norm=clip), device=CPU, precision="float32",
        loss=broken_loss(kind, 2, 3),
    )  # fmt: skip
    tally = Tally(Window())

    def state() -> list[torch.Tensor]:
        moments = [stepper.optimizer.state[weight] for weight in model.parameters()]
        kept = [*model.state_dict().values(), *(one for each in moments for one in each.values())]
        return [tensor.clone() for tensor in kept]

    with Feed(DigitBatches(), epoch=0, start=0, parts=1, device=CPU) as feed:
        coming = iter(feed)
        stepper.take(next(coming), 1, 1e-2, tally)
        before = state()
        stepper.take(next(coming), 2, 1e-2, tally)
        stepper.take(next(coming), 3, 1e-2, tally)
        assert all(map(torch.equal, before, state()))
        stepper.take(next(coming), 4, 1e-2, tally)
        assert not all(map(torch.equal, before, state()))
    found = tally.look()
    assert [None if bad is None else bad.step for bad in found] == [None, 2, 3, None]
    assert math.isfinite(tally.window.smoothed)


def test_skipped_steps_are_counted_said_and_logged_and_the_training_goes_on(
    train: Callable[..., Trained],
) -> None:
    said = Said()
    run = train(
        "run",
        max_skipped=3,
        batches=DigitBatches(rows=2, per_epoch=100),
        options={
            "loss": broken_loss("loss", 3, 4, 7),
            "line": lambda pair: ("train.en", pair + 1),
            "reporter": said,
        },
    )
    assert run.result.step == 8
    assert (run.trainer.position.skipped, run.trainer.position.skipped_in_row) == (3, 0)
    assert all(bool(torch.isfinite(weight).all()) for weight in run.weights.values())
    records = read_metrics(run.path / "metrics.jsonl")
    skipped = [record for record in records if record["event"] == "skipped"]
    assert [(record["step"], record["lines"]) for record in skipped] == [
        (3, ["train.en:5", "train.en:6"]),
        (4, ["train.en:7", "train.en:8"]),
        (7, ["train.en:13", "train.en:14"]),
    ]
    assert records[-1]["skipped"] == 3
    # No line of the log is of steps 3 and 4, of which nothing is known.
    assert [record["step"] for record in records if record["event"] == "train"] == [2, 6, 8]
    assert said.lines[-2:] == [
        "the loss is nan at step 4: the step is skipped (2 in a row; training ends at 3); "
        "its batch holds these lines of train.en: 7, 8",
        "the loss is nan at step 7: the step is skipped (1 in a row; training ends at 3); "
        "its batch holds these lines of train.en: 13, 14",
    ]


def test_too_many_in_a_row_end_the_training_at_the_last_good_checkpoint(
    train: Callable[..., Trained], tmp_path: Path
) -> None:
    with pytest.raises(DivergenceError) as stopped:
        train(
            "run",
            max_skipped=3,
            batches=DigitBatches(rows=2, per_epoch=100),
            options={
                "loss": broken_loss("gradient", 2, 5, 6, 7),
                "line": lambda pair: ("train.en", pair + 1),
            },
        )
    path = tmp_path / "run"
    assert str(stopped.value) == (
        "training: the gradient norm is nan at step 7; in each of the 2 steps before it, too, the "
        "loss or the gradient was not finite\n"
        "  Its batch holds these lines of train.en: 13, 14.\n"
        f"  The last good checkpoint is {path / 'checkpoints/step-00000004'}.\n"
        "  Try a lower learning rate, a longer warm-up, or training.clip_norm = 1."
    )
    assert checkpoint_steps(path) == [4]
    assert train("run", resume=True).result.step == 8


def test_a_pair_of_files_is_named_once_and_then_the_first_ten_lines(
    train: Callable[..., Trained],
) -> None:
    said = Said()
    train(
        "run",
        batches=DigitBatches(rows=12, per_epoch=100),
        options={
            "loss": broken_loss("loss", 1, 2),
            "line": lambda pair: (
                "a.en, a.de" if pair < 9 or pair > 11 else f"{pair}.en, {pair}.de", pair + 1
            ),
            "reporter": said,
        },
    )  # fmt: skip
    assert [line.partition("its batch holds ")[2] for line in said.lines[-2:]] == [
        "these lines of a.en, a.de: 1, 2, 3, 4, 5, 6, 7, 8, 9; of 9.en, 9.de: 10; "
        "and 2 more, all named in metrics.jsonl",
        "these lines of a.en, a.de: 13, 14, 15, 16, 17, 18, 19, 20, 21, 22; "
        "and 2 more, all named in metrics.jsonl",
    ]


def test_steps_in_a_row_are_counted_across_a_resume(train: Callable[..., Trained]) -> None:
    batches = DigitBatches(per_epoch=100)
    train("run", max_steps=4, max_skipped=3, batches=batches,
          options={"loss": broken_loss("loss", 3, 4)})  # fmt: skip
    with pytest.raises(DivergenceError, match="the loss is nan at step 5"):
        train("run", max_skipped=3, batches=batches, resume=True,
              options={"loss": broken_loss("loss", 1)})  # fmt: skip


def test_a_model_that_answers_with_nan_where_its_last_step_was_skipped_has_diverged(
    train: Callable[..., Trained],
) -> None:
    def validate(model: torch.nn.Module) -> Validation:
        raise NotFiniteError

    with pytest.raises(DivergenceError, match="the loss is nan at step 4"):
        train("run", options={"loss": broken_loss("loss", 4), "validate": validate})


def test_a_model_that_answers_with_nan_though_its_losses_are_finite_has_diverged(
    train: Callable[..., Trained], tmp_path: Path
) -> None:
    def validate(model: torch.nn.Module) -> Validation:
        raise NotFiniteError

    with pytest.raises(DivergenceError) as stopped:
        train("run", options={"validate": validate})
    said, path = str(stopped.value), tmp_path / "run"
    assert said.startswith(
        "training: the validation after step 4: the model's output is not a number (NaN)\n"
        f"  The newest checkpoint, {path}"
    )
    assert said.endswith("Try a lower learning rate, a longer warm-up, or training.clip_norm = 1.")
    last = read_metrics(path / "metrics.jsonl")[-1]
    assert (last["event"], last["reason"], last["step"]) == ("stop", "diverged", 4)


def test_a_model_that_cannot_be_measured_for_another_reason_has_not_diverged(
    train: Callable[..., Trained],
) -> None:
    def validate(model: torch.nn.Module) -> Validation:
        raise ModelError("a text is too long for it")

    with pytest.raises(ModelError, match="too long"):
        train("run", options={"validate": validate})


def test_lines_of_the_same_name_are_named_once(train: Callable[..., Trained]) -> None:
    run = train(
        "run",
        batches=DigitBatches(rows=2, per_epoch=100),
        options={"loss": broken_loss("loss", 3), "line": lambda pair: ("all.en", 1)},
    )
    records = read_metrics(run.path / "metrics.jsonl")
    assert [x["lines"] for x in records if x["event"] == "skipped"] == [["all.en:1"]]


def test_a_run_of_which_every_step_was_skipped_has_no_model_and_does_not_end_as_if_trained(
    train: Callable[..., Trained], tmp_path: Path
) -> None:
    validated: list[int] = []

    def validate(model: torch.nn.Module) -> Validation:
        validated.append(1)
        return measured()

    options = {
        "loss": broken_loss("loss", *range(1, 9)),
        "line": lambda pair: ("train.en", pair + 1),
        "validate": validate,
    }
    kept = {"batches": DigitBatches(rows=2, per_epoch=100), "max_steps": 6, "options": options}
    with pytest.raises(DivergenceError) as stopped:
        train("run", validate_every=2, **kept)
    path = tmp_path / "run"
    assert str(stopped.value) == (
        "training: none of the 6 steps changed the model: the loss is nan at step 6\n"
        "  Its batch holds these lines of train.en: 11, 12.\n"
        "  No model was written.\n"
        "  Try a lower learning rate, a longer warm-up, or training.clip_norm = 1."
    )
    last = read_metrics(path / "metrics.jsonl")[-1]
    assert (last["event"], last["reason"], last["step"]) == ("stop", "diverged", 6)
    assert validated == []
    assert not (path / "model.safetensors").exists()
    # The same of a start that finds the steps done; with steps that change something all is well.
    with pytest.raises(DivergenceError, match="none of the 6 steps changed the model: a loss or"):
        train("run", resume=True, **kept)
    kept["max_steps"] = 10
    assert train("run", resume=True, **kept).result.model_step == 10
    assert validated == [1]
    assert (path / "model.safetensors").exists()
