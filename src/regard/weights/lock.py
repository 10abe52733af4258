"""One writer to a folder: a lock that ends with the process that holds it, however it ends."""

import contextlib
import errno
import fcntl
import functools
import os
import weakref
from pathlib import Path
from typing import Final

from regard.errors import RunFolderError
from regard.weights.files import blames

LOCK: Final = ".lock"
_PID_BYTES: Final = 32
_BUSY: Final = frozenset({errno.EAGAIN, errno.EACCES})


class WriterLock:
    """The right to write to a folder, held from now until `release`.

    It is an flock on the file `.lock`: the system drops it when the process dies, `kill -9`
    included, so a lock never outlives its holder.

    Raises:
        RunFolderError: another process holds it (its pid is named), or the folder can't be
            written to, or its file system knows no locks.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK
        with blames(path):
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._take(folder, self._descriptor)
        except BaseException:
            self.release()
            raise
        _let_go_when_forked().add(self)

    def release(self) -> None:
        """Let the next writer in; doing it twice is fine."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._close()

    @property
    def held(self) -> bool:
        """Whether this process may write."""
        return self._descriptor is not None

    def place(self) -> Path | None:
        """Where its file is now, though it was renamed; None if it is gone or can't be told."""
        try:
            found = Path(f"/proc/self/fd/{self._descriptor}").readlink()
        except OSError:
            return None
        return found if found.exists() else None

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @staticmethod
    def _take(folder: Path, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _BUSY:
                raise RunFolderError(
                    f"the file system cannot lock files: {error.strerror}",
                    where=str(folder),
                    hint="Use a folder on a local disk.",
                ) from error
            holder = os.pread(descriptor, _PID_BYTES, 0).decode(errors="replace").strip()
            raise RunFolderError(
                f"another process (pid {holder or 'unknown'}) is writing to this run folder",
                where=str(folder),
                hint="Wait until it has ended, or use another folder.",
            ) from None
        with blames(folder / LOCK):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


@functools.cache
def _let_go_when_forked() -> "weakref.WeakSet[WriterLock]":
    """The locks that a forked child drops its share of, or it would outlive a killed parent.

    Closing a share in the child releases nothing for the parent.
    """
    held: weakref.WeakSet[WriterLock] = weakref.WeakSet()

    def let_go() -> None:
        for lock in list(held):
            lock._close()

    os.register_at_fork(after_in_child=let_go)
    return held
