"""A write that fails, or a process that is killed, at any point: all that was there is still good.

Every change to the disk goes through a few functions of `regard.weights.files`; these tests let
each single call fail, or be the last thing that the process does.
"""

import errno
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
import torch

from regard.errors import RunFolderError
from regard.weights import files
from regard.weights.checkpoints import (
    checkpoint_steps,
    keep_checkpoints,
    latest_checkpoint,
    save_checkpoint,
)
from regard.weights.run_folder import RunFolder

CALLS = ["_write", "_sync", "_rename", "_remove", "_make_folder"]


@pytest.fixture
def work(make_weights: Callable, make_checkpoint: Callable) -> Callable[[RunFolder], None]:
    """One of everything that changes a run: a new model, files, checkpoints, a removal."""

    def change(run: RunFolder) -> None:
        run.write_model(make_weights(9.0))
        run.write_tokenizers(b'{"version": "1.0"}')
        run.copy_file("model.safetensors", "model.trained.safetensors")
        make_checkpoint(run.path, 3)
        save_checkpoint(run.path, 2, {"model": make_weights(2.0)}, {"step": 2, "again": True})
        keep_checkpoints(run.path, 2)

    return change


def intercept(monkeypatch: pytest.MonkeyPatch, act: Callable[[int, str, tuple], None]) -> None:
    """Call `act` with a running number, before each call that changes the disk."""
    numbers = count()

    def wrap(name: str) -> None:
        original = getattr(files, name)

        def wrapped(*arguments: object) -> object:
            act(next(numbers), name, arguments)
            return original(*arguments)

        monkeypatch.setattr(files, name, wrapped)

    for name in CALLS:
        wrap(name)


