"""Words to a person, by which the work never ends, and results, which are never lost unsaid."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.errors import RegardError


@runtime_checkable
class Stream(Protocol):
    """What is asked of a stream of text, such as `sys.stderr`."""

    def write(self, text: str, /) -> int:
        """Write the text."""

    def flush(self) -> None:
        """Hand on what was written."""

    def isatty(self) -> bool:
        """Whether it is a terminal."""


class Unfailing:
    """Passes on to a stream until that can't be written any more, then drops what comes.

    Only what a person reads may go here, never a result.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._gone = False

    @property
    def encoding(self) -> str:
        """The encoding of the stream, which tells what can be shown on it."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str, /) -> int:
        """Write the text, or drop it."""
        if not self._gone:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._refused(error)
        return len(text)

    def flush(self) -> None:
        """Hand on what was written, if the stream takes it."""
        if not self._gone:
            try:
                self._stream.flush()
            except OSError as error:
                self._refused(error)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def _refused(self, error: OSError) -> None:
        # A stream that doesn't block and is busy takes more in a moment.
        self._gone = not isinstance(error, BlockingIOError)


class Results:
    """Standard output, where results go; it is named where it can't be written.

    A reader that went away is no error of this kind: that stays a `BrokenPipeError`.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @classmethod
    def around_standard_output(cls) -> "Results":
        """Around what `sys.stdout` is now; that itself where it is one already."""
        return sys.stdout if isinstance(sys.stdout, cls) else cls(sys.stdout)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)

    def write(self, text: str, /) -> int:
        """Write the text.

        Raises:
            RegardError: it can't be written, because the disk is full for example.
        """
        with self._named():
            return self._stream.write(text)

    def flush(self) -> None:
        """Hand on what was written.

        Raises:
            RegardError: as `write`.
        """
        with self._named():
            self._stream.flush()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            problem = f"cannot be written: {error.strerror}"
            raise RegardError(problem, where="standard output") from None


def say(text: str) -> None:
    """Write a line to standard error, if it takes one."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


class ClosedOutput(io.TextIOBase):
    """A standard output that the process was started without: a result for it is refused."""

    @property
    def buffer(self) -> io.BufferedIOBase:
        """Where bytes would go.

        Raises:
            RegardError: always.
        """
        raise self._refusal()

    def write(self, _text: str, /) -> int:
        """Refuse the text.

        Raises:
            RegardError: always.
        """
        raise self._refusal()

    @staticmethod
    def _refusal() -> RegardError:
        hint = "The result goes there: leave out >&-, or write > FILE."
        return RegardError("it is closed", where="standard output", hint=hint)


def open_missing() -> None:
    """Point a standard stream that the process was started without (`2>&-`) at nothing.

    Otherwise the next file that is opened takes its number, and what other libraries write to
    standard error ends up in that file. Who reads or writes a result says that its stream is
    closed: `sys.stdin` stays `None`, and `sys.stdout` refuses what is written.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # The lowest free number is taken: this one, for those below are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for good


def let_go() -> None:
    """Point an output that takes no more at nothing, so that Python's own last flush is quiet."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
