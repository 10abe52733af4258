import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from training.conftest import Trained
from training.digits import measured
from training.records import read_metrics

from regard import signals
from regard.errors import Interrupted
from regard.training.interrupts import Interrupts
from regard.training.losses import translation_loss
from regard.training.validation import Validation
from regard.weights.checkpoints import checkpoint_steps

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
pytestmark = pytest.mark.usefixtures("hang_up")


def signalled_loss(number: signal.Signals, at: int) -> Callable[..., object]:
    """The loss, with a signal to this process amid step number `at`."""
    calls = []

    def loss(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == at:
            signal.raise_signal(number)
        return translation_loss(*arguments)

    return loss


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_amid_a_step_saves_at_its_end_and_the_run_goes_on_from_there(
    train: Callable[..., Trained], number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = train("whole", dropout=0.3)
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(Interrupted) as stopped:
        train("cut", dropout=0.3, options={"loss": signalled_loss(number, 3)})
    assert [signal.getsignal(each) for each in SIGNALS] == before
    path = whole.path.parent / "cut"
    assert stopped.value.exit_code == 130
    assert str(stopped.value) == (
        "stopped as asked at step 3 of 8; everything is saved\n"
        f"  Go on with it: regard train {path} --resume"
    )
    assert "once more to leave at once" in capfd.readouterr().err
    assert checkpoint_steps(path) == [3]
    assert read_metrics(path / "metrics.jsonl")[-1]["reason"] == "interrupted"
    assert (path / "model.safetensors").exists()
    resumed = train("cut", dropout=0.3, resume=True)
    for name, weight in whole.weights.items():
        assert torch.equal(weight, resumed.weights[name])


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_amid_a_validation_saves_and_the_validation_is_done_again(
    train: Callable[..., Trained], number: signal.Signals
) -> None:
    calls = []

    def validate(model: torch.nn.Module) -> Validation:
        calls.append(model)
        if len(calls) == 1:
            signal.raise_signal(number)
            raise AssertionError("the signal must end the validation")
        return measured(float(len(calls)))

    changes = {"dropout": 0.3, "ema_decay": 0.9, "validate_every": 3}
    whole = train("whole", **changes)
    with pytest.raises(Interrupted):
        train("cut", **changes, options={"validate": validate})
    path = whole.path.parent / "cut"
    assert checkpoint_steps(path) == [3]
    resumed = train("cut", resume=True, **changes, options={"validate": validate})
    records = read_metrics(path / "metrics.jsonl")
    assert [record["step"] for record in records if record["event"] == "valid"] == [3, 6, 8]
    for name, weight in whole.weights.items():
        assert torch.equal(weight, resumed.weights[name])


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_at_start_up_raises_at_once(number: signal.Signals) -> None:
    with (
        pytest.raises(Interrupted, match=r"^stopped as asked, before there was anything to save$"),
        Interrupts(),
    ):
        signal.raise_signal(number)
        raise AssertionError("the signal must end the reading")


def test_a_signal_after_the_training_says_where_the_model_is() -> None:
    with pytest.raises(Interrupted) as stopped, Interrupts() as interrupts:
        interrupts.trained = Path("runs/my run")
        signal.raise_signal(signal.SIGTERM)
    assert str(stopped.value) == (
        "stopped as asked; the training is done and its model is in runs/my run\n"
        "  What comes after it is done by regard train 'runs/my run' --resume"
    )


PROGRAM = """
import sys, time
from pathlib import Path
from training.digits import DigitBatches, settings, tiny_model
from regard.errors import RegardError
from regard.training.losses import translation_loss
from regard.training.loop import Trainer
from regard.weights.run_folder import RunFolder

seen = []
def model_calls():
    seen.append(1)
    return len(seen) > 1

def loss(*arguments):
    print("step", flush=True)
    if sys.argv[2] == "hang" and model_calls():
        time.sleep(600)
    return translation_loss(*arguments)

with RunFolder.create(Path(sys.argv[1])) as folder:
    config = settings(max_steps=100_000, checkpoint_every=int(sys.argv[3]))
    try:
        Trainer(tiny_model(), DigitBatches(), config, folder, loss=loss).run()
    except RegardError as error:
        sys.exit(error.exit_code)
"""


def start(path: Path, how: str, every: int = 100_000) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), how, str(every)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline() == "step\n"
    return process


@pytest.mark.parametrize("number", SIGNALS)
def test_a_process_that_gets_a_signal_exits_with_130_and_can_be_resumed(
    train: Callable[..., Trained], tmp_path: Path, number: signal.Signals
) -> None:
    process = start(tmp_path / "run", "go on")
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "\nregard: stopping after this step; once more to leave at once\n"
    (step,) = checkpoint_steps(tmp_path / "run")
    assert train("run", resume=True, max_steps=step + 2).result.step == step + 2


def signal_twice(process: subprocess.Popen[str]) -> str:
    """Send two signals, the second once the first is answered; what is said after that."""
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "once more" not in process.stderr.readline():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    return said


def test_a_second_signal_leaves_at_once_with_130_saves_nothing_and_says_so(tmp_path: Path) -> None:
    said = signal_twice(start(tmp_path / "run", "hang"))
    assert checkpoint_steps(tmp_path / "run") == []
    assert said == (
        "\nregard: left at once; no checkpoint was saved, so nothing of the training is kept\n"
    )


def test_a_second_signal_says_which_checkpoint_is_kept_and_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "my run"
    process = start(path, "hang", every=1)
    while checkpoint_steps(path) != [1]:
        time.sleep(0.01)
    assert signal_twice(process) == (
        "\nregard: left at once; the checkpoint of step 1 is kept, to go on from by "
        f"regard train '{path}' --resume\n"
    )


def test_where_a_system_has_no_hang_up_the_other_signals_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signals, "HANG_UP", None)
    assert signals.answered() == (signal.SIGINT, signal.SIGTERM)


def test_a_hang_up_is_no_second_signal_and_none_at_all_where_it_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A terminal that is closed sends one, and so does its shell; nohup has it ignored."""
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("left at once"))
    with Interrupts() as interrupts, interrupts.deferred():
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
        assert interrupts.requested
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGHUP)
            assert not interrupts.requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_one_of_several_processes_a_signal_by_two_ways_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("left at once"))
    with Interrupts() as interrupts, interrupts.deferred():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert interrupts.requested