@pytest.fixture
def calls(
    tmp_path: Path, run_path: Path, work: Callable, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The names of all the calls that `work` makes, in order."""
    shutil.copytree(run_path, tmp_path / "dry")
    names: list[str] = []
    with monkeypatch.context() as patch, RunFolder.open(tmp_path / "dry", write=True) as run:
        intercept(patch, lambda _, name, __: names.append(name))
        work(run)
    assert len(names) > 60
    assert set(names) == set(CALLS)
    return names


def require_good(path: Path) -> None:
    """A model of before or of after, and the newest checkpoint whole, with nothing to complain."""
    said: list[str] = []
    run = RunFolder.open(path)
    assert run.load_weights()["bias"].tolist() in ([2.0, -2.0], [9.0, -9.0])
    assert run.recipe_text() == 'description = "x"\n'
    assert run.tokenizer_files().joint
    found = latest_checkpoint(path, said.append)
    assert found
    assert found.step in (2, 3)
    assert found.state()["step"] == found.step
    assert found.tensors("model")["bias"].tolist() == [found.step, -found.step]
    assert said == []


def partial_names(path: Path) -> list[str]:
    return [found.name for found in path.rglob("*") if found.name.endswith(".partial")]


@pytest.mark.parametrize(
    ("lasting", "code"),
    [(False, errno.ENOSPC), (True, errno.ENOSPC), (False, errno.EROFS), (False, errno.EIO)],
    ids=["full once", "full from then on", "read-only", "broken"],
)
def test_a_disk_that_fails_at_any_call_harms_nothing_that_was_there(
    tmp_path: Path,
    run_path: Path,
    work: Callable,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    lasting: bool,
    code: int,
) -> None:
    points = list(enumerate(calls))
    for number, name in points[:: 3 if lasting else 1]:
        path = tmp_path / f"run-{number}"
        shutil.copytree(run_path, path)

        def fail(at: int, called: str, _: tuple, number: int = number, name: str = name) -> None:
            if at == number or (lasting and at > number and called == name):
                raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch, RunFolder.open(path, write=True) as run:
            intercept(patch, fail)
            with pytest.raises(RunFolderError, match=os.strerror(code)) as caught:
                work(run)
        assert caught.value.where.startswith(str(path))
        assert ".partial" not in caught.value.where or name == "_remove"
        require_good(path)
        assert lasting or 2 in checkpoint_steps(path)
        with RunFolder.open(path, write=True) as run:  # cleans up
            assert partial_names(path) == []
            require_good(path)
            if not lasting:
                work(run)  # and all goes on
        require_good(path)


def test_a_failed_write_leaves_nothing_half_written(
    run_path: Path, make_checkpoint: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_write", full)
    with pytest.raises(RunFolderError) as caught:
        make_checkpoint(run_path, 3)
    assert str(caught.value) == (
        f"{run_path}/checkpoints/step-00000003/model.safetensors: cannot be written: "
        "No space left on device\n"
        "  What was there before is as it was. Free some space, then go on."
    )
    assert partial_names(run_path) == []


def killed_at(number: int, halfway: bool) -> Callable[[int, str, tuple], None]:
    def die(at: int, name: str, arguments: tuple) -> None:
        if at == number:
            if halfway and name == "_write":
                descriptor, data = arguments
                os.write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    return die


@pytest.mark.parametrize("halfway", [False, True], ids=["before the call", "halfway a write"])
def test_a_process_killed_at_any_call_harms_nothing_that_was_there(
    tmp_path: Path,
    run_path: Path,
    work: Callable,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    halfway: bool,
) -> None:
    points = [at for at, name in enumerate(calls) if not halfway or name == "_write"]
    for number in points:
        path = tmp_path / f"run-{number}"
        shutil.copytree(run_path, path)
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                run = RunFolder.open(path, write=True)
                intercept(monkeypatch, killed_at(number, halfway))
                work(run)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        RunFolder.open(path)
        with RunFolder.open(path, write=True) as run:
            assert partial_names(path) == []
            require_good(path)


@pytest.fixture
def saver(run_path: Path) -> Iterator[Callable[..., tuple[int, int]]]:
    """Start a process that saves steps 3, 4, ...; get its pid and a pipe that says what it did."""
    started: list[int] = []

    def save(pipe: int, limit: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        run = RunFolder.open(run_path, write=True)
        for step in range(3, 100_000):
            tensors = {"model": {"w": torch.zeros(100_000)}}
            try:
                save_checkpoint(run.path, step, tensors, {"step": step})
            except RunFolderError as error:
                os.write(pipe, f"{error}\n".encode())
                return
            os.write(pipe, f"{step}\n".encode())

    def start(limit: int = resource.RLIM_INFINITY) -> tuple[int, int]:
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(out)
                save(into, limit)
            finally:
                os._exit(0)
        os.close(into)
        started.append(child)
        return child, out

    yield start
    for child in started:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("saves", [1, 2, 7])
def test_a_saving_process_that_is_killed_loses_at_most_the_save_under_way(
    run_path: Path, saver: Callable, saves: int
) -> None:
    child, pipe = saver()
    with os.fdopen(pipe) as lines:
        done = [int(next(lines)) for _ in range(saves)]
        os.kill(child, signal.SIGKILL)
        done += [int(line) for line in lines]
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    said: list[str] = []
    with RunFolder.open(run_path, write=True):
        found = latest_checkpoint(run_path, said.append)
    assert found
    assert found.step in (done[-1], done[-1] + 1)
    assert found.state() == {"step": found.step}
    assert said == []
    assert partial_names(run_path) == []


def test_a_file_that_the_system_does_not_let_grow_is_named(run_path: Path, saver: Callable) -> None:
    _, pipe = saver(limit=200_000)
    with os.fdopen(pipe) as lines:
        assert lines.read() == (
            f"{run_path}/checkpoints/step-00000003/model.safetensors: cannot be written: "
            "File too large\n  What was there before is as it was. Free some space, then go on.\n"
        )
    assert partial_names(run_path) == []
    require_good(run_path)


def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    intercept(monkeypatch, lambda _, name, __: names.append(name))
    files.write_file(tmp_path / "a", [b"one", b"two"])
    assert names == ["_write", "_write", "_sync", "_rename", "_sync"]
    assert (tmp_path / "a").read_bytes() == b"onetwo"
