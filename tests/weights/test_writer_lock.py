"""One writer to a folder, and a lock that never outlives its holder."""

import os
import signal
import time
from pathlib import Path

import pytest

from regard.errors import RunFolderError
from regard.weights.lock import WriterLock
from regard.weights.run_folder import RunFolder


def hold_in_a_child(folder: Path, *, grandchild: bool = False) -> int:
    """Start a process that holds the lock and waits to be killed."""
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _lock = WriterLock(folder)
            if grandchild and os.fork() == 0:
                os.write(go, b"x")
                time.sleep(5)
            elif not grandchild:
                os.write(go, b"x")
            time.sleep(60)
        finally:
            os._exit(1)
    os.read(ready, 1)
    os.close(ready)
    os.close(go)
    return child


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_second_writer_is_refused_while_the_first_lives_and_told_its_pid(run_path: Path) -> None:
    child = hold_in_a_child(run_path)
    try:
        for start in (
            lambda: RunFolder.open(run_path, write=True),
            lambda: RunFolder.create(run_path),
        ):
            with pytest.raises(RunFolderError) as caught:
                start()
            assert str(caught.value) == (
                f"{run_path}: another process (pid {child}) is writing to this run folder\n"
                "  Wait until it has ended, or use another folder."
            )
        RunFolder.open(run_path)
    finally:
        kill(child)


def test_a_killed_writer_leaves_the_folder_to_the_next(run_path: Path) -> None:
    kill(hold_in_a_child(run_path))
    with RunFolder.open(run_path, write=True) as run:
        run.write_recipe("new")
    assert RunFolder.open(run_path).recipe_text() == "new"


def test_a_forked_worker_does_not_hold_the_lock_after_its_parent_was_killed(tmp_path: Path) -> None:
    kill(hold_in_a_child(tmp_path, grandchild=True))
    WriterLock(tmp_path).release()


def test_a_forked_worker_that_ends_does_not_release_its_parents_lock(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(RunFolderError, match="another process"):
        WriterLock(tmp_path)
    lock.release()
    lock.release()
    assert not lock.held
    WriterLock(tmp_path).release()


def test_a_refused_or_failed_start_leaves_no_lock(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunFolderError):
        RunFolder.open(tmp_path, write=True)
    with pytest.raises(RunFolderError):
        RunFolder.create(tmp_path)
    WriterLock(tmp_path).release()
