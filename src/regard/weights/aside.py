"""What is built aside, beside what it becomes: none is left behind, not by the killed either."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from regard.signals import held_back
from regard.weights.files import PARTIAL, blames, refuse_dead_links, temporary_name

# What `temporary_name` puts after a name.
_OURS: Final = re.compile(rf"\d+-[0-9a-f]{{8}}{re.escape(PARTIAL)}")


@contextmanager
def folder_aside(path: Path, *, private: bool = False) -> Iterator[Path]:
    """A fresh folder beside `path`, which is gone after the block, unless it was renamed.

    It is locked meanwhile. Those of processes that were killed have no lock any more, and are
    removed.

    Args:
        path: what is built; the folders above it are made.
        private: whether it is for this user alone, among others' folders.

    Raises:
        RunFolderError: there can be no folder beside `path`.
    """
    remove_left_behind(path)
    aside, lock = temporary_name(path.absolute()), None
    try:
        refuse_dead_links(aside.parent)
        with blames(path):
            aside.parent.mkdir(parents=True, exist_ok=True)
            aside.mkdir(mode=0o700 if private else 0o777)
            lock = _opened_and_locked(aside)
        yield aside
    finally:
        with held_back():
            shutil.rmtree(aside, ignore_errors=True)
            if lock is not None:
                os.close(lock)


def remove_left_behind(path: Path) -> None:
    """Remove what processes left beside `path`, under a name of `temporary_name`, and were killed.

    That is what no process has locked; see `locked`.
    """
    whole = path.absolute()
    start = f".{whole.name}."
    with suppress(OSError):
        for left in [*whole.parent.iterdir()]:
            ours = left.name.startswith(start) and _OURS.fullmatch(left.name[len(start) :])
            if not ours or left.is_symlink() or not (left.is_dir() or left.is_file()):
                continue
            lock = _opened_and_locked(left)
            if lock is not None:
                _remove(left)
                os.close(lock)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def locked(descriptor: int) -> bool:
    """Lock an open file or folder; False if another process has it, or there are no locks.

    The system takes the lock back when the process ends, however it ends.
    """
    if sys.platform == "win32":
        return False
    import fcntl  # noqa: PLC0415 - there is none on Windows

    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _opened_and_locked(path: Path) -> int | None:
    """A descriptor with the lock of a file or folder, if it can be had."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        if locked(descriptor):
            return descriptor
        os.close(descriptor)
    return None
