"""Checkpoints are copied at once and written beside the training."""

import errno
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from training.conftest import Trained

from regard.errors import RunFolderError
from regard.training import keeper
from regard.training.losses import translation_loss
from regard.training.state import copied
from regard.training.writer import Writer
from regard.weights import checkpoints, files
from regard.weights.checkpoints import checkpoint_steps, latest_checkpoint
from regard.weights.tensors import read_tensors


def test_one_job_ends_before_the_next_begins() -> None:
    writer, order, go = Writer(), [], threading.Event()
    writer.start(lambda: (go.wait(10), order.append(1)))
    assert writer.busy
    threading.Timer(0.05, go.set).start()
    writer.start(lambda: order.append(2))
    writer.wait()
    assert order == [1, 2]
    assert not writer.busy


def test_what_a_job_raises_is_raised_once_where_it_is_asked_after() -> None:
    def fail() -> None:
        raise RunFolderError("no room")

    writer = Writer()
    writer.start(fail)
    with pytest.raises(RunFolderError, match="no room"):
        writer.wait()
    writer.wait()
    writer.start(fail)
    writer.close()
    with pytest.raises(RunFolderError, match="no room"):
        writer.check()


def test_a_copy_shares_nothing_with_the_training_and_keeps_ties() -> None:
    shared = torch.arange(3.0)
    groups = {"model": {"a": shared, "b": shared, "c": shared.clone()}, "none": {"d": shared[:0]}}
    found = copied(groups)
    shared += 1
    assert found["model"]["a"].tolist() == [0, 1, 2]
    assert found["model"]["a"] is found["model"]["b"]
    assert found["model"]["c"].data_ptr() != found["model"]["a"].data_ptr()
    assert found["none"]["d"].shape == (0,)


def test_steps_are_done_while_a_checkpoint_is_written_and_it_is_of_its_own_step(
    train: Callable[..., Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train("whole", max_steps=4, checkpoint_every=4)
    later = threading.Event()
    publish = checkpoints._publish

    def wait_then_publish(*paths: object) -> None:
        assert later.wait(20), "the training waited for its checkpoint"
        publish(*paths)

    def loss(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 7:
            later.set()
        return translation_loss(*arguments)

    calls: list[int] = []
    monkeypatch.setattr(checkpoints, "_publish", wait_then_publish)
    run = train("run", max_steps=8, checkpoint_every=4, options={"loss": loss})
    assert checkpoint_steps(run.path) == [4, 8]
    for name in ("model", "optimizer", "random"):
        saved = [
            read_tensors(path / f"checkpoints/step-00000004/{name}.safetensors")
            for path in (whole.path, run.path)
        ]
        assert all(torch.equal(saved[0][key], saved[1][key]) for key in saved[0])


def test_a_checkpoint_that_can_not_be_written_ends_the_training_and_the_one_before_is_good(
    train: Callable[..., Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train("whole", max_steps=12)
    write = files._write

    def full(descriptor: int, data: bytes) -> int:
        if (whole.path.parent / "cut/checkpoints/step-00000004").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_write", full)
        with pytest.raises(RunFolderError) as caught:
            train("cut", max_steps=12)
    path = whole.path.parent / "cut"
    assert caught.value.where == f"{path}/checkpoints/step-00000008/model.safetensors"
    assert checkpoint_steps(path) == [4]
    resumed = train("cut", max_steps=12, resume=True)
    for name, weight in whole.weights.items():
        assert torch.equal(weight, resumed.weights[name])


DISK_CALLS = ("_write", "_sync", "_rename", "_remove", "_make_folder")


def amid_save(patch: pytest.MonkeyPatch, step: int, act: Callable[[int, str], None]) -> None:
    """Call `act`, with a running number, before each call amid that save that changes the disk."""
    save, keep, numbers = keeper.save_checkpoint, keeper.keep_checkpoints, itertools.count()
    saving: list[int] = []

    def saved(folder: Path, number: int, *arguments: object) -> object:
        saving.append(number)
        return save(folder, number, *arguments)

    def kept(*arguments: object, **named: object) -> None:
        keep(*arguments, **named)
        saving.append(-1)

    def watched(name: str) -> Callable[..., object]:
        call = getattr(files, name)

        def calling(*arguments: object) -> object:
            if saving and saving[-1] == step:
                act(next(numbers), name)
            return call(*arguments)

        return calling

    patch.setattr(keeper, "save_checkpoint", saved)
    patch.setattr(keeper, "keep_checkpoints", kept)
    for name in DISK_CALLS:
        patch.setattr(files, name, watched(name))


# tests/weights/test_crashes.py lets each call fail in each of these ways.
FAULTS = (errno.ENOSPC, errno.EROFS, errno.EIO)


def test_whatever_the_disk_refuses_amid_a_save_a_checkpoint_is_whole_and_the_file_is_named(
    train: Callable[..., Trained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"max_steps": 2, "checkpoint_every": 1, "keep_last": 1}
    calls: list[str] = []
    with monkeypatch.context() as patch:
        amid_save(patch, 2, lambda _, name: calls.append(name))
        train("dry", **kept)
    # Four tensor files or so, a state, a manifest, the folder, and the checkpoint before it gone.
    assert set(calls) == set(DISK_CALLS)
    assert len(calls) >= 20
    for number, name in enumerate(calls):
        code = FAULTS[number % 3]

        def refuse(at: int, called: str, number: int = number, code: int = code) -> None:
            if at == number:
                raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            amid_save(patch, 2, refuse)
            with pytest.raises(RunFolderError) as caught:
                train(f"run-{number}", **kept)
        path = tmp_path / f"run-{number}"
        assert caught.value.exit_code == 2
        assert caught.value.where.startswith(str(path)), name
        assert os.strerror(code) in str(caught.value)
        said: list[str] = []
        found = latest_checkpoint(path, said.append)
        assert found is not None
        assert found.step in (1, 2)
        assert found.state()["position"]["step"] == found.step
        assert said == []


def test_the_save_under_way_ends_before_another_error_leaves_the_folder(
    train: Callable[..., Trained], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is held for as long as anything is written."""
    calls: list[int] = []
    left = threading.Event()
    publish = checkpoints._publish

    def slow(*paths: object) -> None:
        left.wait(0.3)
        publish(*paths)

    def loss(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 5:
            raise ValueError("a bug")
        return translation_loss(*arguments)

    monkeypatch.setattr(checkpoints, "_publish", slow)
    with pytest.raises(ValueError, match="a bug"):
        train("run", options={"loss": loss})
    assert checkpoint_steps(tmp_path / "run") == [4]
