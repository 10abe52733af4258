"""Writing files so that a crash, a full disk or a pulled plug never leaves half of one."""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regard.counts import counted
from regard.errors import RunFolderError

PARTIAL: Final = ".partial"
"""The ending of everything half-written. No reader looks at it; the next writer removes it."""

_CHUNK: Final = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

Bytes = bytes | memoryview


@dataclass(frozen=True)
class FileRecord:
    """What a file's bytes must be: how many, and their SHA-256 sum in hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Staged:
    """A whole, synced file under a temporary name, waiting to be given its own."""

    temporary: Path
    path: Path
    record: FileRecord

    def discard(self) -> None:
        """Remove it unpublished."""
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)


# Every change to the disk goes through these five, so that tests can make any one of them fail.


def _write(descriptor: int, data: Bytes) -> int:
    return os.write(descriptor, data)


def _sync(descriptor: int) -> None:
    os.fsync(descriptor)


def _rename(old: Path, new: Path) -> None:
    old.replace(new)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _make_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def blames(path: Path, doing: str = "cannot be written") -> Iterator[None]:
    """Turn an OSError inside the block into a RunFolderError that names `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "What was there before is as it was."
        if error.errno in _FULL:
            hint += " Free some space, then go on."
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            hint = "Check the folder's permissions, or use another folder."
        raise RunFolderError(f"{doing}: {reason}", where=str(path), hint=hint) from error


def temporary_name(path: Path) -> Path:
    """A fresh name beside `path`, on the same file system, that no reader looks at."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}")


def stage(path: Path, chunks: Iterable[Bytes]) -> Staged:
    """Write `chunks` in full beside `path`, under a temporary name, and sync them to the disk.

    Raises:
        RunFolderError: it can't be written; nothing of it is left behind.
    """
    temporary = temporary_name(path)
    digest = hashlib.sha256()
    size = 0
    try:
        with blames(path):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    _write_all(descriptor, chunk)
                _sync(descriptor)
            finally:
                os.close(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return Staged(temporary, path, FileRecord(size, digest.hexdigest()))


def publish(staged: Staged) -> None:
    """Give a staged file its own name, in one step; the caller then syncs the folder.

    Raises:
        RunFolderError: it can't be renamed; what was there before is still there.
    """
    try:
        with blames(staged.path):
            _rename(staged.temporary, staged.path)
    except BaseException:
        staged.discard()
        raise


def sync_file(path: Path) -> None:
    """Make a file last that something else wrote."""
    with blames(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last: a rename is on the disk only after this."""
    sync_file(folder)


def write_file(path: Path, data: bytes | Iterable[Bytes]) -> FileRecord:
    """Write a file aside, sync it, rename it and sync its folder; say what it holds.

    A reader, or a crash at any moment, meets the former file or the new one, never a mixture.

    Raises:
        RunFolderError: it can't be written; names the file.
    """
    staged = stage(path, [data] if isinstance(data, bytes) else data)
    publish(staged)
    sync_folder(path.parent)
    return staged.record


def read_file(path: Path) -> bytes:
    """All bytes of a file.

    Raises:
        RunFolderError: it is missing or can't be read.
    """
    try:
        with blames(path, "cannot be read"):
            return path.read_bytes()
    except RunFolderError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise RunFolderError("the file is missing", where=str(path)) from None
        raise


def file_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, a megabyte at a time."""
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def identity(path: Path) -> tuple[int, ...]:
    """What changes when a file is written to or replaced; empty where there is none to be seen."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def inode(path: Path) -> tuple[int, ...]:
    """What a file or folder keeps as long as it is there; empty where there is none to be seen."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino)


def damage(path: Path, record: FileRecord) -> str:
    """What is wrong with a file that should hold `record`; an empty string if nothing is."""
    with blames(path, "cannot be read"):
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return "the file is missing"
        if size != record.size:
            found = counted(size, "byte")
            return f"the file is damaged: it has {found} and should have {record.size:,}"
        digest = hashlib.sha256()
        for chunk in file_chunks(path):
            digest.update(chunk)
        if digest.hexdigest() != record.sha256:
            return "the file is damaged: its bytes are not those that were written (SHA-256)"
    return ""


def remove(path: Path) -> None:
    """Remove a file, or a folder and all in it; a path that isn't there is fine."""
    with blames(path, "cannot be removed"):
        _remove(path)


def rename(old: Path, new: Path) -> None:
    """Rename a file or folder in one step and sync its folder."""
    with blames(old if new.name.endswith(PARTIAL) else new):
        _rename(old, new)
    sync_folder(new.parent)


def make_folder(path: Path) -> None:
    """Make a folder and those above it; one that is there already is fine.

    Raises:
        RunFolderError: it can't be made; of a link that leads nowhere the link is named.
    """
    refuse_dead_links(path)
    with blames(path, "the folder cannot be made"):
        _make_folder(path)


def refuse_dead_links(path: Path) -> None:
    """Name a link on the way to `path`, itself included, that leads nowhere.

    The system would say of it that the file exists.

    Raises:
        RunFolderError: there is one.
    """
    for each in (path, *path.parents):
        if each.is_symlink() and not each.exists():
            raise RunFolderError(
                f"this link leads nowhere: {each.readlink()} is not there",
                where=str(each),
                hint="Make the folder that it names, remove the link, or use another folder.",
            )


def _write_all(descriptor: int, data: Bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[_write(descriptor, view) :]
