"""A run folder, or a file of it, that is removed, renamed or replaced while training goes on."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from training.conftest import Trained
from training.records import read_metrics

from regard.errors import RunFolderError
from regard.training.progress import SilentReporter, Standing
from regard.weights.run_folder import RunFolder


class Meddler(SilentReporter):
    """Does something once a step is done, and keeps what is said."""

    def __init__(self, step: int, deed: Callable[[], object]) -> None:
        self.said: list[str] = []
        self._step = step
        self._deed = deed

    def say(self, text: str) -> None:
        self.said.append(text)

    def advanced(self, standing: Standing) -> None:
        if standing.step == self._step:
            self._deed()


@pytest.fixture(autouse=True)
def no_thread_ends_with_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(arguments: threading.ExceptHookArgs) -> None:
        seen.append(arguments.exc_value)

    seen: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", refuse)
    yield
    assert not seen


# Amid an interval, before anything was saved, and right before a save at the end.
@pytest.mark.parametrize("step", [1, 3, 6])
def test_a_run_folder_that_is_removed_is_said_to_be_and_not_made_anew(
    train: Callable[..., Trained], tmp_path: Path, step: int
) -> None:
    run = tmp_path / "run"
    meddler = Meddler(step, lambda: shutil.rmtree(run))
    with pytest.raises(RunFolderError) as refused:
        train("run", max_steps=6, checkpoint_every=2, log_every=1, options={"reporter": meddler})
    assert str(refused.value) == (
        f"{run}: the run folder is gone: it was removed while it was being written to\n"
        "  All that was in it is lost. Train anew."
    )
    assert not run.exists()


@pytest.mark.parametrize(
    ("step", "hint"),
    [
        (1, "It has no checkpoint, so what was trained is lost. Train anew."),
        (
            5,
            "What came after its checkpoint of step 4 is lost. "
            "Go on from there: regard train {there} --resume",
        ),
    ],
)
def test_a_run_folder_that_is_renamed_is_found_and_whole(
    train: Callable[..., Trained], tmp_path: Path, step: int, hint: str
) -> None:
    run, there = tmp_path / "run", tmp_path / "there"

    meddler = Meddler(step, lambda: run.rename(there))
    with pytest.raises(RunFolderError) as refused:
        train("run", max_steps=6, checkpoint_every=2, log_every=1, options={"reporter": meddler})
    assert str(refused.value) == (
        f"{run}: the run folder was renamed while it was being written to; it is {there} now\n"
        f"  {hint.replace('{there}', str(there))}"
    )
    assert not run.exists()
    if step > 4:
        there.rename(run)
        assert train("run", max_steps=6, resume=True, checkpoint_every=2).result.step == 6


def test_a_save_does_not_make_a_run_folder_that_is_gone(
    train: Callable[..., Trained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be removed in the moment between the check and the save."""
    run = tmp_path / "run"
    monkeypatch.setattr(RunFolder, "require_there", lambda self: None)
    meddler = Meddler(2, lambda: shutil.rmtree(run))
    with pytest.raises(RunFolderError):
        train("run", max_steps=6, checkpoint_every=2, log_every=9, options={"reporter": meddler})
    assert not run.exists()


def test_removed_metrics_are_said_and_made_anew(
    train: Callable[..., Trained], tmp_path: Path
) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    meddler = Meddler(3, path.unlink)
    done = train("run", max_steps=6, checkpoint_every=2, log_every=1, options={"reporter": meddler})
    assert done.result.step == 6
    assert [text for text in meddler.said if "metrics" in text] == [
        f"{path}: the file was removed while training wrote to it; the figures up to here are "
        "lost, and those that follow are in a new one"
    ]
    assert [each["step"] for each in read_metrics(path) if each["event"] == "train"] == [3, 4, 5, 6]
    train("run", max_steps=8, resume=True, log_every=1)
    steps = [each["step"] for each in read_metrics(path) if each["event"] == "train"]
    assert steps == [3, 4, 5, 6, 7, 8]


def test_metrics_that_an_editor_replaced_are_gone_on_with(
    train: Callable[..., Trained], tmp_path: Path
) -> None:
    path = tmp_path / "run" / "metrics.jsonl"

    def replace() -> None:
        aside = path.with_name("aside")
        aside.write_bytes(path.read_bytes())
        aside.replace(path)

    meddler = Meddler(3, replace)
    train("run", max_steps=5, log_every=1, options={"reporter": meddler})
    assert f"{path}: the file was replaced while training wrote to it; it is gone on with" in (
        meddler.said
    )
    trained = [each["step"] for each in read_metrics(path) if each["event"] == "train"]
    assert trained == [1, 2, 3, 4, 5]


def test_curves_that_are_removed_begin_anew(train: Callable[..., Trained], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "run" / "tensorboard"
    meddler = Meddler(3, lambda: shutil.rmtree(folder))
    assert train("run", max_steps=6, log_every=1, options={"reporter": meddler}).result.step == 6
    assert any(folder.iterdir())


def test_what_is_in_the_place_of_a_file_of_the_run_is_refused_before_the_first_step(
    train: Callable[..., Trained], tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    run = tmp_path / "run"
    train("run", max_steps=2)
    metrics = (run / "metrics.jsonl").rename(tmp_path / "metrics")
    (run / "metrics.jsonl").mkdir()
    never = Meddler(3, lambda: pytest.fail("a step was done"))
    with pytest.raises(RunFolderError) as refused:
        train("run", max_steps=4, resume=True, options={"reporter": never})
    assert str(refused.value) == (
        f"{run / 'metrics.jsonl'}: a folder is where the file of the figures should be\n"
        "  Move it away, then go on."
    )
    (run / "metrics.jsonl").rmdir()
    metrics.rename(run / "metrics.jsonl")
    shutil.rmtree(run / "tensorboard")
    (run / "tensorboard").write_text("")
    with pytest.raises(RunFolderError) as refused:
        train("run", max_steps=4, resume=True, options={"reporter": never})
    assert str(refused.value) == (
        f"{run / 'tensorboard'}: a file is where the folder for TensorBoard's curves should be\n"
        "  Move it away, then go on."
    )
