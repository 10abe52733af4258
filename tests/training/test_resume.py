import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from training.conftest import Trained
from training.digits import DigitBatches, measured
from training.records import read_metrics

from regard.errors import DataError, RegardError
from regard.training.arithmetic import arithmetic, changes
from regard.training.progress import SilentReporter
from regard.training.validation import Validation
from regard.version import VERSION
from regard.weights.checkpoints import checkpoint_steps
from regard.weights.tensors import read_tensors

VARIANTS = {
    "plain": {},
    "dropout": {"dropout": 0.3},
    "average": {"ema_decay": 0.9, "dropout": 0.3},
    "parts": {"accumulate": 2, "dropout": 0.3},
    "bfloat16": {"precision": "bfloat16"},
    "all": {
        "accumulate": 3,
        "dropout": 0.3,
        "ema_decay": 0.99,
        "precision": "bfloat16",
        "clip_norm": 0.5,
    },
}


def stripped(path: Path) -> list[dict[str, object]]:
    """The training records without what a clock says."""
    return [
        {key: value for key, value in record.items() if "second" not in key}
        for record in read_metrics(path / "metrics.jsonl")
        if record["event"] == "train"
    ]


# An epoch has 5 batches: 5 is its edge, 3 and 7 are amid one; the log is written every 2 steps.
@pytest.mark.parametrize(
    ("variant", "cut"),
    [
        ("plain", 5),
        ("dropout", 3),
        ("average", 7),
        ("parts", 3),
        ("bfloat16", 5),
        ("all", 5),
        ("all", 7),
    ],
)
def test_a_resumed_run_ends_with_the_bits_of_one_that_was_never_stopped(
    train: Callable[..., Trained], variant: str, cut: int
) -> None:
    changes = VARIANTS[variant] | {"log_every": 2}
    whole = train("whole", max_steps=9, **changes)
    train("cut", max_steps=cut, **changes)
    torch.manual_seed(999)
    resumed = train("cut", max_steps=9, resume=True, **changes)
    assert whole.weights.keys() == resumed.weights.keys()
    for name, weight in whole.weights.items():
        assert torch.equal(weight, resumed.weights[name]), name
    for file in ("model", "optimizer", "random", *(["ema"] if "ema_decay" in changes else [])):
        saved = [
            read_tensors(run.path / f"checkpoints/step-00000009/{file}.safetensors")
            for run in (whole, resumed)
        ]
        assert saved[0].keys() == saved[1].keys()
        assert all(torch.equal(saved[0][name], saved[1][name]) for name in saved[0]), file
    models = [run.path / "model.safetensors" for run in (whole, resumed)]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_the_log_of_a_stopped_and_resumed_run_has_the_same_figures(
    train: Callable[..., Trained],
) -> None:
    def stop_at_5(step: int) -> None:
        if step == 5:
            raise KeyboardInterrupt

    whole = train("whole", max_steps=9, checkpoint_every=3)
    with pytest.raises(KeyboardInterrupt):
        train("cut", max_steps=9, checkpoint_every=3, batches=Breaking(stop_at_5))
    # The checkpoint is of step 3, amid the steps of a line of the log, and a line was torn.
    with (whole.path.parent / "cut/metrics.jsonl").open("a") as file:
        file.write('{"event": "tra')
    resumed = train("cut", max_steps=9, checkpoint_every=3, resume=True)
    assert stripped(resumed.path) == stripped(whole.path)
    events = [record["event"] for record in read_metrics(resumed.path / "metrics.jsonl")]
    assert events == ["start", "train", "resume", *["train"] * 4, "stop"]


class Said(SilentReporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def last_weight(run: Trained) -> torch.Tensor:
    return list(run.weights.values())[-1]


class Breaking(DigitBatches):
    """Calls back before each batch."""

    def __init__(self, before: Callable[[int], None]) -> None:
        super().__init__()
        self.before = before

    def batch(self, epoch: int, position: int) -> object:
        self.before(epoch * self.per_epoch + position)
        return super().batch(epoch, position)


def test_validation_leaves_no_trace_in_the_training(train: Callable[..., Trained]) -> None:
    def validate(model: torch.nn.Module) -> Validation:
        assert not model.training
        torch.rand(3)
        return measured()

    plain = train("plain", dropout=0.3, ema_decay=0.9)
    validated = train(
        "validated", dropout=0.3, ema_decay=0.9, validate_every=1, options={"validate": validate}
    )
    for name, weight in plain.weights.items():
        assert torch.equal(weight, validated.weights[name])


def test_a_damaged_newest_checkpoint_is_passed_over_and_the_end_is_the_same(
    train: Callable[..., Trained],
) -> None:
    whole = train("whole", max_steps=8)
    train("cut", max_steps=6, checkpoint_every=2)
    path = whole.path.parent / "cut"
    damaged = path / "checkpoints/step-00000006/optimizer.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    resumed = train("cut", max_steps=8, resume=True)
    assert read_metrics(path / "metrics.jsonl")[-1]["step"] == 8
    for name, weight in whole.weights.items():
        assert torch.equal(weight, resumed.weights[name])


def test_the_last_checkpoints_and_the_best_are_kept(train: Callable[..., Trained]) -> None:
    figures = iter([5.0, 9.0, 7.0, 6.0, 3.0])

    def validate(model: torch.nn.Module) -> Validation:
        return measured(next(figures))

    run = train(
        "run", max_steps=10, checkpoint_every=2, keep_last=2, options={"validate": validate}
    )
    assert checkpoint_steps(run.path) == [4, 8, 10]
    assert (run.result.model_step, run.result.best_value) == (4, 9.0)
    best = read_tensors(run.path / "checkpoints/step-00000004/model.safetensors")
    model = read_tensors(run.path / "model.safetensors")
    assert all(torch.equal(model[name], best[name]) for name in best)
    assert not all(torch.equal(model[name], weight) for name, weight in run.weights.items())


def test_the_checkpoint_remembers_which_precision_was_measured(
    train: Callable[..., Trained],
) -> None:
    run = train("run", max_steps=4, precision="auto")
    state = json.loads((run.path / "checkpoints/step-00000004/state.json").read_text())
    state_precision = run.trainer.precision.name
    assert state["precision"] == state_precision
    again = train("run", max_steps=5, precision="auto", resume=True)
    assert str(again.trainer.precision) == f"{state_precision} (as the run began)"


def test_a_resume_that_computes_otherwise_says_so_in_one_line(
    train: Callable[..., Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Said()
    kept = {"dropout": 0.3, "options": {"reporter": said}}
    whole = train("whole", **kept)
    train("cut", max_steps=4, **kept)
    assert torch.equal(*map(last_weight, (whole, train("cut", resume=True, **kept))))
    assert not [line for line in said.lines if "otherwise" in line]
    kernels = arithmetic(torch.device("cpu"), 1)["training kernels"]
    monkeypatch.setenv("REGARD_KERNELS", "off" if kernels != "off by REGARD_KERNELS" else "on")
    train("cut", max_steps=9, resume=True, **kept)
    (line,) = [line for line in said.lines if "otherwise" in line]
    now = arithmetic(torch.device("cpu"), 1)["training kernels"]
    assert line.startswith("this start computes otherwise than the one before it (")
    assert f"training kernels: {kernels}, now {now}" in line
    assert line.endswith(
        "): the training goes on, and may end with other bits than one that was never stopped"
    )


def test_what_has_changed_of_the_arithmetic_is_named_and_nothing_else() -> None:
    before = {"processes": "2", "torch": "2.1", "threads": "1"}
    assert changes(before, before) == ""
    assert changes(before, {"processes": "4", "torch": "2.1", "GPU": "H200"}) == (
        "processes: 2, now 4, GPU: none, now H200, threads: 1, now none"
    )


def test_a_resume_by_another_version_of_regard_says_so_and_one_of_an_unknown_version_does_not(
    train: Callable[..., Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Said()
    kept = {"dropout": 0.3, "options": {"reporter": said}}
    train("cut", max_steps=3, **kept)
    monkeypatch.setattr("regard.training.arithmetic.VERSION", "9.0.0")
    train("cut", max_steps=4, resume=True, **kept)
    (line,) = [line for line in said.lines if "otherwise" in line]
    assert f"(regard: {VERSION}, now 9.0.0)" in line
    here = arithmetic(torch.device("cpu"), 1)
    assert here["regard"] == "9.0.0"
    unknown = {name: value for name, value in here.items() if name != "regard"}
    assert changes(unknown, here) == ""
    assert changes({**unknown, "torch": "2.1"}, here) == f"torch: 2.1, now {here['torch']}"


def test_fewer_steps_than_were_done_is_refused(train: Callable[..., Trained]) -> None:
    train("run", max_steps=4)
    with pytest.raises(RegardError) as refused:
        train("run", max_steps=3, resume=True)
    assert str(refused.value) == (
        "training.max_steps: the run has done 4 steps and max_steps = 3\n"
        "  Ask for more than 4 steps to go on."
    )


def test_data_that_changed_is_refused(train: Callable[..., Trained]) -> None:
    run = train("run", max_steps=4, options={"fingerprint": "a"})
    with pytest.raises(DataError) as refused:
        train("run", max_steps=8, resume=True, options={"fingerprint": "b"})
    assert str(refused.value) == (
        f"{run.path}: the training data has changed since the checkpoint of step 4\n"
        "  Bring the former files and data.weights back, or start anew with --init."
    )


def test_a_run_without_a_checkpoint_starts_from_the_beginning(
    train: Callable[..., Trained],
) -> None:
    def stop(step: int) -> None:
        if step == 2:
            raise KeyboardInterrupt

    whole = train("whole", max_steps=8)
    with pytest.raises(KeyboardInterrupt):
        train("cut", max_steps=8, batches=Breaking(stop))
    resumed = train("cut", max_steps=8, resume=True)
    assert stripped(resumed.path) == stripped(whole.path)


def test_a_run_that_goes_on_after_its_end_remembers_its_best(
    train: Callable[..., Trained],
) -> None:
    figures = iter([5.0, 9.0, 7.0])

    def validate(model: torch.nn.Module) -> Validation:
        return measured(next(figures))

    # Step 3 is validated as the last, though it is no multiple of the interval.
    kept = {"checkpoint_every": 2, "options": {"validate": validate}}
    first = train("run", max_steps=3, **kept)
    assert (first.result.model_step, first.result.best_value) == (3, 9.0)
    second = train("run", max_steps=4, resume=True, **kept)
    assert (second.result.model_step, second.result.best_value) == (3, 9.0)
